/*
 * lease_file.c
 *	  The lease table's file as a whole: making, emptying, moving, rewriting it.
 *
 * Core calls these with AccessExclusiveLock on the table, so no bucket lock is contended here.
 * Fences outlive their file: the counters of a new one start at the highest of the old file and
 * the clock, which also covers files that are gone (CREATE EXTENSION, restore); microseconds stay
 * below 2^53 for two centuries, so that every client can hold them.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xloginsert.h"
#include "catalog/storage.h"
#include "catalog/storage_xlog.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "replication/logicalworker.h"
#include "storage/bufmgr.h"
#include "storage/smgr.h"
#include "utils/lsyscache.h"

#include "compat.h"
#include "lease_bucket.h"
#include "lease_file.h"
#include "lease_split.h"
#include "lease_table.h"
#include "shmem.h"

/* A rewrite grows the new file until a bucket has at most this many rows on average. */
#define ROWS_PER_BUCKET 16

/*
 * Returns a fence above all that the relation's present file gave.  Pages that cannot be read
 * count as empty: TRUNCATE is the way out of a damaged file.
 */
static int64
highest_fence(Relation rel)
{
	BlockNumber blocks = RelationGetNumberOfBlocks(rel);
	TimestampTz now = GetCurrentTimestamp();
	int64		highest = 0;

	for (BlockNumber block = HLOOM_META_BLOCK + 1; block < blocks; block++)
	{
		Buffer		buf;
		Page		page;

		CHECK_FOR_INTERRUPTS();
		buf = ReadBufferExtended(rel, MAIN_FORKNUM, block, RBM_ZERO_ON_ERROR, NULL);
		LockBuffer(buf, BUFFER_LOCK_SHARE);
		page = BufferGetPage(buf);
		if (hloom_page_good_kind(page, HLOOM_PAGE_PRIMARY))
			highest = Max(highest, hloom_bucket_next_fence(hloom_page_tail(page), now));
		UnlockReleaseBuffer(buf);
	}
	return highest;
}

static void
write_page(SMgrRelation smgr, HloomFile *file, BlockNumber block, Page page)
{
	/* With wal_level = minimal a new file is synced at commit, and no record may touch it. */
	if (XLogIsNeeded())
		log_newpage(file, MAIN_FORKNUM, block, page, true);
	PageSetChecksumInplace(page, block);
	smgrextend(smgr, MAIN_FORKNUM, block, (char *) page, false);
}

/*
 * Writes the first pages of an empty file.  Past the buffer manager, as core does for a new file:
 * the relation cache may still know the old one.
 */
static void
write_first_pages(SMgrRelation smgr, HloomFile file, int64 fence)
{
	HloomAlignedBlock block;
	Page		page = (Page) block.data;
	uint64		incarnation = hloom_shared ? hloom_shared->incarnation : 0;

	hloom_page_init_meta(page, HLOOM_CHUNK - 1);
	write_page(smgr, &file, HLOOM_META_BLOCK, page);
	for (uint32 bucket = 0; bucket < HLOOM_CHUNK; bucket++)
	{
		hloom_page_init_primary(page, bucket, HLOOM_CHUNK - 1, fence, incarnation);
		write_page(smgr, &file, HLOOM_META_BLOCK + 1 + bucket, page);
	}

	/* A checkpoint between the records and the writes would leave the pages to nobody. */
	smgrimmedsync(smgr, MAIN_FORKNUM);
}

/*
 * Returns the table a rewrite's transient table stands for, or the relation itself.
 */
static Oid
table_behind(Relation rel)
{
	unsigned int origin;
	char		rest;

	if (sscanf(RelationGetRelationName(rel), "pg_temp_%u%c", &origin, &rest) == 1 &&
		get_rel_name(origin) != NULL)
		return origin;
	return RelationGetRelid(rel);
}

/*
 * Whether a file for this relation has a place: it is the extension's own table, just created or
 * already there.
 */
static bool
is_lease_table(Relation rel, Oid origin)
{
	if (IsBinaryUpgrade)
		return true;
	if (creating_extension &&
		CurrentExtensionObject == get_extension_oid(HLOOM_EXTENSION, true) &&
		strcmp(RelationGetRelationName(rel), HLOOM_TABLE) == 0)
		return true;
	return origin == hloom_table_oid();
}

static void
refuse_file(const char *what, Relation rel, Oid origin)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("%s is not supported for relation \"%s\"", what,
					origin == RelationGetRelid(rel) ? RelationGetRelationName(rel) :
					get_rel_name(origin)),
			 errhint("Access method \"" HLOOM_AM "\" keeps the permanent table \"" HLOOM_TABLE
					 "\" of extension hloom_lock and no other.")));
}

/*
 * AM callback relation_set_new_filenode: a new, empty file.
 */
void
hloom_file_set_new(Relation rel, const HloomFile *file, char persistence,
				   TransactionId *freeze_xid, MultiXactId *min_multi)
{
	Oid			origin = table_behind(rel);
	bool		replaces = !hloom_file_equals(hloom_rel_file(rel), *file);
	int64		fence = hloom_bucket_clock_fence(GetCurrentTimestamp());
	SMgrRelation smgr;

	if (persistence != RELPERSISTENCE_PERMANENT)
		refuse_file(persistence == RELPERSISTENCE_TEMP ? "TEMPORARY" : "UNLOGGED", rel, origin);
	if (!is_lease_table(rel, origin))
		refuse_file("USING " HLOOM_AM, rel, origin);
	if (replaces && IsLogicalWorker())
		refuse_file("TRUNCATE by logical replication", rel, origin);
	if (replaces && rel->rd_tableam == &hloom_am_routine)
		fence = Max(fence, highest_fence(rel));

	*freeze_xid = InvalidTransactionId;
	*min_multi = InvalidMultiXactId;
	smgr = RelationCreateStorage(*file, persistence, true);
	write_first_pages(smgr, *file, fence);
	smgrclose(smgr);
}

