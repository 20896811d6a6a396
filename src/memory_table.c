/*
 * memory_table.c
 *	  The shared table of the leases of provider "memory": its memory, its entries.
 *
 * Core's hash table for shared memory, partitioned by the hash of the key.  An entry is found by
 * its database and all of its name, not by the hash alone: two keys never meet.  It holds the same
 * row as the lease table would (lease_page.h).  Most rows fit into their entry; one that does not
 * takes a long place, of which there is one to 16 entries.
 *
 * Leases of a namespace are here as long as "memory" is its provider.  Who changes that counts them
 * and must know that none comes after: hloom_memory_moves counts such changes, and a claim in the
 * name of less than the last one is refused (memory_claim.c).
 *
 * Locking.  Entries, rows and the fence of a partition are guarded by the partition's LWLock:
 * changed under it exclusively, read under it shared.  One is held at a time, and none while a
 * bucket of the lease table is locked; under it the locks of tracked leases, waiters, losses and
 * counters are taken.  The list of free long places has a spinlock, taken last.
 * hloom_memory_moves is raised before the partitions are locked to count, and read under the lock.
 *
 * Nothing here raises.  Knows no lease's state and no transaction.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/shmem.h"
#include "storage/spin.h"
#include "utils/hsearch.h"

#include "compat.h"
#include "guc.h"
#include "memory_table.h"

typedef struct HloomMemory
{
	slock_t		mutex;			/* guards the list */
	slist_head	free;			/* long places */
	pg_atomic_uint64 moves;		/* raised by whoever counts, read by each claim */
	HloomMemoryPartition partitions[HLOOM_PARTITIONS];
	HloomMemoryLong longs[FLEXIBLE_ARRAY_MEMBER];
} HloomMemory;

static HTAB *entries = NULL;
static HloomMemory *memory = NULL;
LWLockPadded *hloom_memory_locks = NULL;
pg_atomic_uint64 *hloom_memory_moves = NULL;

static uint32
hash_of(const void *key, Size size)
{
	return (uint32) ((const HloomMemoryKey *) key)->hash;
}

/*
 * Returns 0 if the entry that begins with "a" is the one looked for.
 */
static int
compare(const void *a, const void *b, Size size)
{
	const HloomMemoryKey *left = (const HloomMemoryKey *) a;
	const HloomMemoryKey *right = (const HloomMemoryKey *) b;

	if (right->key == NULL)
		return (uint32) left->hash != (uint32) right->hash ||
			left->database != right->database ||
			((const HloomMemoryEntry *) a)->row->fence != right->fence;
	return left->hash != right->hash || left->database != right->database ||
		left->ns_len != right->ns_len || left->key_len != right->key_len ||
		memcmp(left->key, right->key, left->key_len) != 0 ||
		memcmp(left->ns, right->ns, left->ns_len) != 0;
}

static int
long_places(void)
{
	return hloom_memory_leases / HLOOM_MEMORY_PER_LONG + 1;
}

static Size
struct_size(void)
{
	return add_size(offsetof(HloomMemory, longs),
					mul_size(long_places(), sizeof(HloomMemoryLong)));
}

/*
 * Returns the bytes of shared memory needed.
 */
Size
hloom_memory_size(void)
{
	return add_size(MAXALIGN(struct_size()),
					hash_estimate_size(hloom_memory_leases, sizeof(HloomMemoryEntry)));
}

/*
 * Attaches to the table, and makes it when the memory was not found.  Called with
 * AddinShmemInitLock held, after the tranche was requested.
 */
void
hloom_memory_start(bool found)
{
	HASHCTL		ctl = {
		.keysize = sizeof(HloomMemoryKey),
		.entrysize = sizeof(HloomMemoryEntry),
		.hash = hash_of,
		.match = compare,
		.num_partitions = HLOOM_PARTITIONS
	};
	bool		attached;

	memory = ShmemInitStruct("hloom_lock memory", struct_size(), &attached);
	entries = ShmemInitHash("hloom_lock leases in memory", hloom_memory_leases,
							hloom_memory_leases, &ctl,
							HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_PARTITION |
							HASH_FIXED_SIZE);
	hloom_memory_locks = GetNamedLWLockTranche(HLOOM_EXTENSION) + HLOOM_LWLOCK_MEMORY;
	hloom_memory_moves = &memory->moves;
	if (found)
		return;
	pg_atomic_init_u64(&memory->moves, 0);
	SpinLockInit(&memory->mutex);
	slist_init(&memory->free);
	for (int i = 0; i < long_places(); i++)
		slist_push_head(&memory->free, &memory->longs[i].node);
	for (int i = 0; i < HLOOM_PARTITIONS; i++)
	{
		dlist_init(&memory->partitions[i].entries);
		memory->partitions[i].fence = 0;
	}
}

