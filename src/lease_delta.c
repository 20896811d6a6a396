/*
 * lease_delta.c
 *	  Small changes of pages, logged as what they are.
 *
 * GenericXLogStart() and its friends copy each page and find out by comparing every byte what
 * changed: more than half of the instructions of a grant and its release.  Who overwrites a row in
 * place knows what changed.  So the record is written here, in the format of generic_xlog.c:
 * for each page parts of offset, length and bytes, which generic_redo() puts into the page before
 * it zeroes the hole.  That format has been the same since Generic WAL exists; it is not promised,
 * so the crash, standby and consistency tests run on every major version.  Whatever moves pd_lower
 * or pd_upper goes through the public functions.
 *
 * The buffers are exclusively locked by the caller.  hloom_delta_set() changes nothing yet.
 */
#include "postgres.h"

#include "access/generic_xlog.h"
#include "access/rmgr.h"
#include "access/xloginsert.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"

#include "compat.h"
#include "lease_delta.h"

static int
buffer_index(HloomDelta *delta, Buffer buf)
{
	int			i = 0;

	while (i < delta->buffers && delta->buffer[i] != buf)
		i++;
	if (i == delta->buffers)
	{
		Assert(i < HLOOM_DELTA_BUFFERS);
		delta->buffer[delta->buffers++] = buf;
	}
	return i;
}

/*
 * Notes that size bytes at a place of the page become data, which stays as it is until the end.
 * Equal bytes at both ends are left out.
 */
void
hloom_delta_set(HloomDelta *delta, Buffer buf, void *at, const void *data, Size size)
{
	HloomDeltaPart *part = &delta->part[delta->parts];
	const char *old = at;
	const char *new = data;
	int			buffer = buffer_index(delta, buf);

	while (size > 0 && *old == *new)
		old++, new++, size--;
	while (size > 0 && old[size - 1] == new[size - 1])
		size--;
	if (size == 0)
		return;

	Assert(delta->parts < HLOOM_DELTA_PARTS);
	part->buffer = buffer;
	part->at = (char *) old;
	part->data = new;
	part->head[0] = (uint16) (old - (char *) BufferGetPage(buf));
	part->head[1] = (uint16) size;
	delta->parts++;
}

/*
 * Changes the pages and logs it.  Returns the end of the record, or of the page's last one when
 * nothing is different, or InvalidXLogRecPtr when the relation is not logged.  Does not raise once
 * a byte has changed.
 */
XLogRecPtr
hloom_delta_finish(Relation rel, HloomDelta *delta)
{
	XLogRecPtr	lsn = InvalidXLogRecPtr;

	if (!RelationNeedsWAL(rel))
		return lsn;
	if (delta->parts == 0)
		return PageGetLSN(BufferGetPage(delta->buffer[0]));

	START_CRIT_SECTION();
	for (int i = 0; i < delta->parts; i++)
		memcpy(delta->part[i].at, delta->part[i].data, delta->part[i].head[1]);
	for (int i = 0; i < delta->buffers; i++)
		MarkBufferDirty(delta->buffer[i]);

	XLogBeginInsert();
	for (int i = 0; i < delta->buffers; i++)
		XLogRegisterBuffer(i, delta->buffer[i], REGBUF_STANDARD);
	for (int i = 0; i < delta->parts; i++)
	{
		HloomDeltaPart *part = &delta->part[i];

		XLogRegisterBufData(part->buffer, (char *) part->head, sizeof(part->head));
		XLogRegisterBufData(part->buffer, (char *) part->data, part->head[1]);
	}
	lsn = XLogInsert(RM_GENERIC_ID, 0);
	for (int i = 0; i < delta->buffers; i++)
		PageSetLSN(BufferGetPage(delta->buffer[i]), lsn);
	END_CRIT_SECTION();
	return lsn;
}
