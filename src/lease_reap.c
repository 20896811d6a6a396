/*
 * lease_reap.c
 *	  Removes expired rows that nobody has needed the place of.
 *
 * Nobody waits for it: such a row is nobody's already.  It is removed so that its lease is counted
 * as lost soon, and can be reported.  What was released or given back is left to others.
 *
 * A bucket is looked at under a shared lock first: a page none of whose rows can have expired is
 * not looked at any further.  Its "earliest" may be too early, since a release does not raise it;
 * that is put right only when the page is written anyway.  A row becomes a tombstone, a few bytes
 * of WAL, and all of a page share a record.  Like a release it need not be durable.
 *
 * Holds no lock between two buckets.  Knows no table lookup and no transaction.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "durable.h"
#include "lease_bucket.h"
#include "lease_delta.h"
#include "lease_purge.h"
#include "lease_reap.h"
#include "waitlist.h"

/* One byte of each row of a page and its "earliest", each with its offset and length. */
StaticAssertDecl(HLOOM_MAX_ROWS * (2 * sizeof(uint16) + 1) + 2 * sizeof(uint16) + sizeof(int64) <=
				 HLOOM_DELTA_SIZE, "all rows of a page share a record");

/* What is found on a page. */
typedef struct Expired
{
	OffsetNumber row[HLOOM_MAX_ROWS];
	int			count;
	TimestampTz earliest;		/* no other row ends before */
} Expired;

/*
 * Begins a pass over the whole table.
 */
void
hloom_reap_begin(HloomReap *reap)
{
	reap->bucket = 0;
	reap->next = DT_NOEND;
	reap->reaped = 0;
}

/*
 * Looks for expired rows on a locked page, and notes when the others end.
 */
static void
look_at_page(const HloomBucket *bucket, Buffer buf, const HloomJudge *judge, HloomReap *reap,
			 Expired *expired)
{
	Page		page = BufferGetPage(buf);
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	expired->count = 0;
	expired->earliest = hloom_page_tail(page)->earliest;
	if (expired->earliest > judge->now)
	{
		reap->next = Min(reap->next, expired->earliest);
		return;
	}
	expired->earliest = DT_NOEND;
	hloom_bucket_check_items(bucket, buf);
	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		HloomRow   *row = hloom_page_row(page, off);
		TimestampTz end = row->expires_at;

		if (row->flags & HLOOM_ROW_FREE)
			continue;

		/* When a commit that depends on an expired row will be over is not known. */
		if (hloom_row_live(row, judge))
			reap->next = Min(reap->next, end > judge->now ? end : judge->now + HLOOM_REAP_INTERVAL);
		else if (hloom_row_is_lost(row, judge))
		{
			expired->row[expired->count++] = off;
			continue;
		}
		expired->earliest = Min(expired->earliest, end);
	}
}

/*
 * Whether something has expired in the locked bucket.
 */
static bool
has_expired(const HloomBucket *bucket, HloomReap *reap)
{
	HloomJudge	judge;
	Expired		expired;

	hloom_bucket_judge(bucket, &judge);
	for (Buffer buf = bucket->primary; BufferIsValid(buf);
		 buf = hloom_bucket_next(bucket, buf, BUFFER_LOCK_SHARE))
	{
		look_at_page(bucket, buf, &judge, reap, &expired);
		if (expired.count == 0)
			continue;
		hloom_bucket_unlock_block(bucket, buf);
		return true;
	}
	return false;
}

/*
 * A waiter knows when the lease ends, but not when a commit that kept it beyond that is over.
 */
static void
wake_next(const HloomRow *row)
{
	if (unlikely(hloom_waitlist_any(row->hash)))
		hloom_waitlist_wake_next(hloom_row_key_hash(row));
}

/*
 * Frees the expired rows of an exclusively locked page, and counts them.
 */
static void
free_expired(const HloomBucket *bucket, Buffer buf, const HloomJudge *judge, const Expired *expired)
{
	Page		page = BufferGetPage(buf);
	HloomDelta	delta;

	delta.buffers = 0;
	for (int i = 0; i < expired->count; i++)
	{
		HloomRow   *row = hloom_page_row(page, expired->row[i]);
		uint8		flags = row->flags | HLOOM_ROW_FREE;

		hloom_delta_set(&delta, buf, &row->flags, &flags, sizeof(flags));
	}
	hloom_delta_set(&delta, buf, &hloom_page_tail(page)->earliest, &expired->earliest,
					sizeof(expired->earliest));
	hloom_delta_finish(bucket->rel, &delta);
	for (int i = 0; i < expired->count; i++)
	{
		HloomRow   *row = hloom_page_row(page, expired->row[i]);
		HloomTrackedId id = hloom_tracked_id(row->hash, row->fence);

		hloom_purge_count_lost(row, HLOOM_LOSS_EXPIRED);
		if (judge->marked)
			hloom_tracked_expire(&id);
		wake_next(row);
	}
}

/*
 * Frees the expired rows of an exclusively locked bucket.
 */
static void
reap_locked(const HloomBucket *bucket, HloomReap *reap)
{
	XLogRecPtr	saved = hloom_durable_begin();
	int64		before = reap->reaped;
	HloomJudge	judge;
	Expired		expired;

	hloom_bucket_judge(bucket, &judge);
	for (Buffer buf = bucket->primary; BufferIsValid(buf);
		 buf = hloom_bucket_next(bucket, buf, BUFFER_LOCK_EXCLUSIVE))
	{
		look_at_page(bucket, buf, &judge, reap, &expired);
		if (expired.count > 0)
			free_expired(bucket, buf, &judge, &expired);
		reap->reaped += expired.count;
	}
	if (reap->reaped > before)
		hloom_durable_forget(saved, judge.now);
}

static void
reap_bucket(Relation rel, HloomReap *reap)
{
	HloomBucket bucket;
	uint32		stamp;
	bool		expired;

	hloom_bucket_lock(rel, reap->bucket, BUFFER_LOCK_SHARE, &bucket);
	stamp = bucket.stamp;
	expired = has_expired(&bucket, reap);
	hloom_bucket_unlock(&bucket);
	if (expired)
	{
		hloom_bucket_lock(rel, reap->bucket, BUFFER_LOCK_EXCLUSIVE, &bucket);
		stamp = bucket.stamp;
		reap_locked(&bucket, reap);
		hloom_bucket_unlock(&bucket);
	}

	/* It was split: some of its rows are in a bucket this pass has still to come to. */
	if (stamp > hloom_bucket_meta(rel)->maxbucket)
		hloom_bucket_refresh_meta(rel);
}

/*
 * Goes on with a pass over the table, which is open for a change.  Removes expired rows and counts
 * each as lost.  Returns true at the end of the table; false after a bucket when so many losses are
 * not reported yet that the caller should see to that, then go on.  Lets interrupts in.  Raises
 * what a broken store raises.
 */
bool
hloom_reap_some(Relation rel, HloomReap *reap)
{
	while (reap->bucket <= hloom_bucket_meta(rel)->maxbucket)
	{
		int64		before = reap->reaped;

		CHECK_FOR_INTERRUPTS();
		reap_bucket(rel, reap);
		reap->bucket++;
		if (reap->reaped > before && hloom_losses_are_many())
			return false;
	}
	return true;
}
