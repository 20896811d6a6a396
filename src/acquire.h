/*
 * acquire.h
 *	  The composed lock: attempts until granted, given up or failed.
 */
#ifndef HLOOM_ACQUIRE_H
#define HLOOM_ACQUIRE_H

#include "hloom.h"
#include "options.h"
#include "retry.h"
#include "stats.h"

/* "9999-01-01 00:00:00+00", the end of what never ends: a lease in a disabled namespace. */
#define HLOOM_UNCOORDINATED_END INT64CONST(252424080000000000)

typedef struct HloomAcquisition
{
	/* Set by the caller: in call all but the clocks. */
	HloomCall	call;
	HloomOptions options;
	HloomRetry	retry;
	int64		max_wait;		/* microseconds, <= 0 for one attempt, or HLOOM_NO_BOUND */

	/* Set by hloom_acquire(). */
	const HloomProvider *provider;
	HloomGrant	grant;
	int64		attempts;		/* calls of the provider */
	int64		waited;			/* microseconds since the acquisition began */
	TimestampTz began_at;		/* the first attempt; 0: none was made */
	TimestampTz asked_at;		/* the last one */
	bool		ended;			/* with an outcome, as opposed to cut short */
	HloomTiming outcome;
} HloomAcquisition;

extern bool hloom_acquire(HloomAcquisition *acquisition);
extern TimestampTz hloom_acquire_end(const HloomAcquisition *acquisition);
pg_noreturn extern void hloom_acquire_raise_busy(const HloomAcquisition *acquisition);
extern void hloom_acquire_give_back(HloomAcquisition *acquisition);
extern void hloom_acquire_check(HloomAcquisition *acquisition);

#endif							/* HLOOM_ACQUIRE_H */
