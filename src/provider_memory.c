/*
 * provider_memory.c
 *	  Leases in shared memory as a provider.
 *
 * No table is opened and nothing is made durable: what is granted is gone with the server's memory,
 * whatever its end.  A grant counts at once, and interrupts are held until its record is made.
 *
 * The lease table's lock has one part in it: whoever gives a namespace another provider, or drops
 * the extension, has it until the end of the transaction.  A claim that finds that there was such a
 * one (memory_claim.c) takes that lock once, and so hears of the outcome.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lmgr.h"

#include "compat.h"
#include "errors.h"
#include "guc.h"
#include "lease_sweep.h"
#include "lease_table.h"
#include "memory_grant.h"
#include "provider.h"
#include "provider_probe.h"
#include "waitlist.h"
#include "work.h"

/* The changes of providers this process has heard of. */
static uint64 heard = 0;

/*
 * Waits for the end of whoever changes providers, within the bounds of the attempt.  Returns false
 * when those are over.  Raises 55000 without the extension.
 */
static bool
hear_of_changes(const HloomCall *call)
{
	Relation	rel = hloom_table_open(RowShareLock, hloom_provider_attempt_end(call));

	if (rel == NULL)
		return false;

	/* Who raised it has let go of the lock, and then we have been told, or is this transaction. */
	heard = pg_atomic_read_u64(hloom_memory_moves);
	hloom_table_close(rel, RowShareLock);
	return true;
}

/*
 * A claim found no room: makes some.  Raises 53400 unless another claim may have better luck: when
 * there is nothing to remove but room now, somebody else has just made it.  "tried" is for that one
 * more claim, since long places may be out while there is room.
 */
static void
make_room(bool *tried)
{
	int64		used;

	if (hloom_memory_reclaim() > 0)
	{
		*tried = false;
		return;
	}
	used = hloom_memory_used();
	if (used < hloom_memory_leases && !*tried)
	{
		*tried = true;
		return;
	}
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("too many leases in memory"),
			 errdetail("There are " INT64_FORMAT "; one in %d of all can have a long key or note.",
					   used, HLOOM_MEMORY_PER_LONG),
			 errhint("Raise hloom_lock.memory_leases, or use provider \"table\".")));
}

/*
 * Provider contract, try_acquire.  Raises 53400 when there is no room.
 */
static HloomReply
memory_try_acquire(const HloomCall *call, HloomGrant *grant)
{
	HloomReply	reply;
	bool		tried = false;

	while (unlikely((reply = hloom_memory_claim(call, heard, grant)) != HLOOM_YES))
	{
		if (reply == HLOOM_NO)
			return HLOOM_NO;
		CHECK_FOR_INTERRUPTS();
		if (reply == HLOOM_UNAVAILABLE)
			make_room(&tried);
		else if (!hear_of_changes(call))
			return hloom_provider_attempt_end(call) == call->deadline ? HLOOM_TIMEOUT : HLOOM_NO;
	}
	hloom_work_note_end(grant->expires_at);
	return HLOOM_YES;			/* interrupts stay held: see provider.h */
}

/*
 * Provider contract, release.
 */
static HloomReply
memory_release(const HloomCall *call)
{
	return hloom_memory_release(call) ? HLOOM_YES : HLOOM_NO;
}

/*
 * Provider contract, extend.
 */
static HloomReply
memory_extend(const HloomCall *call, HloomGrant *grant)
{
	if (!hloom_memory_extend(call, grant))
		return HLOOM_NO;
	hloom_work_note_end(grant->expires_at);
	return HLOOM_YES;
}

/*
 * Provider contract, is_held.
 */
static HloomReply
memory_is_held(const HloomCall *call, HloomGrant *grant)
{
	return hloom_memory_is_held(call, grant) ? HLOOM_YES : HLOOM_NO;
}

/*
 * Provider contract, holder.
 */
static HloomReply
memory_holder(const HloomCall *call, HloomGrant *grant)
{
	return hloom_memory_holder(call, grant) ? HLOOM_YES : HLOOM_NO;
}

/*
 * Provider contract, force_release.
 */
static HloomReply
memory_force_release(const HloomCall *call, HloomGrant *grant)
{
	return hloom_memory_take_away(call, grant) ? HLOOM_YES : HLOOM_NO;
}

/*
 * Provider contract, commit_begin.  Raises 53400 when no more leases can be tracked.
 */
static HloomReply
memory_commit_begin(const HloomCall *call, int64 fence, HloomGrant *grant)
{
	HloomTrackedId id = hloom_provider_grant_id(&hloom_provider_memory, call, fence);
	HloomReply	reply = hloom_memory_commit_begin(&id, &grant->expires_at);

	if (reply == HLOOM_UNAVAILABLE && hloom_sweep_all() > 0)
		reply = hloom_memory_commit_begin(&id, &grant->expires_at);
	if (reply == HLOOM_UNAVAILABLE)
		hloom_error_tracked_full();
	return reply;
}

/*
 * Provider contract, commit_end.
 */
static void
memory_commit_end(const HloomCall *call, int64 fence)
{
	HloomTrackedId id = hloom_provider_grant_id(&hloom_provider_memory, call, fence);

	if (hloom_tracked_commit_end(&id))
		hloom_waitlist_wake_next(call->name.hash);
}

/*
 * Provider contract, count.  The lock is kept until the end of the transaction: it is what claims
 * wait for, once the count of changes is higher than they know.
 */
static int64
memory_count(const char *ns, uint16 ns_len)
{
	Oid			table = hloom_table_oid();

	if (!hloom_memory_is_there())
		return 0;
	if (OidIsValid(table))
		LockRelationOid(table, ExclusiveLock);
	return hloom_memory_count(ns, ns_len);
}

/*
 * Provider contract, list.
 */
static bool
memory_list(HloomVisit visit, void *arg)
{
	if (!hloom_memory_is_there())
		return true;
	for (int i = 0; i < HLOOM_PARTITIONS; i++)
	{
		Size		used;
		char	   *rows;

		CHECK_FOR_INTERRUPTS();
		rows = hloom_memory_copy(i, &used);
		for (Size at = 0; at < used;)
		{
			const HloomRow *row = (const HloomRow *) (rows + at);
			HloomTrackedId id = hloom_tracked_id(row->hash, row->fence | HLOOM_TRACKED_IN_MEMORY);
			HloomLease	lease;

			hloom_probe_form_lease(&lease, row, &id);
			visit(&lease, arg);
			at += MAXALIGN(hloom_row_size(row));
		}
		pfree(rows);
	}
	return true;
}

/*
 * Provider contract, check: whether there is room for another lease.
 */
static bool
memory_check(char *told, Size size)
{
	bool		good = hloom_memory_used() < hloom_memory_leases || hloom_memory_reclaim() > 0;

	snprintf(told, size, "memory has room for %d leases, " INT64_FORMAT " taken",
			 hloom_memory_leases, hloom_memory_used());
	return good;
}

const HloomProvider hloom_provider_memory = {
	.abi = HLOOM_PROVIDER_ABI,
	.name = "memory",
	.try_acquire = memory_try_acquire,
	.release = memory_release,
	.extend = memory_extend,
	.is_held = memory_is_held,
	.holder = memory_holder,
	.force_release = memory_force_release,
	.commit_begin = memory_commit_begin,
	.commit_end = memory_commit_end,
	.count = memory_count,
	.list = memory_list,
	.check = memory_check
};
