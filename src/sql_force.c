/*
 * sql_force.c
 *	  SQL: hloom_force_release().
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "calls.h"
#include "compat.h"
#include "errors.h"
#include "lease_time.h"
#include "provider.h"
#include "sql_args.h"
#include "stats.h"

PG_FUNCTION_INFO_V1(hloom_sql_force_release);

/*
 * Raises 55006: a commit depends on the lease.
 */
static void
refuse(const HloomKey *name, int pid)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("lease on key \"%s\" of namespace \"%s\" is needed by a commit in progress",
					pnstrdup(name->key, name->key_len), pnstrdup(name->ns, name->ns_len)),
			 pid != 0 ? errdetail("Process %d is committing.", pid) : 0,
			 errhint("Try again when it has ended; see hloom_locks.")));
}

/*
 * SQL: hloom_force_release(namespace, key, reason).
 */
Datum
hloom_sql_force_release(PG_FUNCTION_ARGS)
{
	HloomCall	call = {0};
	HloomOptions options;
	HloomGrant	grant = {0};
	HloomCourse course = {.name = &call.name,.attempts = 1};
	const HloomProvider *provider;
	HloomReply	reply;
	const char *role = GetUserNameFromId(GetUserId(), false);

	hloom_args_require("hloom_force_release()", true);
	hloom_args_name(&call.name, &options, fcinfo);
	if (PG_ARGISNULL(2))
		hloom_error_null("reason");
	if (!options.enabled)
		PG_RETURN_BOOL(false);
	provider = hloom_provider_require(options.provider);
	if (provider->force_release == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("lock provider \"%s\" cannot take a lease away", provider->name)));
	call.requested_at = GetCurrentTimestamp();
	call.deadline = hloom_time_add(call.requested_at, options.default_lease);
	reply = hloom_calls_force_release(provider, &call, &grant, &course.cause);
	if (grant.committing)
		refuse(&call.name, grant.holder_pid);
	course.waited = GetCurrentTimestamp() - call.requested_at;
	if (reply != HLOOM_YES && reply != HLOOM_NO)
		hloom_error_reply(reply, &course);
	if (reply == HLOOM_NO)
		PG_RETURN_BOOL(false);
	if (!hloom_provider_is_own(provider))
		hloom_stats_add(call.name.ns, call.name.ns_len, HLOOM_STAT_LOST, 1);
	ereport(LOG,
			(errcode(ERRCODE_SUCCESSFUL_COMPLETION),
			 errmsg("role \"%s\" took a lease away: %s",
					role, text_to_cstring(PG_GETARG_TEXT_PP(2))),
			 errdetail_internal("%s", hloom_error_detail(&course))));
	PG_RETURN_BOOL(true);
}
