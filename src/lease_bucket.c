/*
 * lease_bucket.c
 *	  Buckets of the lease table: finding, locking, walking and enlarging them.
 *
 * A bucket is read or changed under the lock of its primary page, held for the whole walk of its
 * chain; an overflow page is locked in addition while it is looked at, one at a time, so that no
 * page image is written out half changed.  Order: primary, overflow pages in chain order,
 * metapage, extension of the file.  Only a split locks two primaries, parent before child.
 *
 * A backend works with a copy of the metapage kept in rd_amcache.  The copy may be old; each
 * primary page carries the maxbucket of its last split, so whoever locks a bucket by an old copy
 * notices and looks again.  A primary page never moves, so nothing else can be stale.
 *
 * Every page is checked when it is locked and every item when it is looked at.  Knows rows and
 * pages, but not what a grant is.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/memutils.h"

#include "compat.h"
#include "lease_bucket.h"
#include "shmem.h"

/*
 * More grants than can be lost with the end of WAL; about a second.  A counter may be ahead of the
 * clock by as much.
 */
#define FENCE_LEAP ((int64) 1 << 20)

/* rd_amcache: one chunk, as the relation cache requires. */
typedef struct MetaCache
{
	HloomFile	file;			/* whose metapage it is */
	BlockNumber blocks;			/* the file is at least as long */
	HloomMeta	meta;			/* cut after the chunks in use */
} MetaCache;

/*
 * Raises XX001 naming the block.
 */
void
hloom_bucket_corrupted(Relation rel, BlockNumber block, const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("%s in block %u of relation \"%s\"", what, block,
					RelationGetRelationName(rel)),
			 errhint("TRUNCATE the table to start with no leases, or restore it from a backup.")));
	pg_unreachable();
}

/*
 * Returns the metapage, locked.
 */
Buffer
hloom_bucket_lock_meta(Relation rel, int mode)
{
	Buffer		buf = ReadBuffer(rel, HLOOM_META_BLOCK);

	LockBuffer(buf, mode);
	if (!hloom_page_good_meta(BufferGetPage(buf)))
		hloom_bucket_corrupted(rel, HLOOM_META_BLOCK, "invalid metapage");
	return buf;
}

/*
 * Reads the metapage again and returns this backend's copy of it, valid until the relation cache
 * is next invalidated.
 */
HloomMeta *
hloom_bucket_refresh_meta(Relation rel)
{
	Buffer		buf = hloom_bucket_lock_meta(rel, BUFFER_LOCK_SHARE);
	HloomMeta  *meta = hloom_page_meta(BufferGetPage(buf));
	Size		size = offsetof(HloomMeta, chunk_start) + meta->chunks * sizeof(BlockNumber);
	MetaCache  *cache;

	if (rel->rd_amcache)
		pfree(rel->rd_amcache);
	rel->rd_amcache = NULL;
	cache = MemoryContextAlloc(CacheMemoryContext, offsetof(MetaCache, meta) + size);
	cache->file = hloom_rel_file(rel);
	cache->blocks = 0;
	memcpy(&cache->meta, meta, size);
	rel->rd_amcache = cache;
	UnlockReleaseBuffer(buf);
	return &cache->meta;
}

/*
 * Returns this backend's copy of the metapage, perhaps an old one.
 */
HloomMeta *
hloom_bucket_meta(Relation rel)
{
	MetaCache  *cache = (MetaCache *) rel->rd_amcache;

	if (likely(cache != NULL) && hloom_file_equals(cache->file, hloom_rel_file(rel)))
		return &cache->meta;
	return hloom_bucket_refresh_meta(rel);
}

/*
 * Raises unless the block is in the file.  Reading one that is not there would raise an error
 * about a file, or extend it.
 */
static void
check_block(Relation rel, BlockNumber block)
{
	MetaCache  *cache = (MetaCache *) rel->rd_amcache;
	BlockNumber blocks;

	if (likely(cache != NULL && block < cache->blocks))
		return;
	blocks = RelationGetNumberOfBlocks(rel);
	if (block >= blocks)
		hloom_bucket_corrupted(rel, block, "link to a missing page");
	if (cache != NULL)
		cache->blocks = blocks;
}

/*
 * Returns a page of this kind, locked.  Raises when the page is something else.
 */
