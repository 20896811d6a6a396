/*
 * sql_looking.c
 *	  SQL: who holds what, and whether locks can be taken: hloom_locks(), hloom_health().
 *
 * Both ask the providers and know no store.  Keys that nobody holds but that are kept for a waiter
 * come from the lists of waiters, which are copied before the leases are read: a lease that is seen
 * is newer.  Whoever may use a namespace sees its leases, without their owners; nothing else of a
 * lease is secret among those who could take it.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "calls_store.h"
#include "compat.h"
#include "errors.h"
#include "lease_key.h"
#include "lease_time.h"
#include "options.h"
#include "provider.h"
#include "queues.h"
#include "shmem.h"
#include "work.h"

PG_FUNCTION_INFO_V1(hloom_sql_locks);
PG_FUNCTION_INFO_V1(hloom_sql_health);

enum
{
	LOCK_NAMESPACE,
	LOCK_KEY,
	LOCK_HOLDER,
	LOCK_APPLICATION,
	LOCK_STATE,
	LOCK_HELD_FOR,
	LOCK_REMAINING,
	LOCK_FREED_BY,
	LOCK_FENCE,
	LOCK_WAITERS,
	LOCK_HOLDER_PID,
	LOCK_NOTE,
	LOCK_COLUMNS
};

enum
{
	HEALTH_PROVIDER,
	HEALTH_HEALTHY,
	HEALTH_DETAIL,
	HEALTH_LATENCY,
	HEALTH_WORKER,
	HEALTH_COLUMNS
};

/* Bytes of what a provider tells about itself. */
#define TOLD 256

/* A worker that has not looked so long after it was to is stopped, or stuck. */
#define WORKER_LATE (5 * USECS_PER_SEC)

typedef struct HloomLooking
{
	ReturnSetInfo *result;
	MemoryContext row_context;	/* reset with each row */
	TimestampTz now;
	HloomQueues queues;
} HloomLooking;

static Datum
text_datum(const char *s, int len)
{
	return PointerGetDatum(cstring_to_text_with_len(s, len));
}

/*
 * What else than the owner's release gives the key free.  While a commit depends on the lease that
 * is the commit's end, whatever the lease's is.
 */
static const char *
freed_by(HloomScope scope, bool committing)
{
	if (committing)
		return "commit";
	switch (scope)
	{
		case HLOOM_SCOPE_LEASE:
			return "its end";
		case HLOOM_SCOPE_SESSION:
			return "backend exit";
		case HLOOM_SCOPE_TRANSACTION:
			return "transaction end";
	}
	return "its end";
}

static Datum
duration_datum(int64 usec)
{
	return IntervalPGetDatum(hloom_time_to_interval(Max(usec, 0)));
}

static void
set_holder(Datum *values, bool *nulls, Oid role)
{
	char	   *name = GetUserNameFromId(role, true);

	nulls[LOCK_HOLDER] = name == NULL;
	if (name)
		values[LOCK_HOLDER] = CStringGetTextDatum(name);
}

/*
 * Visit: adds a lease's row, if the user may see it.
 */
static void
add_lease(const HloomLease *lease, void *arg)
{
	HloomLooking *looking = (HloomLooking *) arg;
	MemoryContext old = MemoryContextSwitchTo(looking->row_context);
	Datum		values[LOCK_COLUMNS] = {0};
	bool		nulls[LOCK_COLUMNS] = {0};
	HloomQueue *queue;

	MemoryContextReset(looking->row_context);
	if (!hloom_queues_may_see(&looking->queues, &lease->name))
	{
		MemoryContextSwitchTo(old);
		return;
	}
	queue = hloom_queues_of_key(&looking->queues, &lease->name);
	if (unlikely(queue != NULL))
		queue->held = true;
	values[LOCK_NAMESPACE] = text_datum(lease->name.ns, lease->name.ns_len);
	values[LOCK_KEY] = text_datum(lease->name.key, lease->name.key_len);
	set_holder(values, nulls, lease->holder_role);
	values[LOCK_APPLICATION] = text_datum(lease->application, lease->application_len);
	values[LOCK_STATE] = CStringGetTextDatum(lease->committing ? "committing" : "held");
	values[LOCK_HELD_FOR] = duration_datum(looking->now - lease->granted_at);
	values[LOCK_REMAINING] = duration_datum(lease->expires_at - looking->now);
	values[LOCK_FREED_BY] =
		CStringGetTextDatum(freed_by(lease->scope, lease->committing));
	values[LOCK_FENCE] = Int64GetDatum(lease->fence);
	values[LOCK_WAITERS] = Int64GetDatum(queue ? queue->count : 0);
	nulls[LOCK_HOLDER_PID] = lease->holder_pid == 0;
	values[LOCK_HOLDER_PID] = Int32GetDatum(lease->holder_pid);
	nulls[LOCK_NOTE] = lease->note_len == 0;
	values[LOCK_NOTE] = text_datum(lease->note, lease->note_len);
	tuplestore_putvalues(looking->result->setResult, looking->result->setDesc, values, nulls);
	MemoryContextSwitchTo(old);
}

