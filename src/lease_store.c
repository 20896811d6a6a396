/*
 * lease_store.c
 *	  One lease of an open lease table: claim, release, extend, look.
 *
 * An operation locks the key's bucket, reads the clock under that lock, walks the chain, and
 * makes at most one change.  An operation that is refused writes nothing.  The locks are gone when
 * it returns; making the change durable is the caller's (durable.c).
 *
 * For one key there is at most one live row.  Where a row is written is lease_place.c's.
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

/*
 * Takes note of a change.  One that is not logged cannot be made durable; hloom_table_open has
 * ruled that out.
 */
static void
note_change(HloomChange *change, XLogRecPtr lsn, const HloomWalk *walk, bool fresh, bool longer)
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

static HloomTrackedId
id_of(const HloomRow *row)
{
	return hloom_tracked_id(row->hash, row->fence);
}

/*
 * The row's grant is at its end: nobody follows it any more.
 */
static void
forget_entry(const HloomRow *head)
{
	HloomTrackedId id = id_of(head);

	(void) hloom_tracked_drop(&id, true);
}

/*
 * Whether a commit depends on the lease found, so that nobody may take it, renew it or bring it to
 * an end now.
 */
static bool
is_committing(const HloomWalk *walk)
{
	HloomTrackedId id = id_of(&walk->head);

	return unlikely(walk->judge.marked) && hloom_tracked_is_committing(&id, NULL);
}

/*
 * Whether the call's owner holds the key at this moment.  A row that counts only because a commit
 * depends on it is nobody's any more.
 */
static bool
is_owners(const HloomWalk *walk)
{
	HloomTrackedId id = id_of(&walk->head);

	return walk->held && walk->mine && walk->head.expires_at > walk->judge.now &&
		(likely(!walk->judge.marked) || !hloom_tracked_is_given_back(&id));
}

/*
 * What a row, about to be written now, says of its lease.
 */
static HloomTerms
terms_of(const HloomRow *row, TimestampTz now, int64 max_hold)
{
	HloomTerms	terms = {
		.granted_at = row->granted_at,
		.start = now,
		.end = row->expires_at,
		.lease = row->lease,
		.max_hold = max_hold
	};

	return terms;
}

/*
 * Notes in the tracked lease of the row, if there is to be one, whom it follows from now on.
 * Returns false when it was to be renewed and has been given back this moment.
 */
static bool
note_scope(const HloomWalk *walk, const HloomRow *row)
{
	HloomTrackedId id = id_of(row);

	if (row->scope != HLOOM_SCOPE_LEASE)
	{
		HloomTerms	terms = terms_of(row, walk->judge.now,
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
		HloomTrackedId id = id_of(&walk->stale_head);

		hloom_tracked_expire(&id);
	}
	return lsn;
}

/*
 * Claims the key for the call's owner.  Returns false when another owner holds it, or a commit
 * depends on the lease, and tells of that one in grant.  On true the grant and the change are
 * filled, and the caller holds interrupts once more than before, so that nothing comes between the
 * change and its outcome.
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
		if (walk.held && (!walk.mine || is_committing(&walk)))
		{
			hloom_bucket_unlock(&bucket);
			grant->expires_at = walk.head.expires_at;
			grant->holder_role = walk.head.role;
			grant->holder_pid = walk.head.pid;
			return false;
		}

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
	note_change(change, lsn, &walk, !walk.held, true);
	hloom_bucket_unlock(&bucket);
	grant->renewed = walk.held;
	grant->fence = row->fence;
	grant->expires_at = row->expires_at;
	grant->lease = row->lease;
	return true;
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
 * Frees the key, whose row was found.
 */
static void
free_row(const HloomBucket *bucket, HloomWalk *walk, HloomChange *change)
{
	walk->head.flags |= HLOOM_ROW_FREE;
	note_change(change, hloom_place_overwrite(bucket, &walk->held_at, &walk->head,
											  offsetof(HloomRow, texts)), walk, false, false);
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
	bool		frees;

	hloom_walk_lock(rel, call, 0, BUFFER_LOCK_EXCLUSIVE, &bucket, &walk);
	if (is_owners(&walk))
		frees = grant == NULL || is_untouched(&walk.head, grant);
	else
		frees = grant != NULL && is_untold(&walk, grant);
	change->at = 0;
	id = id_of(&walk.head);
	if (frees && (likely(!walk.judge.marked) || !hloom_tracked_release_committing(&id)))
	{
		free_row(&bucket, &walk, change);
		if (walk.head.scope != HLOOM_SCOPE_LEASE)
			forget_entry(&walk.head);
	}
	hloom_bucket_unlock(&bucket);
	return frees;
}

/*
 * Frees the key whoever holds it, who has lost it then, which is counted.  Returns false when
 * nobody does, or when a commit depends on the lease; grant->holder_pid is then whose, as far as it
 * is known.
 */
bool
hloom_store_take_away(Relation rel, const HloomCall *call, HloomGrant *grant, HloomChange *change)
{
	HloomBucket bucket;
	HloomWalk	walk;
	HloomTrackedId id;
	bool		frees;

	hloom_walk_lock(rel, call, 0, BUFFER_LOCK_EXCLUSIVE, &bucket, &walk);
	id = id_of(&walk.head);
	grant->committing = walk.held && unlikely(walk.judge.marked) &&
		hloom_tracked_is_committing(&id, &grant->holder_pid);
	frees = walk.held && !grant->committing;
	if (frees)
	{
		free_row(&bucket, &walk, change);
		hloom_place_count_lost(call, &walk.head, HLOOM_LOSS_TAKEN_AWAY);
		forget_entry(&walk.head);
	}
	hloom_bucket_unlock(&bucket);
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
		id = id_of(&walk.head);
		old_end = walk.head.expires_at;
		grant->capped = call->lease == 0 && walk.head.lease > call->max_lease;
		walk.head.lease = call->lease > 0 ? call->lease : Min(walk.head.lease, call->max_lease);
		walk.head.expires_at = hloom_time_add(walk.judge.now, walk.head.lease);
		terms = terms_of(&walk.head, walk.judge.now, 0);
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
	note_change(change, hloom_place_overwrite(&bucket, &walk.held_at, &walk.head,
											  offsetof(HloomRow, texts)), &walk, false,
				walk.head.expires_at > old_end);
	hloom_bucket_unlock(&bucket);
	grant->fence = walk.head.fence;
	grant->expires_at = walk.head.expires_at;
	grant->lease = walk.head.lease;
	return true;
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
