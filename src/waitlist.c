/*
 * waitlist.c
 *	  Who waits for which key, and who is woken: lists in shared memory.
 *
 * Each backend has a place for one wait.  Those that wait are in the list of their key's partition,
 * oldest first.  Whoever makes a key free reserves it for the oldest of its waiters and sets that
 * one's latch; nobody else is woken.  The reservation keeps others out for a moment, so that the
 * order holds; afterwards the key is anybody's.
 *
 * No wake-up is lost.  A refused backend is listed while the bucket is still locked, so that who
 * frees the row later sees it; for what is given back without that lock it looks at the mark again
 * after it was listed.  One that leaves after it was woken, without the key, wakes the next.
 *
 * A lease may end without anybody giving it back: so the waiter that is next also wakes by itself
 * at that end, which is kept in its "until", as fresh as the last refusal.
 *
 * A waiter may be dead or stopped.  At its exit a backend leaves the list.  One that was woken and
 * does nothing is passed over: the others look once a second, and the second oldest when the oldest
 * has had its time.  It "missed" its turn, and is woken again only after it has moved.
 *
 * Locking.  A waiter's fields are guarded by the LWLock of its key's partition; so is the list.
 * One is held at a time, and it may be taken while a bucket of the lease table is locked.  waiting
 * of a partition (shmem.h) counts its list: changed with the lock, by an operation that is a
 * barrier, and read without.  HLOOM_LWLOCK_VICTIMS is taken before those, one after the other: it
 * makes the look for victims and the own mark one step, while the mark is a field like any other.
 *
 * This file is the waiting backend's part, waitlist_wake.c that of the others.  Does not raise.
 * Knows no page, no provider and no policy.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/guc.h"

#include "compat.h"
#include "stats.h"
#include "waitlist_table.h"

/* A waiter looks at its list so often, in microseconds. */
#define LOOK_INTERVAL USECS_PER_SEC

/* This backend's place, when it waits. */
static HloomWaiter *mine = NULL;

static void
leave_at_exit(int code, Datum arg)
{
	hloom_waitlist_leave();
}

/*
 * This backend may have to wait.  Raises when memory is out.
 */
void
hloom_waitlist_prepare(void)
{
	static bool registered = false;

	if (likely(registered))
		return;
	on_shmem_exit(leave_at_exit, (Datum) 0);
	registered = true;
}

static void
enter(const HloomKey *name)
{
	HloomWaiter *waiter = &hloom_waiters->place[hloom_proc_number()];

	waiter->ticket = pg_atomic_add_fetch_u64(&hloom_waiters->tickets, 1);
	waiter->hash = name->hash;
	waiter->database = MyDatabaseId;
	waiter->role = GetUserId();
	waiter->pid = MyProcPid;
	waiter->place = hloom_stats_place(MyDatabaseId, name->ns, name->ns_len);
	waiter->since = GetCurrentTimestamp();
	waiter->gives_up_at = waiter->until = DT_NOEND;
	waiter->attempts = 0;
	waiter->victim = false;
	waiter->ns_len = name->ns_len;
	waiter->key_len = name->key_len;
	strlcpy(waiter->application, application_name ? application_name : "", NAMEDATALEN);
	memcpy(waiter->texts, name->ns, name->ns_len);
	memcpy(waiter->texts + name->ns_len, name->key, name->key_len);
	dlist_push_tail(&hloom_shared->waiters[name->hash % HLOOM_PARTITIONS], &waiter->node);
	pg_atomic_fetch_add_u32(&hloom_shared->waiting[name->hash % HLOOM_PARTITIONS], 1);
	mine = waiter;
}

/*
 * An attempt of this backend was refused, and it will wait: it is listed if it is not yet.  end is
 * that of the lease in the way, or DT_NOEND when it is not known.  Where the bucket is still locked
 * no wake-up is lost.
 */
void
hloom_waitlist_refused(const HloomKey *name, TimestampTz end)
{
	Assert(mine == NULL || mine->hash == name->hash);
	LWLockAcquire(hloom_waitlist_lock_of(name->hash), LW_EXCLUSIVE);
	if (mine == NULL)
		enter(name);
	mine->attempts++;
	mine->missed = false;
	mine->reserved_until = mine->wakes_at = 0;
	hloom_waitlist_tell_end(hloom_waitlist_next(MyDatabaseId, name->hash, NULL), end);
	LWLockRelease(hloom_waitlist_lock_of(name->hash));
}

/*
 * Whether this backend is listed.
 */
bool
hloom_waitlist_is_in(void)
{
	return mine != NULL;
}

/*
 * The first wait begins: tells those who look when this backend gives up at the latest.
 */
void
hloom_waitlist_be_patient(TimestampTz gives_up_at)
{
	if (mine == NULL)
		return;
	LWLockAcquire(hloom_waitlist_lock_of(mine->hash), LW_EXCLUSIVE);
	mine->gives_up_at = gives_up_at;
	hloom_stats_add_at(mine->place, HLOOM_STAT_WAITS, 1);
	LWLockRelease(hloom_waitlist_lock_of(mine->hash));
}

/*
 * When the one that is next must have moved.
 */
static TimestampTz
late_at(const HloomWaiter *next)
{
	if (next->reserved_until != 0)
		return next->reserved_until;
	return next->until == DT_NOEND ? DT_NOEND : next->until + HLOOM_RESERVATION;
}

