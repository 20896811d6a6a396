/*
 * tracked.c
 *	  Leases that follow a session or a transaction, in shared memory, and those given back there.
 *
 * At the end of a transaction or a backend nothing may fail and no page may be touched.  So a lease
 * is given back here, by a mark in its entry; from then on its row counts for nothing
 * (hloom_row_live), whoever wants the key takes the row over, and somebody removes row and entry
 * later (lease_sweep.c).  A lease of scope "lease" has an entry only when its statement failed and
 * the lease is an orphan.
 *
 * Core's hash table for shared memory, partitioned by the hash of the key.
 *
 * Locking.  All fields of an entry, and which entries there are, are guarded by the LWLock of the
 * partition; changed under it exclusively, read under it shared.  One is held at a time, but by
 * hloom_tracked_collect, which takes all, shared, in order.  They may be taken while a bucket of
 * the lease table is locked, never the other way around.  given_back of a partition (shmem.h)
 * counts its marked entries: changed with the lock, read without; whoever reads 0 has looked
 * before the mark was made.
 *
 * An entry is reserved before its row is written, under a fence that none has, so that a full table
 * is known in time and nothing can fail afterwards.  Only the backend that is named in an entry
 * marks it; whoever removes or takes over the row removes it.
 *
 * Knows no page and no transaction.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/hsearch.h"

#include "compat.h"
#include "guc.h"
#include "stats.h"
#include "tracked.h"

typedef struct Entry
{
	HloomTrackedId id;			/* must be first */
	int			pid;			/* of the backend whose lease it is */
	bool		given_back;
	int16		orphan_of;		/* where an orphan is counted, see stats.h; -1 when it is none */
} Entry;

static HTAB *entries = NULL;
static LWLockPadded *locks = NULL;

/* This backend's reservation; database is invalid when there is none. */
static HloomTrackedId reserved = {0};

static uint32
hash_of(const void *key, Size size)
{
	return ((const HloomTrackedId *) key)->hash;
}

static LWLock *
lock_of(const HloomTrackedId *id)
{
	return &locks[id->hash % HLOOM_PARTITIONS].lock;
}

static Entry *
search(const HloomTrackedId *id, HASHACTION action)
{
	return (Entry *) hash_search_with_hash_value(entries, id, id->hash, action, NULL);
}

/*
 * Returns the bytes of shared memory needed.
 */
Size
hloom_tracked_size(void)
{
	return hash_estimate_size(hloom_max_tracked_leases, sizeof(Entry));
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
		.entrysize = sizeof(Entry),
		.hash = hash_of,
		.num_partitions = HLOOM_PARTITIONS
	};

	entries = ShmemInitHash("hloom_lock tracked leases", hloom_max_tracked_leases,
							hloom_max_tracked_leases, &ctl,
							HASH_ELEM | HASH_FUNCTION | HASH_PARTITION | HASH_FIXED_SIZE);
	locks = GetNamedLWLockTranche(HLOOM_EXTENSION) + HLOOM_LWLOCK_TRACKED;
	for (int i = 0; !found && i < HLOOM_PARTITIONS; i++)
		pg_atomic_init_u32(&hloom_shared->given_back[i], 0);
}

/*
 * Takes an entry for a lease about to be granted, in place of one reserved before.  Returns false
 * when all are taken.  Does not raise.
 */
bool
hloom_tracked_reserve(uint32 hash)
{
	HloomTrackedId id = {.database = MyDatabaseId,.hash = hash,.fence = -(int64) MyProcPid};
	Entry	   *entry;

	hloom_tracked_unreserve();
	LWLockAcquire(lock_of(&id), LW_EXCLUSIVE);
	entry = search(&id, HASH_ENTER_NULL);
	if (entry != NULL)
	{
		entry->pid = MyProcPid;
		entry->given_back = false;
		entry->orphan_of = -1;
		reserved = id;
	}
	LWLockRelease(lock_of(&id));
	return entry != NULL;
}

/*
 * Gives the reservation up, if there is one.  Does not raise.
 */
void
hloom_tracked_unreserve(void)
{
	if (!OidIsValid(reserved.database))
		return;
	LWLockAcquire(lock_of(&reserved), LW_EXCLUSIVE);
	(void) search(&reserved, HASH_REMOVE);
	LWLockRelease(lock_of(&reserved));
	reserved.database = InvalidOid;
}

