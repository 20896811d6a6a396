/*
 * errors.h
 *	  The SQLSTATEs of our own and the few errors that several layers raise.
 */
#ifndef HLOOM_ERRORS_H
#define HLOOM_ERRORS_H

#include "lib/stringinfo.h"

#include "hloom.h"

/* Class LL is in the range the SQL standard leaves to implementations. */
#define HLOOM_ERRCODE_REENTRANCY MAKE_SQLSTATE('L', 'L', '0', '0', '1')
#define HLOOM_ERRCODE_UNAVAILABLE MAKE_SQLSTATE('L', 'L', '0', '0', '2')
#define HLOOM_ERRCODE_TIMEOUT MAKE_SQLSTATE('L', 'L', '0', '0', '3')
#define HLOOM_ERRCODE_PROVIDER MAKE_SQLSTATE('L', 'L', '0', '0', '4')
#define HLOOM_ERRCODE_LOST MAKE_SQLSTATE('L', 'L', '0', '1', '0')

/* How far a call has come, for the DETAIL of what is reported about it. */
typedef struct HloomCourse
{
	const HloomKey *name;
	int64		waited;			/* microseconds */
	int64		attempts;		/* calls of the provider */
	const char *cause;			/* the provider's own words, or NULL */
} HloomCourse;

/* Where it is noticed that a lease is lost. */
typedef enum HloomLostPlace
{
	HLOOM_LOST_JOIN,			/* a further call for the transaction's own lease */
	HLOOM_LOST_GUARD,			/* hloom_guard() */
	HLOOM_LOST_STATEMENT,		/* running, or about to */
	HLOOM_LOST_COMMIT
} HloomLostPlace;

extern char *hloom_error_detail(const HloomCourse *course);
extern char *hloom_error_busy_detail(const HloomCourse *course, const HloomGrant *holder);
pg_noreturn extern void hloom_error_reply(HloomReply reply, const HloomCourse *course);
pg_noreturn extern void hloom_error_busy(const HloomCourse *course, const HloomGrant *holder,
										 bool lock_timeout);
pg_noreturn extern void hloom_error_reentrancy(const HloomKey *name);
pg_noreturn extern void hloom_error_lost(const HloomKey *name, HloomLostPlace place, bool ended);
extern void hloom_error_make_lost(ErrorData *error, const HloomKey *name, bool ended);
extern void hloom_error_warn_no_block(const char *what);
pg_noreturn extern void hloom_error_no_guard(const char *provider);
pg_noreturn extern void hloom_error_null(const char *argument);
pg_noreturn extern void hloom_error_own_lease(const HloomKey *name);
extern void hloom_error_add_wait(StringInfo cycle, int pid, bool lease, const HloomKey *name,
								 int blocked_by);
pg_noreturn extern void hloom_error_deadlock(const HloomCourse *course, StringInfo cycle);
extern void hloom_error_log_waiting(const HloomCourse *course, const HloomGrant *holder);
extern void hloom_error_log_acquired(const HloomCourse *course);
pg_noreturn extern void hloom_error_scope(const char *provider);
pg_noreturn extern void hloom_error_tracked_full(void);

#endif							/* HLOOM_ERRORS_H */