/*
 * Adds the row of a key that nobody holds, if it is kept for one of its waiters and the user may
 * see it.
 */
static void
add_reserved(HloomLooking *looking, const HloomQueue *queue)
{
	HloomKey	name = hloom_queues_name(queue);
	const HloomWaiter *waiter = NULL;
	Datum		values[LOCK_COLUMNS] = {0};
	bool		nulls[LOCK_COLUMNS] = {0};

	for (int i = 0; i < queue->count && waiter == NULL; i++)
		if (queue->waiters[i]->reserved_until > looking->now)
			waiter = queue->waiters[i];
	if (waiter == NULL || !hloom_queues_may_see(&looking->queues, &name))
		return;
	values[LOCK_NAMESPACE] = text_datum(name.ns, name.ns_len);
	values[LOCK_KEY] = text_datum(name.key, name.key_len);
	set_holder(values, nulls, waiter->role);
	values[LOCK_APPLICATION] = CStringGetTextDatum(waiter->application);
	values[LOCK_STATE] = CStringGetTextDatum("reserved");
	values[LOCK_REMAINING] = duration_datum(waiter->reserved_until - looking->now);
	values[LOCK_FREED_BY] = CStringGetTextDatum(freed_by(HLOOM_SCOPE_LEASE, false));
	values[LOCK_WAITERS] = Int64GetDatum(queue->count);
	values[LOCK_HOLDER_PID] = Int32GetDatum(waiter->pid);
	nulls[LOCK_HELD_FOR] = nulls[LOCK_FENCE] = nulls[LOCK_NOTE] = true;
	tuplestore_putvalues(looking->result->setResult, looking->result->setDesc, values, nulls);
}

/*
 * SQL: hloom_locks().  Raises LL003 when a store does not answer, LL002 or LL004 when it fails,
 * 55000 without the extension.
 */
Datum
hloom_sql_locks(PG_FUNCTION_ARGS)
{
	HloomLooking looking = {.result = (ReturnSetInfo *) fcinfo->resultinfo};

	InitMaterializedSRF(fcinfo, 0);
	looking.row_context = AllocSetContextCreate(CurrentMemoryContext, "hloom_lock row",
												ALLOCSET_SMALL_SIZES);
	looking.now = GetCurrentTimestamp();
	hloom_queues_copy(&looking.queues);
	for (const HloomProvider *at = hloom_provider_next(NULL); at; at = hloom_provider_next(at))
		if (at->list)
			hloom_calls_list(at, add_lease, &looking);
	for (int i = 0; i < looking.queues.count; i++)
		if (!looking.queues.queues[i].held)
			add_reserved(&looking, &looking.queues.queues[i]);
	MemoryContextDelete(looking.row_context);
	return (Datum) 0;
}

/*
 * Why no lock can be taken here whatever the store says, or NULL.
 */
static const char *
obstacle(void)
{
	if (RecoveryInProgress())
		return "the server is a standby, locks are taken on the primary";
	if (hloom_shared == NULL)
		return "hloom_lock is not in shared_preload_libraries";
	return NULL;
}

/*
 * Describes the background worker of this database.
 */
