/*
 * memory_grant.c
 *	  One grant in shared memory, named by hash and fence, and walks over all of a database.
 *
 * What lease_grant.c, lease_reap.c and lease_scan.c do for the lease table: nobody's key and owner
 * are compared, and the partition is locked.  memory_table.c tells the lock protocol.  Knows no
 * transaction and no provider.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "losses.h"
#include "memory_grant.h"
#include "waitlist.h"

/*
 * Locks the grant's partition and looks for its entry, judged now.  Ends with unlock().
 */
static bool
find_locked(HloomMemoryLook *look, const HloomTrackedId *id, LWLockMode mode)
{
	memset(look, 0, sizeof(*look));
	LWLockAcquire(hloom_memory_lock_of(id->hash), mode);
	look->entry = hloom_memory_find_grant(id);
	hloom_memory_judge(look);
	return look->entry != NULL;
}

static void
unlock(const HloomTrackedId *id)
{
	LWLockRelease(hloom_memory_lock_of(id->hash));
}

/*
 * Copies the names to where the caller can free them.  There is room for any.
 */
static void
copy_name(const HloomRow *row, HloomGrantName *name)
{
	memcpy(name->ns, row->texts, row->ns_len);
	name->ns[row->ns_len] = '\0';
	memcpy(name->key, row->texts + row->ns_len, row->key_len);
	name->key[row->key_len] = '\0';
}

static void
make_room(HloomGrantName *name)
{
	name->ns = palloc(HLOOM_MAX_NAMESPACE + 1);
	name->key = palloc(HLOOM_MAX_KEY_BYTES + 1);
}

/*
 * Removes the entry of a grant that was given back, whether it has ended or not, unless a commit
 * still depends on it; one given back too late is counted as lost.  Returns whether it did, and
 * then its names, palloc'd.
 */
bool
hloom_memory_grant_remove(const HloomTrackedId *id, HloomGrantName *name)
{
	HloomMemoryLook look;
	bool		removed;

	make_room(name);
	removed = find_locked(&look, id, LW_EXCLUSIVE) && !look.live &&
		hloom_tracked_is_given_back(id);
	if (removed)
	{
		copy_name(look.entry->row, name);
		(void) hloom_memory_count_lost(&look);
		hloom_memory_remove(look.entry);
	}
	unlock(id);
	if (!removed)
	{
		pfree(name->ns);
		pfree(name->key);
	}
	return removed;
}

/*
 * A commit is about to depend on the grant, as hloom_grant_commit_begin().
 */
HloomReply
hloom_memory_commit_begin(const HloomTrackedId *id, TimestampTz *end)
{
	HloomMemoryLook look;
	HloomReply	reply = HLOOM_NO;

	*end = 0;
	if (find_locked(&look, id, LW_SHARED))
		*end = look.entry->row->expires_at;
	if (look.live && *end > look.now)
		reply = hloom_tracked_commit_begin(id, *end);
	unlock(id);
	return reply;
}

/*
 * Copies the grant's names, palloc'd.  Returns false when it is gone or does not count.
 */
bool
hloom_memory_grant_name(const HloomTrackedId *id, HloomGrantName *name)
{
	HloomMemoryLook look;

	make_room(name);
	if (find_locked(&look, id, LW_SHARED) && look.live)
		copy_name(look.entry->row, name);
	unlock(id);
	return look.live;
}

/*
 * Renews a lease that is held now and that the server is to renew, as hloom_grant_renew(); there is
 * nothing to make durable, and the holder's own idea of its end has moved on already.
 */
HloomReply
hloom_memory_renew(const HloomTrackedId *id, HloomTerms *terms, HloomGrantName *name)
{
	HloomReply	reply = HLOOM_NO;
	HloomMemoryLook look;
	bool		gone;

	make_room(name);
	gone = !find_locked(&look, id, LW_EXCLUSIVE);
	if (look.live && look.entry->row->expires_at > look.now &&
		!hloom_tracked_is_committing(id, NULL))
	{
		reply = hloom_tracked_renewal_begin(id, look.now, terms);
		if (reply == HLOOM_UNAVAILABLE)
			copy_name(look.entry->row, name);
		else if (reply == HLOOM_YES && !hloom_tracked_renewal_done(id, terms))
			reply = HLOOM_NO;
		else if (reply == HLOOM_YES)
		{
			look.entry->row->expires_at = terms->end;
			look.entry->row->flags |= HLOOM_ROW_AUTO_EXTEND;
		}
	}
	unlock(id);
	if (gone)
		(void) hloom_tracked_drop(id, false);
	if (reply != HLOOM_UNAVAILABLE)
	{
		pfree(name->ns);
		pfree(name->key);
	}
	return reply;
}

/*
 * Removes what is nobody's in one partition, of this database or of all.  Takes in the nearest end
 * of this database's others, and how many were lost.  Returns how many it removed.
 */
