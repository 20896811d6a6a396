/*
 * provider_table.c
 *	  The lease table as a provider.
 *
 * Brings together what an operation needs: the table opened within the call's deadline, one
 * operation of the store, the table closed, then durability.  A grant is confirmed only when it is
 * durable; if the wait for a standby is cut short, the statement is cancelled or the lease runs
 * out meanwhile, it is given back here, with interrupts held since before the page change, so that
 * nothing is left held that nobody knows of.  A renewal is not given back: the owner counts on the
 * lease it had.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "durable.h"
#include "errors.h"
#include "guc.h"
#include "lease_grant.h"
#include "lease_scan.h"
#include "lease_store.h"
#include "lease_sweep.h"
#include "lease_table.h"
#include "lease_time.h"
#include "provider.h"
#include "provider_probe.h"
#include "stats.h"
#include "tracked.h"
#include "waitlist.h"
#include "work.h"

/*
 * Gives back what was just granted, unless the same owner has confirmed it elsewhere meanwhile: a
 * client that got no answer may have tried again on another connection.  Interrupts are held.  If
 * the table cannot be opened at once the row is left to whoever needs the key.
 */
static void
give_back(const HloomCall *call, const HloomGrant *grant)
{
	XLogRecPtr	saved = hloom_durable_begin();
	Relation	rel = hloom_table_open(RowExclusiveLock, 0);
	HloomChange change;

	if (rel == NULL)
	{
		HloomTrackedId id = hloom_tracked_id((uint32) call->name.hash, grant->fence);

		int			place = hloom_stats_place(MyDatabaseId, call->name.ns, call->name.ns_len);
		bool		late;

		(void) hloom_tracked_give_back(&id, place, grant->expires_at, &late);
		hloom_waitlist_wake_next(call->name.hash);
		return;
	}
	if (hloom_store_release(rel, call, grant, &change) && change.at != 0)
		hloom_durable_forget(saved, change.at);
	hloom_table_close(rel, RowExclusiveLock);
}

/*
 * Makes a claim durable, or takes it back: who was told to stop meanwhile, or whose lease or
 * patience is over, will not hear of it.  Interrupts are held.
 */
static HloomReply
confirm(const HloomCall *call, const HloomGrant *grant, const HloomChange *change,
		XLogRecPtr saved, TimestampTz end)
{
	bool		durable = hloom_durable_wait(change->lsn, saved, change->at, end);
	bool		spent = GetCurrentTimestamp() >= call->deadline;

	if (durable && !spent && !QueryCancelPending && !ProcDiePending)
		return HLOOM_YES;
	if (change->fresh)
		give_back(call, grant);
	return spent || end == call->deadline ? HLOOM_TIMEOUT : HLOOM_NO;
}

/*
 * Provider contract, try_acquire.
 */
static HloomReply
table_try_acquire(const HloomCall *call, HloomGrant *grant)
{
	TimestampTz end = hloom_provider_attempt_end(call);
	XLogRecPtr	saved = hloom_durable_begin();
	Relation	rel = hloom_table_open(RowExclusiveLock, end);
	HloomChange change;
	HloomReply	reply;

	if (rel == NULL)
		return end == call->deadline ? HLOOM_TIMEOUT : HLOOM_NO;
	if (!hloom_store_claim(rel, call, grant, &change))
	{
		hloom_table_close(rel, RowExclusiveLock);
		return HLOOM_NO;
	}
	hloom_table_close(rel, RowExclusiveLock);
	hloom_work_note_end(grant->expires_at);
	hloom_durable_test_point(HLOOM_POINT_GRANTED);
	reply = confirm(call, grant, &change, saved, end);
	if (reply == HLOOM_YES)
		return reply;			/* interrupts stay held: see the contract */
	RESUME_INTERRUPTS();
	CHECK_FOR_INTERRUPTS();
	return reply;
}

/*
 * Provider contract, release.
 */
static HloomReply
table_release(const HloomCall *call)
{
	XLogRecPtr	saved = hloom_durable_begin();
	Relation	rel = hloom_table_open(RowExclusiveLock, call->deadline);
	HloomChange change;
	bool		released;

	if (rel == NULL)
		return HLOOM_TIMEOUT;
	released = hloom_store_release(rel, call, NULL, &change);
	if (released && change.at != 0)
		hloom_durable_forget(saved, change.at);
	hloom_table_close(rel, RowExclusiveLock);
	return released ? HLOOM_YES : HLOOM_NO;
}

/*
 * Provider contract, extend.  A longer lease must not be lost once told; a shorter one may be.
 */
