/*
 * guard.c
 *	  The leases without which this transaction must not commit.
 *
 * Just before the commit each is looked at where it is kept; from that look on until the outcome is
 * visible and the locks are released its provider grants the key to nobody, whatever the clock
 * says.  So there is no moment in between, and no bound on how long a commit takes.
 *
 * A guard belongs to a subtransaction as what it writes does: it moves to the parent, or dies.  An
 * automatic one stands for a lease of scope "transaction" with on_lost "cancel", and goes with it.
 *
 * Knows the provider contract and no store.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

#include "calls.h"
#include "compat.h"
#include "errors.h"
#include "guard.h"
#include "lease_key.h"
#include "lease_time.h"
#include "provider.h"

#define FIRST_ROOM 8

typedef struct Guard
{
	const HloomProvider *provider;
	HloomCall	call;			/* name and owner; its texts are the transaction's */
	int64		fence;
	int64		lease;			/* as long as last granted */
	TimestampTz end;			/* when the transaction began to depend on it */
	SubTransactionId subid;
	bool		automatic;
	bool		committing;		/* commit_begin said YES, commit_end is due */
} Guard;

/* In TopTransactionContext. */
static Guard *guards = NULL;
static int	count = 0;
static int	room = 0;

static void
look_again(Guard *guard)
{
	HloomCall  *call = &guard->call;
	HloomGrant	grant = {0};
	HloomCourse course = {.name = &call->name,.attempts = 1};
	HloomReply	reply;

	call->requested_at = GetCurrentTimestamp();
	call->deadline = hloom_time_add(call->requested_at, guard->lease);
	reply = hloom_calls_commit_begin(guard->provider, call, guard->fence, &grant, &course.cause);
	if (reply == HLOOM_YES)
	{
		guard->committing = true;
		return;
	}

	/* What has become of one whose row is gone is not known: if its time is over, say so. */
	if (reply == HLOOM_NO)
		hloom_error_lost(&call->name, HLOOM_LOST_COMMIT,
						 grant.expires_at != 0 || guard->end <= GetCurrentTimestamp());
	course.waited = GetCurrentTimestamp() - call->requested_at;
	hloom_error_reply(reply, &course);
}

static void
before_end(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_PRE_PREPARE && count > 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that depends on a lease")));
	if (event != XACT_EVENT_PRE_COMMIT)
		return;
	for (int i = 0; i < count; i++)
		look_again(&guards[i]);
}

/*
 * Resource release callback: the outcome is visible and the locks are released.  Is also called for
 * portals and subtransactions, and more than once.
 */
static void
end_transaction(ResourceReleasePhase phase, bool commit, bool top, void *arg)
{
	if (phase != RESOURCE_RELEASE_AFTER_LOCKS || !top || guards == NULL)
		return;
	for (int i = 0; i < count; i++)
		if (guards[i].committing)
			guards[i].provider->commit_end(&guards[i].call, guards[i].fence);
	guards = NULL;
	count = room = 0;
}

static void
end_subtransaction(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	int			kept = 0;

	if (event != SUBXACT_EVENT_COMMIT_SUB && event != SUBXACT_EVENT_ABORT_SUB)
		return;
	for (int i = 0; i < count; i++)
	{
		if (guards[i].subid == subid && event == SUBXACT_EVENT_ABORT_SUB)
			continue;
		if (guards[i].subid == subid)
			guards[i].subid = parent;
		guards[kept++] = guards[i];
	}
	count = kept;
}

/*
 * Registers the callbacks, once.  Those registered later are called earlier: whoever gives back at
 * the end of a transaction does so while its commit still protects the lease.
 */
void
hloom_guard_register(void)
{
	static bool registered = false;

	if (likely(registered))
		return;
	RegisterResourceReleaseCallback(end_transaction, NULL);
	RegisterSubXactCallback(end_subtransaction, NULL);
	RegisterXactCallback(before_end, NULL);
	registered = true;
}

/*
 * Whether this subtransaction or one around it has such a guard already.
 */
static bool
is_guarded(const HloomCall *call, int64 fence, bool automatic)
{
	for (int i = 0; i < count; i++)
		if (guards[i].fence == fence && guards[i].call.name.hash == call->name.hash &&
			guards[i].automatic == automatic)
			return true;
	return false;
}

static void
make_room(void)
{
	int			wanted = Max(FIRST_ROOM, 2 * room);

	if (count < room)
		return;
	if (guards == NULL)
		guards = MemoryContextAlloc(TopTransactionContext, wanted * sizeof(Guard));
	else
		guards = repalloc_huge(guards, wanted * sizeof(Guard));
	room = wanted;
}

/*
 * From now on the transaction commits only if the call's owner still holds the grant then.  The
 * provider has commit_begin and commit_end.  Raises when memory is out.
 */
void
hloom_guard_add(const HloomProvider *provider, const HloomCall *call, const HloomGrant *grant,
				bool automatic)
{
	Guard	   *guard;

	hloom_guard_register();
	if (is_guarded(call, grant->fence, automatic))
		return;
	make_room();
	guard = &guards[count];
	memset(guard, 0, sizeof(Guard));
	guard->provider = provider;
	guard->call.name = hloom_key_copy(&call->name, TopTransactionContext);
	guard->call.owner = call->owner;
	guard->fence = grant->fence;
	guard->lease = grant->lease;
	guard->end = grant->expires_at;
	guard->subid = GetCurrentSubTransactionId();
	guard->automatic = automatic;
	count++;
}

/*
 * The lease that an automatic guard stands for follows the transaction no more.  Does not raise.
 */
void
hloom_guard_forget(const HloomTrackedId *id)
{
	for (int i = 0; i < count; i++)
	{
		HloomTrackedId guarded = hloom_provider_grant_id(guards[i].provider, &guards[i].call,
														 guards[i].fence);

		if (!guards[i].automatic || memcmp(&guarded, id, sizeof(guarded)) != 0)
			continue;
		guards[i] = guards[--count];
		return;
	}
}
