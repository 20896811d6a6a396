/*
 * tracked_due.c
 *	  Tracked leases that are to be renewed by the server, or warned of.
 *
 * A renewal has three steps.  The worker begins it under the bucket's lock and writes the row's new
 * end; makes many of them durable at once; and then lets each entry's end advance.  Between the
 * first and the last, and afterwards when that fails, the entry is "renewing": its holder counts on
 * the old end, so one that is over before the last step is lost, though its row lasts longer, until
 * the worker ends it, too.  An extension by the owner before that has its own end and wins: it
 * clears the mark.
 *
 * tracked.c tells the lock protocol, renewal.c when what is due.  Knows no page and no transaction.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "compat.h"
#include "renewal.h"
#include "tracked_table.h"
#include "work.h"

/*
 * The server is to renew a lease that follows something, if it does not already.  Does not raise.
 */
void
hloom_tracked_auto_extend(const HloomTrackedId *id, int64 max_hold)
{
	HloomTracked *entry;
	TimestampTz next = DT_NOEND;

	LWLockAcquire(hloom_tracked_lock_of(id), LW_EXCLUSIVE);
	entry = hloom_tracked_search(id, HASH_FIND);
	if (entry != NULL && entry->pid != 0 && entry->terms.max_hold == 0)
	{
		TimestampTz end = (TimestampTz) pg_atomic_read_u64(&entry->watched.end);

		entry->terms.max_hold = max_hold;
		entry->renew_at = hloom_renewal_first(entry->terms.start, end);
		next = hloom_tracked_next(entry);
	}
	LWLockRelease(hloom_tracked_lock_of(id));
	hloom_work_ask(next);
}

/*
 * Takes in what is due of one entry.  Returns whether found is filled.
 */
static bool
take_due(HloomTracked *entry, TimestampTz now, HloomTrackedDue *found)
{
	TimestampTz end = (TimestampTz) pg_atomic_read_u64(&entry->watched.end);

	found->id = entry->id;
	found->end = end;
	found->lease = entry->terms.lease;
	if (end <= now)
	{
		bool		outlasted = entry->renewing && end != 0;

		/* It is lost: whoever removes its row says so. */
		entry->renew_at = entry->warn_at = DT_NOEND;
		entry->renewing = false;
		found->kind = HLOOM_DUE_END;
		return outlasted;
	}
	if (Min(entry->renew_at, entry->warn_at) > now)
		return false;
	found->kind = entry->renew_at > now ? HLOOM_DUE_WARNING : HLOOM_DUE_RENEWAL;
	found->due = found->kind == HLOOM_DUE_WARNING ? entry->warn_at : entry->renew_at;
	if (found->kind == HLOOM_DUE_WARNING)
		entry->warn_at = DT_NOEND;
	return true;
}

/*
 * Finds what is due of this database's leases now, at most so many.  *next becomes when the others
 * are due at the latest, or DT_NOEND.  Returns how many were found.  A renewal is found again until
 * it is done, a warning when hloom_tracked_due_failed() says so, an end never: the row of one that
 * cannot be written lasts to its own end.
 */
int
hloom_tracked_due(HloomTrackedDue *found, int room, TimestampTz now, TimestampTz *next)
{
	int			count = 0;

	*next = DT_NOEND;
	for (int i = 0; i < HLOOM_PARTITIONS; i++)
	{
		dlist_iter	iter;

		LWLockAcquire(&hloom_tracked_locks[i].lock, LW_EXCLUSIVE);
		dlist_foreach(iter, &hloom_shared->tracked[i])
		{
			HloomTracked *entry = dlist_container(HloomTracked, node, iter.cur);

			if (entry->id.database != MyDatabaseId || entry->pid == 0 || entry->id.fence < 0)
				continue;
			if (count < room && take_due(entry, now, &found[count]))
				count++;
			else
				*next = Min(*next, hloom_tracked_next(entry));
		}
		LWLockRelease(&hloom_tracked_locks[i].lock);
	}
	return count;
}

/*
 * A renewal begins.  The bucket is locked, and the row counts now.  HLOOM_YES: terms tell what the
 * lease is to last by.  HLOOM_UNAVAILABLE: it lasts already as long as it may get, terms tell by
 * what, and it is not renewed any more unless its owner extends it.  HLOOM_NO: it is over, given
 * back or not to be renewed.  Does not raise.
 */
