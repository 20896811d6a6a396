/*
 * sql_execute.c
 *	  The SQL functions that run an action under a lease.
 *
 * Order: what the place forbids, the arguments, what can be told of the action without a lock,
 * then the lease, then the action.  The action runs in a subtransaction, so that after its error
 * the transaction is usable: a lease that does not follow it is given back there, and the same
 * error raised again.
 */
#include "postgres.h"

#include "access/xact.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "acquire.h"
#include "action.h"
#include "activities.h"
#include "compat.h"
#include "contain.h"
#include "errors.h"
#include "events.h"
#include "nesting.h"
#include "provider.h"
#include "sql_args.h"

PG_FUNCTION_INFO_V1(hloom_sql_execute);
PG_FUNCTION_INFO_V1(hloom_sql_query);
PG_FUNCTION_INFO_V1(hloom_sql_query_json);

/* Places of the arguments after namespace and key. */
enum
{
	ARG_ACTION = 2,
	ARG_ARGS,
	FIRST_OPTION
};

static const HloomArgsPlaces places = HLOOM_ARGS_PLACES_FROM(FIRST_OPTION);

/*
 * Takes the arguments of the action.  Raises 22004 and what hloom_action_check() raises.
 */
static void
take_action(HloomAction *action, FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(ARG_ACTION))
		hloom_error_null("action");
	action->text = text_to_cstring(PG_GETARG_TEXT_PP(ARG_ACTION));
	if (!PG_ARGISNULL(ARG_ARGS))
		action->args = PG_GETARG_ARRAYTYPE_P(ARG_ARGS);
	hloom_action_check(action);
}

/*
 * What the last owner of the key wrote must be visible to the action.
 */
static void
check_isolation(const char *function)
{
	if (IsolationUsesXactSnapshot())
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("%s cannot be used at this isolation level", function),
				 errdetail("The action would not see what the last owner of the key wrote."),
				 errhint("Use BEGIN ISOLATION LEVEL READ COMMITTED.")));
}

static void
finish(void *arg)
{
	HloomAcquisition *acquisition = (HloomAcquisition *) arg;

	if (acquisition->call.scope != HLOOM_SCOPE_TRANSACTION)
		hloom_acquire_give_back(acquisition);
	else
		hloom_acquire_check(acquisition);
}

/*
 * It is not known what became of the lease: its release, or the look at it, has raised an error.
 */
static void
report_end_failed(const HloomAcquisition *acquisition, const ErrorData *error)
{
	const HloomCall *call = &acquisition->call;
	bool		released = call->scope != HLOOM_SCOPE_TRANSACTION;
	HloomCourse course = {
		.name = &call->name,
		.waited = GetCurrentTimestamp() - call->requested_at,
		.attempts = 1,
		.cause = error->message
	};
	HloomEvent	event;

	if (!hloom_event_begin_for(&event, released ? HLOOM_EVENT_RELEASE_FAILED :
							   HLOOM_EVENT_CHECK_FAILED, &call->name))
		return;
	event.sqlstate = error->sqlerrcode;
	hloom_event_add_course(&event, &course);
	hloom_event_write(&event, "%s, %s", error->message,
					  released ? "the lease may be held until its end" :
					  "the lease may have been lost");
}

/*
 * The end of the call.  A lease of scope transaction is given back when others see what the action
 * wrote, or when that is undone (handle.c): here the caller is told if it was lost before.  Any
 * other is given back now, before the transaction commits.
 *
 * "failed": the action raised an error, which nothing may mask.  An error in here becomes a
 * warning; an interrupt stays one, unless the action's error is raised.
 */
static void
end_call(HloomAcquisition *acquisition, bool failed)
{
	ErrorData  *error = hloom_contain(finish, acquisition);

	if (error == NULL)
		return;
	if (!failed && ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION)
		ReThrowError(error);
	report_end_failed(acquisition, error);
	FreeErrorData(error);
}

/* An action under the lease on a key, and the rows it processed. */
typedef struct Locked
{
	const HloomKey *name;
	const HloomAction *action;
	uint64		rows;
} Locked;

static void
run_action(void *arg)
{
	Locked	   *locked = (Locked *) arg;
	HloomNesting nesting;

	hloom_nesting_enter(&nesting, locked->name);
	PG_TRY();
	{
		locked->rows = hloom_action_run(locked->action);
	}
	PG_FINALLY();
	{
		/* The frame lives on this stack. */
		hloom_nesting_leave(&nesting);
	}
	PG_END_TRY();
}

