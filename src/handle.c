/*
 * handle.c
 *	  The leases this backend took and still answers for.
 *
 * Two lists.  "Fresh" are grants of scope "lease" whose caller may not hear of them: the statement
 * has not ended.  If it fails they are orphans and are given back.  "Bound" are leases of scope
 * session and transaction, which are given back at the end of what they follow, and also when the
 * statement fails that took them.  What a statement is: one message of the protocol, told by the
 * time it began.  A subtransaction's grants become its parent's when it commits.
 *
 * Giving back is a mark in shared memory (tracked.c), made after the locks are released, so that
 * the next owner sees what was committed and need not wait for a row.  Nothing in a callback
 * raises, allocates or touches a page.  What was marked here is removed with the next leases this
 * backend takes, or by whoever needs the room.
 *
 * Knows no provider: the leases of our own are listed.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "errors.h"
#include "guard.h"
#include "handle.h"
#include "lease_sweep.h"
#include "loss.h"
#include "stats.h"
#include "tracked.h"
#include "waitlist.h"

#define FIRST_ROOM 16

typedef struct Held
{
	HloomTrackedId id;
	uint64		hash;			/* all of it */
	TimestampTz end;			/* when it was granted */
	pg_uuid_t	owner;
	TimestampTz statement;		/* that took it; 0 when that one has succeeded */
	SubTransactionId subid;		/* the subtransaction it belongs to now */
	HloomScope	scope;
	int			place;			/* where it is counted, see stats.h */
	bool		ending;			/* its subtransaction was rolled back */
	TimestampTz began;			/* when it was asked for */
} Held;

typedef struct HeldList
{
	Held	   *items;
	int			count;
	int			room;
} HeldList;

static HeldList fresh = {0};
static HeldList bound = {0};
static bool some_ending = false;

/*
 * The lease is given back: wakes who waits for the key, unless a commit still depends on it.
 */
static void
wake_next(const Held *held)
{
	if (unlikely(hloom_waitlist_any(held->hash)) &&
		!hloom_tracked_is_committing(&held->id, NULL))
		hloom_waitlist_wake_next(held->hash);
}

/*
 * Marks the lease and takes note of it for its removal.
 */
static void
give_back(const Held *held, bool orphan)
{
	bool		late;
	bool		done = hloom_tracked_give_back(&held->id, orphan ? held->place : -1, held->end,
											   &late);

	if (done)
		wake_next(held);
	if (done && !orphan && !late)
		hloom_stats_time_at(held->place, HLOOM_TIMING_HELD, GetCurrentTimestamp() - held->began);
	hloom_loss_unwatch(&held->id);
	if (orphan && !done)
		hloom_stats_add_at(held->place, HLOOM_STAT_ORPHAN_FAILED, 1);
	if (done)
		hloom_sweep_later(&held->id);
}

/*
 * Leaves out what has ended, so that a session that never gives back what it takes keeps no list of
 * all it ever took.
 */
static void
forget_ended(HeldList *list)
{
	TimestampTz now = GetCurrentTimestamp();
	int			kept = 0;

	for (int i = 0; list == &bound && i < list->count; i++)
	{
		if (list->items[i].scope == HLOOM_SCOPE_SESSION &&
			hloom_tracked_end(&list->items[i].id) <= now &&
			!hloom_loss_watches(&list->items[i].id))
			give_back(&list->items[i], false);
		else
			list->items[kept++] = list->items[i];
	}
	if (list == &bound)
		list->count = kept;
}

/*
 * Makes room for one more in the list, and for giving it back.
 */
static void
make_room(HeldList *list)
{
	if (list->count == list->room)
		forget_ended(list);
	if (list->count == list->room)
	{
		int			room = Max(FIRST_ROOM, 2 * list->room);

		if (list->items == NULL)
			list->items = MemoryContextAlloc(TopMemoryContext, room * sizeof(Held));
		else
			list->items = repalloc_huge(list->items, room * sizeof(Held));
		list->room = room;
	}
	hloom_sweep_reserve(fresh.count + bound.count + 1);
}

/*
 * Whether a statement is running or has failed that took it.  A session that ends between two
 * statements has told of its leases.
 */
static bool
is_of_this_statement(const Held *held)
{
	return held->statement == GetCurrentStatementStartTimestamp() &&
		(likely(!proc_exit_inprogress) || debug_query_string != NULL);
}

