/*
 * lease_scan.h
 *	  Sequential scans of the lease table.
 */
#ifndef HLOOM_LEASE_SCAN_H
#define HLOOM_LEASE_SCAN_H

#include "access/relscan.h"
#include "access/tableam.h"
#include "lease_bucket.h"
#include "lease_tuple.h"

typedef struct HloomScan
{
	TableScanDescData base;
	uint32		maxbucket;		/* when the scan began; in a parallel scan the leader's */
	int64		unit;			/* bucket whose rows are loaded; -1 or maxbucket+1 outside */
	bool		started;
	MemoryContext context;		/* of the loaded rows, reset with the next bucket */
	HloomCopy  *rows;
	int			count;
	int			room;
	int			at;				/* row last returned */
	int			dead;			/* of the page loaded by ANALYZE */
} HloomScan;

extern TableScanDesc hloom_scan_begin(Relation rel, Snapshot snapshot, int nkeys,
									  struct ScanKeyData *key, ParallelTableScanDesc pscan,
									  uint32 flags);
extern void hloom_scan_end(TableScanDesc sscan);
extern void hloom_scan_rescan(TableScanDesc sscan, struct ScanKeyData *key, bool set_params,
							  bool allow_strat, bool allow_sync, bool allow_pagemode);
extern bool hloom_scan_getnextslot(TableScanDesc sscan, ScanDirection direction,
								   TupleTableSlot *slot);
extern const HloomRow *hloom_scan_next_row(TableScanDesc sscan);
extern Size hloom_scan_parallel_estimate(Relation rel);
extern Size hloom_scan_parallel_initialize(Relation rel, ParallelTableScanDesc pscan);
extern void hloom_scan_reset(HloomScan *scan);
extern void hloom_scan_take_page(HloomScan *scan, Page page, BlockNumber block,
								 const HloomJudge *judge, int *dead);
extern void hloom_scan_store(HloomScan *scan, int index, TupleTableSlot *slot);

#endif							/* HLOOM_LEASE_SCAN_H */
