/*
 * attempts.c
 *	  The attempt loop: attempts and waits until an answer or the end of patience.
 *
 * A refusal is tried again as the policy says, a failure never.  A wait that would reach the bound
 * is not begun: the attempt after it would come too late.  A lease counts from the moment it was
 * asked for, so a grant that takes as long as its lease is none.  Knows no provider, and no clock
 * but the one it is given, so that a test can run it under a clock of its own.
 */
#include "postgres.h"

#include "attempts.h"

/*
 * Runs attempts until one is not refused or no further one is due.  Returns the last reply;
 * HLOOM_TIMEOUT, with late set, for a grant that came too late, which the caller gives back.
 */
HloomReply
hloom_attempts_run(HloomAttempts *run)
{
	int64		start = run->clock->now();

	run->waited = 0;
	run->late = false;
	for (run->made = 1;; run->made++)
	{
		int64		asked = run->waited;
		HloomReply	reply = run->attempt(run);
		int64		delay;

		run->waited = run->clock->now() - start;
		run->late = reply == HLOOM_YES && run->waited - asked >= run->lease;
		if (run->late)
			return HLOOM_TIMEOUT;
		if (reply != HLOOM_NO ||
			!hloom_retry_next(run->retry, run->made, run->waited, run->max_wait,
							  run->retry->jitter > 0 ? run->clock->share() : 0, &delay))
			return reply;
		if (delay > 0)
			run->clock->sleep(delay);
		run->waited = run->clock->now() - start;
		if (run->max_wait != HLOOM_NO_BOUND && run->waited >= run->max_wait)
			return HLOOM_NO;
	}
}
