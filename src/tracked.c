/*
 * tracked.c
 *	  Leases that follow a session or a transaction, or a commit depends on, in shared memory.
 *
 * At the end of a transaction or a backend nothing may fail and no page may be touched.  So a lease
 * is given back here, by a mark in its entry; from then on its row counts for nothing
 * (hloom_row_live), whoever wants the key takes the row over, and somebody removes row and entry
 * later (lease_sweep.c).  A lease of scope "lease" has an entry only when its statement failed and
 * the lease is an orphan, or while a commit depends on it.
 *
 * While some commit depends on a grant its row counts, expired or given back, until the outcome.
 *
 * Core's hash table for shared memory, partitioned by the hash of the key.
 *
 * Locking.  All fields of an entry, and which entries there are, are guarded by the LWLock of the
 * partition; changed under it exclusively, read under it shared.  So is the list of the partition's
 * entries in hloom_shared.  One is held at a time.  It may be taken while a bucket of the lease
 * table is locked, never the other way around.  An entry gets and loses its row, and begins to be
 * committing, under the lock of the row's bucket, which is held by whoever judges the row: so those
 * who judge see it before or after.  A row can be given back without that lock, at any moment.
 *
 * marked of a partition (shmem.h) counts its entries that are given back or committing: changed
 * with the lock, read without; whoever reads 0 has looked before the mark was made.  "watched" is
 * written under the lock and read by its backend's signal handler without: ticket is cleared before
 * the entry changes hands, so that end is read as what it is or not believed.
 *
 * An entry is reserved before its row is written, under a fence that none has, so that a full table
 * is known in time and nothing can fail afterwards.  While an entry names a backend only that
 * marks or removes it; others, who removed the row, mark it lost, and when the table is full they
 * give back what has ended.  Once it is given back whoever removes the row removes it.  What is
 * given back after its end, not as an orphan, was lost before: its end becomes 0, and whoever
 * removes the row counts it.  A lease that follows something and has no entry is over.
 *
 * Knows no page and no transaction.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "compat.h"
#include "stats.h"
#include "tracked_table.h"
#include "work.h"

/* What was given back is removed by this backend's next leases, or so much later by the worker. */
#define CLEAN_UP_AFTER USECS_PER_SEC

/* This backend's reservation; database is invalid when there is none. */
static HloomTrackedId reserved = {0};

/*
 * Takes an entry for a lease about to be granted, in place of one reserved before.  Returns false
 * when all are taken.  Does not raise.
 */
bool
hloom_tracked_reserve(uint32 hash)
{
	HloomTrackedId id = hloom_tracked_id(hash, -(int64) MyProcPid);
	HloomTracked *entry;

	hloom_tracked_unreserve();
	LWLockAcquire(hloom_tracked_lock_of(&id), LW_EXCLUSIVE);
	entry = hloom_tracked_add(&id, MyProcPid);
	if (entry != NULL)
		reserved = id;
	LWLockRelease(hloom_tracked_lock_of(&id));
	return entry != NULL;
}

/*
 * Gives the reservation up, if there is one.  Does not raise.
 */
void
hloom_tracked_unreserve(void)
{
	if (likely(!OidIsValid(reserved.database)))
		return;
	LWLockAcquire(hloom_tracked_lock_of(&reserved), LW_EXCLUSIVE);
	hloom_tracked_remove(hloom_tracked_search(&reserved, HASH_FIND));
	LWLockRelease(hloom_tracked_lock_of(&reserved));
	reserved.database = InvalidOid;
}

/*
 * The lease an entry was reserved for is granted, or was renewed: it is this backend's from now on,
 * even if it was another's.  The bucket is locked.  Returns false when the lease, about to be
 * renewed, has been given back this moment.  Does not raise.
 */
bool
hloom_tracked_hold(const HloomTrackedId *id, const HloomTerms *terms)
{
	HloomTracked *entry;
	TimestampTz next = DT_NOEND;
	bool		held = true;

	Assert(reserved.database == id->database && reserved.hash == id->hash);
	LWLockAcquire(hloom_tracked_lock_of(id), LW_EXCLUSIVE);
	entry = hloom_tracked_search(id, HASH_FIND);
	if (entry == NULL)
	{
		entry = hloom_tracked_search(&reserved, HASH_FIND);
		hloom_tracked_rename(entry, id);
		reserved.database = InvalidOid;
	}
	else if (entry->given_back)
		held = false;
	if (held)
	{
		hloom_tracked_change_hands(entry, MyProcPid);
		hloom_tracked_set_terms(entry, terms);
		next = hloom_tracked_next(entry);
	}
	LWLockRelease(hloom_tracked_lock_of(id));
	hloom_work_ask(next);
	return held;
}

