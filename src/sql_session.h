/*
 * sql_session.h
 *	  The leases of the session.
 */
#ifndef HLOOM_SQL_SESSION_H
#define HLOOM_SQL_SESSION_H

extern void hloom_session_init(void);

#endif							/* HLOOM_SQL_SESSION_H */
