/*
 * worker.h
 *	  The background worker of one database.
 */
#ifndef HLOOM_WORKER_H
#define HLOOM_WORKER_H

#include "utils/timestamp.h"

extern PGDLLEXPORT void hloom_worker_main(Datum arg);
extern void hloom_worker_sleep(TimestampTz until);

#endif							/* HLOOM_WORKER_H */
