/*
 * lease_claim.c
 *	  The claim of one key of an open lease table: granted, renewed or refused.
 *
 * An operation of the store (lease_store.c).  A refused caller that will wait is listed
 * (waitlist.c) before the bucket is unlocked, so that whoever frees the row later sees it.
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
#include "waitlist.h"

/*
 * Notes in the tracked lease of the row, if there is to be one, whom it follows from now on.
 * Returns false when it was to be renewed and has been given back this moment.
 */
static bool
note_scope(const HloomWalk *walk, const HloomRow *row)
{
	HloomTrackedId id = hloom_row_id(row);

	if (row->scope != HLOOM_SCOPE_LEASE)
	{
		HloomTerms	terms = hloom_walk_terms(row, walk->judge.now,
											 walk->call->auto_extend ? walk->call->max_hold : 0);

		return hloom_tracked_hold(&id, &terms);
	}
	return !walk->held || walk->head.scope == HLOOM_SCOPE_LEASE || hloom_tracked_let_go(&id);
}

/*
 * Locks the call's bucket and walks it, after a split if one is due.
 */
static void
walk_for_claim(Relation rel, const HloomCall *call, Size need, HloomBucket *bucket, HloomWalk *walk)
{
	hloom_walk_lock(rel, call, need, BUFFER_LOCK_EXCLUSIVE, bucket, walk);
	if (walk->held || likely(!hloom_split_due(walk->live, walk->live_bytes + need,
											  walk->judge.now)))
		return;
	hloom_bucket_unlock(bucket);
	hloom_split_contained(rel);
	hloom_walk_lock(rel, call, need, BUFFER_LOCK_EXCLUSIVE, bucket, walk);
}

/*
 * Gives the owner, whose row was found, a new end.  Returns an invalid LSN, with nothing changed,
 * when the lease has been given back this moment.
 */
static XLogRecPtr
renew(const HloomBucket *bucket, HloomWalk *walk, HloomRow *row)
{
	row->fence = walk->head.fence;
	row->granted_at = walk->head.granted_at;
	if (!note_scope(walk, row))
		return InvalidXLogRecPtr;
	return hloom_place_renewal(bucket, walk, row);
}

/*
 * Grants the key, which nobody holds.
 */
static XLogRecPtr
grant_new(const HloomBucket *bucket, HloomWalk *walk, HloomRow *row)
{
	XLogRecPtr	lsn;

	row->granted_at = walk->judge.now;
	row->fence = hloom_bucket_next_fence(hloom_page_tail(BufferGetPage(bucket->primary)),
										 walk->judge.now);
	lsn = hloom_place_row(bucket, walk, row);
	(void) note_scope(walk, row);
	if (unlikely(walk->judge.marked) && ItemPointerIsValid(&walk->stale))
	{
		HloomTrackedId id = hloom_row_id(&walk->stale_head);

		hloom_tracked_expire(&id);
	}
	return lsn;
}

/*
 * Refuses a claim, and unlocks the bucket.  Returns false when the lease found has been given back
 * since the walk: that needs no lock of the bucket, and may have come before the caller was listed.
 */
static bool
refuse_held(HloomBucket *bucket, const HloomWalk *walk, HloomGrant *grant)
{
	TimestampTz end = walk->head.expires_at;
	bool		still_held = true;
	HloomJudge	judge;

	if (walk->call->waits)
	{
		/* When a commit that keeps it beyond its end will be over is not known. */
		hloom_waitlist_refused(&walk->call->name, end > walk->judge.now ? end : DT_NOEND);
		hloom_bucket_judge(bucket, &judge);
		still_held = hloom_row_live(&walk->head, &judge);
	}
	hloom_bucket_unlock(bucket);
	if (still_held)
		hloom_walk_tell_holder(&walk->head, walk->mine, grant);
	return still_held;
}

/*
 * Refuses a claim of a free key that is kept for somebody else, and unlocks the bucket then.
 * Returns whether it is.
 */
static bool
refuse_reserved(HloomBucket *bucket, const HloomWalk *walk, HloomGrant *grant)
{
	const HloomKey *name = &walk->call->name;

	if (likely(!hloom_waitlist_any(name->hash)) ||
		!hloom_waitlist_is_reserved(name->hash, walk->judge.now, &grant->reserved_for))
		return false;
	if (walk->call->waits)
		hloom_waitlist_refused(name, DT_NOEND);
	hloom_bucket_unlock(bucket);
	return true;
}

/*
 * A claim has succeeded, and the bucket is still locked: the caller waits no more, and who waits
 * for the owner's lease is told when it ends sooner.
 */
static void
note_claim(const HloomWalk *walk, const HloomRow *row)
{
	if (likely(!hloom_waitlist_any(walk->call->name.hash)))
		return;
	hloom_waitlist_granted(row->expires_at);
	if (unlikely(walk->held && row->expires_at < walk->head.expires_at))
		hloom_waitlist_note_end(walk->call->name.hash, row->expires_at);
}

/*
 * Claims the key for the call's owner.  Returns false when another owner holds it, a commit depends
 * on the lease or the key is kept for a waiter, and tells of that one in grant.  On true the grant
 * and the change are filled, and the caller holds interrupts once more than before, so that nothing
 * comes between the change and its outcome.
 */
bool
hloom_store_claim(Relation rel, const HloomCall *call, HloomGrant *grant, HloomChange *change)
{
	HloomRowSpace space;
	HloomRow   *row = &space.row;
	HloomBucket bucket;
	HloomWalk	walk;
	XLogRecPtr	lsn;

	hloom_form_row(row, call);
	for (;;)
	{
		walk_for_claim(rel, call, MAXALIGN(hloom_row_size(row)), &bucket, &walk);
		if (walk.held && (!walk.mine || hloom_walk_is_committing(&walk)))
		{
			if (refuse_held(&bucket, &walk, grant))
				return false;
			continue;
		}
		if (!walk.held && refuse_reserved(&bucket, &walk, grant))
			return false;

		HOLD_INTERRUPTS();
		row->expires_at = hloom_time_add(walk.judge.now, call->lease);
		lsn = walk.held ? renew(&bucket, &walk, row) : grant_new(&bucket, &walk, row);
		if (likely(!walk.held || !XLogRecPtrIsInvalid(lsn)))
			break;

		/* Its session has ended since the walk. */
		hloom_bucket_unlock(&bucket);
		RESUME_INTERRUPTS();
		CHECK_FOR_INTERRUPTS();
	}
	hloom_store_note_change(change, lsn, &walk, !walk.held, true);
	note_claim(&walk, row);
	hloom_bucket_unlock(&bucket);
	grant->renewed = walk.held;
	grant->fence = row->fence;
	grant->expires_at = row->expires_at;
	grant->lease = row->lease;
	return true;
}
