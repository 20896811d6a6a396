/*
 * lease_bucket.h
 *	  Buckets of the lease table: finding, locking, walking and enlarging them.
 */
#ifndef HLOOM_LEASE_BUCKET_H
#define HLOOM_LEASE_BUCKET_H

#include "access/generic_xlog.h"
#include "storage/buf.h"
#include "lease_page.h"
#include "tracked.h"

/* A bucket whose primary page is pinned and locked. */
typedef struct HloomBucket
{
	Relation	rel;
	uint32		number;
	uint32		stamp;			/* maxbucket at its last split */
	Buffer		primary;
} HloomBucket;

/* What decides whether a row counts. */
typedef struct HloomJudge
{
	TimestampTz now;
	uint64		incarnation;	/* 0: rows of other incarnations count */
	uint32		bucket;
	uint32		stamp;
	bool		marked;			/* some row of the bucket may be given back, or a commit's */
} HloomJudge;

static inline HloomTrackedId
hloom_row_id(const HloomRow *row)
{
	return hloom_tracked_id(row->hash, row->fence);
}

/*
 * As tracked.c tells it, which may have a mark for the row.
 */
static inline bool
hloom_row_counts(const HloomRow *row, bool unexpired)
{
	HloomTrackedId id = hloom_row_id(row);

	return hloom_tracked_counts(&id, unexpired);
}

static inline bool
hloom_row_died(const HloomRow *row, bool expired)
{
	HloomTrackedId id = hloom_row_id(row);

	return hloom_tracked_is_lost(&id, expired);
}

/*
 * Whether the row is somebody's lease.  Not: released, left behind by a split, bound to a session
 * or transaction of a server that is gone; and, unless a commit depends on it, expired, or given
 * back at the end of one.
 */
static inline bool
hloom_row_live(const HloomRow *row, const HloomJudge *judge)
{
	bool		unexpired = row->expires_at > judge->now;

	return !(row->flags & HLOOM_ROW_FREE) && (unexpired || unlikely(judge->marked)) &&
		hloom_page_bucket(row->hash, judge->stamp) == judge->bucket &&
		(row->scope == HLOOM_SCOPE_LEASE || judge->incarnation == 0 ||
		 row->incarnation == judge->incarnation) &&
		(likely(!judge->marked) || hloom_row_counts(row, unexpired));
}

/*
 * Whether the row died unreleased and nobody has counted it yet: it is expired, but neither
 * released nor given back in time, nor left behind, nor of a server that is gone; and no commit
 * depends on it.  Whoever makes such a row go away counts it (lease_purge.c).
 */
static inline bool
hloom_row_is_lost(const HloomRow *row, const HloomJudge *judge)
{
	bool		expired = row->expires_at <= judge->now;

	return !(row->flags & HLOOM_ROW_FREE) && (expired || unlikely(judge->marked)) &&
		hloom_page_bucket(row->hash, judge->stamp) == judge->bucket &&
		(row->scope == HLOOM_SCOPE_LEASE || judge->incarnation == 0 ||
		 row->incarnation == judge->incarnation) &&
		(likely(!judge->marked) || hloom_row_died(row, expired));
}

/*
 * Whether the row is nobody's, and nobody needs to hear of it.
 */
static inline bool
hloom_row_is_done(const HloomRow *row, const HloomJudge *judge)
{
	return !hloom_row_live(row, judge) && !hloom_row_is_lost(row, judge);
}

pg_noreturn extern void hloom_bucket_corrupted(Relation rel, BlockNumber block, const char *what);
extern HloomMeta *hloom_bucket_meta(Relation rel);
extern HloomMeta *hloom_bucket_refresh_meta(Relation rel);
extern Buffer hloom_bucket_lock_meta(Relation rel, int mode);
extern Buffer hloom_bucket_lock_page(Relation rel, BlockNumber block, HloomPageKind kind, int mode);
extern void hloom_bucket_lock(Relation rel, uint32 number, int mode, HloomBucket *bucket);
extern void hloom_bucket_lock_hash(Relation rel, uint64 hash, int mode, HloomBucket *bucket);
extern void hloom_bucket_unlock(HloomBucket *bucket);
extern Buffer hloom_bucket_lock_block(const HloomBucket *bucket, BlockNumber block, int mode);
extern void hloom_bucket_unlock_block(const HloomBucket *bucket, Buffer buf);
extern Buffer hloom_bucket_next(const HloomBucket *bucket, Buffer buf, int mode);
extern void hloom_bucket_check_items(const HloomBucket *bucket, Buffer buf);
extern int64 hloom_bucket_clock_fence(TimestampTz now);
extern int64 hloom_bucket_next_fence(const HloomTail *tail, TimestampTz now);
extern void hloom_bucket_judge(const HloomBucket *bucket, HloomJudge *judge);
extern XLogRecPtr hloom_bucket_append(const HloomBucket *bucket, BlockNumber tail,
									  const HloomRow *row, uint64 incarnation);

#endif							/* HLOOM_LEASE_BUCKET_H */
