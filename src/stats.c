/*
 * stats.c
 *	  Counters in shared memory, by database and namespace.
 *
 * A hash table of fixed size with open addressing.  A place is given to a namespace of a database
 * with the first count and kept until the server's memory is made anew; nothing is ever removed,
 * so a place once found stays what it is, and looking up takes no lock.
 *
 * Locking.  Counters are atomics that stand alone: a reader may see one that is newer than another.
 * A place is filled under the LWLock and published by its hash: all else is written before it, with
 * a write barrier between, and read after it, with a read barrier.  Filling can neither raise nor
 * wait for anything.  The lock is the last one taken: whoever counts may hold any other.
 *
 * Counting raises nothing, allocates nothing and waits for nobody: if the lock is not to be had in
 * a few attempts, as when its holder was put to sleep, or all places are taken, the count goes to
 * the overflow, which is the whole server's.  Knows nothing of leases.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/lwlock.h"
#include "storage/s_lock.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "shmem.h"
#include "stats.h"

/* Twice as many as are used: one or two probes find a namespace, or that it is not there. */
#define PLACES (2 * HLOOM_STATS_NAMESPACES)

#define LOCK_ATTEMPTS 1000

typedef struct HloomStatsPlace
{
	pg_atomic_uint64 hash;		/* 0: free.  Written last, under the lock; read without. */

	/* Written under the lock before the place is published, constant afterwards. */
	Oid			database;
	uint8		ns_len;
	char		ns[HLOOM_MAX_NAMESPACE];

	pg_atomic_uint64 counts[HLOOM_STATS];	/* changed and read without a lock */
} HloomStatsPlace;

typedef struct HloomStatsTable
{
	TimestampTz since;			/* constant */
	LWLock	   *lock;			/* constant; guards used, and filling a place */
	int			used;			/* places filled, at most HLOOM_STATS_NAMESPACES; under the lock */
	HloomStatsPlace overflow;	/* its counts only */
	HloomStatsPlace places[PLACES];
} HloomStatsTable;

/* This process's address of it, set when it attaches to shared memory. */
static HloomStatsTable *table = NULL;

/* Where this process counted last; never the overflow.  Most count one namespace only. */
static HloomStatsPlace *last_place = NULL;

/*
 * Returns the bytes of shared memory needed.
 */
Size
hloom_stats_size(void)
{
	return MAXALIGN(sizeof(HloomStatsTable));
}

static void
init_place(HloomStatsPlace *place)
{
	pg_atomic_init_u64(&place->hash, 0);
	for (int i = 0; i < HLOOM_STATS; i++)
		pg_atomic_init_u64(&place->counts[i], 0);
}

/*
 * Attaches to the memory, and makes it when it was not found.  Called with AddinShmemInitLock
 * held, after the tranche was requested.
 */
void
hloom_stats_start(void *memory, bool found)
{
	table = (HloomStatsTable *) memory;
	if (found)
		return;
	memset(table, 0, sizeof(*table));
	table->since = GetCurrentTimestamp();
	table->lock = &GetNamedLWLockTranche(HLOOM_EXTENSION)[HLOOM_LWLOCK_STATS].lock;
	init_place(&table->overflow);
	for (int i = 0; i < PLACES; i++)
		init_place(&table->places[i]);
}

static bool
is_place_of(const HloomStatsPlace *place, Oid database, const char *ns, int ns_len)
{
	return place->database == database && place->ns_len == ns_len &&
		memcmp(place->ns, ns, ns_len) == 0;
}

/*
 * Returns the namespace's place, or the free one where the search for it ended.  There always is
 * one: half of the places stay free.
 */
static HloomStatsPlace *
find_place(Oid database, const char *ns, int ns_len, uint64 hash, bool *found)
{
	for (uint32 at = (uint32) hash % PLACES;; at = (at + 1) % PLACES)
	{
		HloomStatsPlace *place = &table->places[at];
		uint64		taken = pg_atomic_read_u64(&place->hash);

		*found = taken != 0;
		if (!*found)
			return place;
		if (taken != hash)
			continue;
		pg_read_barrier();
		if (is_place_of(place, database, ns, ns_len))
			return place;
	}
}

/*
 * Returns the namespace's place, filled now or by somebody else meanwhile, or the overflow.
 */
