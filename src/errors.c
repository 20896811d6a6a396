/*
 * errors.c
 *	  The errors several layers raise, with their details.
 *
 * DETAIL is one line of JSON, for people and for tools: namespace, key, waited_ms, attempts, and
 * what applies.
 * The owner token is in no message.  This file knows no provider and no store.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/datetime.h"
#include "utils/json.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "errors.h"

#define LOST_HINT "Roll back and try again, with a longer lease."

static char *
key_text(const HloomKey *name)
{
	return pnstrdup(name->key, name->key_len);
}

static char *
namespace_text(const HloomKey *name)
{
	return pnstrdup(name->ns, name->ns_len);
}

static void
begin_detail(StringInfo buf, const HloomCourse *course)
{
	initStringInfo(buf);
	appendStringInfoString(buf, "{\"namespace\": ");
	escape_json(buf, namespace_text(course->name));
	appendStringInfoString(buf, ", \"key\": ");
	escape_json(buf, key_text(course->name));
	appendStringInfo(buf, ", \"waited_ms\": " INT64_FORMAT ", \"attempts\": " INT64_FORMAT,
					 Max(course->waited, 0) / 1000, course->attempts);
	if (course->cause)
	{
		appendStringInfoString(buf, ", \"cause\": ");
		escape_json(buf, course->cause);
	}
}

/*
 * Returns the DETAIL line of a call, palloc'd.
 */
char *
hloom_error_detail(const HloomCourse *course)
{
	StringInfoData buf;

	begin_detail(&buf, course);
	appendStringInfoChar(&buf, '}');
	return buf.data;
}

/*
 * Raises the error of a failure reply: LL002, LL003 or LL004.
 */
void
hloom_error_reply(HloomReply reply, const HloomCourse *course)
{
	switch (reply)
	{
		case HLOOM_UNAVAILABLE:
			ereport(ERROR,
					(errcode(HLOOM_ERRCODE_UNAVAILABLE),
					 errmsg("lock provider is not available"),
					 errdetail_internal("%s", hloom_error_detail(course)),
					 errhint("Nothing is held; see hloom_health().")));
			break;
		case HLOOM_TIMEOUT:
			ereport(ERROR,
					(errcode(HLOOM_ERRCODE_TIMEOUT),
					 errmsg("lock provider did not answer in time"),
					 errdetail_internal("%s", hloom_error_detail(course)),
					 errhint("See hloom_health() for a lock on the lease table; a lease must be"
							 " longer than the wait for table and disk.")));
			break;
		default:
			ereport(ERROR,
					(errcode(HLOOM_ERRCODE_PROVIDER),
					 errmsg("lock provider failed"),
					 errdetail_internal("%s", hloom_error_detail(course)),
					 errhint("See hloom_health().")));
	}
	pg_unreachable();
}

/*
 * Returns the DETAIL line of contention, palloc'd: who holds the key until when, as far as the
 * provider told.
 */
char *
hloom_error_busy_detail(const HloomCourse *course, const HloomGrant *holder)
{
	StringInfoData buf;
	char	   *role = OidIsValid(holder->holder_role) ?
	GetUserNameFromId(holder->holder_role, true) : NULL;
	char		until[MAXDATELEN + 1];

	begin_detail(&buf, course);
	if (holder->holder_pid != 0)
		appendStringInfo(&buf, ", \"holder_pid\": %d", holder->holder_pid);
	if (holder->reserved_for != 0)
		appendStringInfo(&buf, ", \"reserved_for\": %d", holder->reserved_for);
	if (role != NULL)
	{
		appendStringInfoString(&buf, ", \"holder_role\": ");
		escape_json(&buf, role);
	}
	if (holder->expires_at != 0)
		appendStringInfo(&buf, ", \"holder_until\": \"%s\"",
						 JsonEncodeDateTime(until, TimestampTzGetDatum(holder->expires_at),
											TIMESTAMPTZOID, NULL));
	appendStringInfoChar(&buf, '}');
	return buf.data;
}

/*
 * Raises 55P03: another owner holds the key past the policy and max_wait, or past lock_timeout.
 * The caller may use the namespace, so it may know who holds the key.
 */