/*
 * Gives back those of a list whose transaction or subtransaction is at its end.
 */
static void
end_some(HeldList *list, bool commit, bool top, bool in_procedure)
{
	int			kept = 0;

	for (int i = 0; i < list->count; i++)
	{
		Held	   *held = &list->items[i];
		bool		failed = !commit && (top || held->ending) && is_of_this_statement(held);
		bool		follows = held->scope == HLOOM_SCOPE_TRANSACTION && (top || held->ending);

		if (failed || follows)
		{
			give_back(held, failed && !follows);
			continue;
		}
		held->ending = false;
		if (top && commit && !in_procedure)
			held->statement = 0;
		if (top)
			held->subid = TopSubTransactionId;
		list->items[kept++] = *held;
	}
	list->count = kept;
}

/*
 * Resource release callback: the end of a transaction or subtransaction, locks are released.  Is
 * also called for portals, and more than once.
 */
static void
end_transaction(ResourceReleasePhase phase, bool commit, bool top, void *arg)
{
	bool		in_procedure;

	if (phase != RESOURCE_RELEASE_AFTER_LOCKS)
		return;
	if (top)
		hloom_tracked_unreserve();
	if ((fresh.count == 0 && bound.count == 0) || (!top && !(some_ending && !commit)))
		return;

	/* What commits in the middle of a statement may still fail as a statement. */
	in_procedure = top && commit && SPI_inside_nonatomic_context();
	end_some(&fresh, commit, top, in_procedure);
	end_some(&bound, commit, top, in_procedure);
	some_ending = false;
	if (top && commit && !in_procedure)
		fresh.count = 0;
}

static void
move_or_end(HeldList *list, SubTransactionId subid, SubTransactionId parent, bool commit)
{
	for (int i = list->count - 1; i >= 0; i--)
	{
		Held	   *held = &list->items[i];

		if (held->subid != subid)
			continue;
		held->subid = parent;
		if (!commit)
			some_ending = held->ending = true;
	}
}

static void
end_subtransaction(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	bool		commit = event == SUBXACT_EVENT_COMMIT_SUB;

	if (!commit && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	if (!commit)
		hloom_tracked_unreserve();
	move_or_end(&fresh, subid, parent, commit);
	move_or_end(&bound, subid, parent, commit);
}

static void
check_transaction(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_PRE_PREPARE)
		return;
	for (int i = 0; i < bound.count; i++)
		if (bound.items[i].scope == HLOOM_SCOPE_TRANSACTION)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot PREPARE a transaction that holds a lease of scope"
							" \"transaction\"")));
}

/*
 * The backend ends; its transaction has been rolled back.
 */
static void
end_session(int code, Datum arg)
{
	hloom_tracked_unreserve();
	for (int i = 0; i < bound.count; i++)
		give_back(&bound.items[i], false);
	bound.count = 0;
}

static void
register_callbacks(void)
{
	static bool registered = false;

	if (likely(registered))
		return;
	hloom_guard_register();
	RegisterResourceReleaseCallback(end_transaction, NULL);
	RegisterSubXactCallback(end_subtransaction, NULL);
	RegisterXactCallback(check_transaction, NULL);

	/* Later than the rollback, which is one of the callbacks before. */
	on_shmem_exit(end_session, (Datum) 0);
	registered = true;
}

/*
 * A statement came after the one that took the fresh leases: the caller has heard of them.
 */
static void
forget_heard_of(void)
{
	if (fresh.count > 0 && !is_of_this_statement(&fresh.items[fresh.count - 1]))
		fresh.count = 0;
}

/*
 * Makes ready for a lease to be listed, so that nothing can fail once it is granted.  Raises 53400
 * when the lease follows a session or a transaction and too many do.
 */
void
hloom_handle_prepare(const HloomCall *call)
{
	register_callbacks();
	hloom_sweep_some();
	if (call->scope != HLOOM_SCOPE_LEASE)
	{
		make_room(&bound);
		if (!hloom_tracked_reserve((uint32) call->name.hash) &&
			(hloom_sweep_all() == 0 || !hloom_tracked_reserve((uint32) call->name.hash)))
			hloom_error_tracked_full();
		return;
	}
	forget_heard_of();
	make_room(&fresh);
}

/*
 * No lease is granted after hloom_handle_prepare().
 */
