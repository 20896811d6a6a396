/*
 * shmem.h
 *	  The state all backends of a server share.
 */
#ifndef HLOOM_SHMEM_H
#define HLOOM_SHMEM_H

#include "lib/ilist.h"
#include "port/atomics.h"

/* Tracked leases are partitioned by the low bits of their hash, as the least lease table is. */
#define HLOOM_PARTITIONS 128

/* The LWLocks of the named tranche "hloom_lock"; the last three stand for one of each partition. */
typedef enum HloomLWLock
{
	HLOOM_LWLOCK_STATS,
	HLOOM_LWLOCK_WORK,
	HLOOM_LWLOCK_LOSSES,
	HLOOM_LWLOCK_VICTIMS,
	HLOOM_LWLOCK_TRACKED,
	HLOOM_LWLOCK_WAITERS = HLOOM_LWLOCK_TRACKED + HLOOM_PARTITIONS,
	HLOOM_LWLOCK_MEMORY = HLOOM_LWLOCK_WAITERS + HLOOM_PARTITIONS
} HloomLWLock;

#define HLOOM_LWLOCKS (HLOOM_LWLOCK_MEMORY + HLOOM_PARTITIONS)

typedef struct HloomShared
{
	/* Drawn when shared memory is made, not 0.  Constant afterwards: read without a lock. */
	uint64		incarnation;

	/* When the WAL writer was last nudged, a TimestampTz.  Atomic; a lost update costs a nudge. */
	pg_atomic_uint64 nudged_at;

	/* The WAL page of that nudge.  Atomic; advisory. */
	pg_atomic_uint64 nudged_page;

	/* No growth of the lease table is tried before this TimestampTz.  Atomic; advisory. */
	pg_atomic_uint64 grow_after;

	/* Tracked leases that are given back or committing, by partition.  See tracked.c. */
	pg_atomic_uint32 marked[HLOOM_PARTITIONS];

	/* All tracked leases, by partition.  Under its lock. */
	dlist_head	tracked[HLOOM_PARTITIONS];

	/* Backends that wait for a key, by partition.  See waitlist.c. */
	pg_atomic_uint32 waiting[HLOOM_PARTITIONS];

	/* These backends.  Under the lock of the partition's waiters. */
	dlist_head	waiters[HLOOM_PARTITIONS];
} HloomShared;

/* NULL when the library is not in shared_preload_libraries. */
extern HloomShared *hloom_shared;

extern void hloom_shmem_init(void);
extern void hloom_shmem_require(void);

#endif							/* HLOOM_SHMEM_H */
