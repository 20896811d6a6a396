/*
 * stats.h
 *	  Counters in shared memory, by database and namespace.
 */
#ifndef HLOOM_STATS_H
#define HLOOM_STATS_H

#include "hloom.h"

/* Namespaces counted by themselves, of all databases together; the rest share one place. */
#define HLOOM_STATS_NAMESPACES 256

typedef enum HloomStat
{
	HLOOM_STAT_ACQUIRED,		/* acquisitions that ended so */
	HLOOM_STAT_NOT_ACQUIRED,
	HLOOM_STAT_UNAVAILABLE,
	HLOOM_STAT_ACQUIRED_TIME,	/* microseconds these took in all */
	HLOOM_STAT_NOT_ACQUIRED_TIME,
	HLOOM_STAT_UNAVAILABLE_TIME,
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

/* The counters of one namespace, as they were at about one time. */
typedef struct HloomStatsCopy
{
	char		ns[HLOOM_MAX_NAMESPACE + 1];	/* empty: namespaces without a place of their own */
	uint64		counts[HLOOM_STATS];
} HloomStatsCopy;

extern Size hloom_stats_size(void);
extern void hloom_stats_start(void *memory, bool found);
extern int	hloom_stats_place(Oid database, const char *ns, int ns_len);
extern void hloom_stats_add_at(int place, HloomStat stat, int64 amount);
extern PGDLLEXPORT void hloom_stats_add(const char *ns, int ns_len, HloomStat stat, int64 amount);
extern bool hloom_stats_next(int *at, HloomStatsCopy *copy);
extern TimestampTz hloom_stats_since(void);

#endif							/* HLOOM_STATS_H */
