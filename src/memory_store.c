/*
 * memory_store.c
 *	  One lease in shared memory: release, extend, look.
 *
 * The state machine of lease_store.c on rows that are in no page: an operation locks the key's
 * partition, reads the clock under that lock, and makes at most one change, which is neither logged
 * nor durable.  Nothing raises under the lock.  Marks, waiters and losses are those of the lease
 * table: what is given back by a mark (tracked.c) counts no more, and its entry is removed by
 * whoever wants the key, the room, or comes along.
 *
 * Claims are memory_claim.c's.  memory_table.c tells the lock protocol.  Knows no transaction and
 * no provider.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "lease_time.h"
#include "lease_walk.h"
#include "losses.h"
#include "memory_store.h"
#include "stats.h"
#include "waitlist.h"

/*
 * Judges the look's entry now.  The partition is locked.
 */
void
hloom_memory_judge(HloomMemoryLook *look)
{
	HloomMemoryEntry *entry = look->entry;
	bool		unexpired;

	look->now = GetCurrentTimestamp();
	look->marked = entry != NULL && hloom_tracked_any_marked(entry->row->hash);
	unexpired = entry != NULL && entry->row->expires_at > look->now;
	look->live = unexpired;
	if (unlikely(look->marked))
	{
		HloomTrackedId id = hloom_memory_id(entry);

		look->live = hloom_tracked_counts(&id, unexpired);
	}
	look->mine = look->live && look->call != NULL &&
		memcmp(&entry->row->owner, &look->call->owner, sizeof(pg_uuid_t)) == 0;
}

/*
 * Locks the partition of the call's key and judges its entry.
 */
void
hloom_memory_look(const HloomCall *call, LWLockMode mode, HloomMemoryLook *look)
{
	look->call = call;
	LWLockAcquire(hloom_memory_lock_of(call->name.hash), mode);
	look->entry = hloom_memory_find(&call->name);
	hloom_memory_judge(look);
}

/*
 * Unlocks it.
 */
void
hloom_memory_unlock(const HloomMemoryLook *look)
{
	LWLockRelease(hloom_memory_lock_of(look->call->name.hash));
}

/*
 * Whether the call's owner holds the key at this moment, and not only because a commit depends on
 * it.
 */
static bool
is_owners(const HloomMemoryLook *look)
{
	HloomTrackedId id;

	if (!look->mine || look->entry->row->expires_at <= look->now)
		return false;
	if (likely(!look->marked))
		return true;
	id = hloom_memory_id(look->entry);
	return !hloom_tracked_is_given_back(&id);
}

/*
 * The row of an entry that does not live is about to go: counts it if it was lost, and returns
 * whether it was.
 */
bool
hloom_memory_count_lost(const HloomMemoryLook *look)
{
	const HloomRow *row = look->entry->row;
	bool		lost = row->expires_at <= look->now;

	if (unlikely(look->marked))
	{
		HloomTrackedId id = hloom_memory_id(look->entry);

		lost = hloom_tracked_is_lost(&id, lost);
	}
	if (lost)
	{
		HloomLoss	loss = hloom_row_loss(row, HLOOM_LOSS_EXPIRED);

		hloom_losses_add(look->entry->key.database, &loss);
	}
	return lost;
}

/*
 * The same, and its tracked lease goes, too, if it was given back.
 */
bool
hloom_memory_bury(const HloomMemoryLook *look)
{
	HloomTrackedId id = hloom_memory_id(look->entry);
	bool		lost = hloom_memory_count_lost(look);

	if (unlikely(look->marked))
		hloom_tracked_expire(&id);
	return lost;
}

/*
 * Tells a lease to its owner.
 */
void
hloom_memory_tell(const HloomRow *row, HloomGrant *grant)
{
	grant->fence = row->fence;
	grant->expires_at = row->expires_at;
	grant->lease = row->lease;
}

/*
 * Removes the entry, whose lease is at its end, and its tracked lease.  Returns whom to wake when
 * the partition is unlocked.
 */
static int
free_entry(HloomMemoryLook *look)
{
	HloomTrackedId id = hloom_memory_id(look->entry);
	bool		followed = look->entry->row->scope != HLOOM_SCOPE_LEASE;

	hloom_memory_remove(look->entry);
	if (followed || unlikely(look->marked))
		(void) hloom_tracked_drop(&id, true);
	return likely(!hloom_waitlist_any(look->call->name.hash)) ? -1 :
		hloom_waitlist_reserve(look->call->name.hash);
}

