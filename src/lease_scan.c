/*
 * lease_scan.c
 *	  Sequential scans of the lease table: forward, backward, parallel.
 *
 * A scan shows the current state, not a snapshot: the rows of one bucket are copied out together
 * under the bucket's share lock, then returned without any lock.
 *
 * Nothing is missed or shown twice while the table grows.  The scan visits the buckets 0 to M,
 * with M the highest one when it began.  A visit of a bucket also visits the buckets above M that
 * were split from it before the visit, as its stamp tells, and in the same way theirs.  A row moves
 * only from a bucket to one split from it, so it is either still where it was or in one of these;
 * what is split off after the visit has been copied already.  In a parallel scan the unit handed
 * out is a bucket, and M is shared.
 */
#include "postgres.h"

#include "executor/tuptable.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "lease_scan.h"

#define FIRST_ROOM 64

/*
 * AM callback.
 */
TableScanDesc
hloom_scan_begin(Relation rel, Snapshot snapshot, int nkeys, struct ScanKeyData *key,
				 ParallelTableScanDesc pscan, uint32 flags)
{
	HloomScan  *scan = (HloomScan *) palloc0(sizeof(HloomScan));

	hloom_tuple_check_columns(rel);
	scan->maxbucket = pscan ? ((ParallelBlockTableScanDesc) pscan)->phs_nblocks - 1 :
		hloom_bucket_refresh_meta(rel)->maxbucket;
	scan->context = AllocSetContextCreate(CurrentMemoryContext, "hloom_lock scan",
										  ALLOCSET_DEFAULT_SIZES);
	hloom_scan_reset(scan);
	RelationIncrementReferenceCount(rel);
	scan->base.rs_rd = rel;
	scan->base.rs_snapshot = snapshot;
	scan->base.rs_nkeys = nkeys;
	scan->base.rs_flags = flags;
	scan->base.rs_parallel = pscan;
	if (flags & SO_TYPE_SEQSCAN)
		pgstat_count_heap_scan(rel);
	return &scan->base;
}

/*
 * AM callback.
 */
void
hloom_scan_end(TableScanDesc sscan)
{
	HloomScan  *scan = (HloomScan *) sscan;

	if (sscan->rs_flags & SO_TEMP_SNAPSHOT)
		UnregisterSnapshot(sscan->rs_snapshot);
	RelationDecrementReferenceCount(sscan->rs_rd);
	MemoryContextDelete(scan->context);
	pfree(scan);
}

/*
 * AM callback.
 */
void
hloom_scan_rescan(TableScanDesc sscan, struct ScanKeyData *key, bool set_params,
				  bool allow_strat, bool allow_sync, bool allow_pagemode)
{
	HloomScan  *scan = (HloomScan *) sscan;

	if (sscan->rs_parallel == NULL)
		scan->maxbucket = hloom_bucket_refresh_meta(sscan->rs_rd)->maxbucket;
	scan->started = false;
	hloom_scan_reset(scan);
}

/*
 * Forgets the loaded rows.
 */
void
hloom_scan_reset(HloomScan *scan)
{
	MemoryContextReset(scan->context);
	scan->rows = NULL;
	scan->count = scan->room = 0;
	scan->at = -1;
}

static void
take_row(HloomScan *scan, Page page, BlockNumber block, OffsetNumber off)
{
	Size		size = ItemIdGetLength(PageGetItemId(page, off));
	HloomCopy  *copy;

	if (scan->count == scan->room)
	{
		scan->room = Max(FIRST_ROOM, 2 * scan->room);
		scan->rows = scan->rows ?
			repalloc_huge(scan->rows, scan->room * sizeof(HloomCopy)) :
			MemoryContextAlloc(scan->context, scan->room * sizeof(HloomCopy));
	}
	copy = &scan->rows[scan->count++];
	ItemPointerSet(&copy->at, block, off);
	copy->row = MemoryContextAlloc(scan->context, size);
	memcpy(copy->row, hloom_page_row(page, off), size);
}

/*
 * Copies the live rows of a locked and checked page, and counts the others.
 */
void
hloom_scan_take_page(HloomScan *scan, Page page, BlockNumber block, const HloomJudge *judge,
					 int *dead)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		if (hloom_row_live(hloom_page_row(page, off), judge))
			take_row(scan, page, block, off);
		else
			(*dead)++;
	}
}

/*
 * Loads a bucket's rows, and those of the buckets above maxbucket that were split from it.
 */