/*
 * A lease is about to be renewed that follows nobody from then on.  The bucket is locked.  Returns
 * false when it has been given back this moment.  Does not raise.
 */
bool
hloom_tracked_let_go(const HloomTrackedId *id)
{
	HloomTracked *entry;
	bool		given_back = false;

	LWLockAcquire(hloom_tracked_lock_of(id), LW_EXCLUSIVE);
	entry = hloom_tracked_search(id, HASH_FIND);
	if (entry != NULL)
		given_back = entry->given_back;
	if (entry != NULL && !given_back)
	{
		hloom_tracked_change_hands(entry, 0);
		hloom_tracked_settle(entry, hloom_tracked_is_marked(entry));
	}
	LWLockRelease(hloom_tracked_lock_of(id));
	return !given_back;
}

/*
 * Lets this backend's signal handler watch its lease, under a ticket no other lease has or had.
 * Returns NULL when the lease is not this backend's any more.  Does not raise.
 */
HloomWatched *
hloom_tracked_watch(const HloomTrackedId *id, uint64 ticket)
{
	HloomTracked *entry;
	HloomWatched *watched = NULL;

	LWLockAcquire(hloom_tracked_lock_of(id), LW_EXCLUSIVE);
	entry = hloom_tracked_search(id, HASH_FIND);
	if (entry != NULL && entry->pid == MyProcPid && !entry->given_back)
	{
		watched = &entry->watched;
		pg_atomic_write_u64(&watched->ticket, ticket);
	}
	LWLockRelease(hloom_tracked_lock_of(id));
	return watched;
}

/*
 * The lease is about to end at another time; its age and how long it is renewed stay.  The bucket
 * is locked.  "follows": it has an entry as long as it lives.  Returns false when it is given back
 * or over: its row may last longer (tracked_due.c).  Does not raise.
 */
bool
hloom_tracked_extend(const HloomTrackedId *id, const HloomTerms *terms, bool follows)
{
	HloomTracked *entry;
	TimestampTz next = DT_NOEND;
	bool		lives;

	LWLockAcquire(hloom_tracked_lock_of(id), LW_EXCLUSIVE);
	entry = hloom_tracked_search(id, HASH_FIND);
	lives = !follows;
	if (entry != NULL)
		lives = !entry->given_back &&
			(TimestampTz) pg_atomic_read_u64(&entry->watched.end) > terms->start;
	if (entry != NULL && lives)
	{
		HloomTerms	extended = *terms;

		extended.granted_at = entry->terms.granted_at;
		extended.max_hold = entry->terms.max_hold;
		hloom_tracked_set_terms(entry, &extended);
		next = entry->pid != 0 ? hloom_tracked_next(entry) : DT_NOEND;
	}
	LWLockRelease(hloom_tracked_lock_of(id));
	hloom_work_ask(next);
	return lives;
}

/*
 * Returns the end of this backend's lease, or 0 when it is lost or not this backend's any more.
 */
TimestampTz
hloom_tracked_end(const HloomTrackedId *id)
{
	HloomTracked *entry;
	TimestampTz end = 0;

	LWLockAcquire(hloom_tracked_lock_of(id), LW_SHARED);
	entry = hloom_tracked_search(id, HASH_FIND);
	if (entry != NULL && entry->pid == MyProcPid && !entry->given_back)
		end = (TimestampTz) pg_atomic_read_u64(&entry->watched.end);
	LWLockRelease(hloom_tracked_lock_of(id));
	return end;
}

/*
 * The grant's row is gone: removes its entry, if there is one, or lets the backend whose lease it
 * was know.  "present" tells what became of an orphan: its row was found, or not.  Returns whether
 * it was an orphan, which is counted.  Does not raise.
 */
bool
hloom_tracked_drop(const HloomTrackedId *id, bool present)
{
	HloomTracked *entry;
	int			orphan_of = -1;

	LWLockAcquire(hloom_tracked_lock_of(id), LW_EXCLUSIVE);
	entry = hloom_tracked_search(id, HASH_FIND);
	if (entry != NULL)
	{
		/* Our own release has nobody to tell. */
		if (entry->pid == MyProcPid)
			hloom_tracked_change_hands(entry, 0);
		orphan_of = hloom_tracked_lose(entry);
	}
	LWLockRelease(hloom_tracked_lock_of(id));
	if (orphan_of < 0)
		return false;
	hloom_stats_add_at(orphan_of, present ? HLOOM_STAT_ORPHAN_RELEASED :
					   HLOOM_STAT_ORPHAN_ABSENT, 1);
	return true;
}

