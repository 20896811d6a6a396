/*
 * sql_lock.c
 *	  The SQL functions that take, keep and give back a lease: arguments in, results out.
 *
 * Order of checks: not read-only and not in recovery, not in parallel mode, preloaded, then the
 * arguments, so that nothing is told about a key where nothing can be locked.  A disabled namespace
 * is answered here, after the arguments are checked, and no provider is asked.  Knows the provider
 * contract and no store.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "acquire.h"
#include "calls.h"
#include "compat.h"
#include "errors.h"
#include "events.h"
#include "handle.h"
#include "lease_time.h"
#include "provider.h"
#include "sql_args.h"

PG_FUNCTION_INFO_V1(hloom_sql_try_acquire);
PG_FUNCTION_INFO_V1(hloom_sql_acquire);
PG_FUNCTION_INFO_V1(hloom_sql_release);
PG_FUNCTION_INFO_V1(hloom_sql_release_text);
PG_FUNCTION_INFO_V1(hloom_sql_release_handle);
PG_FUNCTION_INFO_V1(hloom_sql_extend);
PG_FUNCTION_INFO_V1(hloom_sql_extend_text);
PG_FUNCTION_INFO_V1(hloom_sql_extend_handle);
PG_FUNCTION_INFO_V1(hloom_sql_is_held);
PG_FUNCTION_INFO_V1(hloom_sql_is_held_text);
PG_FUNCTION_INFO_V1(hloom_sql_is_held_handle);
PG_FUNCTION_INFO_V1(hloom_sql_remaining);
PG_FUNCTION_INFO_V1(hloom_sql_remaining_text);
PG_FUNCTION_INFO_V1(hloom_sql_remaining_handle);

/* After namespace and key. */
static const HloomArgsPlaces places = HLOOM_ARGS_PLACES_FROM(2);

/*
 * Returns the handle of a granted lease, or a placeholder when the namespace is disabled, as a row
 * of type hloom_handle.
 */
static Datum
form_handle(FunctionCallInfo fcinfo, const HloomAcquisition *acquisition)
{
	const HloomCall *call = &acquisition->call;
	bool		coordinated = acquisition->options.enabled;
	TupleDesc	desc = lookup_rowtype_tupdesc(get_func_rettype(fcinfo->flinfo->fn_oid), -1);
	Datum		values[HLOOM_HANDLE_FIELDS];
	bool		nulls[HLOOM_HANDLE_FIELDS] = {0};
	HeapTuple	tuple;

	if (desc->natts != lengthof(values))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("type hloom_handle does not fit the installed library"),
				 errhint("Use ALTER EXTENSION hloom_lock UPDATE.")));
	values[0] = PG_GETARG_DATUM(0);
	values[1] = PG_GETARG_DATUM(1);
	values[2] = UUIDPGetDatum(&call->owner);
	values[3] = Int64GetDatum(coordinated ? acquisition->grant.fence : 0);
	values[4] = IntervalPGetDatum(hloom_time_to_interval(call->lease));
	values[5] = TimestampTzGetDatum(hloom_acquire_end(acquisition));
	values[6] = BoolGetDatum(coordinated);
	tuple = heap_form_tuple(desc, values, nulls);
	ReleaseTupleDesc(desc);
	return HeapTupleGetDatum(tuple);
}

/*
 * Takes a lease.  Returns one row, or none when the key stays busy and that is no error, without a
 * tuplestore of our own.
 */
