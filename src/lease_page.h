/*
 * lease_page.h
 *	  The on-disk format of the lease table: metapage, bucket pages, rows.
 *
 * The file is a hash table on standard pages.  Block 0 is the metapage.  Buckets come in chunks of
 * 128 adjacent primary pages; the metapage lists where each chunk starts.  A bucket is its primary
 * page and the overflow pages linked from it.  Every field has a fixed width and a fixed place;
 * fields are only ever added (format minor), anything else raises format major.
 */
#ifndef HLOOM_LEASE_PAGE_H
#define HLOOM_LEASE_PAGE_H

#include "hloom.h"
#include "lease_key.h"
#include "losses.h"
#include "port/pg_bitutils.h"
#include "storage/bufpage.h"
#include "storage/off.h"
#include "utils/rel.h"

#define HLOOM_MAGIC 0x4D4F4C48	/* reads "HLOM" in a dump of a little-endian machine */
#define HLOOM_FORMAT_MAJOR 1
#define HLOOM_FORMAT_MINOR 0
#define HLOOM_PAGE_ID 0xFF4C

#define HLOOM_META_BLOCK 0
#define HLOOM_CHUNK_SHIFT 7
#define HLOOM_CHUNK (1 << HLOOM_CHUNK_SHIFT)
#define HLOOM_MAX_CHUNKS 2000
#define HLOOM_MAX_BUCKETS (HLOOM_MAX_CHUNKS * HLOOM_CHUNK)

typedef enum HloomPageKind
{
	HLOOM_PAGE_META = 1,
	HLOOM_PAGE_PRIMARY,
	HLOOM_PAGE_OVERFLOW,
	HLOOM_PAGE_FREE,			/* in the metapage's list of free pages */
	HLOOM_PAGE_RESERVED			/* end of a chunk, not a bucket yet */
} HloomPageKind;

/* The special space of every page.  Fields of the first group count on a primary page only. */
typedef struct HloomTail
{
	int64		fence;			/* highest fence given to a key of this bucket */
	uint64		incarnation;	/* of the server that gave it */
	uint32		stamp;			/* maxbucket when this bucket was last split */

	uint32		bucket;			/* primary and overflow: the bucket this page belongs to */
	TimestampTz earliest;		/* no row of this page ends before */
	BlockNumber next;			/* next page of the chain or of the free list */
	uint32		ordinal;		/* place in the chain: grows with every step, so no cycle is one */
	uint16		kind;			/* HloomPageKind */
	uint16		unused;
	uint16		unused2;
	uint16		page_id;		/* last two bytes of the page, for tools */
} HloomTail;

StaticAssertDecl(sizeof(HloomTail) == 48, "on-disk layout of the special space");

/* The content of block 0. */
typedef struct HloomMeta
{
	uint32		magic;
	uint16		major;
	uint16		minor;
	uint32		maxbucket;		/* highest bucket in use; buckets count from 0 */
	uint32		chunks;			/* entries of chunk_start in use */
	BlockNumber first_free;
	uint32		unused;
	BlockNumber chunk_start[HLOOM_MAX_CHUNKS];
} HloomMeta;

StaticAssertDecl(offsetof(HloomMeta, chunk_start) == 24, "on-disk layout of the metapage");

#define HLOOM_ROW_FREE 0x01		/* released: a tombstone, nobody's */
#define HLOOM_ROW_AUTO_EXTEND 0x02

#define HLOOM_MODE_EXCLUSIVE 1

/*
 * A row is a page item.  The item's length is its capacity: a tombstone is reused by a row that
 * is no longer.  The texts follow in the order of their lengths here.
 */
typedef struct HloomRow
{
	uint32		hash;			/* low half of the key's hash */
	uint8		flags;
	uint8		mode;
	uint8		scope;			/* HloomScope */
	uint8		ns_len;
	uint16		key_len;
	uint16		note_len;
	uint8		app_len;
	uint8		addr_len;		/* 0, or family byte and 4 or 16 bytes of address */
	uint16		unused;
	pg_uuid_t	owner;
	int64		fence;
	TimestampTz granted_at;
	TimestampTz expires_at;
	int64		lease;			/* microseconds */
	uint64		incarnation;	/* of the server that granted it */
	Oid			role;
	int32		pid;
	char		texts[FLEXIBLE_ARRAY_MEMBER];	/* namespace, key, note, application, address */
} HloomRow;

StaticAssertDecl(offsetof(HloomRow, texts) == 80, "on-disk layout of a row");

/* No page has more rows: each has a namespace and a key of a byte at least. */
#define HLOOM_MAX_ROWS \
	((BLCKSZ - SizeOfPageHeaderData - sizeof(HloomTail)) / \
	 (MAXALIGN(offsetof(HloomRow, texts) + 2) + sizeof(ItemIdData)))

/* Fences fit the integers of every client. */
#define HLOOM_MAX_FENCE (INT64CONST(1) << 53)

