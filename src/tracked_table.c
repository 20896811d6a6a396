/*
 * tracked_table.c
 *	  The shared table of tracked leases: its memory, its entries, walks over all of them.
 *
 * Core's hash table for shared memory, partitioned by the hash of the key.  tracked.c tells what an
 * entry is for, and the lock protocol.  But for the walks and the set-up, the lock of the entry's
 * partition is held by the caller.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/shmem.h"

#include "compat.h"
#include "guc.h"
#include "renewal.h"
#include "stats.h"
#include "tracked_table.h"

static HTAB *entries = NULL;
LWLockPadded *hloom_tracked_locks = NULL;

static uint32
hash_of(const void *key, Size size)
{
	return ((const HloomTrackedId *) key)->hash;
}

/*
 * As hash_search(), by the entry's name.
 */
HloomTracked *
hloom_tracked_search(const HloomTrackedId *id, HASHACTION action)
{
	return (HloomTracked *) hash_search_with_hash_value(entries, id, id->hash, action, NULL);
}

/*
 * Makes an entry that is not there yet; NULL when there is no room.
 */
HloomTracked *
hloom_tracked_add(const HloomTrackedId *id, int pid)
{
	HloomTracked *entry = hloom_tracked_search(id, HASH_ENTER_NULL);

	if (entry == NULL)
		return NULL;
	dlist_push_tail(&hloom_shared->tracked[id->hash % HLOOM_PARTITIONS], &entry->node);
	entry->pid = pid;
	entry->committing = 0;
	entry->committer = 0;
	entry->orphan_of = -1;
	entry->given_back = entry->renewing = false;
	entry->renew_at = entry->warn_at = DT_NOEND;
	entry->slack = 0;
	memset(&entry->terms, 0, sizeof(entry->terms));
	pg_atomic_write_u64(&entry->watched.ticket, 0);
	pg_atomic_write_u64(&entry->watched.end, 0);
	return entry;
}

/*
 * Removes an entry that is not marked.
 */
void
hloom_tracked_remove(HloomTracked *entry)
{
	dlist_delete(&entry->node);
	(void) hloom_tracked_search(&entry->id, HASH_REMOVE);
}

/*
 * An entry has changed: counts its mark, and removes it when it is for nothing any more.
 */
void
hloom_tracked_settle(HloomTracked *entry, bool was_marked)
{
	pg_atomic_uint32 *marked = &hloom_shared->marked[entry->id.hash % HLOOM_PARTITIONS];

	if (was_marked && !hloom_tracked_is_marked(entry))
		pg_atomic_fetch_sub_u32(marked, 1);
	else if (!was_marked && hloom_tracked_is_marked(entry))
		pg_atomic_fetch_add_u32(marked, 1);
	if (entry->pid == 0 && !hloom_tracked_is_marked(entry))
	{
		pg_atomic_write_u64(&entry->watched.ticket, 0);
		hloom_tracked_remove(entry);
	}
}

/*
 * The entry follows another backend from now on, or none.  Its watcher must not believe what comes.
 */
void
hloom_tracked_change_hands(HloomTracked *entry, int pid)
{
	if (entry->pid == pid)
		return;
	pg_atomic_write_u64(&entry->watched.ticket, 0);
	pg_write_barrier();
	entry->pid = pid;
}

/*
 * The grant has another name from now on.
 */
void
hloom_tracked_rename(HloomTracked *entry, const HloomTrackedId *id)
{
	(void) hash_update_hash_key(entries, entry, id);
}

/*
 * The row is gone.  An entry that still follows a backend is kept, for that to notice.  Returns
 * where an orphan is counted, or -1.
 */
int
hloom_tracked_lose(HloomTracked *entry)
{
	bool		was_marked = hloom_tracked_is_marked(entry);
	int			orphan_of = entry->orphan_of;

	pg_atomic_write_u64(&entry->watched.end, 0);
	if (entry->given_back)
		hloom_tracked_change_hands(entry, 0);
	entry->given_back = false;
	entry->orphan_of = -1;
	hloom_tracked_settle(entry, was_marked);
	return orphan_of;
}

/*
 * Returns the bytes of shared memory needed.
 */
Size
hloom_tracked_size(void)
{
	return hash_estimate_size(hloom_max_tracked_leases, sizeof(HloomTracked));
}

/*
 * Attaches to the table, and makes it when the memory was not found.  Called with
 * AddinShmemInitLock held, after the tranche was requested.
 */
void
hloom_tracked_start(bool found)
{
	HASHCTL		ctl = {
		.keysize = sizeof(HloomTrackedId),
		.entrysize = sizeof(HloomTracked),
		.hash = hash_of,
		.num_partitions = HLOOM_PARTITIONS
	};

	entries = ShmemInitHash("hloom_lock tracked leases", hloom_max_tracked_leases,
							hloom_max_tracked_leases, &ctl,
							HASH_ELEM | HASH_FUNCTION | HASH_PARTITION | HASH_FIXED_SIZE);
	hloom_tracked_locks = GetNamedLWLockTranche(HLOOM_EXTENSION) + HLOOM_LWLOCK_TRACKED;
	for (int i = 0; !found && i < HLOOM_PARTITIONS; i++)
	{
		pg_atomic_init_u32(&hloom_shared->marked[i], 0);
		dlist_init(&hloom_shared->tracked[i]);
	}
}

