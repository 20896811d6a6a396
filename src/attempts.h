/*
 * attempts.h
 *	  The attempt loop: attempts and waits until an answer or the end of patience.
 */
#ifndef HLOOM_ATTEMPTS_H
#define HLOOM_ATTEMPTS_H

#include "hloom.h"
#include "retry.h"

struct HloomAttempts;

/* How a sleep ended. */
typedef enum HloomSlept
{
	HLOOM_SLEPT,				/* for as long as asked for */
	HLOOM_WOKEN,				/* before: an attempt may succeed now */
	HLOOM_SLEPT_ENOUGH			/* the caller has no more patience, whatever its policy says */
} HloomSlept;

/* What the loop has of the world; each may raise. */
typedef struct HloomClock
{
	int64		(*now) (void);	/* microseconds, never set back */
	HloomSlept	(*sleep) (struct HloomAttempts *run, int64 usec);
	double		(*share) (void);	/* random, in [0, 1) */
} HloomClock;

typedef struct HloomAttempts
{
	/* Set by the caller. */
	const HloomClock *clock;
	const HloomRetry *retry;
	int64		lease;			/* microseconds */
	int64		max_wait;		/* microseconds, <= 0 for one attempt, or HLOOM_NO_BOUND */
	HloomReply	(*attempt) (struct HloomAttempts *run);
	void	   *state;			/* for attempt and sleep */

	/* Up to date whenever an attempt or a sleep begins, and at the end. */
	int64		made;			/* attempts, the one that begins included */
	int64		extra;			/* of these, what the policy does not count: after a wake-up */
	int64		waited;			/* microseconds since the first attempt began */
	bool		late;			/* the last attempt's grant came too late */
	bool		had_enough;		/* ended by HLOOM_SLEPT_ENOUGH */
} HloomAttempts;

extern HloomReply hloom_attempts_run(HloomAttempts *run);

#endif							/* HLOOM_ATTEMPTS_H */
