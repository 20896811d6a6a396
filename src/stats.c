/*
 * stats.c
 *	  Counters in shared memory, by database and namespace.
 *
 * A hash table of fixed size with open addressing.  A place is given to a namespace of a database
 * with the first count and kept until the server's memory is made anew; nothing is ever removed,
 * so a place once found stays what it is, and looking up takes no lock.
 *
 * Durations are counted in histograms: a bucket and the sum, so one costs what two counters do.
 * Their bounds are those of HostLoom's instruments.
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
#include "port/pg_bitutils.h"
#include "storage/lwlock.h"
#include "storage/s_lock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "guc.h"
#include "shmem.h"
#include "stats.h"

#define LOCK_ATTEMPTS 1000

/* Upper bounds of the buckets, inclusive, in microseconds. */
static const int64 acquire_bounds[] = {
	100, 250, 500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 500000,
	1000000, 2500000, 5000000, 10000000, 30000000
};
static const int64 hold_bounds[] = {
	1000, 5000, 10000, 50000, 100000, 500000, 1000000, 5000000, 10000000, 30000000,
	60000000, 300000000, 900000000, INT64CONST(1800000000), INT64CONST(3600000000),
	INT64CONST(7200000000), INT64CONST(21600000000), INT64CONST(86400000000)
};

StaticAssertDecl(lengthof(acquire_bounds) <= HLOOM_STATS_BOUNDS, "they fit");
StaticAssertDecl(lengthof(hold_bounds) <= HLOOM_STATS_BOUNDS, "they fit");

/* Changed and read without a lock. */
typedef struct HloomStatsTiming
{
	pg_atomic_uint64 sum;
	pg_atomic_uint64 buckets[HLOOM_STATS_BUCKETS];
} HloomStatsTiming;

typedef struct HloomStatsPlace
{
	pg_atomic_uint64 hash;		/* 0: free.  Written last, under the lock; read without. */

	/* Written under the lock before the place is published, constant afterwards. */
	Oid			database;
	uint8		ns_len;
	char		ns[HLOOM_MAX_NAMESPACE];

	pg_atomic_uint64 since;		/* when it was reset last, or 0; without a lock */
	pg_atomic_uint64 counts[HLOOM_STATS];	/* changed and read without a lock */
	HloomStatsTiming timings[HLOOM_TIMINGS];
} HloomStatsPlace;

typedef struct HloomStatsTable
{
	TimestampTz since;			/* constant */
	LWLock	   *lock;			/* constant; guards used, and filling a place */
	int			used;			/* places filled, hloom_metrics_namespaces at most; the lock */
	HloomStatsPlace overflow;	/* its counts only */
	HloomStatsPlace places[FLEXIBLE_ARRAY_MEMBER];
} HloomStatsTable;

/* This process's address of it and its number of places, set when it attaches to it. */
static HloomStatsTable *table = NULL;
static uint32 places = 0;

/* Where this process counted last; never the overflow.  Most count one namespace only. */
static HloomStatsPlace *last_place = NULL;

/*
 * Twice as many as are used: one or two probes find a namespace, or that it is not there.  A power
 * of two.
 */
static uint32
places_wanted(void)
{
	return pg_nextpower2_32(2 * hloom_metrics_namespaces);
}

/*
 * Returns the bytes of shared memory needed.
 */
Size
hloom_stats_size(void)
{
	return MAXALIGN(offsetof(HloomStatsTable, places) +
					mul_size(places_wanted(), sizeof(HloomStatsPlace)));
}

static void
init_place(HloomStatsPlace *place)
{
	pg_atomic_init_u64(&place->hash, 0);
	pg_atomic_init_u64(&place->since, 0);
	for (int i = 0; i < HLOOM_STATS; i++)
		pg_atomic_init_u64(&place->counts[i], 0);
	for (int i = 0; i < HLOOM_TIMINGS; i++)
	{
		pg_atomic_init_u64(&place->timings[i].sum, 0);
		for (int j = 0; j < HLOOM_STATS_BUCKETS; j++)
			pg_atomic_init_u64(&place->timings[i].buckets[j], 0);
	}
}

/*
 * Attaches to the memory, and makes it when it was not found.  Called with AddinShmemInitLock
 * held, after the tranche was requested.
 */
void
hloom_stats_start(void *memory, bool found)
{
	table = (HloomStatsTable *) memory;
	places = places_wanted();
	if (found)
		return;
	memset(table, 0, hloom_stats_size());
	table->since = GetCurrentTimestamp();
	table->lock = &GetNamedLWLockTranche(HLOOM_EXTENSION)[HLOOM_LWLOCK_STATS].lock;
	init_place(&table->overflow);
	for (uint32 i = 0; i < places; i++)
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
	for (uint32 at = (uint32) hash & (places - 1);; at = (at + 1) & (places - 1))
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
	if (!found && table->used == hloom_metrics_namespaces)
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
	return place == &table->overflow ? (int) places : (int) (place - table->places);
}

static HloomStatsPlace *
place_at(int place)
{
	Assert(place >= 0 && place <= (int) places);
	return place == (int) places ? &table->overflow : &table->places[place];
}

/*
 * Adds to a counter of a place, from any database.  amount is not negative.  Raises nothing.
 */
void
hloom_stats_add_at(int place, HloomStat stat, int64 amount)
{
	Assert(amount >= 0);
	pg_atomic_fetch_add_u64(&place_at(place)->counts[stat], amount);
}