static int64
reap_partition(int partition, bool all, HloomMemoryReap *reap)
{
	int64		removed = 0;
	dlist_mutable_iter iter;

	LWLockAcquire(hloom_memory_lock_of(partition), LW_EXCLUSIVE);
	dlist_foreach_modify(iter, &hloom_memory_partition(partition)->entries)
	{
		HloomMemoryLook look = {0};
		TimestampTz end;
		uint64		hash;
		bool		ours;

		look.entry = dlist_container(HloomMemoryEntry, node, iter.cur);
		ours = look.entry->key.database == MyDatabaseId;
		if (!ours && !all)
			continue;
		hloom_memory_judge(&look);
		end = look.entry->row->expires_at;
		hash = look.entry->key.hash;

		/* When a commit that depends on an expired one will be over is not known. */
		if (look.live && end <= look.now)
			end = look.now + HLOOM_REAP_INTERVAL;
		if (look.live && ours)
			reap->next = Min(reap->next, end);
		if (look.live)
			continue;
		reap->reaped += hloom_memory_bury(&look);
		hloom_memory_remove(look.entry);

		/* Waiters of another database see to themselves at the end of the lease. */
		if (ours)
			hloom_waitlist_wake_next(hash);
		removed++;
	}
	LWLockRelease(hloom_memory_lock_of(partition));
	return removed;
}

/*
 * Begins a pass.
 */
void
hloom_memory_reap_begin(HloomMemoryReap *reap)
{
	reap->partition = 0;
	reap->next = DT_NOEND;
	reap->reaped = 0;
}

/*
 * Makes room, in all databases.  Returns how many entries are free again.  Lets interrupts in.
 */
int64
hloom_memory_reclaim(void)
{
	HloomMemoryReap reap;
	int64		removed = 0;

	hloom_memory_reap_begin(&reap);
	for (int i = 0; i < HLOOM_PARTITIONS; i++)
	{
		CHECK_FOR_INTERRUPTS();
		removed += reap_partition(i, true, &reap);
	}
	return removed;
}

/*
 * Goes on with a pass over all partitions: removes what is nobody's, and counts what was lost.
 * Returns true at the end; false when so many losses are not reported yet that the caller should
 * see to that, then go on.  Lets interrupts in.
 */
bool
hloom_memory_reap_some(HloomMemoryReap *reap)
{
	while (reap->partition < HLOOM_PARTITIONS)
	{
		CHECK_FOR_INTERRUPTS();
		(void) reap_partition(reap->partition++, false, reap);
		if (hloom_losses_are_many())
			return false;
	}
	return true;
}

/*
 * The extension is dropped: removes the leases of this database.  Whoever claims another later
 * finds the lease table locked, and then gone.  Does not raise.
 */
void
hloom_memory_forget_all(void)
{
	pg_atomic_fetch_add_u64(hloom_memory_moves, 1);
	for (int i = 0; i < HLOOM_PARTITIONS; i++)
	{
		dlist_mutable_iter iter;

		LWLockAcquire(hloom_memory_lock_of(i), LW_EXCLUSIVE);
		dlist_foreach_modify(iter, &hloom_memory_partition(i)->entries)
		{
			HloomMemoryEntry *entry = dlist_container(HloomMemoryEntry, node, iter.cur);

			if (entry->key.database == MyDatabaseId)
				hloom_memory_remove(entry);
		}
		LWLockRelease(hloom_memory_lock_of(i));
	}
}

/*
 * Returns how many leases of a namespace of this database are held now.  Nobody is granted one
 * later who has not locked the lease table before, which the caller keeps from them.
 */
int64
hloom_memory_count(const char *ns, uint16 ns_len)
{
	int64		count = 0;

	pg_atomic_fetch_add_u64(hloom_memory_moves, 1);
	for (int i = 0; i < HLOOM_PARTITIONS; i++)
	{
		dlist_iter	iter;

		CHECK_FOR_INTERRUPTS();
		LWLockAcquire(hloom_memory_lock_of(i), LW_SHARED);
		dlist_foreach(iter, &hloom_memory_partition(i)->entries)
		{
			HloomMemoryLook look = {0};

			look.entry = dlist_container(HloomMemoryEntry, node, iter.cur);
			if (look.entry->key.database != MyDatabaseId || look.entry->key.ns_len != ns_len ||
				memcmp(look.entry->key.ns, ns, ns_len) != 0)
				continue;
			hloom_memory_judge(&look);
			count += look.live;
		}
		LWLockRelease(hloom_memory_lock_of(i));
	}
	return count;
}

/*
 * Copies the rows of this database's leases in a partition, one after the other and aligned, up to
 * size bytes.  Returns how many bytes there are.
 */
static Size
copy_rows(int partition, char *to, Size size)
{
	Size		needed = 0;
	dlist_iter	iter;

	LWLockAcquire(hloom_memory_lock_of(partition), LW_SHARED);
	dlist_foreach(iter, &hloom_memory_partition(partition)->entries)
	{
		HloomMemoryLook look = {0};
		Size		length;

		look.entry = dlist_container(HloomMemoryEntry, node, iter.cur);
		if (look.entry->key.database != MyDatabaseId)
			continue;
		hloom_memory_judge(&look);
		if (!look.live)
			continue;
		length = hloom_row_size(look.entry->row);
		if (needed + MAXALIGN(length) <= size)
			memcpy(to + needed, look.entry->row, length);
		needed += MAXALIGN(length);
	}
	LWLockRelease(hloom_memory_lock_of(partition));
	return needed;
}

/*
 * Returns copies of the rows of this database's leases in a partition, palloc'd, one after the
 * other and aligned: *used bytes.  Raises when memory is out.
 */
char *
hloom_memory_copy(int partition, Size *used)
{
	Size		size = BLCKSZ;
	char	   *rows = palloc(size);

	while ((*used = copy_rows(partition, rows, size)) > size)
	{
		pfree(rows);
		size = 2 * *used;
		rows = palloc_extended(size, MCXT_ALLOC_HUGE);
	}
	return rows;
}
