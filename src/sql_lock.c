/*
 * sql_lock.c
 *	  The SQL functions that take, keep and give back a lease: arguments in, results out.
 *
 * Order of checks: not read-only and not in recovery, not in parallel mode, preloaded, then the
 * arguments, so that nothing is told about a key where nothing can be locked.  The clock of the
 * request is read first of all: what a caller may count on starts when it asked.  Knows the
 * provider contract and no store.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/typcache.h"

#include "compat.h"
#include "errors.h"
#include "guc.h"
#include "lease_time.h"
#include "provider.h"
#include "sql_args.h"

PG_FUNCTION_INFO_V1(hloom_sql_try_acquire);
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
PG_FUNCTION_INFO_V1(hloom_sql_not_built);

/* Places of hloom_try_acquire's arguments. */
enum
{
	ARG_NAMESPACE,
	ARG_KEY,
	ARG_LEASE,
	ARG_MAX_WAIT,
	ARG_RETRY,
	ARG_AUTO_EXTEND,
	ARG_ON_LOST,
	ARG_SCOPE,
	ARG_OWNER,
	ARG_NOTE
};

/*
 * Refuses what this version does not have, and what no version will.
 */
static void
check_options(FunctionCallInfo fcinfo)
{
	bool		auto_extend = !PG_ARGISNULL(ARG_AUTO_EXTEND) && PG_GETARG_BOOL(ARG_AUTO_EXTEND);
	bool		cancel = hloom_args_on_lost(fcinfo, ARG_ON_LOST);
	HloomScope	scope = hloom_args_scope(fcinfo, ARG_SCOPE);

	if (scope == HLOOM_SCOPE_LEASE && (auto_extend || cancel))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s needs scope session or transaction",
						auto_extend ? "auto_extend" : "on_lost \"cancel\""),
				 errdetail("A lease of scope lease is bound to no session that could be followed."),
				 errhint("Use scope => 'session' or scope => 'transaction'.")));
	if (scope != HLOOM_SCOPE_LEASE)
		hloom_error_not_built("scope other than lease");
	if (!PG_ARGISNULL(ARG_RETRY))
		hloom_error_not_built("retry");
	if (!PG_ARGISNULL(ARG_MAX_WAIT) &&
		hloom_time_is_positive(PG_GETARG_INTERVAL_P(ARG_MAX_WAIT)))
		hloom_error_not_built("max_wait");
}

/*
 * Returns a handle as a row of type hloom_handle.
 */
static Datum
form_handle(FunctionCallInfo fcinfo, const HloomCall *call, const HloomGrant *grant)
{
	TupleDesc	desc = lookup_rowtype_tupdesc(get_func_rettype(fcinfo->flinfo->fn_oid), -1);
	Datum		values[HLOOM_HANDLE_FIELDS];
	bool		nulls[HLOOM_HANDLE_FIELDS] = {0};
	HeapTuple	tuple;

	if (desc->natts != lengthof(values))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("type hloom_handle does not fit the installed library"),
				 errhint("Use ALTER EXTENSION hloom_lock UPDATE.")));
	values[0] = PG_GETARG_DATUM(ARG_NAMESPACE);
	values[1] = PG_GETARG_DATUM(ARG_KEY);
	values[2] = UUIDPGetDatum(&call->owner);
	values[3] = Int64GetDatum(grant->fence);
	values[4] = IntervalPGetDatum(hloom_time_to_interval(call->lease));
	values[5] = TimestampTzGetDatum(hloom_time_add(call->requested_at, call->lease));
	values[6] = BoolGetDatum(true);
	tuple = heap_form_tuple(desc, values, nulls);
	ReleaseTupleDesc(desc);
	return HeapTupleGetDatum(tuple);
}

/*
 * SQL: hloom_try_acquire(...).  One row or none, without a tuplestore of our own.
 */