static HloomReply
table_extend(const HloomCall *call, HloomGrant *grant)
{
	XLogRecPtr	saved = hloom_durable_begin();
	Relation	rel = hloom_table_open(RowExclusiveLock, call->deadline);
	HloomChange change;
	bool		durable = true;

	if (rel == NULL)
		return HLOOM_TIMEOUT;
	if (!hloom_store_extend(rel, call, grant, &change))
	{
		hloom_table_close(rel, RowExclusiveLock);
		return HLOOM_NO;
	}
	hloom_table_close(rel, RowExclusiveLock);
	hloom_work_note_end(grant->expires_at);
	if (change.longer)
		durable = hloom_durable_wait(change.lsn, saved, change.at, call->deadline);
	else
		hloom_durable_forget(saved, change.at);
	RESUME_INTERRUPTS();
	CHECK_FOR_INTERRUPTS();
	return durable ? HLOOM_YES : HLOOM_TIMEOUT;
}

/*
 * Asks the store about a lease, which writes nothing.
 */
static HloomReply
look(bool (*ask) (Relation rel, const HloomCall *call, HloomGrant *grant), const HloomCall *call,
	 HloomGrant *grant)
{
	Relation	rel = hloom_table_open(AccessShareLock, call->deadline);
	bool		held;

	if (rel == NULL)
		return HLOOM_TIMEOUT;
	held = ask(rel, call, grant);
	hloom_table_close(rel, AccessShareLock);
	return held ? HLOOM_YES : HLOOM_NO;
}

/*
 * Provider contract, is_held.
 */
static HloomReply
table_is_held(const HloomCall *call, HloomGrant *grant)
{
	return look(hloom_store_look, call, grant);
}

/*
 * Provider contract, holder.
 */
static HloomReply
table_holder(const HloomCall *call, HloomGrant *grant)
{
	return look(hloom_store_holder, call, grant);
}

/*
 * Provider contract, force_release.
 */
static HloomReply
table_force_release(const HloomCall *call, HloomGrant *grant)
{
	XLogRecPtr	saved = hloom_durable_begin();
	Relation	rel = hloom_table_open(RowExclusiveLock, call->deadline);
	HloomChange change;
	bool		taken;

	if (rel == NULL)
		return HLOOM_TIMEOUT;
	taken = hloom_store_take_away(rel, call, grant, &change);
	if (taken)
		hloom_durable_forget(saved, change.at);
	hloom_table_close(rel, RowExclusiveLock);
	return taken ? HLOOM_YES : HLOOM_NO;
}

/*
 * Provider contract, commit_begin.  The lock is kept until the end of the transaction: until then
 * the row is not truncated away.  Who cannot get it before the lease is at its end has lost it.
 */
static HloomReply
table_commit_begin(const HloomCall *call, int64 fence, HloomGrant *grant)
{
	HloomTrackedId id = hloom_tracked_id((uint32) call->name.hash, fence);
	Relation	rel = hloom_table_open(AccessShareLock, call->deadline);
	HloomReply	reply;

	grant->expires_at = 0;
	if (rel == NULL)
		return HLOOM_TIMEOUT;
	if (!hloom_table_lock(RelationGetRelid(rel), RowExclusiveLock, call->deadline))
	{
		hloom_table_close(rel, AccessShareLock);
		return HLOOM_TIMEOUT;
	}
	reply = hloom_grant_commit_begin(rel, &id, &grant->expires_at);
	if (reply == HLOOM_UNAVAILABLE && hloom_sweep_all() > 0)
		reply = hloom_grant_commit_begin(rel, &id, &grant->expires_at);
	if (reply == HLOOM_UNAVAILABLE)
		hloom_error_tracked_full();
	hloom_table_close(rel, AccessShareLock);
	return reply;
}

/*
 * Provider contract, commit_end.
 */
static void
table_commit_end(const HloomCall *call, int64 fence)
{
	HloomTrackedId id = hloom_tracked_id((uint32) call->name.hash, fence);

	if (hloom_tracked_commit_end(&id))
		hloom_waitlist_wake_next(call->name.hash);
}

/*
 * Provider contract, count.  The lock is kept until the end of the transaction and holds off new
 * grants.  Whoever takes the table's lock after that has heard of what was committed.
 */
static int64
table_count(const char *ns, uint16 ns_len)
{
	Oid			table = hloom_table_oid();
	Relation	rel;
	TableScanDesc scan;
	const HloomRow *row;
	int64		count = 0;

	if (OidIsValid(table))
		LockRelationOid(table, ExclusiveLock);
	rel = hloom_table_open(AccessShareLock, DT_NOEND);
	Assert(rel != NULL);
	scan = hloom_scan_begin(rel, NULL, 0, NULL, NULL, 0);
	while ((row = hloom_scan_next_row(scan)) != NULL)
		count += row->ns_len == ns_len && memcmp(row->texts, ns, ns_len) == 0;
	hloom_scan_end(scan);
	hloom_table_close(rel, AccessShareLock);
	return count;
}

const HloomProvider hloom_provider_table = {
	.abi = HLOOM_PROVIDER_ABI,
	.name = "table",
	.try_acquire = table_try_acquire,
	.release = table_release,
	.extend = table_extend,
	.is_held = table_is_held,
	.holder = table_holder,
	.force_release = table_force_release,
	.commit_begin = table_commit_begin,
	.commit_end = table_commit_end,
	.count = table_count,
	.list = hloom_probe_list,
	.check = hloom_probe_check
};
