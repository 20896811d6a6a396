/*
 * lease_am.c
 *	  The table access method hloom_lease: a table that is read by SELECT and changed by calls.
 *
 * Holds the routine, in the order of tableam.h, and refuses by one function whatever a lease table
 * cannot do.  The callbacks that work live in lease_scan.c, lease_file.c and lease_vacuum.c.
 */
#include "postgres.h"

#include "access/tableam.h"
#include "executor/tuptable.h"
#include "replication/logicalworker.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"

#include "compat.h"
#include "hloom.h"
#include "lease_am.h"
#include "lease_file.h"
#include "lease_scan.h"
#include "lease_table.h"
#include "lease_vacuum.h"

/* The planner's guess while neither VACUUM nor ANALYZE has counted. */
#define GUESSED_ROWS 1000

/*
 * Raises 0A000 naming the user's operation.
 */
void
hloom_am_refuse(Relation rel, const char *operation)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("%s is not supported for relation \"%s\"", operation,
					RelationGetRelationName(rel)),
			 errdetail("Leases are not rows of an ordinary table."),
			 errhint("Use hloom_try_acquire(), hloom_extend() and hloom_release() to change"
					 " leases, and SELECT to read them.")));
	pg_unreachable();
}

/* ------------------------------------------------------------------------
 * Slot related callbacks.
 * ------------------------------------------------------------------------
 */

/* Slots keep the place of a tuple, by which ANALYZE sorts. */
static const TupleTableSlotOps *
am_slot_callbacks(Relation rel)
{
	return &TTSOpsHeapTuple;
}

/* ------------------------------------------------------------------------
 * Index scan callbacks: there is no index.
 * ------------------------------------------------------------------------
 */

static struct IndexFetchTableData *
am_index_fetch_begin(Relation rel)
{
	hloom_am_refuse(rel, "index scan");
}

static void
am_index_fetch_reset(struct IndexFetchTableData *data)
{
	hloom_am_refuse(data->rel, "index scan");
}

static void
am_index_fetch_end(struct IndexFetchTableData *data)
{
	hloom_am_refuse(data->rel, "index scan");
}

static bool
am_index_fetch_tuple(struct IndexFetchTableData *scan, ItemPointer tid, Snapshot snapshot,
					 TupleTableSlot *slot, bool *call_again, bool *all_dead)
{
	hloom_am_refuse(scan->rel, "index scan");
}

/* ------------------------------------------------------------------------
 * Callbacks for single tuples: a lease has no versions and no lasting place.
 * ------------------------------------------------------------------------
 */

static bool
am_tuple_fetch_row_version(Relation rel, ItemPointer tid, Snapshot snapshot, TupleTableSlot *slot)
{
	hloom_am_refuse(rel, "UPDATE, MERGE or WHERE CURRENT OF");
}

static bool
am_tuple_tid_valid(TableScanDesc scan, ItemPointer tid)
{
	hloom_am_refuse(scan->rs_rd, "reading by ctid");
}

static void
am_tuple_get_latest_tid(TableScanDesc scan, ItemPointer tid)
{
	hloom_am_refuse(scan->rs_rd, "reading by ctid");
}

static bool
am_tuple_satisfies_snapshot(Relation rel, TupleTableSlot *slot, Snapshot snapshot)
{
	hloom_am_refuse(rel, "reading by ctid");
}

static TransactionId
am_index_delete_tuples(Relation rel, TM_IndexDeleteOp *delstate)
{
	hloom_am_refuse(rel, "index clean-up");
}

/* ------------------------------------------------------------------------
 * Changing tuples.  A logical-replication worker's inserts are ignored: leases are not replicated
 * logically, and a subscription FOR ALL TABLES must become ready.
 * ------------------------------------------------------------------------
 */

static void
am_tuple_insert(Relation rel, TupleTableSlot *slot, CommandId cid, int options,
				struct BulkInsertStateData *bistate)
{
	if (!IsLogicalWorker())
		hloom_am_refuse(rel, "INSERT");
}

static void
am_tuple_insert_speculative(Relation rel, TupleTableSlot *slot, CommandId cid, int options,
							struct BulkInsertStateData *bistate, uint32 token)
{
	hloom_am_refuse(rel, "INSERT");
}

static void
am_tuple_complete_speculative(Relation rel, TupleTableSlot *slot, uint32 token, bool succeeded)
{
	hloom_am_refuse(rel, "INSERT");
}

static void
am_multi_insert(Relation rel, TupleTableSlot **slots, int nslots, CommandId cid, int options,
				struct BulkInsertStateData *bistate)
{
	if (!IsLogicalWorker())
		hloom_am_refuse(rel, "COPY FROM");
}

static TM_Result
am_tuple_delete(Relation rel, ItemPointer tid, CommandId cid, Snapshot snapshot,
				Snapshot crosscheck, bool wait, TM_FailureData *tmfd, bool changing_part)
{
	hloom_am_refuse(rel, "DELETE");
}

