/*
 * lease_page.c
 *	  Making, checking and filling pages of the lease table.
 *
 * Works on page images alone: no buffers, no locks, no WAL, no clock.  The checks return a
 * verdict and never raise, so that the caller can name relation and block; they look at whatever
 * is used later, so that a scribbled page is an error and never a crash.  This file is the only
 * one that adds items to a page and moves pd_lower.
 */
#include "postgres.h"

#include "storage/itemid.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "lease_page.h"

StaticAssertDecl(sizeof(HloomMeta) + SizeOfPageHeaderData + sizeof(HloomTail) <= BLCKSZ,
				 "metapage fits a page");
StaticAssertDecl(MAXALIGN(HLOOM_MAX_ROW) + SizeOfPageHeaderData + sizeof(ItemIdData) +
				 sizeof(HloomTail) <= BLCKSZ, "every row fits a page");

/*
 * Makes an empty page of a kind.  The page image may hold anything before.
 */
void
hloom_page_init(Page page, HloomPageKind kind, uint32 bucket, uint32 ordinal)
{
	HloomTail  *tail;

	PageInit(page, BLCKSZ, sizeof(HloomTail));
	tail = hloom_page_tail(page);
	tail->bucket = bucket;
	tail->earliest = DT_NOEND;
	tail->next = InvalidBlockNumber;
	tail->ordinal = ordinal;
	tail->kind = kind;
	tail->page_id = HLOOM_PAGE_ID;
}

/*
 * Makes the metapage of a new file whose first buckets follow it.
 */
void
hloom_page_init_meta(Page page, uint32 maxbucket)
{
	HloomMeta  *meta;

	hloom_page_init(page, HLOOM_PAGE_META, 0, 0);
	meta = hloom_page_meta(page);
	memset(meta, 0, sizeof(HloomMeta));
	meta->magic = HLOOM_MAGIC;
	meta->major = HLOOM_FORMAT_MAJOR;
	meta->minor = HLOOM_FORMAT_MINOR;
	meta->maxbucket = maxbucket;
	meta->chunks = (maxbucket >> HLOOM_CHUNK_SHIFT) + 1;
	meta->first_free = InvalidBlockNumber;
	for (uint32 i = 0; i < meta->chunks; i++)
		meta->chunk_start[i] = HLOOM_META_BLOCK + 1 + i * HLOOM_CHUNK;

	/* Generic WAL zeroes what lies between pd_lower and pd_upper. */
	((PageHeader) page)->pd_lower = (char *) meta + sizeof(HloomMeta) - (char *) page;
}

/*
 * Makes an empty primary page.
 */
void
hloom_page_init_primary(Page page, uint32 bucket, uint32 stamp, int64 fence, uint64 incarnation)
{
	HloomTail  *tail;

	hloom_page_init(page, HLOOM_PAGE_PRIMARY, bucket, 0);
	tail = hloom_page_tail(page);
	tail->stamp = stamp;
	tail->fence = fence;
	tail->incarnation = incarnation;
}

/*
 * Whether the page has the frame of ours and is of this kind.
 */
bool
hloom_page_good_kind(Page page, HloomPageKind kind)
{
	PageHeader	header = (PageHeader) page;
	HloomTail  *tail;

	if (header->pd_special != BLCKSZ - sizeof(HloomTail) ||
		header->pd_lower < SizeOfPageHeaderData || header->pd_lower > header->pd_upper ||
		header->pd_upper > header->pd_special ||
		PageGetPageSize(page) != BLCKSZ || PageGetPageLayoutVersion(page) != PG_PAGE_LAYOUT_VERSION)
		return false;
	tail = hloom_page_tail(page);
	return tail->page_id == HLOOM_PAGE_ID && tail->kind == kind &&
		(kind == HLOOM_PAGE_META || PageGetMaxOffsetNumber(page) <= HLOOM_MAX_ROWS) &&
		(kind != HLOOM_PAGE_PRIMARY || (tail->fence >= 0 && tail->fence < HLOOM_MAX_FENCE));
}

