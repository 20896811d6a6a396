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
#include "events.h"
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
 * Adds a role by its name, if it still exists.
 */
static void
add_role(HloomEvent *event, const char *field, Oid role)
{
	char	   *name = OidIsValid(role) ? GetUserNameFromId(role, true) : NULL;

	if (name != NULL)
		hloom_event_add(event, field, name);
}

/*
 * LockForceRelease: who took the lease away from whom, and why.  What the provider did not tell of
 * the holder is left out.
 */
static void
report(const HloomKey *name, const HloomGrant *taken, const char *reason)
{
	HloomEvent	event;

	if (!hloom_event_begin_for(&event, HLOOM_EVENT_FORCE_RELEASE, name))
		return;
	hloom_event_add(&event, "reason", reason);
	hloom_event_add_number(&event, "pid", MyProcPid);
	add_role(&event, "session_role", GetSessionUserId());
	add_role(&event, "current_role", GetUserId());
	if (taken->fence != 0)
		hloom_event_add_number(&event, "fence", taken->fence);
	if (taken->holder_pid != 0)
		hloom_event_add_number(&event, "holder_pid", taken->holder_pid);
	add_role(&event, "holder_role", taken->holder_role);
	hloom_event_write(&event, "the lease on key \"%s\" was taken away from its holder",
					  pnstrdup(name->key, name->key_len));
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
	report(&call.name, &grant, text_to_cstring(PG_GETARG_TEXT_PP(2)));
	PG_RETURN_BOOL(true);
}