Buffer
hloom_bucket_lock_page(Relation rel, BlockNumber block, HloomPageKind kind, int mode)
{
	Buffer		buf;

	check_block(rel, block);
	buf = ReadBuffer(rel, block);
	LockBuffer(buf, mode);
	if (!hloom_page_good_kind(BufferGetPage(buf), kind))
		hloom_bucket_corrupted(rel, block, "invalid page");
	return buf;
}

/*
 * Locks a bucket by a number that the caller's copy of the metapage covers.
 */
void
hloom_bucket_lock(Relation rel, uint32 number, int mode, HloomBucket *bucket)
{
	HloomMeta  *meta = hloom_bucket_meta(rel);
	BlockNumber block;
	Buffer		buf;
	HloomTail  *tail;

	if (number > meta->maxbucket)
		hloom_bucket_corrupted(rel, HLOOM_META_BLOCK, "wrong number of buckets");
	block = hloom_meta_block(meta, number);
	buf = hloom_bucket_lock_page(rel, block, HLOOM_PAGE_PRIMARY, mode);
	tail = hloom_page_tail(BufferGetPage(buf));
	if (tail->bucket != number || tail->stamp < number)
		hloom_bucket_corrupted(rel, block, "wrong bucket number");
	bucket->rel = rel;
	bucket->number = number;
	bucket->stamp = tail->stamp;
	bucket->primary = buf;
}

/*
 * Locks the bucket a key hash belongs to.
 */
void
hloom_bucket_lock_hash(Relation rel, uint64 hash, int mode, HloomBucket *bucket)
{
	HloomMeta  *meta = hloom_bucket_meta(rel);

	for (;;)
	{
		hloom_bucket_lock(rel, hloom_page_bucket((uint32) hash, meta->maxbucket), mode, bucket);
		if (likely(bucket->stamp <= meta->maxbucket))
			return;
		hloom_bucket_unlock(bucket);
		meta = hloom_bucket_refresh_meta(rel);

		/* One record sets both, so a metapage read later cannot be behind the stamp. */
		if (bucket->stamp > meta->maxbucket)
			hloom_bucket_corrupted(rel, hloom_meta_block(meta, bucket->number), "wrong stamp");
	}
}

/*
 * Unlocks and unpins the bucket.
 */
void
hloom_bucket_unlock(HloomBucket *bucket)
{
	UnlockReleaseBuffer(bucket->primary);
	bucket->primary = InvalidBuffer;
}

/*
 * Returns a page of the bucket, locked: the primary itself, which is locked already, or an
 * overflow page.
 */
Buffer
hloom_bucket_lock_block(const HloomBucket *bucket, BlockNumber block, int mode)
{
	Buffer		buf;

	if (block == BufferGetBlockNumber(bucket->primary))
		return bucket->primary;
	buf = hloom_bucket_lock_page(bucket->rel, block, HLOOM_PAGE_OVERFLOW, mode);
	if (hloom_page_tail(BufferGetPage(buf))->bucket != bucket->number)
		hloom_bucket_corrupted(bucket->rel, block, "wrong bucket number");
	return buf;
}

/*
 * Gives back what hloom_bucket_lock_block returned.
 */
void
hloom_bucket_unlock_block(const HloomBucket *bucket, Buffer buf)
{
	if (buf != bucket->primary)
		UnlockReleaseBuffer(buf);
}

/*
 * Gives back a page of the chain and returns the next one locked, or InvalidBuffer at the end.
 */
Buffer
hloom_bucket_next(const HloomBucket *bucket, Buffer buf, int mode)
{
	HloomTail  *tail = hloom_page_tail(BufferGetPage(buf));
	BlockNumber next = tail->next;
	uint32		ordinal = tail->ordinal;
	Buffer		found;

	hloom_bucket_unlock_block(bucket, buf);
	if (next == InvalidBlockNumber)
		return InvalidBuffer;
	found = hloom_bucket_lock_block(bucket, next, mode);
	if (hloom_page_tail(BufferGetPage(found))->ordinal <= ordinal)
		hloom_bucket_corrupted(bucket->rel, next, "chain of pages runs in a circle");
	return found;
}

/*
 * Raises XX001 unless every row of the locked page is sound.
 */
void
hloom_bucket_check_items(const HloomBucket *bucket, Buffer buf)
{
	if (hloom_page_first_bad_row(BufferGetPage(buf)) != InvalidOffsetNumber)
		hloom_bucket_corrupted(bucket->rel, BufferGetBlockNumber(buf), "invalid row");
}

