/*
 * waiting.c
 *	  One backend's wait for a key, until something happens.
 *
 * Sleeps on the latch: a release, the end of the holder's lease (waitlist.c), the end of the delay,
 * lock_timeout, an interrupt or the loss of the client end the sleep.  Holds no lock and, as far as
 * it is up to this module, no snapshot meanwhile.  After each deadlock_timeout it looks for a
 * deadlock.
 *
 * Knows no policy and no lease.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "portability/instr_time.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "tcop/dest.h"
#include "tcop/tcopprot.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "deadlock.h"
#include "errors.h"
#include "waiting.h"
#include "waitlist.h"

/* While waiting, the client's connection is looked at so often, in microseconds. */
#define CLIENT_CHECK USECS_PER_SEC

/*
 * Returns microseconds that are never set back.
 */
int64
hloom_waiting_clock(void)
{
	instr_time	now;

	INSTR_TIME_SET_CURRENT(now);
	return (int64) INSTR_TIME_GET_MICROSEC(now);
}

/*
 * Ends the session if its client is gone, at the next look at interrupts.
 */
static void
check_client(int64 now)
{
	static int64 checked_at = 0;

	if (now - checked_at < CLIENT_CHECK || MyProcPort == NULL || whereToSendOutput != DestRemote)
		return;
	checked_at = now;
	if (!pq_check_connection())
	{
		ClientConnectionLost = true;
		InterruptPending = true;
	}
}

/*
 * Looks for a deadlock when that is due.  Raises 40P01.
 */
static void
check_deadlock(HloomWait *wait, int64 now)
{
	HloomCourse course = {
		.name = wait->name,
		.waited = now - wait->began,
		.attempts = wait->attempts
	};
	HloomGrant	holder = {0};

	if (wait->check_at == 0)
		wait->check_at = now + (int64) DeadlockTimeout * 1000;
	if (now < wait->check_at)
		return;
	hloom_deadlock_check(wait->provider, &course, &holder);
	if (log_lock_waits && !wait->logged)
	{
		hloom_error_log_waiting(&course, &holder);
		wait->logged = true;
	}
	wait->check_at = hloom_waiting_clock() + (int64) DeadlockTimeout * 1000;
}

/*
 * Sleeps until one of both times at the latest: of hloom_waiting_clock(), and of day.
 */
static void
sleep_until(int64 time, TimestampTz again)
{
	static uint32 event = 0;
	int64		usec = Min(Max(time - hloom_waiting_clock(), 0), CLIENT_CHECK);

	if (again != DT_NOEND)
		usec = Min(usec, Max(again - GetCurrentTimestamp(), 0));

	/* What a look at a catalogue has left must not hold back vacuum. */
	InvalidateCatalogSnapshotConditionally();
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 (long) ((usec + 999) / 1000), hloom_wait_event("HloomLease", &event));
	ResetLatch(MyLatch);
}

/*
 * Waits so many microseconds, unless something makes an attempt worth while before, or lock_timeout
 * is over.  Looks at everything that ends a wait at least once, even for no time, and lets
 * interrupts in at the beginning and at the end, too.  Raises 40P01 and what interrupts raise.
 */
HloomSlept
hloom_waiting_sleep(HloomWait *wait, int64 usec)
{
	int64		now = hloom_waiting_clock();
	int64		end = usec > PG_INT64_MAX - now ? PG_INT64_MAX : now + usec;
	int64		enough_at = PG_INT64_MAX;
	TimestampTz again;

	if (wait->lock_timeout > 0)
		enough_at = wait->began + wait->lock_timeout;

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		now = hloom_waiting_clock();
		if (now >= enough_at)
			return HLOOM_SLEPT_ENOUGH;
		check_client(now);
		check_deadlock(wait, now);
		if (now >= end)
			return HLOOM_SLEPT;

		/* Comes last, since all of the above may reset the latch. */
		if (hloom_waitlist_look(&again))
			return HLOOM_WOKEN;
		sleep_until(Min(Min(end, enough_at), wait->check_at), again);
	}
}

/*
 * The wait has ended with a grant.
 */
void
hloom_waiting_granted(const HloomWait *wait)
{
	HloomCourse course = {.name = wait->name};

	if (!wait->logged)
		return;
	course.waited = hloom_waiting_clock() - wait->began;
	hloom_error_log_acquired(&course);
}