/*
 * The lease lasts by these terms from now on.
 */
void
hloom_tracked_set_terms(HloomTracked *entry, const HloomTerms *terms)
{
	entry->terms = *terms;
	entry->renew_at = DT_NOEND;
	if (terms->max_hold > 0)
		entry->renew_at = hloom_renewal_first(terms->start, terms->end);
	entry->warn_at = hloom_renewal_warning(terms->start, terms->end);
	entry->slack = hloom_renewal_slack(Min(terms->lease, terms->end - terms->start));
	entry->renewing = false;
	pg_atomic_write_u64(&entry->watched.end, (uint64) terms->end);
}

/*
 * Returns when a worker must look at the entry next, at the latest.
 */
TimestampTz
hloom_tracked_next(HloomTracked *entry)
{
	TimestampTz next = Min(entry->renew_at, entry->warn_at);

	if (next != DT_NOEND)
		next += entry->slack;
	if (entry->renewing)
		next = Min(next, (TimestampTz) pg_atomic_read_u64(&entry->watched.end));
	return next;
}

/*
 * All rows of this database's lease table are gone; with in_memory those in shared memory, too.
 * Does not raise.
 */
void
hloom_tracked_lose_all(bool in_memory)
{
	for (int i = 0; i < HLOOM_PARTITIONS; i++)
	{
		dlist_mutable_iter iter;

		LWLockAcquire(&hloom_tracked_locks[i].lock, LW_EXCLUSIVE);
		dlist_foreach_modify(iter, &hloom_shared->tracked[i])
		{
			HloomTracked *entry = dlist_container(HloomTracked, node, iter.cur);
			int			orphan_of;

			if (entry->id.database != MyDatabaseId || entry->id.fence < 0 ||
				(hloom_tracked_is_in_memory(&entry->id) && !in_memory))
				continue;
			orphan_of = hloom_tracked_lose(entry);
			if (orphan_of >= 0)
				hloom_stats_add_at(orphan_of, HLOOM_STAT_ORPHAN_ABSENT, 1);
		}
		LWLockRelease(&hloom_tracked_locks[i].lock);
	}
}

/*
 * Whether a lease has ended that still follows a backend, and nobody waits to be told: its row
 * counts for nothing, and without the entry nobody can bring it to life again.
 */
static bool
is_over(HloomTracked *entry, TimestampTz now)
{
	return entry->pid != 0 && entry->id.fence > 0 && !hloom_tracked_is_marked(entry) &&
		!entry->renewing &&
		(TimestampTz) pg_atomic_read_u64(&entry->watched.end) <= now &&
		pg_atomic_read_u64(&entry->watched.ticket) == 0;
}

/*
 * Looks at one entry on behalf of hloom_tracked_collect.  Returns whether it is removed.
 */
static bool
clear(HloomTracked *entry, TimestampTz now)
{
	int			orphan_of;

	if (is_over(entry, now))
	{
		hloom_tracked_change_hands(entry, 0);
		entry->given_back = true;
		pg_atomic_write_u64(&entry->watched.end, 0);
		hloom_tracked_settle(entry, false);
	}

	/* Its row is in another database, and counts for nothing without it, too. */
	if (!entry->given_back || entry->committing > 0 || entry->id.database == MyDatabaseId ||
		(TimestampTz) pg_atomic_read_u64(&entry->watched.end) > now)
		return false;
	orphan_of = hloom_tracked_lose(entry);
	if (orphan_of >= 0)
		hloom_stats_add_at(orphan_of, HLOOM_STAT_ORPHAN_ABSENT, 1);
	return true;
}

/*
 * Copies the names of grants that were given back, of this database or of the others, at most so
 * many.  With removed also removes entries of what is over, and of other databases what was given
 * back and has ended: *removed counts these.  Returns how many were copied.
 */
int
hloom_tracked_collect(bool ours, HloomTrackedId *ids, int room, int *removed)
{
	TimestampTz now = GetCurrentTimestamp();
	int			count = 0;

	for (int i = 0; i < HLOOM_PARTITIONS; i++)
	{
		dlist_mutable_iter iter;

		if (removed == NULL && pg_atomic_read_u32(&hloom_shared->marked[i]) == 0)
			continue;
		LWLockAcquire(&hloom_tracked_locks[i].lock, LW_EXCLUSIVE);
		dlist_foreach_modify(iter, &hloom_shared->tracked[i])
		{
			HloomTracked *entry = dlist_container(HloomTracked, node, iter.cur);

			if (removed != NULL && clear(entry, now))
				(*removed)++;
			else if (entry->given_back && entry->committing == 0 && count < room &&
					 (entry->id.database == MyDatabaseId) == ours)
				ids[count++] = entry->id;
		}
		LWLockRelease(&hloom_tracked_locks[i].lock);
	}
	return count;
}