/*
 * Returns the partition of a hash, whose lock the caller holds.
 */
HloomMemoryPartition *
hloom_memory_partition(uint64 hash)
{
	return &memory->partitions[hash % HLOOM_PARTITIONS];
}

static HloomMemoryKey
key_of(const HloomKey *name)
{
	HloomMemoryKey key = {
		.hash = name->hash,
		.database = MyDatabaseId,
		.ns_len = name->ns_len,
		.key_len = name->key_len,
		.ns = name->ns,
		.key = name->key
	};

	return key;
}

/*
 * Returns the entry of a key of this database, or NULL.
 */
HloomMemoryEntry *
hloom_memory_find(const HloomKey *name)
{
	HloomMemoryKey key = key_of(name);

	return (HloomMemoryEntry *) hash_search_with_hash_value(entries, &key, (uint32) key.hash,
															HASH_FIND, NULL);
}

/*
 * Returns the entry of a grant, by its name in tracked.c, or NULL.
 */
HloomMemoryEntry *
hloom_memory_find_grant(const HloomTrackedId *id)
{
	HloomMemoryKey key = {
		.hash = id->hash,
		.database = id->database,
		.fence = id->fence & ~HLOOM_TRACKED_IN_MEMORY
	};

	return (HloomMemoryEntry *) hash_search_with_hash_value(entries, &key, id->hash, HASH_FIND,
															NULL);
}

static bool
is_long(const HloomMemoryEntry *entry)
{
	return entry->row != (const HloomRow *) entry->space;
}

static HloomRow *
take_long(void)
{
	HloomMemoryLong *taken = NULL;

	SpinLockAcquire(&memory->mutex);
	if (!slist_is_empty(&memory->free))
		taken = slist_container(HloomMemoryLong, node, slist_pop_head_node(&memory->free));
	SpinLockRelease(&memory->mutex);
	return taken ? &taken->space.row : NULL;
}

static void
free_long(HloomMemoryLong *freed)
{
	SpinLockAcquire(&memory->mutex);
	slist_push_head(&memory->free, &freed->node);
	SpinLockRelease(&memory->mutex);
}

/*
 * Makes room in an entry for a row of so many bytes; what was there is lost.  Returns false when
 * there is none.
 */
bool
hloom_memory_fit(HloomMemoryEntry *entry, Size size)
{
	HloomRow   *row;

	if (size <= HLOOM_MEMORY_SPACE || is_long(entry))
		return true;
	row = take_long();
	if (row != NULL)
		entry->row = row;
	return row != NULL;
}

/*
 * Adds an entry for a key that has none, with room for so many bytes.  Returns NULL when there is
 * no room.
 */
HloomMemoryEntry *
hloom_memory_add(const HloomKey *name, Size size)
{
	HloomMemoryKey key = key_of(name);
	HloomMemoryEntry *entry;

	entry = (HloomMemoryEntry *) hash_search_with_hash_value(entries, &key, (uint32) key.hash,
															 HASH_ENTER_NULL, NULL);
	if (entry == NULL)
		return NULL;
	entry->row = (HloomRow *) entry->space;
	if (!hloom_memory_fit(entry, size))
	{
		(void) hash_search_with_hash_value(entries, &key, (uint32) key.hash, HASH_REMOVE, NULL);
		return NULL;
	}
	dlist_push_tail(&hloom_memory_partition(name->hash)->entries, &entry->node);
	return entry;
}

/*
 * Writes the row of an entry that has room for it.
 */
void
hloom_memory_write(HloomMemoryEntry *entry, const HloomRow *row, Size size)
{
	memcpy(entry->row, row, size);
	entry->key.ns = entry->row->texts;
	entry->key.key = entry->row->texts + row->ns_len;
}

/*
 * Removes an entry.  Core's table gives it to other partitions, too, so nothing of it is read
 * afterwards; the long place has its name until then.
 */
void
hloom_memory_remove(HloomMemoryEntry *entry)
{
	HloomMemoryLong *place = is_long(entry) ? (HloomMemoryLong *) entry->row : NULL;

	dlist_delete(&entry->node);
	(void) hash_search_with_hash_value(entries, &entry->key, (uint32) entry->key.hash,
									   HASH_REMOVE, NULL);
	if (place != NULL)
		free_long(place);
}

/*
 * Returns how many entries there are, of all databases, at about this time.
 */
int64
hloom_memory_used(void)
{
	return hash_get_num_entries(entries);
}
