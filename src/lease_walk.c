/*
 * lease_walk.c
 *	  One key's bucket, locked and looked through.
 *
 * A walk finds the key's live row, or else every place its next row could go to.  It ends at the
 * live row, so a refused attempt looks at no more than it must.  Reads only; knows no grant.
 */
#include "postgres.h"

#include "storage/bufmgr.h"

#include "compat.h"
#include "lease_walk.h"

/* A dead row's place is not taken by a row that would waste more than this of it. */
#define MAX_WASTE 128

/*
 * Takes in one row.  Returns true when the walk can end.
 */
static bool
walk_row(HloomWalk *walk, const HloomBucket *bucket, Buffer buf, OffsetNumber off, Size *dead_bytes)
{
	Page		page = BufferGetPage(buf);
	BlockNumber block = BufferGetBlockNumber(buf);
	HloomRow   *row = hloom_page_row(page, off);
	Size		capacity = ItemIdGetLength(PageGetItemId(page, off));
	bool		live = hloom_row_live(row, &walk->judge);

	if (row->hash == (uint32) walk->call->name.hash)
	{
		if (!hloom_row_good(row, capacity))
			hloom_bucket_corrupted(bucket->rel, block, "invalid row");
		if (hloom_row_names(row, &walk->call->name))
		{
			if (live)
			{
				walk->held = true;
				walk->mine = memcmp(&row->owner, &walk->call->owner, sizeof(pg_uuid_t)) == 0;
				ItemPointerSet(&walk->held_at, block, off);
				walk->head = *row;
				walk->capacity = capacity;
				return true;
			}
			if (!(row->flags & HLOOM_ROW_FREE))
			{
				ItemPointerSet(&walk->stale, block, off);
				walk->stale_head = *row;
				walk->stale_capacity = capacity;
			}
		}
	}
	if (live)
	{
		walk->live++;
		walk->live_bytes += MAXALIGN(capacity) + sizeof(ItemIdData);
	}
	else
	{
		*dead_bytes += MAXALIGN(capacity) + sizeof(ItemIdData);
		if (!ItemPointerIsValid(&walk->reuse) && capacity >= walk->need &&
			capacity - walk->need <= MAX_WASTE && !hloom_row_is_lost(row, &walk->judge))
			ItemPointerSet(&walk->reuse, block, off);
	}
	return false;
}

static bool
walk_page(HloomWalk *walk, const HloomBucket *bucket, Buffer buf)
{
	Page		page = BufferGetPage(buf);
	BlockNumber block = BufferGetBlockNumber(buf);
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	Size		dead_bytes = 0;

	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		if (unlikely(!hloom_page_good_item(page, off)))
			hloom_bucket_corrupted(bucket->rel, block, "invalid row");
		if (walk_row(walk, bucket, buf, off, &dead_bytes))
			return true;
	}
	if (walk->room == InvalidBlockNumber && PageGetFreeSpace(page) >= walk->need)
		walk->room = block;
	if (walk->purge == InvalidBlockNumber && PageGetFreeSpace(page) + dead_bytes >= walk->need)
		walk->purge = block;
	walk->last = block;
	return false;
}

/*
 * Locks the call's bucket and walks it.  The bucket stays locked.
 */
void
hloom_walk_lock(Relation rel, const HloomCall *call, Size need, int mode, HloomBucket *bucket,
				HloomWalk *walk)
{
	Buffer		buf;

	memset(walk, 0, sizeof(HloomWalk));
	walk->call = call;
	walk->need = need;
	walk->room = walk->purge = walk->last = InvalidBlockNumber;
	ItemPointerSetInvalid(&walk->stale);
	ItemPointerSetInvalid(&walk->reuse);

	hloom_bucket_lock_hash(rel, call->name.hash, mode, bucket);
	hloom_bucket_judge(bucket, &walk->judge);
	buf = bucket->primary;
	while (BufferIsValid(buf))
	{
		if (walk_page(walk, bucket, buf))
		{
			hloom_bucket_unlock_block(bucket, buf);
			break;
		}
		buf = hloom_bucket_next(bucket, buf, mode);
	}
}

/*
 * Whether a commit depends on the lease found, so that nobody may take it, renew it or bring it to
 * an end now.
 */
bool
hloom_walk_is_committing(const HloomWalk *walk)
{
	HloomTrackedId id = hloom_row_id(&walk->head);

	return unlikely(walk->judge.marked) && hloom_tracked_is_committing(&id, NULL);
}

/*
 * What a row, about to be written now, says of its lease.
 */
HloomTerms
hloom_walk_terms(const HloomRow *row, TimestampTz now, int64 max_hold)
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
 * Tells of the lease that is in the way of a call, or the call's own.  Whose own it is, and who is
 * refused all the same because a commit depends on it, does not wait for its session.
 */
void
hloom_walk_tell_holder(const HloomRow *row, bool mine, HloomGrant *grant)
{
	grant->expires_at = row->expires_at;
	grant->holder_role = row->role;
	grant->holder_pid = row->pid;
	grant->follows = row->scope != HLOOM_SCOPE_LEASE && !mine;
	grant->fence = row->fence;
}