/*
 * AM callback relation_nontransactional_truncate: empties a file of this same transaction.
 */
void
hloom_file_truncate(Relation rel)
{
	int64		fence = Max(hloom_bucket_clock_fence(GetCurrentTimestamp()), highest_fence(rel));

	RelationTruncate(rel, 0);
	if (rel->rd_amcache)
		pfree(rel->rd_amcache);
	rel->rd_amcache = NULL;
	write_first_pages(RelationGetSmgr(rel), hloom_rel_file(rel), fence);
}

/*
 * AM callback relation_copy_data: the same pages in another tablespace.
 */
void
hloom_file_copy_data(Relation rel, const HloomFile *file)
{
	SMgrRelation to;

	FlushRelationBuffers(rel);
	to = RelationCreateStorage(*file, rel->rd_rel->relpersistence, true);
	RelationCopyStorage(RelationGetSmgr(rel), to, MAIN_FORKNUM, rel->rd_rel->relpersistence);
	RelationDropStorage(rel);
	smgrclose(to);
}

/*
 * Adds a row as it is to the table being written, which nobody else sees.
 */
static void
insert_raw(Relation to, const HloomRow *row)
{
	HloomBucket bucket;
	Buffer		buf;
	BlockNumber last = InvalidBlockNumber;
	bool		done = false;

	hloom_bucket_lock_hash(to, row->hash, BUFFER_LOCK_EXCLUSIVE, &bucket);
	for (buf = bucket.primary; BufferIsValid(buf) && !done;)
	{
		last = BufferGetBlockNumber(buf);
		if (PageGetFreeSpace(BufferGetPage(buf)) >= MAXALIGN(hloom_row_size(row)))
		{
			GenericXLogState *state = GenericXLogStart(to);

			done = hloom_page_add(GenericXLogRegisterBuffer(state, buf, 0), row);
			GenericXLogFinish(state);
			hloom_bucket_unlock_block(&bucket, buf);
		}
		else
			buf = hloom_bucket_next(&bucket, buf, BUFFER_LOCK_EXCLUSIVE);
	}
	if (!done)
		hloom_bucket_append(&bucket, last, row, 0);
	hloom_bucket_unlock(&bucket);
}

/*
 * Copies the rows of one bucket that are somebody's, and the expired ones nobody has counted as
 * lost: a count cannot be rolled back.  Returns how many; the others are counted in dead.
 */
static double
copy_bucket(Relation from, Relation to, uint32 number, double *dead)
{
	HloomBucket bucket;
	HloomJudge	judge;
	Buffer		buf;
	double		copied = 0;

	hloom_bucket_lock(from, number, BUFFER_LOCK_SHARE, &bucket);
	hloom_bucket_judge(&bucket, &judge);
	for (buf = bucket.primary; BufferIsValid(buf);
		 buf = hloom_bucket_next(&bucket, buf, BUFFER_LOCK_SHARE))
	{
		Page		page = BufferGetPage(buf);
		OffsetNumber max = PageGetMaxOffsetNumber(page);

		hloom_bucket_check_items(&bucket, buf);
		for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
		{
			if (hloom_row_is_done(hloom_page_row(page, off), &judge))
				(*dead)++;
			else
			{
				insert_raw(to, hloom_page_row(page, off));
				copied++;
			}
		}
	}
	hloom_bucket_unlock(&bucket);
	return copied;
}

/*
 * Raises the counters of a file that holds no row yet.
 */
static void
raise_fences(Relation rel, int64 fence)
{
	for (uint32 number = 0; number < HLOOM_CHUNK; number++)
	{
		GenericXLogState *state = GenericXLogStart(rel);
		HloomBucket bucket;
		HloomTail  *tail;

		hloom_bucket_lock(rel, number, BUFFER_LOCK_EXCLUSIVE, &bucket);
		tail = hloom_page_tail(GenericXLogRegisterBuffer(state, bucket.primary, 0));
		tail->fence = Max(tail->fence, fence);
		GenericXLogFinish(state);
		hloom_bucket_unlock(&bucket);
	}
}

/*
 * AM callback relation_copy_for_cluster: VACUUM FULL.  The new file gets as many buckets as its
 * rows need, which is how the table shrinks.
 */
void
hloom_file_rewrite(Relation from, Relation to, Relation index, bool use_sort,
				   TransactionId oldest_xmin, TransactionId *xid_cutoff, MultiXactId *multi_cutoff,
				   double *tuples, double *vacuumed, double *recently_dead)
{
	uint32		maxbucket = hloom_bucket_refresh_meta(from)->maxbucket;

	raise_fences(to, highest_fence(from));
	for (uint32 number = 0; number <= maxbucket; number++)
	{
		CHECK_FOR_INTERRUPTS();
		*tuples += copy_bucket(from, to, number, vacuumed);
		while (*tuples > ROWS_PER_BUCKET * ((double) hloom_bucket_meta(to)->maxbucket + 1))
			if (!hloom_split_one(to))
				break;
	}

	/* Core would store a horizon that nothing of ours ever advances. */
	*xid_cutoff = InvalidTransactionId;
	*multi_cutoff = InvalidMultiXactId;
	*recently_dead = 0;
}