void
hloom_handle_abandon(void)
{
	hloom_tracked_unreserve();
}

static Held *
find(HeldList *list, uint64 hash, const pg_uuid_t *owner)
{
	for (int i = list->count - 1; i >= 0; i--)
		if (list->items[i].hash == hash &&
			memcmp(&list->items[i].owner, owner, sizeof(pg_uuid_t)) == 0)
			return &list->items[i];
	return NULL;
}

static Held *
find_grant(HeldList *list, const HloomTrackedId *id)
{
	for (int i = list->count - 1; i >= 0; i--)
		if (memcmp(&list->items[i].id, id, sizeof(HloomTrackedId)) == 0)
			return &list->items[i];
	return NULL;
}

static void
delist(HeldList *list, Held *held)
{
	if (held == NULL)
		return;
	hloom_loss_unwatch(&held->id);
	hloom_guard_forget(&held->id);
	*held = list->items[--list->count];
}

/*
 * A lease the owner had already, of this backend or another, follows from now on what this call
 * says.  Returns whether there is nothing left to list.
 */
static bool
note_renewal(const HloomCall *call, const HloomTrackedId *id)
{
	Held	   *held = find_grant(&bound, id);

	if (call->scope == HLOOM_SCOPE_LEASE)
	{
		delist(&bound, held);
		return true;
	}
	if (held == NULL)
		return false;
	if (!call->cancel || held->scope != call->scope)
	{
		hloom_loss_unwatch(&held->id);
		hloom_guard_forget(&held->id);
	}
	held->scope = call->scope;
	return true;
}

/*
 * Lists a grant.  A renewed one is listed only if it follows something: the caller had heard of it
 * before.  Interrupts are held.  Does not raise.
 */
void
hloom_handle_hold(const HloomTrackedId *id, const HloomCall *call, const HloomGrant *grant)
{
	HeldList   *list = call->scope == HLOOM_SCOPE_LEASE ? &fresh : &bound;
	Held	   *held = &list->items[list->count];

	hloom_tracked_unreserve();
	if (grant->renewed && note_renewal(call, id))
		return;
	held->id = *id;
	held->hash = call->name.hash;
	held->end = grant->expires_at;
	held->owner = call->owner;
	held->statement = grant->renewed ? 0 : GetCurrentStatementStartTimestamp();
	held->subid = GetCurrentSubTransactionId();
	held->scope = call->scope;
	held->place = hloom_stats_place(MyDatabaseId, call->name.ns, call->name.ns_len);
	held->ending = false;
	held->began = call->requested_at;
	list->count++;
}

/*
 * The caller released the lease, or has lost it: then nobody else drops its entry.  Does not raise.
 */
void
hloom_handle_forget(const HloomCall *call)
{
	Held	   *held;

	forget_heard_of();
	if (fresh.count > 0)
		delist(&fresh, find(&fresh, call->name.hash, &call->owner));
	held = bound.count > 0 ? find(&bound, call->name.hash, &call->owner) : NULL;
	if (held != NULL)
	{
		/* In this order: the one still reads from the entry that the other removes. */
		hloom_loss_unwatch(&held->id);
		(void) hloom_tracked_drop(&held->id, false);
	}
	delist(&bound, held);
}

/*
 * Returns the owner of the lease on the key that this transaction has with scope "transaction", or
 * NULL.
 */
const pg_uuid_t *
hloom_handle_joined(const HloomKey *name)
{
	for (int i = bound.count - 1; i >= 0; i--)
		if (bound.items[i].hash == name->hash &&
			bound.items[i].scope == HLOOM_SCOPE_TRANSACTION)
			return &bound.items[i].owner;
	return NULL;
}

/*
 * Gives back the leases of scope "session".  Returns how many were held.  Does not raise.
 */
int64
hloom_handle_release_session(void)
{
	TimestampTz now = GetCurrentTimestamp();
	int			kept = 0;
	int64		released = 0;

	for (int i = 0; i < bound.count; i++)
	{
		if (bound.items[i].scope != HLOOM_SCOPE_SESSION)
		{
			bound.items[kept++] = bound.items[i];
			continue;
		}
		if (hloom_tracked_end(&bound.items[i].id) > now)
			released++;
		give_back(&bound.items[i], false);
	}
	bound.count = kept;
	return released;
}
