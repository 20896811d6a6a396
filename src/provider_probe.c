/*
 * provider_probe.c
 *	  What the lease table tells to those who look: its leases, and whether it answers.
 *
 * Like the calls, neither waits in the queue for the table's lock, and none is kept afterwards.
 * Who is in the way is looked up only when somebody is: that takes every partition of the lock
 * table.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/lock.h"
#include "storage/procarray.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "guc.h"
#include "lease_scan.h"
#include "lease_table.h"
#include "lease_time.h"
#include "provider_probe.h"
#include "shmem.h"
#include "tracked.h"

/* How long a check waits for the table's lock, in microseconds. */
#define CHECK_WAIT 1000000

/* More than these are not named. */
#define MOST_BLOCKERS 3

/*
 * Whether the process that took the lease still runs.  Numbers of processes that a former server
 * or the primary of this standby gave mean nothing here.
 */
static bool
is_alive(const HloomRow *row)
{
	return hloom_shared != NULL && row->incarnation == hloom_shared->incarnation &&
		BackendPidGetProc(row->pid) != NULL;
}

/*
 * Tells a lease, of this name in tracked.c.  Its texts are the row's.
 */
void
hloom_probe_form_lease(HloomLease *lease, const HloomRow *row, const HloomTrackedId *id)
{
	memset(lease, 0, sizeof(*lease));
	lease->name.ns = row->texts;
	lease->name.ns_len = row->ns_len;
	lease->name.key = lease->name.ns + row->ns_len;
	lease->name.key_len = row->key_len;
	lease->note = lease->name.key + row->key_len;
	lease->note_len = row->note_len;
	lease->application = lease->note + row->note_len;
	lease->application_len = row->app_len;
	lease->fence = row->fence;
	lease->granted_at = row->granted_at;
	lease->expires_at = row->expires_at;
	lease->scope = (HloomScope) row->scope;
	lease->holder_role = row->role;
	lease->holder_pid = is_alive(row) ? row->pid : 0;
	lease->committing = hloom_tracked_any_marked(row->hash) &&
		hloom_tracked_is_committing(id, &lease->holder_pid);
}

/*
 * Provider contract, list.
 */
bool
hloom_probe_list(HloomVisit visit, void *arg)
{
	TimestampTz deadline = hloom_time_add(GetCurrentTimestamp(),
										  (int64) hloom_default_lease * 1000);
	Relation	rel = hloom_table_open(AccessShareLock, deadline);
	TableScanDesc scan;
	const HloomRow *row;

	if (rel == NULL)
		return false;
	scan = hloom_scan_begin(rel, NULL, 0, NULL, NULL, 0);
	while ((row = hloom_scan_next_row(scan)) != NULL)
	{
		HloomTrackedId id = hloom_tracked_id(row->hash, row->fence);
		HloomLease	lease;

		hloom_probe_form_lease(&lease, row, &id);
		visit(&lease, arg);
	}
	hloom_scan_end(scan);
	hloom_table_close(rel, AccessShareLock);
	return true;
}

/*
 * Returns the strongest mode of the mask that is in the way of "wanted", or NoLock.
 */
static LOCKMODE
mode_in_the_way(LOCKMASK mask, LOCKMODE wanted)
{
	for (LOCKMODE mode = MaxLockMode; mode > NoLock; mode--)
		if ((mask & LOCKBIT_ON(mode)) && DoLockModesConflict(mode, wanted))
			return mode;
	return NoLock;
}

/*
 * Writes who is in the way of a lock on the table: those who have it, and those who were first to
 * wait for it.
 */
static void
tell_blockers(Oid table, LOCKMODE wanted, char *told, Size size)
{
	LockData   *locks = GetLockStatusData();
	int			named = 0;
	int			at = snprintf(told, size, "table is locked");

	for (int i = 0; i < locks->nelements && named < MOST_BLOCKERS && at < size; i++)
	{
		LockInstanceData *lock = &locks->locks[i];
		LOCKMODE	holds = mode_in_the_way(lock->holdMask, wanted);
		LOCKMODE	waits = mode_in_the_way(LOCKBIT_ON(lock->waitLockMode), wanted);

		if (lock->locktag.locktag_type != LOCKTAG_RELATION ||
			lock->locktag.locktag_field1 != MyDatabaseId ||
			lock->locktag.locktag_field2 != table || lock->pid == MyProcPid ||
			(holds == NoLock && waits == NoLock))
			continue;
		if (lock->pid == 0)
			at += snprintf(told + at, size - at, "%s a prepared transaction holds %s",
						   named ? "," : ":", GetLockmodeName(DEFAULT_LOCKMETHOD, holds));
		else
			at += snprintf(told + at, size - at, "%s process %d %s %s", named ? "," : ":",
						   lock->pid, holds ? "holds" : "waits for",
						   GetLockmodeName(DEFAULT_LOCKMETHOD, holds ? holds : waits));
		named++;
	}
}

/*
 * Provider contract, check: whether the table can be locked as a change of a lease needs it, and
 * has a metapage.  Raises for a damaged one, and without the extension.
 */
bool
hloom_probe_check(char *told, Size size)
{
	TimestampTz deadline = GetCurrentTimestamp() + CHECK_WAIT;
	Relation	rel = hloom_table_open(AccessShareLock, deadline);
	Oid			table = rel ? RelationGetRelid(rel) : hloom_table_oid();
	bool		good = rel && hloom_table_lock(table, RowExclusiveLock, deadline);

	if (good)
	{
		Buffer		meta = hloom_bucket_lock_meta(rel, BUFFER_LOCK_SHARE);

		snprintf(told, size, "table has %u buckets",
				 hloom_page_meta(BufferGetPage(meta))->maxbucket + 1);
		UnlockReleaseBuffer(meta);
		UnlockRelationOid(table, RowExclusiveLock);
	}
	else
		tell_blockers(table, rel ? RowExclusiveLock : AccessShareLock, told, size);
	if (rel)
		hloom_table_close(rel, AccessShareLock);
	return good;
}