static Datum
acquire(FunctionCallInfo fcinfo, const char *function, bool must)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	HloomAcquisition acquisition;

	if (result == NULL || !IsA(result, ReturnSetInfo) ||
		(result->allowedModes & SFRM_ValuePerCall) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("set-valued function called in context that cannot accept a set")));

	hloom_args_require(function, true);
	memset(&acquisition, 0, sizeof(acquisition));
	hloom_args_acquisition(&acquisition, fcinfo, &places, must, HLOOM_SCOPE_LEASE);
	if (acquisition.call.scope == HLOOM_SCOPE_TRANSACTION)
		hloom_error_warn_no_block("scope \"transaction\"");
	if (unlikely(!acquisition.options.enabled))
		hloom_event_disabled(&acquisition.call.name);
	else if (!hloom_acquire(&acquisition))
	{
		if (must)
			hloom_acquire_raise_busy(&acquisition);
		result->isDone = ExprEndResult;
		PG_RETURN_NULL();
	}
	result->isDone = ExprSingleResult;
	return form_handle(fcinfo, &acquisition);
}

/*
 * SQL: hloom_try_acquire(...).
 */
Datum
hloom_sql_try_acquire(PG_FUNCTION_ARGS)
{
	return acquire(fcinfo, "hloom_try_acquire()", false);
}

/*
 * SQL: hloom_acquire(...).
 */
Datum
hloom_sql_acquire(PG_FUNCTION_ARGS)
{
	return acquire(fcinfo, "hloom_acquire()", true);
}

/*
 * Begins a call about a lease: takes it from the arguments and sets the clocks, so that the call
 * comes back after a lease's time at the latest.
 */
static bool
begin(HloomCall *call, HloomOptions *options, FunctionCallInfo fcinfo, HloomArgsForm form)
{
	memset(call, 0, sizeof(*call));
	call->requested_at = GetCurrentTimestamp();
	if (!hloom_args_lease_of(call, options, fcinfo, form))
		return false;
	call->deadline = hloom_time_add(call->requested_at, options->default_lease);
	return true;
}

static HloomCourse
course_of(const HloomCall *call, const char *cause)
{
	HloomCourse course = {
		.name = &call->name,
		.waited = GetCurrentTimestamp() - call->requested_at,
		.attempts = 1,
		.cause = cause
	};

	return course;
}

static Datum
release(FunctionCallInfo fcinfo, HloomArgsForm form)
{
	HloomCall	call;
	HloomOptions options;
	HloomCourse course;
	const char *cause;

	hloom_args_require("hloom_release()", true);
	if (!begin(&call, &options, fcinfo, form))
		PG_RETURN_BOOL(false);
	if (!options.enabled)
		PG_RETURN_BOOL(true);
	switch (hloom_calls_release(hloom_provider_require(options.provider), &call, &cause))
	{
		case HLOOM_YES:
			hloom_handle_forget(&call);
			PG_RETURN_BOOL(true);
		case HLOOM_NO:
			PG_RETURN_BOOL(false);
		default:
			course = course_of(&call, cause);
			hloom_event_unanswered(HLOOM_EVENT_RELEASE_FAILED, &course);
			PG_RETURN_NULL();
	}
}

/* SQL: hloom_release in its three forms. */
Datum
hloom_sql_release(PG_FUNCTION_ARGS)
{
	return release(fcinfo, HLOOM_ARGS_UUID);
}

Datum
hloom_sql_release_text(PG_FUNCTION_ARGS)
{
	return release(fcinfo, HLOOM_ARGS_TEXT);
}

Datum
hloom_sql_release_handle(PG_FUNCTION_ARGS)
{
	return release(fcinfo, HLOOM_ARGS_HANDLE);
}