static void
load_bucket(HloomScan *scan, uint32 number)
{
	HloomBucket bucket;
	HloomJudge	judge;
	Buffer		buf;
	uint32		stamp;
	int			dead = 0;

	if (number > hloom_bucket_meta(scan->base.rs_rd)->maxbucket)
		hloom_bucket_refresh_meta(scan->base.rs_rd);
	hloom_bucket_lock(scan->base.rs_rd, number, BUFFER_LOCK_SHARE, &bucket);
	hloom_bucket_judge(&bucket, &judge);
	stamp = bucket.stamp;
	for (buf = bucket.primary; BufferIsValid(buf);
		 buf = hloom_bucket_next(&bucket, buf, BUFFER_LOCK_SHARE))
	{
		hloom_bucket_check_items(&bucket, buf);
		hloom_scan_take_page(scan, BufferGetPage(buf), BufferGetBlockNumber(buf), &judge, &dead);
	}
	hloom_bucket_unlock(&bucket);

	for (uint64 bit = HLOOM_CHUNK; (number | bit) <= stamp; bit <<= 1)
		if (bit > number && (number | bit) > scan->maxbucket)
			load_bucket(scan, number | bit);
}

/*
 * Moves to the next bucket in the direction and loads it.  Returns false at the end.
 */
static bool
next_bucket(HloomScan *scan, ScanDirection direction)
{
	CHECK_FOR_INTERRUPTS();
	hloom_scan_reset(scan);
	if (scan->base.rs_parallel)
	{
		ParallelBlockTableScanDesc shared = (ParallelBlockTableScanDesc) scan->base.rs_parallel;

		scan->unit = (int64) pg_atomic_fetch_add_u64(&shared->phs_nallocated, 1);
	}
	else if (!scan->started)
		scan->unit = ScanDirectionIsBackward(direction) ? scan->maxbucket : 0;
	else
		scan->unit += ScanDirectionIsBackward(direction) ? -1 : 1;
	scan->started = true;

	/* A step beyond an end stays one step beyond it, so that turning around works. */
	if (scan->unit < 0 || scan->unit > scan->maxbucket)
	{
		scan->unit = scan->unit < 0 ? -1 : (int64) scan->maxbucket + 1;
		return false;
	}
	load_bucket(scan, (uint32) scan->unit);
	if (ScanDirectionIsBackward(direction))
		scan->at = scan->count;
	return true;
}

/*
 * Fills the slot with a loaded row; it stays valid until the next bucket is loaded.
 */
void
hloom_scan_store(HloomScan *scan, int index, TupleTableSlot *slot)
{
	MemoryContext old = MemoryContextSwitchTo(scan->context);
	bool		analyze = (scan->base.rs_flags & SO_TYPE_ANALYZE) != 0;
	HeapTuple	tuple;

	/* What ANALYZE sees, which runs as the table's owner, ends in pg_stats for others to read. */
	tuple = hloom_tuple_form(scan->base.rs_rd, &scan->rows[index], analyze);
	MemoryContextSwitchTo(old);
	ExecStoreHeapTuple(tuple, slot, false);
}

/*
 * Moves to the next row in the direction.  Returns false at the end.
 */
static bool
next_row(HloomScan *scan, ScanDirection direction)
{
	int			step = ScanDirectionIsBackward(direction) ? -1 : 1;

	for (;;)
	{
		scan->at += step;
		if (scan->at >= 0 && scan->at < scan->count)
			return true;
		if (!next_bucket(scan, direction))
			return false;
	}
}

/*
 * Returns the next live row, or NULL at the end: for our own use, without a tuple.  Valid until the
 * next call.
 */
const HloomRow *
hloom_scan_next_row(TableScanDesc sscan)
{
	HloomScan  *scan = (HloomScan *) sscan;

	return next_row(scan, ForwardScanDirection) ? scan->rows[scan->at].row : NULL;
}

/*
 * AM callback.
 */
bool
hloom_scan_getnextslot(TableScanDesc sscan, ScanDirection direction, TupleTableSlot *slot)
{
	HloomScan  *scan = (HloomScan *) sscan;

	ExecClearTuple(slot);
	if (!next_row(scan, direction))
		return false;
	hloom_scan_store(scan, scan->at, slot);
	pgstat_count_heap_getnext(sscan->rs_rd);
	return true;
}

/*
 * AM callback.
 */
Size
hloom_scan_parallel_estimate(Relation rel)
{
	return table_block_parallelscan_estimate(rel);
}

/*
 * AM callback.  Core's descriptor serves: its blocks are our buckets.
 */
Size
hloom_scan_parallel_initialize(Relation rel, ParallelTableScanDesc pscan)
{
	ParallelBlockTableScanDesc shared = (ParallelBlockTableScanDesc) pscan;
	Size		size = table_block_parallelscan_initialize(rel, pscan);

	pscan->phs_syncscan = false;
	shared->phs_nblocks = hloom_bucket_refresh_meta(rel)->maxbucket + 1;
	return size;
}