static inline HloomStatsPlace *
place_of(const char *ns, int ns_len)
{
	HloomStatsPlace *place = last_place;

	Assert(ns_len > 0 && ns_len <= HLOOM_MAX_NAMESPACE);
	if (place == NULL || !is_place_of(place, MyDatabaseId, ns, ns_len))
		place = look_up(MyDatabaseId, ns, ns_len);
	return place;
}

/*
 * Adds to a counter of a checked namespace of this database.  amount is not negative.  The library
 * is preloaded.  Raises nothing.
 */
void
hloom_stats_add(const char *ns, int ns_len, HloomStat stat, int64 amount)
{
	Assert(amount >= 0);
	pg_atomic_fetch_add_u64(&place_of(ns, ns_len)->counts[stat], amount);
}

/*
 * Returns the upper bounds of a histogram's buckets but for the last one, in microseconds.
 */
const int64 *
hloom_stats_bounds(HloomTiming timing, int *count)
{
	*count = timing == HLOOM_TIMING_HELD ? lengthof(hold_bounds) : lengthof(acquire_bounds);
	return timing == HLOOM_TIMING_HELD ? hold_bounds : acquire_bounds;
}

/*
 * Most of what is counted here is short, so the search begins with the shortest.
 */
static void
add_time(HloomStatsPlace *place, HloomTiming timing, int64 usec)
{
	int			count;
	const int64 *bounds = hloom_stats_bounds(timing, &count);
	int			bucket = 0;

	/* The clock may have been set back. */
	usec = Max(usec, 0);
	while (bucket < count && usec > bounds[bucket])
		bucket++;
	pg_atomic_fetch_add_u64(&place->timings[timing].buckets[bucket], 1);
	pg_atomic_fetch_add_u64(&place->timings[timing].sum, usec);
}

/*
 * Counts a duration in microseconds.  As hloom_stats_add().
 */
void
hloom_stats_time(const char *ns, int ns_len, HloomTiming timing, int64 usec)
{
	add_time(place_of(ns, ns_len), timing, usec);
}

/*
 * The same, as hloom_stats_add_at().
 */
void
hloom_stats_time_at(int place, HloomTiming timing, int64 usec)
{
	add_time(place_at(place), timing, usec);
}

static void
copy_counts(HloomStatsCopy *copy, HloomStatsPlace *place)
{
	for (int i = 0; i < HLOOM_STATS; i++)
		copy->counts[i] = pg_atomic_read_u64(&place->counts[i]);
	for (int i = 0; i < HLOOM_TIMINGS; i++)
	{
		HloomStatsTiming *timing = &place->timings[i];

		copy->timings[i].sum = pg_atomic_read_u64(&timing->sum);
		for (int j = 0; j < HLOOM_STATS_BUCKETS; j++)
			copy->timings[i].buckets[j] = pg_atomic_read_u64(&timing->buckets[j]);
	}
}

static bool
is_any(const HloomStatsCopy *copy)
{
	for (int i = 0; i < HLOOM_STATS; i++)
		if (copy->counts[i] != 0)
			return true;
	for (int i = 0; i < HLOOM_TIMINGS; i++)
		for (int j = 0; j < HLOOM_STATS_BUCKETS; j++)
			if (copy->timings[i].buckets[j] != 0)
				return true;
	return false;
}

/*
 * Copies the counters of this database's next namespace, then those of the overflow if anything
 * was counted there; *at is 0 for the first and then left alone.  Returns false at the end.
 */
bool
hloom_stats_next(int *at, HloomStatsCopy *copy)
{
	while (*at < (int) places)
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
	if (*at > (int) places)
		return false;
	(*at)++;
	copy->ns[0] = '\0';
	copy_counts(copy, &table->overflow);
	return is_any(copy);
}

static void
reset_place(HloomStatsPlace *place, TimestampTz now)
{
	for (int i = 0; i < HLOOM_STATS; i++)
		(void) pg_atomic_exchange_u64(&place->counts[i], 0);
	for (int i = 0; i < HLOOM_TIMINGS; i++)
	{
		(void) pg_atomic_exchange_u64(&place->timings[i].sum, 0);
		for (int j = 0; j < HLOOM_STATS_BUCKETS; j++)
			(void) pg_atomic_exchange_u64(&place->timings[i].buckets[j], 0);
	}
	pg_atomic_write_u64(&place->since, (uint64) now);
}

/*
 * Sets the counters of this database's namespaces to 0, one after the other: a count that comes
 * meanwhile is in or out.  The overflow, which is all databases', stays.
 */
void
hloom_stats_reset(void)
{
	TimestampTz now = GetCurrentTimestamp();

	for (uint32 i = 0; i < places; i++)
	{
		HloomStatsPlace *place = &table->places[i];

		if (pg_atomic_read_u64(&place->hash) == 0)
			continue;
		pg_read_barrier();
		if (place->database == MyDatabaseId)
			reset_place(place, now);
	}
}

/*
 * Returns since when this database's counters count: when they were reset last, or when shared
 * memory was made.
 */
TimestampTz
hloom_stats_since(void)
{
	TimestampTz since = table->since;

	for (uint32 i = 0; i < places; i++)
	{
		HloomStatsPlace *place = &table->places[i];

		if (pg_atomic_read_u64(&place->hash) == 0)
			continue;
		pg_read_barrier();
		if (place->database == MyDatabaseId)
			since = Max(since, (TimestampTz) pg_atomic_read_u64(&place->since));
	}
	return since;
}