HloomReply
hloom_tracked_renewal_begin(const HloomTrackedId *id, TimestampTz now, HloomTerms *terms)
{
	HloomReply	reply = HLOOM_NO;
	HloomTracked *entry;
	TimestampTz end = 0;

	LWLockAcquire(hloom_tracked_lock_of(id), LW_EXCLUSIVE);
	entry = hloom_tracked_search(id, HASH_FIND);
	if (entry != NULL && entry->pid != 0 && entry->renew_at != DT_NOEND)
		end = (TimestampTz) pg_atomic_read_u64(&entry->watched.end);
	if (end > now)
	{
		*terms = entry->terms;
		terms->start = now;
		terms->end = hloom_renewal_end(now, terms->lease, terms->granted_at + terms->max_hold);
		if (terms->end > end)
		{
			entry->renewing = true;
			reply = HLOOM_YES;
		}
		else
		{
			entry->renew_at = DT_NOEND;
			terms->end = end;
			reply = HLOOM_UNAVAILABLE;
		}
	}
	LWLockRelease(hloom_tracked_lock_of(id));
	return reply;
}

/*
 * A renewal is durable: the lease lasts by these terms.  Returns false when it does not, because it
 * was extended or given back meanwhile, or its holder has lost it.  Does not raise.
 */
bool
hloom_tracked_renewal_done(const HloomTrackedId *id, const HloomTerms *terms)
{
	HloomTracked *entry;
	bool		done;

	LWLockAcquire(hloom_tracked_lock_of(id), LW_EXCLUSIVE);
	entry = hloom_tracked_search(id, HASH_FIND);
	done = entry != NULL && entry->pid != 0 && entry->renewing &&
		(TimestampTz) pg_atomic_read_u64(&entry->watched.end) > GetCurrentTimestamp();
	if (done)
		hloom_tracked_set_terms(entry, terms);
	LWLockRelease(hloom_tracked_lock_of(id));
	return done;
}

/*
 * What was due could not be done: it is due again later.  Does not raise.
 */
void
hloom_tracked_due_failed(const HloomTrackedDue *failed)
{
	TimestampTz again = hloom_renewal_retry(failed->due, GetCurrentTimestamp(), failed->end,
											failed->lease);
	HloomTracked *entry;

	LWLockAcquire(hloom_tracked_lock_of(&failed->id), LW_EXCLUSIVE);
	entry = hloom_tracked_search(&failed->id, HASH_FIND);
	if (entry != NULL && failed->kind == HLOOM_DUE_WARNING && entry->warn_at == DT_NOEND)
		entry->warn_at = again;
	else if (entry != NULL && failed->kind == HLOOM_DUE_RENEWAL && entry->renew_at == failed->due)
		entry->renew_at = again;
	if (entry != NULL)
		entry->slack = 0;
	LWLockRelease(hloom_tracked_lock_of(&failed->id));
}

/*
 * Whether the lease still follows somebody and was lost at this end.  The bucket is locked.
 */
bool
hloom_tracked_ends_at(const HloomTrackedId *id, TimestampTz end)
{
	HloomTracked *entry;
	bool		ends;

	LWLockAcquire(hloom_tracked_lock_of(id), LW_SHARED);
	entry = hloom_tracked_search(id, HASH_FIND);
	ends = entry != NULL && entry->pid != 0 && entry->committing == 0 &&
		(TimestampTz) pg_atomic_read_u64(&entry->watched.end) == end;
	LWLockRelease(hloom_tracked_lock_of(id));
	return ends;
}

/*
 * Copies the names of this database's grants, at most so many.  Returns how many.
 */
int
hloom_tracked_list(HloomTrackedId *ids, int room)
{
	int			count = 0;

	for (int i = 0; i < HLOOM_PARTITIONS; i++)
	{
		dlist_iter	iter;

		LWLockAcquire(&hloom_tracked_locks[i].lock, LW_SHARED);
		dlist_foreach(iter, &hloom_shared->tracked[i])
		{
			HloomTracked *entry = dlist_container(HloomTracked, node, iter.cur);

			if (count < room && entry->id.database == MyDatabaseId && entry->id.fence > 0 &&
				pg_atomic_read_u64(&entry->watched.end) != 0)
				ids[count++] = entry->id;
		}
		LWLockRelease(&hloom_tracked_locks[i].lock);
	}
	return count;
}