static Datum
extend(FunctionCallInfo fcinfo, HloomArgsForm form)
{
	HloomCall	call;
	HloomOptions options;
	HloomGrant	grant = {0};
	HloomCourse course;
	const char *cause;
	int64		lease;

	hloom_args_require("hloom_extend()", true);
	lease = hloom_args_lease(fcinfo, form == HLOOM_ARGS_HANDLE ? 1 : 3, 0);
	if (!begin(&call, &options, fcinfo, form))
		PG_RETURN_BOOL(false);
	if (!options.enabled)
		PG_RETURN_BOOL(true);
	call.max_lease = options.max_lease;
	if (lease > 0)
	{
		call.lease = hloom_time_capped_lease(lease, options.max_lease);
		call.deadline = hloom_time_add(call.requested_at, call.lease);
	}
	switch (hloom_calls_extend(hloom_provider_require(options.provider), &call, &grant, &cause))
	{
		case HLOOM_YES:
			if (grant.capped)
				hloom_time_notice_cap(options.max_lease);
			/* An answer as late as its own lease is long comes after the end of it. */
			PG_RETURN_BOOL(GetCurrentTimestamp() - call.requested_at < grant.lease);
		case HLOOM_NO:
			PG_RETURN_BOOL(false);
		default:
			course = course_of(&call, cause);
			hloom_event_unanswered(HLOOM_EVENT_EXTEND_FAILED, &course);
			PG_RETURN_BOOL(false);
	}
}

/* SQL: hloom_extend in its three forms. */
Datum
hloom_sql_extend(PG_FUNCTION_ARGS)
{
	return extend(fcinfo, HLOOM_ARGS_UUID);
}

Datum
hloom_sql_extend_text(PG_FUNCTION_ARGS)
{
	return extend(fcinfo, HLOOM_ARGS_TEXT);
}

Datum
hloom_sql_extend_handle(PG_FUNCTION_ARGS)
{
	return extend(fcinfo, HLOOM_ARGS_HANDLE);
}

/*
 * Whether the call's owner holds the key now; fills grant if so.
 */
static bool
look(FunctionCallInfo fcinfo, HloomArgsForm form, const char *function, HloomGrant *grant)
{
	HloomCall	call;
	HloomOptions options;
	HloomReply	reply;
	const char *cause;

	hloom_args_require(function, false);
	if (!begin(&call, &options, fcinfo, form))
		return false;
	if (!options.enabled)
	{
		grant->expires_at = HLOOM_UNCOORDINATED_END;
		return true;
	}
	reply = hloom_calls_is_held(hloom_provider_require(options.provider), &call, grant, &cause);
	if (reply != HLOOM_YES && reply != HLOOM_NO)
	{
		HloomCourse course = course_of(&call, cause);

		hloom_error_reply(reply, &course);
	}
	return reply == HLOOM_YES;
}

static Datum
is_held(FunctionCallInfo fcinfo, HloomArgsForm form)
{
	HloomGrant	grant;

	PG_RETURN_BOOL(look(fcinfo, form, "hloom_is_held()", &grant));
}

/* SQL: hloom_is_held in its three forms. */
Datum
hloom_sql_is_held(PG_FUNCTION_ARGS)
{
	return is_held(fcinfo, HLOOM_ARGS_UUID);
}

Datum
hloom_sql_is_held_text(PG_FUNCTION_ARGS)
{
	return is_held(fcinfo, HLOOM_ARGS_TEXT);
}

Datum
hloom_sql_is_held_handle(PG_FUNCTION_ARGS)
{
	return is_held(fcinfo, HLOOM_ARGS_HANDLE);
}

static Datum
remaining(FunctionCallInfo fcinfo, HloomArgsForm form)
{
	HloomGrant	grant;

	if (!look(fcinfo, form, "hloom_remaining()", &grant))
		PG_RETURN_NULL();
	PG_RETURN_INTERVAL_P(hloom_time_to_interval(Max(grant.expires_at - GetCurrentTimestamp(), 0)));
}

/* SQL: hloom_remaining in its three forms. */
Datum
hloom_sql_remaining(PG_FUNCTION_ARGS)
{
	return remaining(fcinfo, HLOOM_ARGS_UUID);
}

Datum
hloom_sql_remaining_text(PG_FUNCTION_ARGS)
{
	return remaining(fcinfo, HLOOM_ARGS_TEXT);
}

Datum
hloom_sql_remaining_handle(PG_FUNCTION_ARGS)
{
	return remaining(fcinfo, HLOOM_ARGS_HANDLE);
}
