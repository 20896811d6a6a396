/*
 * lease_vacuum.c
 *	  VACUUM and ANALYZE of the lease table.
 *
 * Neither is ever needed for correctness or against growth.  VACUUM removes rows that are
 * nobody's, unlinks empty overflow pages, bucket by bucket under the bucket's lock, and writes the
 * page and row counts the planner sees.  There is no xid in the table, so no horizon is moved.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "commands/vacuum.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"

#include "compat.h"
#include "lease_purge.h"
#include "lease_scan.h"
#include "lease_vacuum.h"

static double
count_rows(const HloomBucket *bucket)
{
	double		rows = 0;

	for (Buffer buf = bucket->primary; BufferIsValid(buf);
		 buf = hloom_bucket_next(bucket, buf, BUFFER_LOCK_SHARE))
		rows += PageGetMaxOffsetNumber(BufferGetPage(buf));
	return rows;
}

/*
 * AM callback relation_vacuum.
 */
void
hloom_vacuum_rel(Relation rel, struct VacuumParams *params, BufferAccessStrategy strategy)
{
	TimestampTz started = GetCurrentTimestamp();
	uint32		maxbucket = hloom_bucket_refresh_meta(rel)->maxbucket;
	double		rows = 0;

	for (uint32 number = 0; number <= maxbucket; number++)
	{
		HloomBucket bucket;
		HloomJudge	judge;

		hloom_vacuum_nap();
		hloom_bucket_lock(rel, number, BUFFER_LOCK_EXCLUSIVE, &bucket);
		hloom_bucket_judge(&bucket, &judge);
		hloom_purge_bucket(&bucket, &judge);
		rows += count_rows(&bucket);
		hloom_bucket_unlock(&bucket);
	}
	hloom_report_vacuum(rel, RelationGetNumberOfBlocks(rel), rows, started);
}

/*
 * AM callback scan_analyze_next_block: loads the rows of a page.  Returns false at the end, or
 * for a page without rows where core passes block numbers.
 */
bool
hloom_vacuum_next_block(TableScanDesc sscan, HLOOM_ANALYZE_BLOCK_ARGS)
{
	HloomScan  *scan = (HloomScan *) sscan;
	Buffer		buf = hloom_analyze_buffer(sscan->rs_rd);
	HloomJudge	judge = {.now = GetCurrentTimestamp()};
	int			dead = 0;
	Page		page;

	hloom_scan_reset(scan);
	if (!BufferIsValid(buf))
		return false;
	LockBuffer(buf, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buf);
	if (!PageIsNew(page) && (hloom_page_good_kind(page, HLOOM_PAGE_PRIMARY) ||
							 hloom_page_good_kind(page, HLOOM_PAGE_OVERFLOW)))
	{
		if (hloom_page_first_bad_row(page) != InvalidOffsetNumber)
			hloom_bucket_corrupted(sscan->rs_rd, BufferGetBlockNumber(buf), "invalid row");
		judge.bucket = hloom_page_tail(page)->bucket;
		judge.stamp = Max(scan->maxbucket, hloom_page_tail(page)->stamp);
		hloom_scan_take_page(scan, page, BufferGetBlockNumber(buf), &judge, &dead);
	}
	UnlockReleaseBuffer(buf);
	scan->dead = dead;
	return true;
}

/*
 * AM callback scan_analyze_next_tuple.
 */
bool
hloom_vacuum_next_tuple(TableScanDesc sscan, TransactionId oldest_xmin, double *live,
						double *dead, TupleTableSlot *slot)
{
	HloomScan  *scan = (HloomScan *) sscan;

	ExecClearTuple(slot);
	*dead += scan->dead;
	scan->dead = 0;
	if (++scan->at >= scan->count)
		return false;
	*live += 1;
	hloom_scan_store(scan, scan->at, slot);
	return true;
}