/*
 * The grant's row had expired and is gone: removes its entry if it was given back.  One that
 * follows a backend stays, for that to notice that the lease has ended.  Does not raise.
 */
void
hloom_tracked_expire(const HloomTrackedId *id)
{
	if (hloom_tracked_is_given_back(id))
		(void) hloom_tracked_drop(id, true);
}

/*
 * Gives back a lease: of this backend, or with orphan_of (a place of stats.h, not negative) one
 * that nobody knows of, that has this end and that may have no entry yet.  Returns false when there
 * is no entry or no room for one, or the row is gone.  *late: it had ended before, and is lost.
 * Does not raise, allocates nothing, touches no page.
 */
bool
hloom_tracked_give_back(const HloomTrackedId *id, int orphan_of, TimestampTz end, bool *late)
{
	HloomTracked *entry;
	bool		done = false;

	*late = false;
	LWLockAcquire(hloom_tracked_lock_of(id), LW_EXCLUSIVE);
	entry = hloom_tracked_search(id, HASH_FIND);
	if (entry == NULL && orphan_of >= 0)
	{
		entry = hloom_tracked_add(id, MyProcPid);
		if (entry != NULL)
			pg_atomic_write_u64(&entry->watched.end, (uint64) end);
	}
	if (entry != NULL && orphan_of >= 0 && entry->pid == 0)
		entry->pid = MyProcPid;
	if (entry != NULL && entry->pid == MyProcPid && !entry->given_back)
	{
		bool		was_marked = hloom_tracked_is_marked(entry);

		done = pg_atomic_read_u64(&entry->watched.end) != 0;
		hloom_tracked_change_hands(entry, 0);
		entry->orphan_of = done ? orphan_of : -1;
		entry->given_back = done;
		*late = orphan_of < 0 && entry->committing == 0 &&
			(TimestampTz) pg_atomic_read_u64(&entry->watched.end) <= GetCurrentTimestamp();
		if (*late)
			pg_atomic_write_u64(&entry->watched.end, 0);
		hloom_tracked_settle(entry, was_marked);
	}
	LWLockRelease(hloom_tracked_lock_of(id));
	if (done)
		hloom_work_ask(GetCurrentTimestamp() + CLEAN_UP_AFTER);
	return done;
}

/*
 * Whether a grant of this database is given back, even if a commit still depends on it.
 */
bool
hloom_tracked_is_given_back(const HloomTrackedId *id)
{
	HloomTracked *entry;
	bool		given_back;

	LWLockAcquire(hloom_tracked_lock_of(id), LW_SHARED);
	entry = hloom_tracked_search(id, HASH_FIND);
	given_back = entry != NULL && entry->given_back;
	LWLockRelease(hloom_tracked_lock_of(id));
	return given_back;
}

/*
 * Whether the row of a grant, of any database, counts that has expired, or not.  The bucket is
 * locked.
 */
bool
hloom_tracked_counts(const HloomTrackedId *id, bool unexpired)
{
	HloomTracked *entry;
	bool		counts = unexpired;

	LWLockAcquire(hloom_tracked_lock_of(id), LW_SHARED);
	entry = hloom_tracked_search(id, HASH_FIND);
	if (entry != NULL)
		counts = entry->committing > 0 || (unexpired && !entry->given_back);
	LWLockRelease(hloom_tracked_lock_of(id));
	return counts;
}

/*
 * Whether a grant that is nobody's any more died unreleased: its row has expired or it was given
 * back too late, and no commit depends on it.  The bucket is locked.
 */
bool
hloom_tracked_is_lost(const HloomTrackedId *id, bool expired)
{
	HloomTracked *entry;
	bool		lost = expired;

	LWLockAcquire(hloom_tracked_lock_of(id), LW_SHARED);
	entry = hloom_tracked_search(id, HASH_FIND);
	if (entry != NULL && entry->committing > 0)
		lost = false;
	else if (entry != NULL && entry->given_back)
		lost = pg_atomic_read_u64(&entry->watched.end) == 0;
	LWLockRelease(hloom_tracked_lock_of(id));
	return lost;
}
