/*
 * lease_place.c
 *	  Where a row of the lease table is written.
 *
 * A claim overwrites the dead row of its key where it fits, so a key's page changes by few bytes;
 * it never leaves a second row of the key that a clock set back could bring to life.  Otherwise it
 * takes the place of a dead row that was not lost, free room, room made by purging, or a new page
 * of the chain, in this order.  Lost rows that go are counted.
 *
 * The bucket is exclusively locked and was walked (lease_walk.c).  Knows rows, and no caller.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/bufmgr.h"

#include "compat.h"
#include "lease_delta.h"
#include "lease_place.h"
#include "lease_purge.h"
#include "shmem.h"

/*
 * Adds a row to a page of the chain, after a purge when asked.
 */
static XLogRecPtr
add_row(const HloomBucket *bucket, const HloomWalk *walk, BlockNumber block, bool purge,
		const HloomRow *row)
{
	GenericXLogState *state = GenericXLogStart(bucket->rel);
	Buffer		buf = hloom_bucket_lock_block(bucket, block, BUFFER_LOCK_EXCLUSIVE);
	Page		primary = GenericXLogRegisterBuffer(state, bucket->primary, 0);
	Page		page = primary;
	XLogRecPtr	lsn;

	if (buf != bucket->primary)
		page = GenericXLogRegisterBuffer(state, buf, 0);
	if (purge)
	{
		hloom_bucket_check_items(bucket, buf);
		hloom_purge_page(page, &walk->judge, false);
	}
	if (!hloom_page_add(page, row))
		hloom_bucket_corrupted(bucket->rel, block, "wrong free space");
	hloom_page_note_fence(primary, row->fence, hloom_shared->incarnation);
	lsn = GenericXLogFinish(state);
	hloom_bucket_unlock_block(bucket, buf);
	return lsn;
}

/*
 * Overwrites the first size bytes of the row at a place.  A fence above the bucket's counter
 * becomes its counter.  Returns the end of the record.
 */
XLogRecPtr
hloom_place_overwrite(const HloomBucket *bucket, ItemPointer at, const HloomRow *row, Size size)
{
	HloomDelta	delta;
	Buffer		buf = hloom_bucket_lock_block(bucket, ItemPointerGetBlockNumber(at),
											  BUFFER_LOCK_EXCLUSIVE);
	Page		page = BufferGetPage(buf);
	HloomTail  *tail = hloom_page_tail(page);
	HloomTail  *counter = hloom_page_tail(BufferGetPage(bucket->primary));
	TimestampTz earliest = Min(tail->earliest, row->expires_at);
	XLogRecPtr	lsn;

	delta.buffers = 0;
	hloom_delta_set(&delta, buf, hloom_page_row(page, ItemPointerGetOffsetNumber(at)), row, size);
	hloom_delta_set(&delta, buf, &tail->earliest, &earliest, sizeof(earliest));
	if (row->fence > counter->fence)
	{
		hloom_delta_set(&delta, bucket->primary, &counter->fence, &row->fence,
						sizeof(row->fence));
		hloom_delta_set(&delta, bucket->primary, &counter->incarnation,
						&hloom_shared->incarnation, sizeof(counter->incarnation));
	}
	lsn = hloom_delta_finish(bucket->rel, &delta);
	hloom_bucket_unlock_block(bucket, buf);
	return lsn;
}

/*
 * The lease of the call's key is lost, whose row just went.  Raises nothing.
 */
void
hloom_place_count_lost(const HloomCall *call, const HloomRow *head, HloomLossReason reason)
{
	HloomLoss	loss = hloom_row_loss(head, reason);

	loss.ns = call->name.ns;
	loss.key = call->name.key;
	hloom_losses_add(MyDatabaseId, &loss);
}

/*
 * Writes the row over the key's dead one if that is long enough.  If not, that one is freed, so
 * that it does not come to life again, and an invalid LSN is returned.
 */
static XLogRecPtr
replace_stale(const HloomBucket *bucket, HloomWalk *walk, const HloomRow *row)
{
	HloomRow	stale = walk->stale_head;
	bool		lost = hloom_row_is_lost(&stale, &walk->judge);
	bool		fits = walk->stale_capacity >= hloom_row_size(row);
	XLogRecPtr	lsn;

	stale.flags |= HLOOM_ROW_FREE;
	lsn = hloom_place_overwrite(bucket, &walk->stale, fits ? row : &stale,
								fits ? hloom_row_size(row) : offsetof(HloomRow, texts));
	if (lost)
		hloom_place_count_lost(walk->call, &stale, HLOOM_LOSS_EXPIRED);
	return fits ? lsn : InvalidXLogRecPtr;
}

/*
 * Grants: finds a place for the row and writes it there, and the fence into the bucket's counter.
 * Returns the end of the record.  May raise before the row is written (disk full).
 */
XLogRecPtr
hloom_place_row(const HloomBucket *bucket, HloomWalk *walk, const HloomRow *row)
{
	if (ItemPointerIsValid(&walk->stale))
	{
		XLogRecPtr	lsn = replace_stale(bucket, walk, row);

		if (!XLogRecPtrIsInvalid(lsn))
			return lsn;
	}
	if (ItemPointerIsValid(&walk->reuse))
		return hloom_place_overwrite(bucket, &walk->reuse, row, hloom_row_size(row));
	if (walk->room != InvalidBlockNumber)
		return add_row(bucket, walk, walk->room, false, row);
	if (walk->purge != InvalidBlockNumber)
		return add_row(bucket, walk, walk->purge, true, row);
	return hloom_bucket_append(bucket, walk->last, row, hloom_shared->incarnation);
}

/*
 * The owner claims what it holds: same fence, new end, and the texts of this call if they fit.
 * Returns the end of the record.
 */
XLogRecPtr
hloom_place_renewal(const HloomBucket *bucket, HloomWalk *walk, HloomRow *row)
{
	ItemPointer at = &walk->held_at;

	if (hloom_row_size(row) <= walk->capacity)
		return hloom_place_overwrite(bucket, at, row, hloom_row_size(row));
	row->ns_len = walk->head.ns_len;
	row->key_len = walk->head.key_len;
	row->note_len = walk->head.note_len;
	row->app_len = walk->head.app_len;
	row->addr_len = walk->head.addr_len;
	return hloom_place_overwrite(bucket, at, row, offsetof(HloomRow, texts));
}