void
hloom_error_busy(const HloomCourse *course, const HloomGrant *holder, bool lock_timeout)
{
	if (lock_timeout)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
				 errmsg("canceling statement due to lock timeout"),
				 errdetail_internal("%s", hloom_error_busy_detail(course, holder))));
	ereport(ERROR,
			(errcode(ERRCODE_LOCK_NOT_AVAILABLE),
			 errmsg(holder->reserved_for != 0 ?
					"could not obtain lease on key \"%s\" of namespace \"%s\":"
					" it is another session's turn" :
					"could not obtain lease on key \"%s\" of namespace \"%s\":"
					" held by another owner",
					key_text(course->name), namespace_text(course->name)),
			 errdetail_internal("%s", hloom_error_busy_detail(course, holder)),
			 errhint("Use max_wait to wait longer, or hloom_try_acquire() to skip a busy key.")));
	pg_unreachable();
}

/*
 * Raises 22004 for an argument that must be given.
 */
void
hloom_error_null(const char *argument)
{
	ereport(ERROR,
			(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
			 errmsg("%s must not be null", argument)));
	pg_unreachable();
}

/*
 * Raises LL001: an action that runs has locked the key.
 */
void
hloom_error_reentrancy(const HloomKey *name)
{
	ereport(ERROR,
			(errcode(HLOOM_ERRCODE_REENTRANCY),
			 errmsg("key \"%s\" of namespace \"%s\" is already locked by the running action",
					key_text(name), namespace_text(name)),
			 errhint("Lock the key once, around both; with hloom_lock.detect_reentrancy off this is"
					 " contention.")));
	pg_unreachable();
}

/*
 * Adds one side of a deadlock to an array of JSON that hloom_error_deadlock() closes: a process
 * that waits for a lease or a lock, and for whom.  name is that of the lease, or NULL.
 */
void
hloom_error_add_wait(StringInfo cycle, int pid, bool lease, const HloomKey *name, int blocked_by)
{
	appendStringInfo(cycle, "%s{\"pid\": %d, \"waits_for\": \"%s\"", cycle->len == 0 ? "[" : ", ",
					 pid, lease ? "lease" : "lock");
	if (name != NULL)
	{
		appendStringInfoString(cycle, ", \"namespace\": ");
		escape_json(cycle, namespace_text(name));
		appendStringInfoString(cycle, ", \"key\": ");
		escape_json(cycle, key_text(name));
	}
	appendStringInfo(cycle, ", \"blocked_by\": %d}", blocked_by);
}

static char *
deadlock_detail(const HloomCourse *course, StringInfo cycle)
{
	StringInfoData buf;

	begin_detail(&buf, course);
	appendStringInfo(&buf, ", \"cycle\": %s]}", cycle->data);
	return buf.data;
}

/*
 * Raises 40P01: the session waits for others that wait for it.
 */
void
hloom_error_deadlock(const HloomCourse *course, StringInfo cycle)
{
	ereport(ERROR,
			(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
			 errmsg("deadlock detected"),
			 errdetail_internal("%s", deadlock_detail(course, cycle)),
			 errhint("Take keys and rows in one order everywhere.")));
	pg_unreachable();
}

/*
 * Raises 40P01: the session would wait for a lease of its own.
 */
void
hloom_error_own_lease(const HloomKey *name)
{
	HloomCourse course = {.name = name,.attempts = 1};
	StringInfoData cycle;

	initStringInfo(&cycle);
	hloom_error_add_wait(&cycle, MyProcPid, true, name, MyProcPid);
	ereport(ERROR,
			(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
			 errmsg("deadlock detected: this session itself holds the lease on key \"%s\" of"
					" namespace \"%s\"", key_text(name), namespace_text(name)),
			 errdetail_internal("%s", deadlock_detail(&course, &cycle)),
			 errhint("Give the lease back first, or pass its owner token to have it renewed.")));
	pg_unreachable();
}

/*
 * Logs that a wait has lasted for long, and who is in the way.
 */
