/*
 * launcher.h
 *	  The background process that starts a worker for each database with something to do.
 */
#ifndef HLOOM_LAUNCHER_H
#define HLOOM_LAUNCHER_H

extern void hloom_launcher_init(void);
extern PGDLLEXPORT void hloom_launcher_main(Datum arg);

#endif							/* HLOOM_LAUNCHER_H */