/*
 * Whether the page is a metapage this code can work with.
 */
bool
hloom_page_good_meta(Page page)
{
	HloomMeta  *meta = hloom_page_meta(page);

	return hloom_page_good_kind(page, HLOOM_PAGE_META) &&
		((PageHeader) page)->pd_lower == (char *) meta + sizeof(HloomMeta) - (char *) page &&
		meta->magic == HLOOM_MAGIC && meta->major == HLOOM_FORMAT_MAJOR &&
		meta->chunks >= 1 && meta->chunks <= HLOOM_MAX_CHUNKS &&
		meta->maxbucket >= HLOOM_CHUNK - 1 && meta->maxbucket < meta->chunks * HLOOM_CHUNK;
}

static bool
good_address(const HloomRow *row)
{
	int			family = row->texts[row->ns_len + row->key_len + row->note_len + row->app_len];

	return row->addr_len == 5 ? family == 4 : row->addr_len == HLOOM_MAX_ADDR && family == 6;
}

/*
 * Whether a row is one we can have written in the room it has.
 */
bool
hloom_row_good(const HloomRow *row, Size capacity)
{
	return row->ns_len >= 1 && row->ns_len <= HLOOM_MAX_NAMESPACE &&
		row->key_len >= 1 && row->key_len <= HLOOM_MAX_KEY_CHARS * 4 &&
		row->note_len <= HLOOM_MAX_NOTE && row->app_len <= HLOOM_MAX_APP &&
		hloom_row_size(row) <= capacity &&
		(row->addr_len == 0 || good_address(row)) &&
		row->scope <= HLOOM_SCOPE_TRANSACTION && row->mode == HLOOM_MODE_EXCLUSIVE &&
		row->fence >= 0 && row->fence < HLOOM_MAX_FENCE && row->lease > 0 &&
		IS_VALID_TIMESTAMP(row->granted_at) && IS_VALID_TIMESTAMP(row->expires_at);
}

/*
 * Returns the first row that cannot be what we wrote, or InvalidOffsetNumber.
 */
OffsetNumber
hloom_page_first_bad_row(Page page)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		if (!hloom_page_good_item(page, off) ||
			!hloom_row_good(hloom_page_row(page, off), ItemIdGetLength(PageGetItemId(page, off))))
			return off;
	}
	return InvalidOffsetNumber;
}

/*
 * Whether the row is of this key.
 */
bool
hloom_row_names(const HloomRow *row, const HloomKey *name)
{
	return row->hash == (uint32) name->hash && row->ns_len == name->ns_len &&
		row->key_len == name->key_len &&
		memcmp(row->texts + row->ns_len, name->key, name->key_len) == 0 &&
		memcmp(row->texts, name->ns, name->ns_len) == 0;
}

/*
 * Adds a row and returns true, or returns false when there is no room.  The row's memory is padded
 * to MAXALIGN, and so is the item: its length is all of its room.
 */
bool
hloom_page_add(Page page, const HloomRow *row)
{
	HloomTail  *tail = hloom_page_tail(page);

	if (PageAddItem(page, (Item) row, MAXALIGN(hloom_row_size(row)), InvalidOffsetNumber,
					false, false) == InvalidOffsetNumber)
		return false;
	tail->earliest = Min(tail->earliest, row->expires_at);
	return true;
}

/*
 * Recomputes the page's earliest end after rows went.
 */
void
hloom_page_settle(Page page)
{
	OffsetNumber max = PageGetMaxOffsetNumber(page);
	TimestampTz earliest = DT_NOEND;

	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		HloomRow   *row = hloom_page_row(page, off);

		if (!(row->flags & HLOOM_ROW_FREE))
			earliest = Min(earliest, row->expires_at);
	}
	hloom_page_tail(page)->earliest = earliest;
}
