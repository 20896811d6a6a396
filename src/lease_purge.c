/*
 * lease_purge.c
 *	  Rows that are nobody's go away, and those among them that were lost are counted.
 *
 * An expired row is free for anybody at once, but it stays until somebody needs its place or looks
 * for such rows.  Then its lease is counted as lost (losses.c), once: each row goes away under the
 * exclusive lock of its bucket, and nothing that raises comes between the count and the change.
 * Where a row only moves, as in a split or a rewrite, an expired one moves with the others: a
 * rewrite can be rolled back, a count cannot.
 *
 * The bucket is exclusively locked by the caller.  Knows rows and pages, but not what a grant is.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/bufmgr.h"

#include "compat.h"
#include "lease_purge.h"

/*
 * The lease of a checked row is lost.  The row is about to go, or just went.  Raises nothing.
 */
void
hloom_purge_count_lost(const HloomRow *row, HloomLossReason reason)
{
	HloomLoss	loss = hloom_row_loss(row, reason);

	hloom_losses_add(MyDatabaseId, &loss);
}

static bool
goes(const HloomRow *row, const HloomJudge *judge, bool keep_lost)
{
	return keep_lost ? hloom_row_is_done(row, judge) : !hloom_row_live(row, judge);
}

/*
 * Removes from the image of a checked page the rows that are nobody's, and counts those that were
 * lost or keeps them.  The caller writes the image with nothing in between that can raise.  Returns
 * how many rows went.
 */
int
hloom_purge_page(Page page, const HloomJudge *judge, bool keep_lost)
{
	OffsetNumber dead[HLOOM_MAX_ROWS];
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	int			count = 0;

	Assert(max <= HLOOM_MAX_ROWS);
	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		HloomRow   *row = hloom_page_row(page, off);

		if (!goes(row, judge, keep_lost))
			continue;
		dead[count++] = off;
		if (!keep_lost && hloom_row_is_lost(row, judge))
			hloom_purge_count_lost(row, HLOOM_LOSS_EXPIRED);
	}
	if (count > 0)
	{
		PageIndexMultiDelete(page, dead, count);
		hloom_page_settle(page);
	}
	return count;
}

static bool
some_row_stays(Page page, const HloomJudge *judge, bool keep_lost)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
		if (!goes(hloom_page_row(page, off), judge, keep_lost))
			return true;
	return false;
}

static void
purge_buffer(const HloomBucket *bucket, Buffer buf, const HloomJudge *judge, bool keep_lost)
{
	GenericXLogState *state = GenericXLogStart(bucket->rel);

	if (hloom_purge_page(GenericXLogRegisterBuffer(state, buf, 0), judge, keep_lost) > 0)
		GenericXLogFinish(state);
	else
		GenericXLogAbort(state);
}

/*
 * Moves an overflow page, none of whose rows stays, out of the chain into the list of free pages.
 * Both pages are locked.
 */
static void
unlink_page(const HloomBucket *bucket, Buffer prev, Buffer buf, const HloomJudge *judge,
			bool keep_lost)
{
	GenericXLogState *state = GenericXLogStart(bucket->rel);
	Buffer		meta = hloom_bucket_lock_meta(bucket->rel, BUFFER_LOCK_EXCLUSIVE);
	Page		prev_page = GenericXLogRegisterBuffer(state, prev, 0);
	Page		page = GenericXLogRegisterBuffer(state, buf, GENERIC_XLOG_FULL_IMAGE);
	HloomMeta  *content = hloom_page_meta(GenericXLogRegisterBuffer(state, meta, 0));

	(void) hloom_purge_page(page, judge, keep_lost);
	hloom_page_tail(prev_page)->next = hloom_page_tail(page)->next;
	hloom_page_init(page, HLOOM_PAGE_FREE, 0, 0);
	hloom_page_tail(page)->next = content->first_free;
	content->first_free = BufferGetBlockNumber(buf);
	GenericXLogFinish(state);
	UnlockReleaseBuffer(meta);
}

/*
 * Purges the overflow pages, and takes empty ones out of the chain.
 */
static void
purge_chain(const HloomBucket *bucket, const HloomJudge *judge, bool keep_lost)
{
	Buffer		prev = bucket->primary;
	BlockNumber next = hloom_page_tail(BufferGetPage(prev))->next;

	while (next != InvalidBlockNumber)
	{
		uint32		ordinal = hloom_page_tail(BufferGetPage(prev))->ordinal;
		Buffer		buf = prev;

		if (next != BufferGetBlockNumber(prev))
			buf = hloom_bucket_lock_block(bucket, next, BUFFER_LOCK_EXCLUSIVE);
		if (hloom_page_tail(BufferGetPage(buf))->ordinal <= ordinal)
			hloom_bucket_corrupted(bucket->rel, next, "chain of pages runs in a circle");
		hloom_bucket_check_items(bucket, buf);
		next = hloom_page_tail(BufferGetPage(buf))->next;
		if (some_row_stays(BufferGetPage(buf), judge, keep_lost))
		{
			purge_buffer(bucket, buf, judge, keep_lost);
			hloom_bucket_unlock_block(bucket, prev);
			prev = buf;
		}
		else
		{
			unlink_page(bucket, prev, buf, judge, keep_lost);
			UnlockReleaseBuffer(buf);
		}
	}
	hloom_bucket_unlock_block(bucket, prev);
}

/*
 * Removes the rows that are nobody's, and empty overflow pages.  Counts what was lost.
 */
void
hloom_purge_bucket(const HloomBucket *bucket, const HloomJudge *judge)
{
	hloom_bucket_check_items(bucket, bucket->primary);
	purge_buffer(bucket, bucket->primary, judge, false);
	purge_chain(bucket, judge, false);
}

/*
 * The same for the overflow pages of a bucket that was just split, but what was lost stays.
 */
void
hloom_purge_after_split(const HloomBucket *bucket, const HloomJudge *judge)
{
	purge_chain(bucket, judge, true);
}