/*
 * The lease an entry was reserved for is granted, or was renewed: it is this backend's from now on,
 * even if it was another's.  Does not raise.
 */
void
hloom_tracked_hold(const HloomTrackedId *id)
{
	Entry	   *entry;

	Assert(reserved.database == id->database && reserved.hash == id->hash);
	LWLockAcquire(lock_of(id), LW_EXCLUSIVE);
	entry = search(id, HASH_FIND);
	if (entry == NULL)
	{
		(void) hash_update_hash_key(entries, search(&reserved, HASH_FIND), id);
		reserved.database = InvalidOid;
	}
	else
		entry->pid = MyProcPid;
	LWLockRelease(lock_of(id));
	hloom_tracked_unreserve();
}

/*
 * The grant's row is gone, was released or follows nobody any more: removes the entry, if there is
 * one.  "present" tells what became of an orphan: its row was found, or not.  Returns whether it
 * was an orphan, which is counted.  Does not raise.
 */
bool
hloom_tracked_drop(const HloomTrackedId *id, bool present)
{
	Entry	   *entry;
	int			orphan_of = -1;

	LWLockAcquire(lock_of(id), LW_EXCLUSIVE);
	entry = search(id, HASH_FIND);
	if (entry != NULL)
	{
		orphan_of = entry->orphan_of;
		if (entry->given_back)
			pg_atomic_fetch_sub_u32(&hloom_shared->given_back[id->hash % HLOOM_PARTITIONS], 1);
		(void) search(id, HASH_REMOVE);
	}
	LWLockRelease(lock_of(id));
	if (orphan_of < 0)
		return false;
	hloom_stats_add_at(orphan_of, present ? HLOOM_STAT_ORPHAN_RELEASED :
					   HLOOM_STAT_ORPHAN_ABSENT, 1);
	return true;
}

/*
 * Gives back a lease: of this backend, or with orphan_of (a place of stats.h, not negative) one
 * that nobody knows of and that may have no entry yet.  Returns false when there is no entry or no
 * room for one.  Does not raise, allocates nothing, touches no page.
 */
bool
hloom_tracked_give_back(const HloomTrackedId *id, int orphan_of)
{
	Entry	   *entry;
	bool		done = false;

	LWLockAcquire(lock_of(id), LW_EXCLUSIVE);
	entry = search(id, HASH_FIND);
	if (entry == NULL && orphan_of >= 0)
	{
		entry = search(id, HASH_ENTER_NULL);
		if (entry != NULL)
		{
			entry->pid = MyProcPid;
			entry->given_back = false;
		}
	}
	if (entry != NULL && entry->pid == MyProcPid && !entry->given_back)
	{
		entry->orphan_of = orphan_of;
		entry->given_back = done = true;
		pg_atomic_fetch_add_u32(&hloom_shared->given_back[id->hash % HLOOM_PARTITIONS], 1);
	}
	LWLockRelease(lock_of(id));
	return done;
}

/*
 * Whether a grant of this database has been given back.
 */
bool
hloom_tracked_is_given_back(uint32 hash, int64 fence)
{
	HloomTrackedId id = {.database = MyDatabaseId,.hash = hash,.fence = fence};
	Entry	   *entry;
	bool		given_back;

	LWLockAcquire(lock_of(&id), LW_SHARED);
	entry = search(&id, HASH_FIND);
	given_back = entry != NULL && entry->given_back;
	LWLockRelease(lock_of(&id));
	return given_back;
}

/*
 * Copies the names of grants that were given back, at most so many.  Returns how many.
 */
int
hloom_tracked_collect(HloomTrackedId *ids, int room)
{
	HASH_SEQ_STATUS status;
	Entry	   *entry;
	int			count = 0;

	for (int i = 0; i < HLOOM_PARTITIONS; i++)
		LWLockAcquire(&locks[i].lock, LW_SHARED);
	hash_seq_init(&status, entries);
	while ((entry = (Entry *) hash_seq_search(&status)) != NULL)
	{
		if (!entry->given_back)
			continue;
		ids[count++] = entry->id;
		if (count == room)
		{
			hash_seq_term(&status);
			break;
		}
	}
	for (int i = 0; i < HLOOM_PARTITIONS; i++)
		LWLockRelease(&locks[i].lock);
	return count;
}