static char *
worker_state(void)
{
	HloomWorkSeen seen = {.state = HLOOM_WORK_NONE,.next = DT_NOEND};
	bool		launcher;
	bool		shortage;
	TimestampTz now;
	TimestampTz should_run;

	(void) hloom_work_look(&seen, &launcher, &shortage);
	now = GetCurrentTimestamp();
	switch (seen.state)
	{
		case HLOOM_WORK_RUNNING:
			/* A stopped one has not taken in what became due; that may be older than itself. */
			should_run = Max(Min(seen.wake_at, seen.due), seen.since);
			if (now - WORKER_LATE > should_run)
				return psprintf("late: process %d should have run " INT64_FORMAT " seconds ago",
								seen.pid, (now - should_run) / USECS_PER_SEC);
			return psprintf("running: process %d, " UINT64_FORMAT " turns", seen.pid, seen.turns);
		case HLOOM_WORK_STARTING:
			return pstrdup("starting");
		case HLOOM_WORK_NONE:
			break;
	}
	if (!launcher)
		return pstrdup("missing: the launcher does not run, see max_worker_processes");
	if (shortage)
		return pstrdup("missing: no background worker is free, see max_worker_processes");
	if (seen.next != DT_NOEND && seen.retry_at > now)
		return psprintf("missing: it has failed or could not be started, tried again in "
						INT64_FORMAT " s",
						(seen.retry_at - now + USECS_PER_SEC - 1) / USECS_PER_SEC);
	if (seen.next <= now)
		return pstrdup("starting");
	return pstrdup("not running: nothing to do");
}

static void
add_health(ReturnSetInfo *result, const HloomProvider *provider)
{
	const char *reason = obstacle();
	char		told[TOLD] = "nothing to probe";
	bool		good = reason == NULL;
	Datum		values[HEALTH_COLUMNS] = {0};
	bool		nulls[HEALTH_COLUMNS] = {0};
	instr_time	began;
	instr_time	took;

	values[HEALTH_PROVIDER] = CStringGetTextDatum(provider->name);
	nulls[HEALTH_LATENCY] = true;
	if (reason == NULL && provider->check)
	{
		INSTR_TIME_SET_CURRENT(began);
		good = hloom_calls_check(provider, told, TOLD);
		INSTR_TIME_SET_CURRENT(took);
		INSTR_TIME_SUBTRACT(took, began);
		nulls[HEALTH_LATENCY] = false;
		values[HEALTH_LATENCY] =
			IntervalPGetDatum(hloom_time_to_interval(INSTR_TIME_GET_MICROSEC(took)));
	}
	values[HEALTH_HEALTHY] = BoolGetDatum(good);
	values[HEALTH_DETAIL] = CStringGetTextDatum(reason ? reason : told);
	nulls[HEALTH_WORKER] = reason != NULL || !hloom_provider_is_own(provider);
	if (!nulls[HEALTH_WORKER])
		values[HEALTH_WORKER] = CStringGetTextDatum(worker_state());
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * SQL: hloom_health(namespace).  Each provider, or the one of a namespace.  Raises 22023 for a bad
 * namespace and 42704 for one whose provider does not exist; a store that does not answer is a
 * row.
 */
Datum
hloom_sql_health(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	char	   *wanted = NULL;
	bool		found = false;

	if (!PG_ARGISNULL(0))
	{
		text	   *ns = PG_GETARG_TEXT_PP(0);
		HloomOptions options;

		hloom_key_check_namespace(VARDATA_ANY(ns), VARSIZE_ANY_EXHDR(ns), false);
		hloom_options_of(&options, VARDATA_ANY(ns), VARSIZE_ANY_EXHDR(ns));
		wanted = pstrdup(options.provider);
	}
	InitMaterializedSRF(fcinfo, 0);
	for (const HloomProvider *at = hloom_provider_next(NULL); at; at = hloom_provider_next(at))
		if (wanted == NULL || strcmp(wanted, at->name) == 0)
		{
			add_health(result, at);
			found = true;
		}
	if (!found)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("lock provider \"%s\" does not exist", wanted)));
	return (Datum) 0;
}
