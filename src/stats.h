/*
 * stats.h
 *	  Counters in shared memory, by database and namespace.
 */
#ifndef HLOOM_STATS_H
#define HLOOM_STATS_H

#include "hloom.h"

typedef enum HloomStat
{
	HLOOM_STAT_LOST,			/* leases */
	HLOOM_STAT_ORPHAN_RELEASED, /* clean-up releases */
	HLOOM_STAT_ORPHAN_ABSENT,
	HLOOM_STAT_ORPHAN_FAILED,
	HLOOM_STAT_WAITS,			/* acquisitions that had to wait */
	HLOOM_STAT_WAKEUPS,			/* of waiters, by others */
	HLOOM_STAT_MISSED_TURNS,	/* of waiters that did not move in time */
	HLOOM_STAT_DEADLOCKS		/* that were broken */
} HloomStat;

#define HLOOM_STATS (HLOOM_STAT_DEADLOCKS + 1)

/* What is counted by how long it took. */
typedef enum HloomTiming
{
	HLOOM_TIMING_ACQUIRED,		/* acquisitions that ended so */
	HLOOM_TIMING_NOT_ACQUIRED,
	HLOOM_TIMING_UNAVAILABLE,
	HLOOM_TIMING_HELD			/* leases that were given back */
} HloomTiming;

#define HLOOM_TIMINGS (HLOOM_TIMING_HELD + 1)

/* Bounds of a histogram at most; one more bucket is for what is beyond the last. */
#define HLOOM_STATS_BOUNDS 18
#define HLOOM_STATS_BUCKETS (HLOOM_STATS_BOUNDS + 1)

typedef struct HloomTimingCopy
{
	uint64		sum;			/* microseconds */
	uint64		buckets[HLOOM_STATS_BUCKETS];	/* each by itself, not with those before */
} HloomTimingCopy;

/* The counters of one namespace, as they were at about one time. */
typedef struct HloomStatsCopy
{
	char		ns[HLOOM_MAX_NAMESPACE + 1];	/* empty: namespaces without a place of their own */
	uint64		counts[HLOOM_STATS];
	HloomTimingCopy timings[HLOOM_TIMINGS];
} HloomStatsCopy;

extern Size hloom_stats_size(void);
extern void hloom_stats_start(void *memory, bool found);
extern int	hloom_stats_place(Oid database, const char *ns, int ns_len);
extern void hloom_stats_add_at(int place, HloomStat stat, int64 amount);
extern PGDLLEXPORT void hloom_stats_add(const char *ns, int ns_len, HloomStat stat, int64 amount);
extern PGDLLEXPORT void hloom_stats_time(const char *ns, int ns_len, HloomTiming timing,
										 int64 usec);
extern void hloom_stats_time_at(int place, HloomTiming timing, int64 usec);
extern const int64 *hloom_stats_bounds(HloomTiming timing, int *count);
extern void hloom_stats_reset(void);
extern bool hloom_stats_next(int *at, HloomStatsCopy *copy);
extern TimestampTz hloom_stats_since(void);

#endif							/* HLOOM_STATS_H */