static TM_Result
am_tuple_update(Relation rel, ItemPointer tid, TupleTableSlot *slot, CommandId cid,
				Snapshot snapshot, Snapshot crosscheck, bool wait, TM_FailureData *tmfd,
				LockTupleMode *lockmode, HloomUpdateIndexes update_indexes)
{
	hloom_am_refuse(rel, "UPDATE");
}

static TM_Result
am_tuple_lock(Relation rel, ItemPointer tid, Snapshot snapshot, TupleTableSlot *slot,
			  CommandId cid, LockTupleMode mode, LockWaitPolicy wait_policy, uint8 flags,
			  TM_FailureData *tmfd)
{
	hloom_am_refuse(rel, "row locking");
}

/* ------------------------------------------------------------------------
 * DDL: indexes.
 * ------------------------------------------------------------------------
 */

static double
am_index_build_range_scan(Relation rel, Relation index, struct IndexInfo *info, bool allow_sync,
						  bool anyvisible, bool progress, BlockNumber start, BlockNumber count,
						  IndexBuildCallback callback, void *state, TableScanDesc scan)
{
	hloom_am_refuse(rel, "CREATE INDEX");
}

static void
am_index_validate_scan(Relation rel, Relation index, struct IndexInfo *info, Snapshot snapshot,
					   struct ValidateIndexState *state)
{
	hloom_am_refuse(rel, "CREATE INDEX");
}

/* ------------------------------------------------------------------------
 * Miscellaneous, planner, executor.
 * ------------------------------------------------------------------------
 */

static bool
am_relation_needs_toast_table(Relation rel)
{
	return false;
}

static void
am_relation_estimate_size(Relation rel, int32 *attr_widths, BlockNumber *pages, double *tuples,
						  double *allvisfrac)
{
	*pages = RelationGetNumberOfBlocks(rel);
	*tuples = rel->rd_rel->reltuples >= 0 ? rel->rd_rel->reltuples : GUESSED_ROWS;
	*allvisfrac = 0;
}

static bool
am_scan_sample_next_block(TableScanDesc scan, struct SampleScanState *state)
{
	hloom_am_refuse(scan->rs_rd, "TABLESAMPLE");
}

static bool
am_scan_sample_next_tuple(TableScanDesc scan, struct SampleScanState *state, TupleTableSlot *slot)
{
	hloom_am_refuse(scan->rs_rd, "TABLESAMPLE");
}

const TableAmRoutine hloom_am_routine = {
	.type = T_TableAmRoutine,

	.slot_callbacks = am_slot_callbacks,

	.scan_begin = hloom_scan_begin,
	.scan_end = hloom_scan_end,
	.scan_rescan = hloom_scan_rescan,
	.scan_getnextslot = hloom_scan_getnextslot,

	.parallelscan_estimate = hloom_scan_parallel_estimate,
	.parallelscan_initialize = hloom_scan_parallel_initialize,
	.parallelscan_reinitialize = table_block_parallelscan_reinitialize,

	.index_fetch_begin = am_index_fetch_begin,
	.index_fetch_reset = am_index_fetch_reset,
	.index_fetch_end = am_index_fetch_end,
	.index_fetch_tuple = am_index_fetch_tuple,

	.tuple_fetch_row_version = am_tuple_fetch_row_version,
	.tuple_tid_valid = am_tuple_tid_valid,
	.tuple_get_latest_tid = am_tuple_get_latest_tid,
	.tuple_satisfies_snapshot = am_tuple_satisfies_snapshot,
	.index_delete_tuples = am_index_delete_tuples,

	.tuple_insert = am_tuple_insert,
	.tuple_insert_speculative = am_tuple_insert_speculative,
	.tuple_complete_speculative = am_tuple_complete_speculative,
	.multi_insert = am_multi_insert,
	.tuple_delete = am_tuple_delete,
	.tuple_update = am_tuple_update,
	.tuple_lock = am_tuple_lock,

	HLOOM_AM_SET_NEW_FILE(hloom_file_set_new),
	.relation_nontransactional_truncate = hloom_file_truncate,
	.relation_copy_data = hloom_file_copy_data,
	.relation_copy_for_cluster = hloom_file_rewrite,
	.relation_vacuum = hloom_vacuum_rel,
	.scan_analyze_next_block = hloom_vacuum_next_block,
	.scan_analyze_next_tuple = hloom_vacuum_next_tuple,
	.index_build_range_scan = am_index_build_range_scan,
	.index_validate_scan = am_index_validate_scan,

	.relation_size = table_block_relation_size,
	.relation_needs_toast_table = am_relation_needs_toast_table,

	.relation_estimate_size = am_relation_estimate_size,

	.scan_sample_next_block = am_scan_sample_next_block,
	.scan_sample_next_tuple = am_scan_sample_next_tuple
};

PG_FUNCTION_INFO_V1(hloom_lease_handler);

/*
 * SQL: the access method's handler.
 */
Datum
hloom_lease_handler(PG_FUNCTION_ARGS)
{
	PG_RETURN_POINTER(&hloom_am_routine);
}