static HloomStatsPlace *
add_place(Oid database, const char *ns, int ns_len, uint64 hash)
{
	HloomStatsPlace *place;
	bool		found;

	for (int i = 0; !LWLockConditionalAcquire(table->lock, LW_EXCLUSIVE); i++)
	{
		if (i == LOCK_ATTEMPTS)
			return &table->overflow;
		SPIN_DELAY();
	}
	place = find_place(database, ns, ns_len, hash, &found);
	if (!found && table->used == HLOOM_STATS_NAMESPACES)
		place = &table->overflow;
	else if (!found)
	{
		place->database = database;
		place->ns_len = ns_len;
		memcpy(place->ns, ns, ns_len);
		pg_write_barrier();
		pg_atomic_write_u64(&place->hash, hash);
		table->used++;
	}
	LWLockRelease(table->lock);
	return place;
}

static HloomStatsPlace *
look_up(Oid database, const char *ns, int ns_len)
{
	HloomStatsPlace *place;
	uint64		hash = hash_bytes_extended((const unsigned char *) ns, ns_len, database);
	bool		found;

	if (unlikely(hash == 0))
		hash = 1;
	place = find_place(database, ns, ns_len, hash, &found);
	if (unlikely(!found))
		place = add_place(database, ns, ns_len, hash);
	if (place != &table->overflow)
		last_place = place;
	return place;
}

/*
 * Returns the number of the place where a checked namespace of a database is counted, not
 * negative, for hloom_stats_add_at.  The library is preloaded.  Raises nothing.
 */
int
hloom_stats_place(Oid database, const char *ns, int ns_len)
{
	HloomStatsPlace *place = last_place;

	if (place == NULL || !is_place_of(place, database, ns, ns_len))
		place = look_up(database, ns, ns_len);
	return place == &table->overflow ? PLACES : (int) (place - table->places);
}

/*
 * Adds to a counter of a place, from any database.  amount is not negative.  Raises nothing.
 */
void
hloom_stats_add_at(int place, HloomStat stat, int64 amount)
{
	HloomStatsPlace *at;

	Assert(amount >= 0 && place >= 0 && place <= PLACES);
	at = place == PLACES ? &table->overflow : &table->places[place];
	pg_atomic_fetch_add_u64(&at->counts[stat], amount);
}

/*
 * Adds to a counter of a checked namespace of this database.  amount is not negative.  The library
 * is preloaded.  Raises nothing.
 */
void
hloom_stats_add(const char *ns, int ns_len, HloomStat stat, int64 amount)
{
	HloomStatsPlace *place = last_place;

	Assert(amount >= 0 && ns_len > 0 && ns_len <= HLOOM_MAX_NAMESPACE);
	if (place == NULL || !is_place_of(place, MyDatabaseId, ns, ns_len))
		place = look_up(MyDatabaseId, ns, ns_len);
	pg_atomic_fetch_add_u64(&place->counts[stat], amount);
}

static void
copy_counts(HloomStatsCopy *copy, HloomStatsPlace *place)
{
	for (int i = 0; i < HLOOM_STATS; i++)
		copy->counts[i] = pg_atomic_read_u64(&place->counts[i]);
}

/*
 * Copies the counters of this database's next namespace, then those of the overflow if anything
 * was counted there; *at is 0 for the first and then left alone.  Returns false at the end.
 */
bool
hloom_stats_next(int *at, HloomStatsCopy *copy)
{
	while (*at < PLACES)
	{
		HloomStatsPlace *place = &table->places[(*at)++];

		if (pg_atomic_read_u64(&place->hash) == 0)
			continue;
		pg_read_barrier();
		if (place->database != MyDatabaseId)
			continue;
		memcpy(copy->ns, place->ns, place->ns_len);
		copy->ns[place->ns_len] = '\0';
		copy_counts(copy, place);
		return true;
	}
	if (*at > PLACES)
		return false;
	(*at)++;
	copy->ns[0] = '\0';
	copy_counts(copy, &table->overflow);
	for (int i = 0; i < HLOOM_STATS; i++)
		if (copy->counts[i] != 0)
			return true;
	return false;
}

/*
 * Returns when counting began: when shared memory was made.
 */
TimestampTz
hloom_stats_since(void)
{
	return table->since;
}