/*
 * Runs the action under the lease and returns its number of rows, and in *held for how long this
 * call had the lease.  Passes its error on unchanged.
 */
static uint64
run_locked(HloomAcquisition *acquisition, const HloomAction *action, volatile int64 *held)
{
	Locked		locked = {.name = &acquisition->call.name,.action = action};
	ErrorData  *error;

	if (!hloom_acquire(acquisition))
		hloom_acquire_raise_busy(acquisition);
	error = hloom_contain(run_action, &locked);
	end_call(acquisition, error != NULL);
	*held = Max(GetCurrentTimestamp() - acquisition->asked_at, 0);
	if (error != NULL)
		ReThrowError(error);
	return locked.rows;
}

/*
 * Runs the action, locked unless locking is off.  *held is set when there was a lease.
 */
static uint64
run(HloomAcquisition *acquisition, const HloomAction *action, volatile int64 *held)
{
	if (!acquisition->options.enabled)
	{
		hloom_event_disabled(&acquisition->call.name);
		return hloom_action_run(action);
	}
	return run_locked(acquisition, action, held);
}

/*
 * The same, and tells of it, whatever comes.  What the action does is part of it.
 */
static uint64
run_and_tell(HloomAcquisition *acquisition, const HloomAction *action)
{
	HloomActivityFrame frame;
	HloomActivity activity = {
		.kind = HLOOM_ACTIVITY_EXECUTE,
		.name = &acquisition->call.name,
		.started_at = GetCurrentTimestamp(),
		.waited = HLOOM_NOT_TOLD
	};
	volatile int64 held = HLOOM_NOT_TOLD;
	volatile uint64 rows = 0;

	hloom_activity_enter(&frame);
	PG_TRY();
	{
		rows = run(acquisition, action, &held);
	}
	PG_FINALLY();
	{
		activity.held = held;
		activity.duration = Max(GetCurrentTimestamp() - activity.started_at, 0);
		hloom_activity_leave(&frame, &activity);
	}
	PG_END_TRY();
	return rows;
}

/*
 * All three functions, but for where the rows go.
 */
static uint64
execute(FunctionCallInfo fcinfo, HloomAction *action, const char *function)
{
	HloomAcquisition acquisition = {0};
	int64		held;

	hloom_args_require(function, true);
	hloom_args_acquisition(&acquisition, fcinfo, &places, true, HLOOM_SCOPE_TRANSACTION);
	take_action(action, fcinfo);
	check_isolation(function);

	if (acquisition.options.enabled &&
		PG_ARGISNULL(places.scope) && !acquisition.call.cancel &&
		!hloom_provider_is_own(hloom_provider_require(acquisition.options.provider)))
		acquisition.call.scope = HLOOM_SCOPE_LEASE;
	return hloom_activity_ring ? run_and_tell(&acquisition, action) :
		run(&acquisition, action, &held);
}

/*
 * SQL: hloom_execute_with_lock(...).
 */
Datum
hloom_sql_execute(PG_FUNCTION_ARGS)
{
	HloomAction action = {0};

	PG_RETURN_INT64((int64) execute(fcinfo, &action, "hloom_execute_with_lock()"));
}

/*
 * The tuplestore is the caller's, made before the subtransaction, and outlives it.
 */
static Datum
query(FunctionCallInfo fcinfo, bool json, const char *function)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	HloomAction action = {.json = json};

	if (result != NULL && IsA(result, ReturnSetInfo) && result->expectedDesc == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("function returning record called in context"
						" that cannot accept type record")));
	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	action.rows = result->setResult;
	action.desc = result->setDesc;
	execute(fcinfo, &action, function);
	return (Datum) 0;
}

/*
 * SQL: hloom_query_with_lock(...).
 */
Datum
hloom_sql_query(PG_FUNCTION_ARGS)
{
	return query(fcinfo, false, "hloom_query_with_lock()");
}

/*
 * SQL: hloom_query_with_lock_json(...).
 */
Datum
hloom_sql_query_json(PG_FUNCTION_ARGS)
{
	return query(fcinfo, true, "hloom_query_with_lock_json()");
}
