/*
 * compat.h
 *	  Everything that differs between PostgreSQL 15 and 18, under one name each.
 *
 * This is the only file that tests PG_VERSION_NUM.  It knows nothing of leases.
 */
#ifndef HLOOM_COMPAT_H
#define HLOOM_COMPAT_H

#include "access/multixact.h"
#include "access/sdir.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "commands/vacuum.h"
#include "fmgr.h"
#include "pgstat.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "storage/smgr.h"
#include "utils/acl.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif
#if PG_VERSION_NUM >= 170000
#include "storage/read_stream.h"
#include "utils/wait_event.h"
#endif

/* The identity of a relation's file: renamed in 16. */
#if PG_VERSION_NUM >= 160000
typedef RelFileLocator HloomFile;
#define hloom_rel_file(rel) ((rel)->rd_locator)
#define hloom_file_equals(a, b) RelFileLocatorEquals(a, b)
#define hloom_rel_first_file_subid(rel) ((rel)->rd_firstRelfilelocatorSubid)
#define HLOOM_AM_SET_NEW_FILE(fn) .relation_set_new_filelocator = (fn)
typedef TU_UpdateIndexes *HloomUpdateIndexes;
#else
typedef RelFileNode HloomFile;
#define hloom_rel_file(rel) ((rel)->rd_node)
#define hloom_file_equals(a, b) RelFileNodeEquals(a, b)
#define hloom_rel_first_file_subid(rel) ((rel)->rd_firstRelfilenodeSubid)
#define HLOOM_AM_SET_NEW_FILE(fn) .relation_set_new_filenode = (fn)
typedef bool *HloomUpdateIndexes;
#endif

/* What ExecutorRun() is called with, as parameters, handed on, and as a struct. */
#if PG_VERSION_NUM >= 180000
#define HLOOM_EXECUTOR_RUN_ARGS QueryDesc *query, ScanDirection direction, uint64 count
#define HLOOM_EXECUTOR_RUN_PASS(from) from query, from direction, from count
typedef struct HloomExecutorRun
{
	struct QueryDesc *query;
	ScanDirection direction;
	uint64		count;
} HloomExecutorRun;
#else
#define HLOOM_EXECUTOR_RUN_ARGS \
	QueryDesc *query, ScanDirection direction, uint64 count, bool once
#define HLOOM_EXECUTOR_RUN_PASS(from) from query, from direction, from count, from once
typedef struct HloomExecutorRun
{
	struct QueryDesc *query;
	ScanDirection direction;
	uint64		count;
	bool		once;
} HloomExecutorRun;
#endif

/*
 * ANALYZE hands over its next block: a block number, or from 17 a stream of buffers.
 * hloom_analyze_buffer returns the pinned buffer, or InvalidBuffer at the end.
 */
#if PG_VERSION_NUM >= 170000
#define HLOOM_ANALYZE_BLOCK_ARGS ReadStream *stream
#define hloom_analyze_buffer(rel) read_stream_next_buffer(stream, NULL)
#else
#define HLOOM_ANALYZE_BLOCK_ARGS BlockNumber block, BufferAccessStrategy strategy
#define hloom_analyze_buffer(rel) \
	ReadBufferExtended(rel, MAIN_FORKNUM, block, RBM_NORMAL, strategy)
#endif

/* Page buffers handed to smgr must be I/O-aligned from 16. */
#if PG_VERSION_NUM >= 160000
typedef PGIOAlignedBlock HloomAlignedBlock;
#else
typedef PGAlignedBlock HloomAlignedBlock;
#endif

/*
 * Extends the main fork by one all-zero page and returns its buffer, exclusively locked.
 * May raise (disk full) before anything is changed.
 */
static inline Buffer
hloom_extend_one(Relation rel)
{
#if PG_VERSION_NUM >= 160000
	return ExtendBufferedRel(BMR_REL(rel), MAIN_FORKNUM, NULL, EB_LOCK_FIRST);
#else
	Buffer		buf;

	LockRelationForExtension(rel, ExclusiveLock);
	buf = ReadBuffer(rel, P_NEW);
	LockBuffer(buf, BUFFER_LOCK_EXCLUSIVE);
	UnlockRelationForExtension(rel, ExclusiveLock);
	return buf;
#endif
}

/*
 * Extends the main fork by count adjacent all-zero pages and returns the first one's number.
 * Nothing is logged: a page comes into being for a standby with the record that first fills it.
 */
