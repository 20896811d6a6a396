/*
 * lease_split.c
 *	  Growth of the lease table by one bucket: linear hashing in place.
 *
 * Whoever overfills a bucket splits the next one in order, at most one at a time in a table (a
 * heavyweight lock on block 0, taken only if free, keeps others out).  No xid, no table lock, no
 * conflict with a reader.
 *
 * The steps, each safe to lose after it:
 *   1. The first bucket of a chunk: the file grows by a chunk of empty pages; one record puts the
 *      chunk into the metapage and writes its last page, so that replay makes the file as long.
 *   2. Pages of the new bucket beyond its first, if it needs any, are written; nothing leads there.
 *   3. One record raises maxbucket, purges the old primary page and writes the new one, which
 *      takes over the old one's fence.  Both carry the new maxbucket as their stamp.
 *   4. Rows left behind in the old bucket's overflow pages do not hash there any more, so nobody
 *      counts them; they are purged.
 * Leases that were lost and not counted yet move or stay as others do: nothing is counted here.
 * A crash before 3 loses the pages of 2 (never more than a long chain) and keeps the chunk.
 *
 * Locks: old primary, its chain, new primary, metapage.  Nobody else locks two primaries.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lmgr.h"

#include "compat.h"
#include "contain.h"
#include "durable.h"
#include "lease_bucket.h"
#include "lease_purge.h"
#include "lease_split.h"
#include "shmem.h"

/* A bucket with fewer rows is not worth a split, however long they are. */
#define MIN_ROWS 8

/* After a failure nobody tries for this long. */
#define PAUSE_AFTER_FAILURE (10 * USECS_PER_SEC)

/* The new bucket while it is made: page images, the primary's first. */
typedef struct NewBucket
{
	uint32		number;
	int			pages;
	int			room;
	PGAlignedBlock *page;
} NewBucket;

/*
 * Whether a bucket with so many live rows and bytes is reason to grow.
 */
bool
hloom_split_due(int live, Size bytes, TimestampTz now)
{
	return live >= MIN_ROWS && bytes > BLCKSZ / 2 &&
		now >= (TimestampTz) pg_atomic_read_u64(&hloom_shared->grow_after);
}

/*
 * Step 1.  Returns false when the table has all the chunks it can have.
 */
static bool
add_chunk(Relation rel)
{
	GenericXLogState *state;
	Buffer		meta;
	Buffer		end;
	HloomMeta  *content;
	BlockNumber start;

	if (hloom_bucket_meta(rel)->chunks >= HLOOM_MAX_CHUNKS)
		return false;
	state = GenericXLogStart(rel);
	start = hloom_extend_range(rel, HLOOM_CHUNK);
	meta = hloom_bucket_lock_meta(rel, BUFFER_LOCK_EXCLUSIVE);
	end = ReadBuffer(rel, start + HLOOM_CHUNK - 1);
	LockBuffer(end, BUFFER_LOCK_EXCLUSIVE);

	content = hloom_page_meta(GenericXLogRegisterBuffer(state, meta, 0));
	content->chunk_start[content->chunks++] = start;
	hloom_page_init(GenericXLogRegisterBuffer(state, end, GENERIC_XLOG_FULL_IMAGE),
					HLOOM_PAGE_RESERVED, 0, 0);
	GenericXLogFinish(state);
	UnlockReleaseBuffer(end);
	UnlockReleaseBuffer(meta);
	hloom_bucket_refresh_meta(rel);
	return true;
}

static Page
add_image(NewBucket *made, HloomPageKind kind, uint32 ordinal)
{
	Page		page;

	if (made->pages == made->room)
	{
		made->room *= 2;
		made->page = repalloc(made->page, made->room * sizeof(PGAlignedBlock));
	}
	page = made->page[made->pages++].data;
	memset(page, 0, BLCKSZ);
	hloom_page_init(page, kind, made->number, ordinal);
	return page;
}

/*
 * Copies the rows that belong to the new bucket into images of its pages.
 */
static void
collect_rows(const HloomBucket *old, NewBucket *made)
{
	HloomTail  *old_tail = hloom_page_tail(BufferGetPage(old->primary));
	Page		to = add_image(made, HLOOM_PAGE_PRIMARY, 0);
	Buffer		buf = old->primary;
	HloomJudge	judge;

	hloom_page_init_primary(to, made->number, made->number, old_tail->fence,
							old_tail->incarnation);
	hloom_bucket_judge(old, &judge);
	while (BufferIsValid(buf))
	{
		Page		page = BufferGetPage(buf);
		OffsetNumber max = PageGetMaxOffsetNumber(page);

		hloom_bucket_check_items(old, buf);
		for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
		{
			HloomRow   *row = hloom_page_row(page, off);

			if (hloom_page_bucket(row->hash, made->number) != made->number ||
				hloom_row_is_done(row, &judge))
				continue;
			if (!hloom_page_add(to, row))
			{
				to = add_image(made, HLOOM_PAGE_OVERFLOW, made->pages);
				hloom_page_add(to, row);
			}
		}
		buf = hloom_bucket_next(old, buf, BUFFER_LOCK_SHARE);
	}
}

/*
 * Step 2.  Writes the new bucket's overflow pages, last one first, so that each knows its next.
 */
