/*
 * waitlist_table.c
 *	  The lists of waiters: their memory, who is next, copies of all.
 *
 * waitlist.c tells what they are for, and the lock protocol.  But for the copies and the set-up,
 * the lock of the key's partition is held by the caller.
 */
#include "postgres.h"

#include "storage/latch.h"
#include "storage/proc.h"

#include "compat.h"
#include "stats.h"
#include "waitlist_table.h"

/* Waits that begin while they are counted. */
#define COPY_SLACK 16

HloomWaiters *hloom_waiters = NULL;
LWLockPadded *hloom_waitlist_locks = NULL;

/*
 * Returns the bytes of shared memory needed.
 */
Size
hloom_waitlist_size(void)
{
	return MAXALIGN(add_size(offsetof(HloomWaiters, place),
							 mul_size(MaxBackends, sizeof(HloomWaiter))));
}

/*
 * Attaches to the memory, and makes it when it was not found.  Called with AddinShmemInitLock
 * held, after the tranche was requested.
 */
void
hloom_waitlist_start(void *memory, bool found)
{
	hloom_waiters = (HloomWaiters *) memory;
	hloom_waitlist_locks = GetNamedLWLockTranche(HLOOM_EXTENSION) + HLOOM_LWLOCK_WAITERS;
	if (found)
		return;
	pg_atomic_init_u64(&hloom_waiters->tickets, 0);
	for (int i = 0; i < HLOOM_PARTITIONS; i++)
	{
		pg_atomic_init_u32(&hloom_shared->waiting[i], 0);
		dlist_init(&hloom_shared->waiters[i]);
	}
}

/*
 * Returns who is next for the key: the oldest that has not missed its turn, or else the oldest;
 * NULL when nobody waits.  *second is who comes after that one, if second is not NULL.
 */
HloomWaiter *
hloom_waitlist_next(Oid database, uint64 hash, HloomWaiter **second)
{
	HloomWaiter *first = NULL;
	HloomWaiter *oldest = NULL;
	dlist_iter	iter;

	dlist_foreach(iter, &hloom_shared->waiters[hash % HLOOM_PARTITIONS])
	{
		HloomWaiter *waiter = dlist_container(HloomWaiter, node, iter.cur);

		if (waiter->hash != hash || waiter->database != database)
			continue;
		if (oldest == NULL)
			oldest = waiter;
		if (waiter->missed)
			continue;
		if (first == NULL)
			first = waiter;
		else
		{
			if (second != NULL)
				*second = waiter;
			break;
		}
		if (second == NULL)
			break;
	}
	return first != NULL ? first : oldest;
}

/*
 * Wakes the waiter, which is counted.
 */
void
hloom_waitlist_set_latch(const HloomWaiter *waiter)
{
	SetLatch(&GetPGProcByNumber(waiter - hloom_waiters->place)->procLatch);
	hloom_stats_add_at(waiter->place, HLOOM_STAT_WAKEUPS, 1);
}

/*
 * The lease that the next waiter waits for ends at another time than it knows.
 */
void
hloom_waitlist_tell_end(HloomWaiter *waiter, TimestampTz end)
{
	waiter->until = end;
	if (waiter->wakes_at > end)
	{
		waiter->wakes_at = 0;
		hloom_waitlist_set_latch(waiter);
	}
}

/*
 * Returns copies of the waits of this database, palloc'd, those for one key in their order; NULL,
 * with *count 0, when nobody waits.  Raises when memory is out.
 */
HloomWaiter *
hloom_waitlist_copy(int *count)
{
	HloomWaiter *copies;
	int			room = 0;

	*count = 0;
	for (int i = 0; i < HLOOM_PARTITIONS; i++)
		room += pg_atomic_read_u32(&hloom_shared->waiting[i]);
	if (likely(room == 0))
		return NULL;
	room += COPY_SLACK;
	copies = palloc_extended(room * sizeof(HloomWaiter), MCXT_ALLOC_HUGE);
	for (int i = 0; i < HLOOM_PARTITIONS; i++)
	{
		dlist_iter	iter;

		if (!hloom_waitlist_any(i))
			continue;
		LWLockAcquire(hloom_waitlist_lock_of(i), LW_SHARED);
		dlist_foreach(iter, &hloom_shared->waiters[i])
		{
			HloomWaiter *waiter = dlist_container(HloomWaiter, node, iter.cur);

			if (waiter->database == MyDatabaseId && *count < room)
				memcpy(&copies[(*count)++], waiter,
					   offsetof(HloomWaiter, texts) + waiter->ns_len + waiter->key_len);
		}
		LWLockRelease(hloom_waitlist_lock_of(i));
	}
	return copies;
}