static inline BlockNumber
hloom_extend_range(Relation rel, uint32 count)
{
	BlockNumber first = InvalidBlockNumber;

#if PG_VERSION_NUM >= 160000
	Buffer		bufs[64];
	uint32		done = 0;

	LockRelationForExtension(rel, ExclusiveLock);
	while (done < count)
	{
		uint32		got = 0;
		BlockNumber blk;

		blk = ExtendBufferedRelBy(BMR_REL(rel), MAIN_FORKNUM, NULL, EB_SKIP_EXTENSION_LOCK,
								  Min(count - done, lengthof(bufs)), bufs, &got);
		if (done == 0)
			first = blk;
		for (uint32 i = 0; i < got; i++)
			ReleaseBuffer(bufs[i]);
		done += got;
	}
	UnlockRelationForExtension(rel, ExclusiveLock);
#else
	LockRelationForExtension(rel, ExclusiveLock);
	for (uint32 i = 0; i < count; i++)
	{
		Buffer		buf = ReadBuffer(rel, P_NEW);

		if (i == 0)
			first = BufferGetBlockNumber(buf);
		ReleaseBuffer(buf);
	}
	UnlockRelationForExtension(rel, ExclusiveLock);
#endif
	return first;
}

/* An interval that means infinity exists from 17. */
static inline bool
hloom_interval_is_infinite(const Interval *span)
{
#if PG_VERSION_NUM >= 170000
	return INTERVAL_NOT_FINITE(span);
#else
	return false;
#endif
}

/* Whether role owns the relation (or is a superuser). */
static inline bool
hloom_owns_relation(Oid relid, Oid role)
{
#if PG_VERSION_NUM >= 160000
	return object_ownercheck(RelationRelationId, relid, role);
#else
	return pg_class_ownercheck(relid, role);
#endif
}

/* VACUUM's nap, and its look at interrupts. */
static inline void
hloom_vacuum_nap(void)
{
#if PG_VERSION_NUM >= 180000
	vacuum_delay_point(false);
#else
	vacuum_delay_point();
#endif
}

/* Writes page and tuple counts to pg_class and tells the statistics of a finished VACUUM. */
static inline void
hloom_report_vacuum(Relation rel, BlockNumber pages, double tuples, TimestampTz started)
{
#if PG_VERSION_NUM >= 180000
	vac_update_relstats(rel, pages, tuples, 0, 0, false, InvalidTransactionId,
						InvalidMultiXactId, NULL, NULL, false);
	pgstat_report_vacuum(RelationGetRelid(rel), rel->rd_rel->relisshared,
						 (PgStat_Counter) tuples, 0, started);
#else
	vac_update_relstats(rel, pages, tuples, 0, false, InvalidTransactionId,
						InvalidMultiXactId, NULL, NULL, false);
	pgstat_report_vacuum(RelationGetRelid(rel), rel->rd_rel->relisshared,
						 (PgStat_Counter) tuples, 0);
#endif
}

/*
 * Whether synchronous_standby_names names any.  Needs walsender_private.h before this file, and
 * SyncRepLock held.  The flag became a set of bits in a minor release.
 */
#ifdef SYNC_STANDBY_DEFINED
#define HLOOM_SYNC_STANDBYS_DEFINED() \
	((WalSndCtl->sync_standbys_status & SYNC_STANDBY_DEFINED) != 0)
#else
#define HLOOM_SYNC_STANDBYS_DEFINED() (WalSndCtl->sync_standbys_defined)
#endif

/* For statements in a pipeline: from minor releases of 15 on. */
#ifndef XACT_FLAGS_PIPELINING
#define XACT_FLAGS_PIPELINING 0
#define XACT_FLAGS_NEEDIMMEDIATECOMMIT 0
#endif

/* This process's number among those that can have transactions. */
static inline int
hloom_proc_number(void)
{
#if PG_VERSION_NUM >= 170000
	return MyProcNumber;
#else
	return MyProc->pgprocno;
#endif
}

/*
 * Returns what pg_stat_activity shows of a wait: an event of this name from 17, "Extension" before.
 * *event is the caller's, 0 at first.  May raise the first time.
 */
static inline uint32
hloom_wait_event(const char *name, uint32 *event)
{
#if PG_VERSION_NUM >= 170000
	if (unlikely(*event == 0))
		*event = WaitEventExtensionNew(name);
	return *event;
#else
	return PG_WAIT_EXTENSION;
#endif
}

/* From libpq/libpq.h, which needs the headers of all that PostgreSQL was built with. */
extern bool pq_check_connection(void);

#ifdef PG_MODULE_MAGIC_EXT
#define HLOOM_MODULE_MAGIC PG_MODULE_MAGIC_EXT(.name = "hloom_lock", .version = HLOOM_LOCK_VERSION)
#else
#define HLOOM_MODULE_MAGIC PG_MODULE_MAGIC
#endif

#endif							/* HLOOM_COMPAT_H */
