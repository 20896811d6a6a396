/*
 * waitlist_table.h
 *	  The lists of waiters, for waitlist.c and waitlist_wake.c only.
 */
#ifndef HLOOM_WAITLIST_TABLE_H
#define HLOOM_WAITLIST_TABLE_H

#include "storage/lwlock.h"

#include "waitlist.h"

typedef struct HloomWaiters
{
	pg_atomic_uint64 tickets;	/* the last one given */
	HloomWaiter place[FLEXIBLE_ARRAY_MEMBER];	/* by process number */
} HloomWaiters;

extern HloomWaiters *hloom_waiters;
extern LWLockPadded *hloom_waitlist_locks;

extern HloomWaiter *hloom_waitlist_next(Oid database, uint64 hash, HloomWaiter **second);
extern void hloom_waitlist_set_latch(const HloomWaiter *waiter);
extern void hloom_waitlist_tell_end(HloomWaiter *waiter, TimestampTz end);

/*
 * Returns the lock of the key's partition.
 */
static inline LWLock *
hloom_waitlist_lock_of(uint64 hash)
{
	return &hloom_waitlist_locks[hash % HLOOM_PARTITIONS].lock;
}

/*
 * The waiter is to be woken, and the key is kept for it.
 */
static inline void
hloom_waitlist_reserve_for(HloomWaiter *waiter, TimestampTz now)
{
	waiter->reserved_until = now + HLOOM_RESERVATION;
}

#endif							/* HLOOM_WAITLIST_TABLE_H */
