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

/* Equal bytes within a change that are worth a part of their own behind them. */
#define WORTH_A_PART 8

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
		delta->length[i] = 0;
	}
	return i;
}

static void
add_part(HloomDelta *delta, int i, Size offset, const char *data, Size size)
{
	char	   *to = delta->parts[i] + delta->length[i];
	uint16		head[2] = {(uint16) offset, (uint16) size};

	Assert(delta->length[i] + sizeof(head) + size <= HLOOM_DELTA_SIZE);
	memcpy(to, head, sizeof(head));
	memcpy(to + sizeof(head), data, size);
	delta->length[i] += sizeof(head) + size;
}

/*
 * Notes that size bytes at a place of the page become data, leaving out what is equal.
 */
void
hloom_delta_set(HloomDelta *delta, Buffer buf, void *at, const void *data, Size size)
{
	const char *old = at;
	const char *new = data;
	int			i = buffer_index(delta, buf);
	Size		base = (char *) at - (char *) BufferGetPage(buf);
	Size		pos = 0;

	for (;;)
	{
		Size		start;
		Size		end;

		while (size - pos >= sizeof(uint64) && memcmp(old + pos, new + pos, sizeof(uint64)) == 0)
			pos += sizeof(uint64);
		while (pos < size && old[pos] == new[pos])
			pos++;
		if (pos == size)
			return;
		start = pos;
		end = ++pos;
		while (pos < size && pos - end < WORTH_A_PART)
		{
			if (old[pos] != new[pos])
				end = pos + 1;
			pos++;
		}
		add_part(delta, i, base + start, new + start, end - start);
	}
}

/*
 * Puts the parts into the page.
 */
static void
apply_parts(Page page, const char *parts, int length)
{
	const char *end = parts + length;

	while (parts < end)
	{
		uint16		head[2];

		memcpy(head, parts, sizeof(head));
		memcpy((char *) page + head[0], parts + sizeof(head), head[1]);
		parts += sizeof(head) + head[1];
	}
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
	int			changed = 0;

	if (!RelationNeedsWAL(rel))
		return lsn;
	for (int i = 0; i < delta->buffers; i++)
		changed += delta->length[i];
	if (changed == 0)
		return PageGetLSN(BufferGetPage(delta->buffer[0]));

	START_CRIT_SECTION();
	XLogBeginInsert();
	for (int i = 0; i < delta->buffers; i++)
	{
		if (delta->length[i] == 0)
			continue;
		apply_parts(BufferGetPage(delta->buffer[i]), delta->parts[i], delta->length[i]);
		MarkBufferDirty(delta->buffer[i]);
		XLogRegisterBuffer(i, delta->buffer[i], REGBUF_STANDARD);
		XLogRegisterBufData(i, delta->parts[i], delta->length[i]);
	}
	lsn = XLogInsert(RM_GENERIC_ID, 0);
	for (int i = 0; i < delta->buffers; i++)
		if (delta->length[i] > 0)
			PageSetLSN(BufferGetPage(delta->buffer[i]), lsn);
	END_CRIT_SECTION();
	return lsn;
}
