/*
 * worker_report.c
 *	  What a worker tells of leases: lines of the server log, and notifications.
 *
 * A line begins with the name of its event, and its DETAIL is JSON with the event's number.  The
 * notification of losses is a JSON array on channel hloom_lost, as many to a message as fit, each
 * in a transaction of its own that holds nothing else: what goes wrong with it is logged and delays
 * nobody.  Anybody may listen, so the key is left out where the namespace is for members of a role.
 *
 * Owner tokens are not known here.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/async.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/fmgrprotos.h"
#include "utils/datetime.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "contain.h"
#include "errors.h"
#include "guc.h"
#include "lease_time.h"
#include "losses.h"
#include "options.h"
#include "worker_report.h"

#define CHANNEL "hloom_lost"

/* Bytes of a message's text; core takes less than 8000. */
#define LONGEST_NOTICE 7900

/* A failing NOTIFY is logged so often at most. */
#define COMPLAIN_EVERY (60 * USECS_PER_SEC)

/*
 * A commit that notifies waits for every other one, also for one that waits for a standby.
 * Renewals come after this wait, so it is short, and after one in vain nothing is sent for a while.
 */
#define LONGEST_WAIT "500ms"
#define SILENCE (10 * USECS_PER_SEC)

static void
begin_detail(StringInfo buf, const char *event, int id, const char *ns, const char *key)
{
	initStringInfo(buf);
	appendStringInfo(buf, "{\"event\": \"%s\", \"id\": %d, \"namespace\": ", event, id);
	escape_json(buf, ns);
	appendStringInfoString(buf, ", \"key\": ");
	escape_json(buf, key);
}

static void
add_time(StringInfo buf, const char *name, TimestampTz at)
{
	char text[	MAXDATELEN + 1];

	JsonEncodeDateTime(text, TimestampTzGetDatum(at), TIMESTAMPTZOID, NULL);
	appendStringInfo(buf, ", \"%s\": \"%s\"", name, text);
}

/*
 * LockHoldThreshold: four fifths of a lease are over, and it was neither extended nor given back.
 */
void
hloom_report_threshold(const HloomGrantName *name, int64 lease, TimestampTz end)
{
	StringInfoData detail;

	begin_detail(&detail, "LockHoldThreshold", 3103, name->ns, name->key);
	appendStringInfo(&detail, ", \"lease_ms\": " INT64_FORMAT, lease / 1000);
	add_time(&detail, "lease_end", end);
	ereport(WARNING,
			(errcode(ERRCODE_WARNING),
			 errmsg("LockHoldThreshold: the lease on key \"%s\" is held for more than 80 %% of its"
					" time", name->key),
			 errdetail_internal("%s}", detail.data),
			 errhint("Use a longer lease, hloom_extend() or auto_extend.")));
}

/*
 * LockAutoExtendStopped: a lease is as old as max_hold lets it get.
 */
void
hloom_report_stopped(const HloomGrantName *name, const HloomTerms *terms)
{
	StringInfoData detail;

	begin_detail(&detail, "LockAutoExtendStopped", 3106, name->ns, name->key);
	appendStringInfo(&detail, ", \"max_hold_ms\": " INT64_FORMAT, terms->max_hold / 1000);
	add_time(&detail, "lease_end", terms->end);
	ereport(LOG,
			(errcode(ERRCODE_SUCCESSFUL_COMPLETION),
			 errmsg("LockAutoExtendStopped: the lease on key \"%s\" is renewed no more",
					name->key),
			 errdetail_internal("%s}", detail.data),
			 errhint("If the work takes so long, raise max_hold or use hloom_extend().")));
}

/*
 * LockExtendFailed: so many leases could not be renewed for one cause.
 */
void
hloom_report_not_renewed(int count, const char *cause)
{
	ereport(WARNING,
			(errcode(HLOOM_ERRCODE_TIMEOUT),
			 errmsg_plural("LockExtendFailed: could not renew %d lease: %s",
						   "LockExtendFailed: could not renew %d leases: %s",
						   count, count, cause),
			 errdetail_internal("{\"event\": \"LockExtendFailed\", \"id\": 3105}"),
			 errhint("It is tried again until the leases end; hloom_health() tells who is in the"
					 " way.")));
}

typedef struct Masking
{
	const HloomLoss *loss;
	bool		masked;
} Masking;

static void
look_up_role(void *arg)
{
	Masking    *masking = (Masking *) arg;
	HloomOptions options;

	hloom_options_of(&options, masking->loss->ns, masking->loss->ns_len);
	masking->masked = options.role != NULL;
}

/*
 * Whether the key is not for everybody.  It is not if that cannot be found out.
 */