/*
 * Fills what decides about rows of the locked bucket, with the clock of this moment: read under
 * the lock, it is never behind a clock that another session used for this bucket before.
 */
void
hloom_bucket_judge(const HloomBucket *bucket, HloomJudge *judge)
{
	judge->now = GetCurrentTimestamp();
	judge->incarnation = hloom_shared && !RecoveryInProgress() ? hloom_shared->incarnation : 0;
	judge->bucket = bucket->number;
	judge->stamp = bucket->stamp;
	judge->marked = hloom_tracked_any_marked(bucket->number);
}

/*
 * Returns the clock as a fence: microseconds since 1970, and FENCE_LEAP.
 */
int64
hloom_bucket_clock_fence(TimestampTz now)
{
	return now + (int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY + FENCE_LEAP;
}

/*
 * Returns the fence of the bucket's next grant.
 *
 * The counter is exact under the server incarnation that wrote it.  A later one cannot know what
 * was lost with the end of WAL (synchronous_commit = off, a failover), so it starts from the clock:
 * grants are fewer than microseconds, so whatever an earlier incarnation made of its own clock is
 * below, lost or not.  Were the start only at counter + FENCE_LEAP, two incarnations that begin
 * from the same durable page would give the same fences.  That is left for a clock set back.
 */
int64
hloom_bucket_next_fence(const HloomTail *tail, TimestampTz now)
{
	int64		clock;

	if (likely(hloom_shared && tail->incarnation == hloom_shared->incarnation))
		return tail->fence + 1;
	clock = hloom_bucket_clock_fence(now);
	return clock > tail->fence ? clock : tail->fence + FENCE_LEAP;
}

/*
 * Adds a page with one row to the end of the chain, and notes the row's fence on the primary:
 * one record of at most 4 pages.  "last" is the chain's last block.  May raise (disk full) before
 * anything is changed.
 */
XLogRecPtr
hloom_bucket_append(const HloomBucket *bucket, BlockNumber last, const HloomRow *row,
					uint64 incarnation)
{
	GenericXLogState *state = GenericXLogStart(bucket->rel);
	Buffer		tail = hloom_bucket_lock_block(bucket, last, BUFFER_LOCK_EXCLUSIVE);
	Buffer		meta = hloom_bucket_lock_meta(bucket->rel, BUFFER_LOCK_EXCLUSIVE);
	BlockNumber reuse = hloom_page_meta(BufferGetPage(meta))->first_free;
	Buffer		fresh;
	Page		primary_page;
	Page		tail_page;
	Page		fresh_page;
	XLogRecPtr	lsn;

	/* What is locked already would be waited for without end. */
	if (reuse == HLOOM_META_BLOCK || reuse == last ||
		reuse == BufferGetBlockNumber(bucket->primary))
		hloom_bucket_corrupted(bucket->rel, reuse, "page in use is in the list of free pages");
	if (reuse != InvalidBlockNumber)
		fresh = hloom_bucket_lock_page(bucket->rel, reuse, HLOOM_PAGE_FREE, BUFFER_LOCK_EXCLUSIVE);
	else
		fresh = hloom_extend_one(bucket->rel);

	primary_page = GenericXLogRegisterBuffer(state, bucket->primary, 0);
	tail_page = tail == bucket->primary ? primary_page : GenericXLogRegisterBuffer(state, tail, 0);
	fresh_page = GenericXLogRegisterBuffer(state, fresh, GENERIC_XLOG_FULL_IMAGE);
	if (reuse != InvalidBlockNumber)
		hloom_page_meta(GenericXLogRegisterBuffer(state, meta, 0))->first_free =
			hloom_page_tail(fresh_page)->next;
	hloom_page_init(fresh_page, HLOOM_PAGE_OVERFLOW, bucket->number,
					hloom_page_tail(tail_page)->ordinal + 1);
	hloom_page_add(fresh_page, row);
	hloom_page_tail(tail_page)->next = BufferGetBlockNumber(fresh);
	hloom_page_note_fence(primary_page, row->fence, incarnation);
	lsn = GenericXLogFinish(state);

	UnlockReleaseBuffer(fresh);
	UnlockReleaseBuffer(meta);
	hloom_bucket_unlock_block(bucket, tail);
	return lsn;
}
