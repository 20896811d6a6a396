/*
 * waitlist_wake.c
 *	  Wakes who waits for a key that has become free, and keeps it for that one.
 *
 * waitlist.c tells how the lists work, and the lock protocol.  Does not raise.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/proc.h"

#include "compat.h"
#include "stats.h"
#include "waitlist_table.h"

/*
 * A key of this database is free, or about to be under a lock that is held: reserves it for who is
 * next.  Returns whom to wake, for hloom_waitlist_wake() when that lock is released.
 */
int
hloom_waitlist_reserve(uint64 hash)
{
	HloomWaiter *next;

	LWLockAcquire(hloom_waitlist_lock_of(hash), LW_EXCLUSIVE);
	next = hloom_waitlist_next(MyDatabaseId, hash, NULL);
	if (next != NULL)
	{
		hloom_waitlist_reserve_for(next, GetCurrentTimestamp());
		hloom_stats_add_at(next->place, HLOOM_STAT_WAKEUPS, 1);
	}
	LWLockRelease(hloom_waitlist_lock_of(hash));
	return next != NULL ? (int) (next - hloom_waiters->place) : -1;
}

/*
 * Wakes whom hloom_waitlist_reserve() returned, and counted; nobody for -1.  If that one has left
 * meanwhile it has seen to the next, and whoever has its latch now looks in vain.
 */
void
hloom_waitlist_wake(int waiter)
{
	if (unlikely(waiter >= 0))
		SetLatch(&GetPGProcByNumber(waiter)->procLatch);
}

/*
 * All keys of this database are free: lets each key's next waiter try.
 */
void
hloom_waitlist_wake_all(void)
{
	TimestampTz now = GetCurrentTimestamp();

	for (int i = 0; i < HLOOM_PARTITIONS; i++)
	{
		dlist_iter	iter;

		if (!hloom_waitlist_any(i))
			continue;
		LWLockAcquire(hloom_waitlist_lock_of(i), LW_EXCLUSIVE);
		dlist_foreach(iter, &hloom_shared->waiters[i])
		{
			HloomWaiter *waiter = dlist_container(HloomWaiter, node, iter.cur);

			if (waiter->database != MyDatabaseId ||
				waiter != hloom_waitlist_next(MyDatabaseId, waiter->hash, NULL))
				continue;
			hloom_waitlist_reserve_for(waiter, now);
			hloom_waitlist_set_latch(waiter);
		}
		LWLockRelease(hloom_waitlist_lock_of(i));
	}
}

/*
 * A lease of this database has another end, sooner than before.
 */
void
hloom_waitlist_note_end(uint64 hash, TimestampTz end)
{
	HloomWaiter *next;

	LWLockAcquire(hloom_waitlist_lock_of(hash), LW_EXCLUSIVE);
	next = hloom_waitlist_next(MyDatabaseId, hash, NULL);
	if (next != NULL)
		hloom_waitlist_tell_end(next, end);
	LWLockRelease(hloom_waitlist_lock_of(hash));
}

/*
 * Whether a free key is kept for another backend than this one, whose process is then *pid.
 */
bool
hloom_waitlist_is_reserved(uint64 hash, TimestampTz now, int *pid)
{
	bool		reserved = false;
	dlist_iter	iter;

	LWLockAcquire(hloom_waitlist_lock_of(hash), LW_SHARED);
	dlist_foreach(iter, &hloom_shared->waiters[hash % HLOOM_PARTITIONS])
	{
		HloomWaiter *waiter = dlist_container(HloomWaiter, node, iter.cur);

		if (waiter->hash != hash || waiter->database != MyDatabaseId ||
			waiter->reserved_until <= now)
			continue;
		*pid = waiter->pid;
		reserved = waiter->pid != MyProcPid;
		break;
	}
	LWLockRelease(hloom_waitlist_lock_of(hash));
	return reserved;
}
