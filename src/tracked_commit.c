/*
 * tracked_commit.c
 *	  Commits that depend on leases, in shared memory.
 *
 * From the last look at a lease until the outcome of the commit its entry is "committing", and its
 * row counts, whatever the clock says.  tracked.c tells the lock protocol.  Knows no page and no
 * transaction.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "compat.h"
#include "tracked_table.h"

/*
 * A commit depends on the grant, whose bucket is locked and whose row counts until this end.
 * Returns HLOOM_NO when the lease has been given back this moment, HLOOM_UNAVAILABLE when there is
 * no room for an entry.  Does not raise.
 */
HloomReply
hloom_tracked_commit_begin(const HloomTrackedId *id, TimestampTz end)
{
	HloomReply	reply = HLOOM_YES;
	HloomTracked *entry;

	LWLockAcquire(hloom_tracked_lock_of(id), LW_EXCLUSIVE);
	entry = hloom_tracked_search(id, HASH_FIND);
	if (entry == NULL)
	{
		entry = hloom_tracked_add(id, 0);
		if (entry != NULL)
			pg_atomic_write_u64(&entry->watched.end, (uint64) end);
	}
	if (entry == NULL)
		reply = HLOOM_UNAVAILABLE;
	else if (entry->given_back)
		reply = HLOOM_NO;
	else
	{
		bool		was_marked = hloom_tracked_is_marked(entry);

		entry->committing++;
		entry->committer = MyProcPid;
		hloom_tracked_settle(entry, was_marked);
	}
	LWLockRelease(hloom_tracked_lock_of(id));
	return reply;
}

/*
 * The outcome of that commit is there.  Returns whether the row, given back or expired, counts no
 * more.  Does not raise, touches no page.
 */
bool
hloom_tracked_commit_end(const HloomTrackedId *id)
{
	HloomTracked *entry;
	bool		over = false;

	LWLockAcquire(hloom_tracked_lock_of(id), LW_EXCLUSIVE);
	entry = hloom_tracked_search(id, HASH_FIND);
	Assert(entry != NULL && entry->committing > 0);
	if (entry != NULL && entry->committing > 0)
	{
		entry->committing--;
		if (entry->committer == MyProcPid)
			entry->committer = 0;
		over = entry->committing == 0 &&
			(entry->given_back ||
			 (TimestampTz) pg_atomic_read_u64(&entry->watched.end) <= GetCurrentTimestamp());
		hloom_tracked_settle(entry, true);
	}
	LWLockRelease(hloom_tracked_lock_of(id));
	return over;
}

/*
 * Whether some commit depends on a grant of this database.  *pid is then whose, or 0 when the last
 * of several is done; it can be NULL.
 */
bool
hloom_tracked_is_committing(const HloomTrackedId *id, int *pid)
{
	HloomTracked *entry;
	bool		committing;

	LWLockAcquire(hloom_tracked_lock_of(id), LW_SHARED);
	entry = hloom_tracked_search(id, HASH_FIND);
	committing = entry != NULL && entry->committing > 0;
	if (committing && pid != NULL)
		*pid = entry->committer;
	LWLockRelease(hloom_tracked_lock_of(id));
	return committing;
}

/*
 * The owner gives a lease back.  If some commit depends on it that takes effect with the outcome,
 * and this returns true.  The bucket is locked.  Does not raise.
 */
bool
hloom_tracked_release_committing(const HloomTrackedId *id)
{
	HloomTracked *entry;
	bool		committing;

	LWLockAcquire(hloom_tracked_lock_of(id), LW_EXCLUSIVE);
	entry = hloom_tracked_search(id, HASH_FIND);
	committing = entry != NULL && entry->committing > 0;
	if (committing)
	{
		hloom_tracked_change_hands(entry, 0);
		entry->given_back = true;
	}
	LWLockRelease(hloom_tracked_lock_of(id));
	return committing;
}
