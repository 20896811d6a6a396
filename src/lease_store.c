/*
 * lease_store.c
 *	  One lease of an open lease table: release, extend, look.
 *
 * An operation locks the key's bucket, reads the clock under that lock, walks the chain, and
 * makes at most one change.  An operation that is refused writes nothing.  The locks are gone when
 * it returns; making the change durable is the caller's (durable.c).
 *
 * For one key there is at most one live row.  Claims are lease_claim.c's; where a row is written is
 * lease_place.c's.
 *
 * A key given back is reserved for its next waiter (waitlist.c) before the bucket is unlocked; that
 * one is woken afterwards.
 *
 * The fence is the bucket's counter, so it grows for each of its keys whatever happens to their
 * rows, and leaps with the first grant under another server incarnation (lease_bucket.c).
 *
 * Knows no table lookup, no transaction and no provider.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/bufmgr.h"

#include "compat.h"
#include "lease_bucket.h"
#include "lease_form.h"
#include "lease_place.h"
#include "lease_split.h"
#include "lease_store.h"
#include "lease_time.h"
#include "lease_walk.h"
#include "shmem.h"
#include "stats.h"
#include "waitlist.h"

/*
 * Takes note of a change.  One that is not logged cannot be made durable; hloom_table_open has
 * ruled that out.
 */
void
hloom_store_note_change(HloomChange *change, XLogRecPtr lsn, const HloomWalk *walk, bool fresh,
						bool longer)
{
	if (unlikely(XLogRecPtrIsInvalid(lsn)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("lease table is not logged")));
	change->lsn = lsn;
	change->fresh = fresh;
	change->longer = longer;
	change->at = walk->judge.now;
}

/*
 * The row's grant is at its end: nobody follows it any more.
 */
static void
forget_entry(const HloomRow *head)
{
	HloomTrackedId id = hloom_row_id(head);

	(void) hloom_tracked_drop(&id, true);
}

/*
 * Whether the call's owner holds the key at this moment.  A row that counts only because a commit
 * depends on it is nobody's any more.
 */
static bool
is_owners(const HloomWalk *walk)
{
	HloomTrackedId id = hloom_row_id(&walk->head);

	return walk->held && walk->mine && walk->head.expires_at > walk->judge.now &&
		(likely(!walk->judge.marked) || !hloom_tracked_is_given_back(&id));
}

/*
 * Whether the row is still as this backend's grant left it.
 */
static bool
is_untouched(const HloomRow *head, const HloomGrant *grant)
{
	return head->fence == grant->fence && head->expires_at == grant->expires_at &&
		head->pid == MyProcPid;
}

/*
 * Frees the key, whose row was found.  Returns the waiter to wake when the bucket is unlocked.
 */
static int
free_row(const HloomBucket *bucket, HloomWalk *walk, HloomChange *change)
{
	XLogRecPtr	lsn;

	walk->head.flags |= HLOOM_ROW_FREE;
	lsn = hloom_place_overwrite(bucket, &walk->held_at, &walk->head, offsetof(HloomRow, texts));
	hloom_store_note_change(change, lsn, walk, false, false);
	return likely(!hloom_waitlist_any(walk->call->name.hash)) ? -1 :
		hloom_waitlist_reserve(walk->call->name.hash);
}

/*
 * Whether this backend's grant has ended before anybody heard of it.  Then it is released all the
 * same, and not lost.
 */
static bool
is_untold(HloomWalk *walk, const HloomGrant *grant)
{
	if (!ItemPointerIsValid(&walk->stale) || !is_untouched(&walk->stale_head, grant))
		return false;
	walk->held_at = walk->stale;
	walk->head = walk->stale_head;
	return true;
}

/*
 * Frees the key if the call's owner holds it; with a grant, only if nobody renewed or extended the
 * lease since this backend got it.  Returns whether it did.  change->at is 0 when a commit depends
 * on the lease: then its outcome frees the key, and nothing is changed here.
 */
bool
hloom_store_release(Relation rel, const HloomCall *call, const HloomGrant *grant,
					HloomChange *change)
{
	HloomBucket bucket;
	HloomWalk	walk;
	HloomTrackedId id;
	int			waiter = -1;
	bool		frees;

	hloom_walk_lock(rel, call, 0, BUFFER_LOCK_EXCLUSIVE, &bucket, &walk);
	if (is_owners(&walk))
		frees = grant == NULL || is_untouched(&walk.head, grant);
	else
		frees = grant != NULL && is_untold(&walk, grant);
	change->at = 0;
	id = hloom_row_id(&walk.head);
	if (frees && (likely(!walk.judge.marked) || !hloom_tracked_release_committing(&id)))
	{
		waiter = free_row(&bucket, &walk, change);
		if (walk.head.scope != HLOOM_SCOPE_LEASE)
			forget_entry(&walk.head);
	}
	hloom_bucket_unlock(&bucket);
	hloom_waitlist_wake(waiter);
	if (frees && likely(grant == NULL))
		hloom_stats_time(call->name.ns, call->name.ns_len, HLOOM_TIMING_HELD,
						 walk.judge.now - walk.head.granted_at);
	return frees;
}