static bool
hides_key(const HloomLoss *loss)
{
	Masking		masking = {.loss = loss,.masked = true};
	ErrorData  *error = hloom_contain(look_up_role, &masking);

	if (error != NULL && error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		ReThrowError(error);
	return masking.masked;
}

static const char *
reason_text(HloomLossReason reason)
{
	return reason == HLOOM_LOSS_TAKEN_AWAY ? "taken away" : "expired";
}

static void
log_loss(const HloomLoss *loss, const char *ns, const char *key)
{
	StringInfoData detail;

	begin_detail(&detail, "LockLeaseLost", 3102, ns, key);
	appendStringInfo(&detail, ", \"fence\": " INT64_FORMAT ", \"reason\": \"%s\"", loss->fence,
					 reason_text(loss->reason));
	if (loss->reason == HLOOM_LOSS_EXPIRED)
		add_time(&detail, "expired_at", loss->expired_at);
	ereport(WARNING,
			(errcode(HLOOM_ERRCODE_LOST),
			 errmsg(loss->reason == HLOOM_LOSS_EXPIRED ?
					"LockLeaseLost: the lease on key \"%s\" ended without being given back" :
					"LockLeaseLost: the lease on key \"%s\" was taken away", key),
			 errdetail_internal("%s}", detail.data)));
	pfree(detail.data);
}

/*
 * Adds a loss to the last notice, or begins another when it does not fit.
 */
static List *
add_notice(List *notices, const HloomLoss *loss, const char *ns, const char *key)
{
	StringInfo	last = notices ? (StringInfo) llast(notices) : NULL;
	StringInfoData item;

	initStringInfo(&item);
	appendStringInfoString(&item, "{\"namespace\": ");
	escape_json(&item, ns);
	if (key != NULL)
	{
		appendStringInfoString(&item, ", \"key\": ");
		escape_json(&item, key);
	}
	appendStringInfo(&item, ", \"fence\": " INT64_FORMAT ", \"reason\": \"%s\"}", loss->fence,
					 reason_text(loss->reason));
	if (last == NULL || last->len + item.len + 3 > LONGEST_NOTICE)
	{
		last = makeStringInfo();
		notices = lappend(notices, last);
	}
	appendStringInfoString(last, last->len == 0 ? "[" : ", ");
	appendStringInfoString(last, item.data);
	pfree(item.data);
	return notices;
}

/*
 * Logs some of this database's losses not reported yet, and adds to the notices to be sent.  In a
 * transaction.  Returns whether there were any: then there may be more.
 */
bool
hloom_report_losses(List **notices)
{
	HloomLosses *losses = hloom_losses_take();
	const HloomLoss *last = NULL;
	bool		hidden = true;

	if (losses == NULL)
		return false;
	if (losses->dropped > 0)
		ereport(WARNING,
				(errcode(HLOOM_ERRCODE_LOST),
				 errmsg("LockLeaseLost: " INT64_FORMAT " losses were counted but are not told one"
						" by one, there were too many at a time", losses->dropped)));
	for (int i = 0; i < losses->count; i++)
	{
		const HloomLoss *loss = &losses->loss[i];
		char	   *ns = pnstrdup(loss->ns, loss->ns_len);
		char	   *key = pnstrdup(loss->key, loss->key_len);

		log_loss(loss, ns, key);
		if (hloom_notify_lost && (last == NULL || last->ns_len != loss->ns_len ||
								  memcmp(last->ns, loss->ns, loss->ns_len) != 0))
			hidden = hides_key(loss);
		if (hloom_notify_lost)
			*notices = add_notice(*notices, loss, ns, hidden ? NULL : key);
		last = loss;
	}
	return true;
}

/*
 * Each goes in a transaction of its own: of equal ones in a transaction core sends the first, and
 * without keys there are equal ones that tell of different leases.
 */
static void
send_one(StringInfo notice, bool make_room)
{
	StartTransactionCommand();

	/* Core makes room in its queue after a NOTIFY, but when it is full none succeeds. */
	if (make_room)
		(void) DirectFunctionCall1(pg_notification_queue_usage, (Datum) 0);

	/* Nobody waits for it, so it waits for no disk and no standby. */
	(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_LOCAL, true, 0, false);
	(void) set_config_option("lock_timeout", LONGEST_WAIT, PGC_USERSET, PGC_S_SESSION,
							 GUC_ACTION_LOCAL, true, 0, false);
	appendStringInfoChar(notice, ']');
	Async_Notify(CHANNEL, notice->data);
	CommitTransactionCommand();
}

/*
 * Sends the notices.  Outside of a transaction.  An error is logged, and ends a transaction that
 * holds nothing else; what comes after it is not sent.
 */
void
hloom_report_send(List *notices)
{
	static TimestampTz complained_at = 0;
	static TimestampTz silent_until = 0;
	static bool failed = false;
	MemoryContext context = CurrentMemoryContext;
	ListCell   *cell;

	if (notices == NIL || GetCurrentTimestamp() < silent_until)
		return;
	PG_TRY();
	{
		foreach(cell, notices)
		{
			send_one((StringInfo) lfirst(cell), failed);
			failed = false;
		}
	}
	PG_CATCH();
	{
		ErrorData  *error;
		TimestampTz now = GetCurrentTimestamp();

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		AbortCurrentTransaction();
		FlushErrorState();
		failed = true;
		if (error->sqlerrcode == ERRCODE_LOCK_NOT_AVAILABLE)
			silent_until = now + SILENCE;
		if (now - complained_at >= COMPLAIN_EVERY)
		{
			complained_at = now;
			ereport(WARNING,
					(errcode(error->sqlerrcode),
					 errmsg("could not notify of lost leases: %s", error->message),
					 errdetail("The losses are counted and logged all the same.")));
		}
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
}