void
hloom_error_log_waiting(const HloomCourse *course, const HloomGrant *holder)
{
	ereport(LOG,
			(errmsg("process %d still waiting for lease on key \"%s\" of namespace \"%s\""
					" after " INT64_FORMAT ".%03d ms",
					MyProcPid, key_text(course->name), namespace_text(course->name),
					course->waited / 1000, (int) (course->waited % 1000)),
			 errdetail_internal("%s", hloom_error_busy_detail(course, holder))));
}

/*
 * Logs that a wait of which the log has been told has ended well.
 */
void
hloom_error_log_acquired(const HloomCourse *course)
{
	ereport(LOG,
			(errmsg("process %d acquired lease on key \"%s\" of namespace \"%s\""
					" after " INT64_FORMAT ".%03d ms",
					MyProcPid, key_text(course->name), namespace_text(course->name),
					course->waited / 1000, (int) (course->waited % 1000))));
}

/*
 * Raises 0A000: the provider cannot let a lease follow a session.
 */
void
hloom_error_scope(const char *provider)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("lock provider \"%s\" has leases of scope \"lease\" only", provider)));
	pg_unreachable();
}

/*
 * Raises 53400: too many leases follow a session or a transaction.
 */
void
hloom_error_tracked_full(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("too many leases follow a session or a transaction"),
			 errhint("Raise hloom_lock.max_tracked_leases, or use scope => 'lease'.")));
	pg_unreachable();
}

static const char *
lost_reason(bool ended)
{
	return ended ? "it has ended" : "it was given back or taken away";
}

static char *
lost_detail(const HloomKey *name)
{
	HloomCourse course = {.name = name};

	return hloom_error_detail(&course);
}

/*
 * Raises LL010: a lease is lost; "ended": by its end.  name is NULL for an empty handle.
 */
void
hloom_error_lost(const HloomKey *name, HloomLostPlace place, bool ended)
{
	const char *format = NULL;

	if (name == NULL)
		ereport(ERROR,
				(errcode(HLOOM_ERRCODE_LOST),
				 errmsg("there is no lease to guard")));
	switch (place)
	{
		case HLOOM_LOST_JOIN:
			format = "the transaction has lost its lease on key \"%s\" of namespace \"%s\"";
			break;
		case HLOOM_LOST_GUARD:
			format = "the lease on key \"%s\" of namespace \"%s\" is not held";
			break;
		case HLOOM_LOST_STATEMENT:
			format = "canceling statement because the lease on key \"%s\" of namespace \"%s\""
				" is lost: %s";
			break;
		case HLOOM_LOST_COMMIT:
			format = "could not commit because the lease on key \"%s\" of namespace \"%s\""
				" is lost: %s";
			break;
	}
	ereport(ERROR,
			(errcode(HLOOM_ERRCODE_LOST),
			 errmsg_internal(format, key_text(name), namespace_text(name), lost_reason(ended)),
			 errdetail_internal("%s", lost_detail(name)),
			 errhint(LOST_HINT)));
	pg_unreachable();
}

/*
 * Turns the error of a cancelled statement into LL010.
 */
void
hloom_error_make_lost(ErrorData *error, const HloomKey *name, bool ended)
{
	error->sqlerrcode = HLOOM_ERRCODE_LOST;
	error->message = psprintf("canceling statement because the lease on key \"%s\" of namespace"
							  " \"%s\" is lost: %s",
							  key_text(name), namespace_text(name), lost_reason(ended));
	error->detail = lost_detail(name);
	error->hint = pstrdup(LOST_HINT);
}

/*
 * Raises 0A000: no commit can depend on a lease of this provider.
 */
void
hloom_error_no_guard(const char *provider)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("lock provider \"%s\" has no guards", provider)));
	pg_unreachable();
}

/*
 * Warns when the client's own statement uses, outside of a transaction block, what lasts until the
 * end of the transaction only.  A function or an action may do so: then there is a context.
 */
void
hloom_error_warn_no_block(const char *what)
{
	if (IsTransactionBlock() || error_context_stack != NULL)
		return;
	ereport(WARNING,
			(errcode(ERRCODE_NO_ACTIVE_SQL_TRANSACTION),
			 errmsg("%s can only be used in transaction blocks", what),
			 errhint("It ends with this statement; use BEGIN before it.")));
}