/*
 * Fills grant with who holds the key; holder_pid is 0 when a former server gave it.
 */
static void
tell_holder(const HloomWalk *walk, HloomGrant *grant)
{
	hloom_walk_tell_holder(&walk->head, walk->mine, grant);
	if (walk->head.incarnation != walk->judge.incarnation)
		grant->holder_pid = 0;
}

/*
 * Frees the key whoever holds it, who has lost it then, which is counted, and whom grant tells.
 * Returns false when nobody does, or when a commit depends on the lease; grant->holder_pid is then
 * whose, as far as it is known.
 */
bool
hloom_store_take_away(Relation rel, const HloomCall *call, HloomGrant *grant, HloomChange *change)
{
	HloomBucket bucket;
	HloomWalk	walk;
	HloomTrackedId id;
	int			waiter = -1;
	bool		frees;

	hloom_walk_lock(rel, call, 0, BUFFER_LOCK_EXCLUSIVE, &bucket, &walk);
	id = hloom_row_id(&walk.head);
	grant->committing = walk.held && unlikely(walk.judge.marked) &&
		hloom_tracked_is_committing(&id, &grant->holder_pid);
	frees = walk.held && !grant->committing;
	if (frees)
	{
		waiter = free_row(&bucket, &walk, change);
		tell_holder(&walk, grant);
		hloom_place_count_lost(call, &walk.head, HLOOM_LOSS_TAKEN_AWAY);
		forget_entry(&walk.head);
	}
	hloom_bucket_unlock(&bucket);
	hloom_waitlist_wake(waiter);
	return frees;
}

/*
 * Lets the owner's lease end call->lease from now; with 0 as long as last granted, at most
 * call->max_lease.  Returns false when the owner does not hold it.  On true interrupts are held,
 * as by hloom_store_claim.
 */
bool
hloom_store_extend(Relation rel, const HloomCall *call, HloomGrant *grant, HloomChange *change)
{
	HloomBucket bucket;
	HloomWalk	walk;
	HloomTrackedId id;
	HloomTerms	terms;
	TimestampTz old_end = 0;
	bool		follows;
	bool		extends = false;

	hloom_walk_lock(rel, call, 0, BUFFER_LOCK_EXCLUSIVE, &bucket, &walk);
	if (is_owners(&walk))
	{
		id = hloom_row_id(&walk.head);
		old_end = walk.head.expires_at;
		grant->capped = call->lease == 0 && walk.head.lease > call->max_lease;
		walk.head.lease = call->lease > 0 ? call->lease : Min(walk.head.lease, call->max_lease);
		walk.head.expires_at = hloom_time_add(walk.judge.now, walk.head.lease);
		terms = hloom_walk_terms(&walk.head, walk.judge.now, 0);
		follows = walk.head.scope != HLOOM_SCOPE_LEASE;
		extends = (!follows && likely(!walk.judge.marked)) ||
			hloom_tracked_extend(&id, &terms, follows);
	}
	if (!extends)
	{
		hloom_bucket_unlock(&bucket);
		return false;
	}

	HOLD_INTERRUPTS();
	hloom_store_note_change(change, hloom_place_overwrite(&bucket, &walk.held_at, &walk.head,
														  offsetof(HloomRow, texts)), &walk, false,
							walk.head.expires_at > old_end);
	if (unlikely(!change->longer && hloom_waitlist_any(call->name.hash)))
		hloom_waitlist_note_end(call->name.hash, walk.head.expires_at);
	hloom_bucket_unlock(&bucket);
	grant->fence = walk.head.fence;
	grant->expires_at = walk.head.expires_at;
	grant->lease = walk.head.lease;
	return true;
}

/*
 * Whether somebody holds the key now, whom grant then tells; holder_pid is 0 when a former server
 * gave it.  Writes nothing.
 */
bool
hloom_store_holder(Relation rel, const HloomCall *call, HloomGrant *grant)
{
	HloomBucket bucket;
	HloomWalk	walk;

	hloom_walk_lock(rel, call, 0, BUFFER_LOCK_SHARE, &bucket, &walk);
	hloom_bucket_unlock(&bucket);
	if (walk.held)
		tell_holder(&walk, grant);
	return walk.held;
}

/*
 * Whether the call's owner holds the key now.  Writes nothing.
 */
bool
hloom_store_look(Relation rel, const HloomCall *call, HloomGrant *grant)
{
	HloomBucket bucket;
	HloomWalk	walk;

	hloom_walk_lock(rel, call, 0, BUFFER_LOCK_SHARE, &bucket, &walk);
	hloom_bucket_unlock(&bucket);
	if (!is_owners(&walk))
		return false;
	grant->fence = walk.head.fence;
	grant->expires_at = walk.head.expires_at;
	grant->lease = walk.head.lease;
	return true;
}
