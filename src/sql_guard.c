/*
 * sql_guard.c
 *	  SQL: hloom_guard().
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/timestamp.h"

#include "calls.h"
#include "compat.h"
#include "errors.h"
#include "guard.h"
#include "lease_time.h"
#include "provider.h"
#include "sql_args.h"

PG_FUNCTION_INFO_V1(hloom_sql_guard);
PG_FUNCTION_INFO_V1(hloom_sql_guard_text);
PG_FUNCTION_INFO_V1(hloom_sql_guard_handle);

/*
 * Raises LL010 unless the lease is held now, and makes the transaction depend on it.
 */
static Datum
guard(FunctionCallInfo fcinfo, HloomArgsForm form)
{
	HloomCall	call = {0};
	HloomOptions options;
	HloomGrant	grant = {0};
	HloomCourse course = {.name = &call.name,.attempts = 1};
	const HloomProvider *provider;
	HloomReply	reply;

	hloom_args_require("hloom_guard()", false);
	hloom_error_warn_no_block("hloom_guard()");
	call.requested_at = GetCurrentTimestamp();
	if (!hloom_args_lease_of(&call, &options, fcinfo, form))
		hloom_error_lost(NULL, HLOOM_LOST_GUARD, false);
	if (!options.enabled)
		PG_RETURN_BOOL(true);
	provider = hloom_provider_require(options.provider);
	if (provider->commit_begin == NULL || provider->commit_end == NULL)
		hloom_error_no_guard(provider->name);

	call.deadline = hloom_time_add(call.requested_at, options.default_lease);
	reply = hloom_calls_is_held(provider, &call, &grant, &course.cause);
	if (reply == HLOOM_NO)
		hloom_error_lost(&call.name, HLOOM_LOST_GUARD, false);
	course.waited = GetCurrentTimestamp() - call.requested_at;
	if (reply != HLOOM_YES)
		hloom_error_reply(reply, &course);
	hloom_guard_add(provider, &call, &grant, false);
	PG_RETURN_BOOL(true);
}

/* SQL: hloom_guard in its three forms. */
Datum
hloom_sql_guard(PG_FUNCTION_ARGS)
{
	return guard(fcinfo, HLOOM_ARGS_UUID);
}

Datum
hloom_sql_guard_text(PG_FUNCTION_ARGS)
{
	return guard(fcinfo, HLOOM_ARGS_TEXT);
}

Datum
hloom_sql_guard_handle(PG_FUNCTION_ARGS)
{
	return guard(fcinfo, HLOOM_ARGS_HANDLE);
}
