/*
 * attempts.c
 *	  The attempt loop: attempts and waits until an answer or the end of patience.
 *
 * A refusal is tried again as the policy says, a failure never.  A wait that would reach the bound
 * is not begun: the attempt after it would come too late.  A wake-up in a wait gives an attempt
 * more, but the wait ends when it would have.  A lease counts from the moment it was asked for, so
 * a grant that takes as long as its lease is none.  Knows no provider, and no clock but the one it
 * is given, so that a test can run it under a clock of its own.
 */
#include "postgres.h"

#include "attempts.h"

/*
 * One attempt.
 */
static HloomReply
attempt_once(HloomAttempts *run, int64 start)
{
	int64		asked = run->waited;
	HloomReply	reply;

	run->made++;
	reply = run->attempt(run);
	run->waited = run->clock->now() - start;
	run->late = reply == HLOOM_YES && run->waited - asked >= run->lease;
	return run->late ? HLOOM_TIMEOUT : reply;
}

/*
 * Waits, with an attempt after each wake-up.  Sleeps even for no time, so that patience can end.
 * Returns the reply of the last attempt when it ends the wait, or HLOOM_NO when that is over.
 */
static HloomReply
wait_between(HloomAttempts *run, int64 start, int64 delay)
{
	int64		end = delay > PG_INT64_MAX - run->waited ? PG_INT64_MAX : run->waited + delay;
	HloomReply	reply = HLOOM_NO;

	do
	{
		HloomSlept	slept = run->clock->sleep(run, end - run->waited);

		run->waited = run->clock->now() - start;
		if (slept == HLOOM_SLEPT_ENOUGH)
			run->had_enough = true;
		else if (slept == HLOOM_WOKEN && run->waited < end)
		{
			run->extra++;
			reply = attempt_once(run, start);
		}
	} while (reply == HLOOM_NO && run->waited < end && !run->had_enough);
	return reply;
}

/*
 * Runs attempts until one is not refused or no further one is due.  Returns the last reply;
 * HLOOM_TIMEOUT, with late set, for a grant that came too late, which the caller gives back.
 */
HloomReply
hloom_attempts_run(HloomAttempts *run)
{
	int64		start = run->clock->now();
	HloomReply	reply;
	int64		delay;

	run->made = run->extra = run->waited = 0;
	run->late = run->had_enough = false;
	for (;;)
	{
		reply = attempt_once(run, start);
		if (reply != HLOOM_NO ||
			!hloom_retry_next(run->retry, run->made - run->extra, run->waited, run->max_wait,
							  run->retry->jitter > 0 ? run->clock->share() : 0, &delay))
			return reply;
		reply = wait_between(run, start, delay);
		if (reply != HLOOM_NO || run->had_enough ||
			(run->max_wait != HLOOM_NO_BOUND && run->waited >= run->max_wait))
			return reply;
	}
}
