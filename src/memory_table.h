/*
 * memory_table.h
 *	  The shared table of the leases of provider "memory".
 */
#ifndef HLOOM_MEMORY_TABLE_H
#define HLOOM_MEMORY_TABLE_H

#include "lib/ilist.h"
#include "storage/lwlock.h"

#include "lease_page.h"
#include "tracked.h"

/* Bytes of a row that fit into its entry; a longer one takes one of the long places. */
#define HLOOM_MEMORY_SPACE 256

/* Entries to a long place. */
#define HLOOM_MEMORY_PER_LONG 16

/*
 * Names an entry.  The texts are the entry's own, or those of whoever looks for it; who looks for a
 * grant has none.
 */
typedef struct HloomMemoryKey
{
	uint64		hash;
	int64		fence;			/* to look for; an entry's is in its row */
	Oid			database;
	uint16		ns_len;
	uint16		key_len;
	const char *ns;
	const char *key;
} HloomMemoryKey;

/* Room for any row. */
typedef union HloomMemoryLong
{
	slist_node	node;			/* in the list of the free ones */
	HloomRowSpace space;
} HloomMemoryLong;

typedef struct HloomMemoryEntry
{
	HloomMemoryKey key;			/* must be first */
	dlist_node	node;			/* in the partition's list */
	HloomRow   *row;			/* in space, or in a long place */
	int64		space[HLOOM_MEMORY_SPACE / sizeof(int64)];
} HloomMemoryEntry;

typedef struct HloomMemoryPartition
{
	dlist_head	entries;
	int64		fence;			/* the last one given; 0: none yet */
} HloomMemoryPartition;

extern LWLockPadded *hloom_memory_locks;
extern pg_atomic_uint64 *hloom_memory_moves;

extern Size hloom_memory_size(void);
extern void hloom_memory_start(bool found);
extern HloomMemoryPartition *hloom_memory_partition(uint64 hash);
extern HloomMemoryEntry *hloom_memory_find(const HloomKey *name);
extern HloomMemoryEntry *hloom_memory_find_grant(const HloomTrackedId *id);
extern HloomMemoryEntry *hloom_memory_add(const HloomKey *name, Size size);
extern bool hloom_memory_fit(HloomMemoryEntry *entry, Size size);
extern void hloom_memory_write(HloomMemoryEntry *entry, const HloomRow *row, Size size);
extern void hloom_memory_remove(HloomMemoryEntry *entry);
extern int64 hloom_memory_used(void);

/*
 * Whether the library was preloaded; without, there are no leases and no function here may be
 * called.
 */
static inline bool
hloom_memory_is_there(void)
{
	return hloom_memory_locks != NULL;
}

/*
 * Returns the lock of the partition that a hash, or its low half, belongs to.
 */
static inline LWLock *
hloom_memory_lock_of(uint64 hash)
{
	return &hloom_memory_locks[hash % HLOOM_PARTITIONS].lock;
}

/*
 * Returns the name in tracked.c of a lease in memory.
 */
static inline HloomTrackedId
hloom_memory_id(const HloomMemoryEntry *entry)
{
	HloomTrackedId id = {
		.database = entry->key.database,
		.hash = (uint32) entry->key.hash,
		.fence = entry->row->fence | HLOOM_TRACKED_IN_MEMORY
	};

	return id;
}

#endif							/* HLOOM_MEMORY_TABLE_H */