#define HLOOM_MAX_APP 63
#define HLOOM_MAX_ADDR 17
#define HLOOM_MAX_ROW \
	(offsetof(HloomRow, texts) + HLOOM_MAX_NAMESPACE + HLOOM_MAX_KEY_CHARS * 4 + \
	 HLOOM_MAX_NOTE + HLOOM_MAX_APP + HLOOM_MAX_ADDR)

/* Room for any row, aligned as a row must be. */
typedef union HloomRowSpace
{
	HloomRow	row;
	int64		align;
	char		space[MAXALIGN(HLOOM_MAX_ROW)];
} HloomRowSpace;

static inline HloomTail *
hloom_page_tail(Page page)
{
	return (HloomTail *) PageGetSpecialPointer(page);
}

static inline HloomMeta *
hloom_page_meta(Page page)
{
	return (HloomMeta *) PageGetContents(page);
}

/* The row's bytes in use; the item may be longer. */
static inline Size
hloom_row_size(const HloomRow *row)
{
	return offsetof(HloomRow, texts) + row->ns_len + row->key_len + row->note_len +
		row->app_len + row->addr_len;
}

/* The loss of the lease.  Its names are the row's; they must be set where the row is without. */
static inline HloomLoss
hloom_row_loss(const HloomRow *row, HloomLossReason reason)
{
	HloomLoss	loss = {
		.ns = row->texts,
		.key = row->texts + row->ns_len,
		.ns_len = row->ns_len,
		.key_len = row->key_len,
		.fence = row->fence,
		.granted_at = row->granted_at,
		.expired_at = row->expires_at,
		.reason = reason,
		.holder_role = row->role,
		.holder_pid = row->pid
	};

	return loss;
}

/* The bucket of a hash when maxbucket is the highest one: linear hashing. */
static inline uint32
hloom_page_bucket(uint32 hash, uint32 maxbucket)
{
	uint32		mask = UINT32_MAX >> (31 - pg_leftmost_one_pos32(maxbucket));
	uint32		bucket = hash & mask;

	return bucket > maxbucket ? bucket & (mask >> 1) : bucket;
}

/* The bucket that bucket number "child" was or will be split from. */
static inline uint32
hloom_page_parent(uint32 child)
{
	return child & ~((uint32) 1 << pg_leftmost_one_pos32(child));
}

static inline BlockNumber
hloom_meta_block(const HloomMeta *meta, uint32 bucket)
{
	return meta->chunk_start[bucket >> HLOOM_CHUNK_SHIFT] + (bucket & (HLOOM_CHUNK - 1));
}

static inline HloomRow *
hloom_page_row(Page page, OffsetNumber off)
{
	ItemId		lp = PageGetItemId(page, off);

	return (HloomRow *) PageGetItem(page, lp);
}

/*
 * Whether the line pointer leads to a whole row header inside the page.  The page passed
 * hloom_page_good_kind; off is at most its highest.
 */
static inline bool
hloom_page_good_item(Page page, OffsetNumber off)
{
	ItemId		lp = PageGetItemId(page, off);
	unsigned	start = ItemIdGetOffset(lp);
	unsigned	length = ItemIdGetLength(lp);

	return ItemIdIsNormal(lp) && start >= ((PageHeader) page)->pd_upper &&
		start == MAXALIGN(start) && length >= offsetof(HloomRow, texts) &&
		start + length <= BLCKSZ - sizeof(HloomTail);
}

/* A fence above the bucket's counter becomes its counter. */
static inline void
hloom_page_note_fence(Page primary, int64 fence, uint64 incarnation)
{
	HloomTail  *tail = hloom_page_tail(primary);

	if (fence > tail->fence)
	{
		tail->fence = fence;
		tail->incarnation = incarnation;
	}
}

extern void hloom_page_init(Page page, HloomPageKind kind, uint32 bucket, uint32 ordinal);
extern void hloom_page_init_meta(Page page, uint32 maxbucket);
extern void hloom_page_init_primary(Page page, uint32 bucket, uint32 stamp, int64 fence,
									uint64 incarnation);
extern bool hloom_page_good_kind(Page page, HloomPageKind kind);
extern bool hloom_page_good_meta(Page page);
extern OffsetNumber hloom_page_first_bad_row(Page page);
extern bool hloom_row_good(const HloomRow *row, Size capacity);
extern bool hloom_row_names(const HloomRow *row, const HloomKey *name);
extern bool hloom_page_add(Page page, const HloomRow *row);
extern void hloom_page_settle(Page page);

/*
 * Returns the whole hash of a checked row's key; the row itself has the low half.
 */
static inline uint64
hloom_row_key_hash(const HloomRow *row)
{
	return hloom_key_hash(row->texts, row->ns_len, row->texts + row->ns_len, row->key_len);
}

#endif							/* HLOOM_LEASE_PAGE_H */