static void
write_overflow(Relation rel, NewBucket *made)
{
	BlockNumber next = InvalidBlockNumber;

	for (int i = made->pages - 1; i > 0; i--)
	{
		GenericXLogState *state = GenericXLogStart(rel);
		Buffer		buf = hloom_extend_one(rel);

		hloom_page_tail(made->page[i].data)->next = next;
		memcpy(GenericXLogRegisterBuffer(state, buf, GENERIC_XLOG_FULL_IMAGE),
			   made->page[i].data, BLCKSZ);
		GenericXLogFinish(state);
		next = BufferGetBlockNumber(buf);
		UnlockReleaseBuffer(buf);
	}
	hloom_page_tail(made->page[0].data)->next = next;
}

/*
 * Step 3.
 */
static void
switch_over(HloomBucket *old, NewBucket *made)
{
	Relation	rel = old->rel;
	BlockNumber block = hloom_meta_block(hloom_bucket_meta(rel), made->number);
	GenericXLogState *state = GenericXLogStart(rel);
	Buffer		fresh;
	Buffer		meta;
	Page		old_page;
	HloomJudge	judge;

	/* What is locked already, or will be, must not be locked again. */
	if (block == HLOOM_META_BLOCK || block == BufferGetBlockNumber(old->primary) ||
		block >= RelationGetNumberOfBlocks(rel))
		hloom_bucket_corrupted(rel, HLOOM_META_BLOCK, "wrong place of a new bucket");
	fresh = ReadBuffer(rel, block);
	LockBuffer(fresh, BUFFER_LOCK_EXCLUSIVE);
	if (!PageIsNew(BufferGetPage(fresh)) &&
		!hloom_page_good_kind(BufferGetPage(fresh), HLOOM_PAGE_RESERVED))
		hloom_bucket_corrupted(rel, block, "page of a new bucket is in use");
	meta = hloom_bucket_lock_meta(rel, BUFFER_LOCK_EXCLUSIVE);

	old_page = GenericXLogRegisterBuffer(state, old->primary, 0);
	old->stamp = made->number;
	hloom_page_tail(old_page)->stamp = made->number;
	hloom_bucket_judge(old, &judge);
	hloom_purge_page(old_page, &judge, true);
	memcpy(GenericXLogRegisterBuffer(state, fresh, GENERIC_XLOG_FULL_IMAGE),
		   made->page[0].data, BLCKSZ);
	hloom_page_meta(GenericXLogRegisterBuffer(state, meta, 0))->maxbucket = made->number;
	GenericXLogFinish(state);
	UnlockReleaseBuffer(meta);
	UnlockReleaseBuffer(fresh);
}

/*
 * Splits the next bucket in order, unless somebody else is doing so.  Returns whether the table
 * grew.  The caller holds no page.  May raise; then the table is as before.
 */
bool
hloom_split_one(Relation rel)
{
	NewBucket	made = {.room = 1};
	HloomBucket old;
	HloomJudge	judge;

	if (!ConditionalLockPage(rel, HLOOM_META_BLOCK, ExclusiveLock))
		return false;
	made.number = hloom_bucket_refresh_meta(rel)->maxbucket + 1;
	if (hloom_durable_test_point(HLOOM_POINT_GROW))
		ereport(ERROR,
				(errcode(ERRCODE_DISK_FULL),
				 errmsg("growth of the lease table fails for a test")));
	if ((made.number >> HLOOM_CHUNK_SHIFT) >= hloom_bucket_meta(rel)->chunks && !add_chunk(rel))
	{
		UnlockPage(rel, HLOOM_META_BLOCK, ExclusiveLock);
		return false;
	}

	made.page = palloc(sizeof(PGAlignedBlock));
	hloom_bucket_lock(rel, hloom_page_parent(made.number), BUFFER_LOCK_EXCLUSIVE, &old);
	collect_rows(&old, &made);
	write_overflow(rel, &made);
	hloom_durable_test_point(HLOOM_POINT_SPLIT);
	switch_over(&old, &made);
	hloom_bucket_judge(&old, &judge);
	hloom_purge_after_split(&old, &judge);
	hloom_bucket_unlock(&old);

	hloom_bucket_refresh_meta(rel);
	UnlockPage(rel, HLOOM_META_BLOCK, ExclusiveLock);
	pfree(made.page);
	return true;
}

static void
report_failure(ErrorData *error)
{
	TimestampTz until = GetCurrentTimestamp() + PAUSE_AFTER_FAILURE;

	pg_atomic_write_u64(&hloom_shared->grow_after, (uint64) until);
	ereport(LOG,
			(errcode(error->sqlerrcode),
			 errmsg("could not grow the lease table: %s", error->message),
			 errdetail("Leases are granted as before while there is room; growth is tried again"
					   " in %d seconds.", (int) (PAUSE_AFTER_FAILURE / USECS_PER_SEC))));
}

static void
split(void *rel)
{
	(void) hloom_split_one((Relation) rel);
}

/*
 * Splits, and survives a failure: a full disk must not refuse a lease there is room for.  Only a
 * cancel is passed on.
 */
void
hloom_split_contained(Relation rel)
{
	XLogRecPtr	saved = hloom_durable_begin();
	ErrorData  *error = hloom_contain(split, rel);

	if (error != NULL)
	{
		if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
			ReThrowError(error);
		report_failure(error);
		FreeErrorData(error);
	}
	XactLastRecEnd = saved;
}