/*
 * Passes over the one that is next and did not move.  Returns who is next now, woken unless it is
 * this backend.
 */
static HloomWaiter *
pass_over(HloomWaiter *late, TimestampTz now)
{
	HloomWaiter *next;

	late->missed = true;
	late->reserved_until = 0;
	hloom_stats_add_at(late->place, HLOOM_STAT_MISSED_TURNS, 1);
	next = hloom_waitlist_next(MyDatabaseId, mine->hash, NULL);
	hloom_waitlist_reserve_for(next, now);
	if (next != mine)
		hloom_waitlist_set_latch(next);
	return next;
}

/*
 * Whether this backend, which waits, is to make an attempt now: it was woken, the lease has ended
 * and it is next, or it has slept through its turn.  If not, *again is when it looks next unless
 * its latch is set before.
 */
bool
hloom_waitlist_look(TimestampTz *again)
{
	TimestampTz now = GetCurrentTimestamp();
	HloomWaiter *second = NULL;
	HloomWaiter *next;
	bool		attempt;

	*again = DT_NOEND;
	if (mine == NULL)
		return false;
	LWLockAcquire(hloom_waitlist_lock_of(mine->hash), LW_EXCLUSIVE);
	next = hloom_waitlist_next(MyDatabaseId, mine->hash, &second);
	if (next != mine && late_at(next) <= now)
		next = pass_over(next, now);
	attempt = mine->reserved_until != 0 || mine->missed || (next == mine && mine->until <= now);
	if (!attempt)
	{
		*again = now + LOOK_INTERVAL;
		if (next == mine)
			*again = Min(*again, mine->until);
		else if (second == mine)
			*again = Min(*again, late_at(next));
	}
	mine->wakes_at = attempt ? 0 : *again;
	LWLockRelease(hloom_waitlist_lock_of(mine->hash));
	return attempt;
}

/*
 * Removes this backend from its list, whose lock is held.  Returns who is next now, or NULL.
 */
static HloomWaiter *
remove_mine(void)
{
	HloomWaiter *gone = mine;
	bool		was_next = hloom_waitlist_next(MyDatabaseId, gone->hash, NULL) == gone;
	HloomWaiter *next;

	mine = NULL;
	dlist_delete(&gone->node);
	pg_atomic_fetch_sub_u32(&hloom_shared->waiting[gone->hash % HLOOM_PARTITIONS], 1);
	next = hloom_waitlist_next(gone->database, gone->hash, NULL);
	if (next != NULL && was_next)
		hloom_waitlist_tell_end(next, gone->until);
	return next;
}

/*
 * This backend has got the key until then.  It waits no more, if it did.
 */
void
hloom_waitlist_granted(TimestampTz end)
{
	HloomWaiter *next;
	LWLock	   *lock;

	if (likely(mine == NULL))
		return;
	lock = hloom_waitlist_lock_of(mine->hash);
	LWLockAcquire(lock, LW_EXCLUSIVE);
	mine->until = end;
	next = remove_mine();
	if (next != NULL)
		hloom_waitlist_tell_end(next, end);
	LWLockRelease(lock);
}

/*
 * This backend waits no more, if it did, and has not got the key.
 */
void
hloom_waitlist_leave(void)
{
	HloomWaiter *next;
	LWLock	   *lock;
	bool		woken;

	if (likely(mine == NULL))
		return;
	lock = hloom_waitlist_lock_of(mine->hash);
	LWLockAcquire(lock, LW_EXCLUSIVE);
	woken = mine->reserved_until != 0;
	next = remove_mine();
	if (next != NULL && woken)
	{
		hloom_waitlist_reserve_for(next, GetCurrentTimestamp());
		hloom_waitlist_set_latch(next);
	}
	LWLockRelease(lock);
}

/*
 * Whether the wait goes on, and does not end for a deadlock.
 */
static bool
goes_on(const HloomWaiter *copy)
{
	LWLock	   *lock = hloom_waitlist_lock_of(copy->hash);
	bool		found = false;
	dlist_iter	iter;

	LWLockAcquire(lock, LW_SHARED);
	dlist_foreach(iter, &hloom_shared->waiters[copy->hash % HLOOM_PARTITIONS])
	{
		HloomWaiter *waiter = dlist_container(HloomWaiter, node, iter.cur);

		if (waiter->ticket != copy->ticket)
			continue;
		found = !waiter->victim;
		break;
	}
	LWLockRelease(lock);
	return found;
}

/*
 * Of the waits of a deadlock, given as copies, this backend's is to end.  Returns false, and it
 * goes on, when one of them is over or ends for a deadlock already.
 */
bool
hloom_waitlist_be_victim(const HloomWaiter *const *waits, int count)
{
	LWLock	   *victims = &GetNamedLWLockTranche(HLOOM_EXTENSION)[HLOOM_LWLOCK_VICTIMS].lock;
	bool		alone = true;

	Assert(mine != NULL);
	LWLockAcquire(victims, LW_EXCLUSIVE);
	for (int i = 0; i < count && alone; i++)
		alone = goes_on(waits[i]);
	if (alone)
	{
		LWLockAcquire(hloom_waitlist_lock_of(mine->hash), LW_EXCLUSIVE);
		mine->victim = true;
		LWLockRelease(hloom_waitlist_lock_of(mine->hash));
	}
	LWLockRelease(victims);
	return alone;
}
