/*
 * shmem.c
 *	  The state all backends of a server share, its request and its start.
 *
 * There is no lock here: one field is constant, the others are atomics that stand alone.  The
 * counters, the losses, the tracked leases, the leases in memory, the waiters, the activities and
 * the workers' work have protocols of their own, and their LWLocks in the tranche requested here.
 * A crash restart makes the memory anew, and with it a new incarnation.  Knows nothing of leases.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "activities.h"
#include "compat.h"
#include "hloom.h"
#include "losses.h"
#include "memory_table.h"
#include "shmem.h"
#include "stats.h"
#include "tracked.h"
#include "waitlist.h"
#include "work.h"

HloomShared *hloom_shared = NULL;

static shmem_request_hook_type prev_shmem_request = NULL;
static shmem_startup_hook_type prev_shmem_startup = NULL;

static Size
shared_size(void)
{
	return add_size(MAXALIGN(sizeof(HloomShared)),
					add_size(hloom_stats_size(),
							 add_size(hloom_work_size(),
									  add_size(hloom_losses_size(),
											   add_size(hloom_waitlist_size(),
														hloom_activities_size())))));
}

static void
request_shared(void)
{
	if (prev_shmem_request)
		prev_shmem_request();
	RequestAddinShmemSpace(add_size(shared_size(),
									add_size(hloom_tracked_size(), hloom_memory_size())));
	RequestNamedLWLockTranche(HLOOM_EXTENSION, HLOOM_LWLOCKS);
}

static uint64
draw_incarnation(void)
{
	uint64		drawn = 0;

	/* Without strong random numbers clock and process still tell two starts apart. */
	if (!pg_strong_random(&drawn, sizeof(drawn)))
		drawn = (uint64) GetCurrentTimestamp() ^ ((uint64) MyProcPid << 48);
	return drawn ? drawn : 1;
}

static void
start_shared(void)
{
	bool		found;
	char	   *memory;

	if (prev_shmem_startup)
		prev_shmem_startup();
	hloom_shared = NULL;
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	hloom_shared = ShmemInitStruct("hloom_lock", shared_size(), &found);
	if (!found)
	{
		hloom_shared->incarnation = draw_incarnation();
		pg_atomic_init_u64(&hloom_shared->nudged_at, 0);
		pg_atomic_init_u64(&hloom_shared->nudged_page, 0);
		pg_atomic_init_u64(&hloom_shared->grow_after, 0);
	}
	memory = (char *) hloom_shared + MAXALIGN(sizeof(HloomShared));
	hloom_stats_start(memory, found);
	memory += hloom_stats_size();
	hloom_work_start(memory, found);
	memory += hloom_work_size();
	hloom_losses_start(memory, found);
	memory += hloom_losses_size();
	hloom_waitlist_start(memory, found);
	hloom_activities_start(memory + hloom_waitlist_size(), found);
	hloom_tracked_start(found);
	hloom_memory_start(found);
	LWLockRelease(AddinShmemInitLock);
}

/*
 * Installs the hooks.  Called from _PG_init while the server preloads libraries.
 */
void
hloom_shmem_init(void)
{
	prev_shmem_request = shmem_request_hook;
	shmem_request_hook = request_shared;
	prev_shmem_startup = shmem_startup_hook;
	shmem_startup_hook = start_shared;
}

/*
 * Raises 55000 with the line to add when the library was not preloaded.
 */
void
hloom_shmem_require(void)
{
	if (unlikely(hloom_shared == NULL))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("hloom_lock must be loaded when the server starts"),
				 errhint("Add \"hloom_lock\" to shared_preload_libraries in postgresql.conf"
						 " and restart the server.")));
}