Datum
hloom_sql_try_acquire(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	HloomCall	call = {.requested_at = GetCurrentTimestamp()};
	HloomGrant	grant;
	HloomReply	reply;

	if (result == NULL || !IsA(result, ReturnSetInfo) ||
		(result->allowedModes & SFRM_ValuePerCall) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("set-valued function called in context that cannot accept a set")));

	hloom_args_require("hloom_try_acquire()", true);
	hloom_args_name(&call, fcinfo, ARG_NAMESPACE, ARG_KEY);
	check_options(fcinfo);
	call.lease = hloom_args_lease(fcinfo, ARG_LEASE, (int64) hloom_default_lease * 1000);
	call.lease = hloom_time_capped_lease(call.lease);
	call.deadline = hloom_time_add(call.requested_at, call.lease);
	hloom_args_owner_or_new(&call, fcinfo, ARG_OWNER);
	hloom_args_note(&call, fcinfo, ARG_NOTE);

	reply = hloom_provider_of(&call.name)->try_acquire(&call, &grant);
	if (reply == HLOOM_NO)
	{
		result->isDone = ExprEndResult;
		PG_RETURN_NULL();
	}
	if (reply != HLOOM_YES)
		hloom_error_reply(reply, &call);
	result->isDone = ExprSingleResult;
	return form_handle(fcinfo, &call, &grant);
}

static void
warn_failed(const char *event, const char *what, const HloomCall *call)
{
	ereport(WARNING,
			(errcode(HLOOM_ERRCODE_TIMEOUT),
			 errmsg("%s: lock provider did not answer in time, %s", event, what),
			 errdetail_internal("%s", hloom_error_detail(call, 1)),
			 errhint("See pg_locks for who holds a lock on the lease table.")));
}

static Datum
release(FunctionCallInfo fcinfo, HloomArgsForm form)
{
	HloomCall	call = {.requested_at = GetCurrentTimestamp()};

	hloom_args_require("hloom_release()", true);
	if (!hloom_args_lease_of(&call, fcinfo, form))
		PG_RETURN_BOOL(false);
	call.deadline = hloom_time_add(call.requested_at, (int64) hloom_default_lease * 1000);
	switch (hloom_provider_of(&call.name)->release(&call))
	{
		case HLOOM_YES:
			PG_RETURN_BOOL(true);
		case HLOOM_NO:
			PG_RETURN_BOOL(false);
		default:
			warn_failed("LockReleaseFailed", "the lease may be held until its end", &call);
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
	HloomCall	call = {.requested_at = GetCurrentTimestamp()};
	HloomGrant	grant;
	int64		patience;

	hloom_args_require("hloom_extend()", true);
	if (!hloom_args_lease_of(&call, fcinfo, form))
		PG_RETURN_BOOL(false);
	call.lease = hloom_args_lease(fcinfo, form == HLOOM_ARGS_HANDLE ? 1 : 3, 0);
	if (call.lease > 0)
		call.lease = hloom_time_capped_lease(call.lease);
	call.max_lease = (int64) hloom_max_lease * 1000;
	patience = call.lease > 0 ? call.lease : (int64) hloom_default_lease * 1000;
	call.deadline = hloom_time_add(call.requested_at, patience);
	switch (hloom_provider_of(&call.name)->extend(&call, &grant))
	{
		case HLOOM_YES:
			if (grant.capped)
				hloom_time_notice_cap();
			PG_RETURN_BOOL(true);
		case HLOOM_NO:
			PG_RETURN_BOOL(false);
		default:
			warn_failed("LockExtendFailed", "the lease may end when it would have", &call);
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
	HloomCall	call = {.requested_at = GetCurrentTimestamp()};
	HloomReply	reply;

	hloom_args_require(function, false);
	if (!hloom_args_lease_of(&call, fcinfo, form))
		return false;
	call.deadline = hloom_time_add(call.requested_at, (int64) hloom_default_lease * 1000);
	reply = hloom_provider_of(&call.name)->is_held(&call, grant);
	if (reply != HLOOM_YES && reply != HLOOM_NO)
		hloom_error_reply(reply, &call);
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

/*
 * SQL: every function that this version only declares.
 */
Datum
hloom_sql_not_built(PG_FUNCTION_ARGS)
{
	hloom_error_not_built(psprintf("function %s()", get_func_name(fcinfo->flinfo->fn_oid)));
	PG_RETURN_NULL();
}