/*
 * Frees the key if the call's owner holds it.  Returns whether it did; when a commit depends on the
 * lease its outcome frees the key.
 */
bool
hloom_memory_release(const HloomCall *call)
{
	HloomMemoryLook look;
	TimestampTz granted_at = 0;
	int			waiter = -1;
	bool		frees;

	hloom_memory_look(call, LW_EXCLUSIVE, &look);
	frees = is_owners(&look);
	if (frees)
	{
		HloomTrackedId id = hloom_memory_id(look.entry);

		granted_at = look.entry->row->granted_at;

		if (likely(!look.marked) || !hloom_tracked_release_committing(&id))
			waiter = free_entry(&look);
	}
	hloom_memory_unlock(&look);
	hloom_waitlist_wake(waiter);
	if (frees)
		hloom_stats_time(call->name.ns, call->name.ns_len, HLOOM_TIMING_HELD,
						 look.now - granted_at);
	return frees;
}

/*
 * Frees the key whoever holds it, who has lost it then, which is counted, and whom grant tells.
 * Returns false when nobody does, or when a commit depends on the lease; grant tells which.
 */
bool
hloom_memory_take_away(const HloomCall *call, HloomGrant *grant)
{
	HloomMemoryLook look;
	int			waiter = -1;
	bool		frees;

	hloom_memory_look(call, LW_EXCLUSIVE, &look);
	if (look.live && unlikely(look.marked))
	{
		HloomTrackedId id = hloom_memory_id(look.entry);

		grant->committing = hloom_tracked_is_committing(&id, &grant->holder_pid);
	}
	frees = look.live && !grant->committing;
	if (frees)
	{
		const HloomRow *row = look.entry->row;

		HloomLoss	loss = hloom_row_loss(row, HLOOM_LOSS_TAKEN_AWAY);

		hloom_losses_add(MyDatabaseId, &loss);
		hloom_walk_tell_holder(row, look.mine, grant);
		waiter = free_entry(&look);
	}
	hloom_memory_unlock(&look);
	hloom_waitlist_wake(waiter);
	return frees;
}

/*
 * Lets the owner's lease end call->lease from now; with 0 as long as last granted, at most
 * call->max_lease.  Returns false when the owner does not hold it.
 */
bool
hloom_memory_extend(const HloomCall *call, HloomGrant *grant)
{
	HloomMemoryLook look;
	bool		extends = false;

	hloom_memory_look(call, LW_EXCLUSIVE, &look);
	if (is_owners(&look))
	{
		HloomRow   *row = look.entry->row;
		HloomRow	head = *row;
		HloomTrackedId id = hloom_memory_id(look.entry);
		HloomTerms	terms;
		bool		follows = row->scope != HLOOM_SCOPE_LEASE;

		grant->capped = call->lease == 0 && head.lease > call->max_lease;
		head.lease = call->lease > 0 ? call->lease : Min(head.lease, call->max_lease);
		head.expires_at = hloom_time_add(look.now, head.lease);
		terms = hloom_walk_terms(&head, look.now, 0);
		extends = (!follows && likely(!look.marked)) ||
			hloom_tracked_extend(&id, &terms, follows);
		if (extends && head.expires_at < row->expires_at && hloom_waitlist_any(call->name.hash))
			hloom_waitlist_note_end(call->name.hash, head.expires_at);
		if (extends)
		{
			row->lease = head.lease;
			row->expires_at = head.expires_at;
			hloom_memory_tell(row, grant);
		}
	}
	hloom_memory_unlock(&look);
	return extends;
}

/*
 * Whether somebody holds the key now, whom grant then tells.
 */
bool
hloom_memory_holder(const HloomCall *call, HloomGrant *grant)
{
	HloomMemoryLook look;

	hloom_memory_look(call, LW_SHARED, &look);
	if (look.live)
		hloom_walk_tell_holder(look.entry->row, look.mine, grant);
	hloom_memory_unlock(&look);
	return look.live;
}

/*
 * Whether the call's owner holds the key now.
 */
bool
hloom_memory_is_held(const HloomCall *call, HloomGrant *grant)
{
	HloomMemoryLook look;
	bool		held;

	hloom_memory_look(call, LW_SHARED, &look);
	held = is_owners(&look);
	if (held)
		hloom_memory_tell(look.entry->row, grant);
	hloom_memory_unlock(&look);
	return held;
}
