/*
 * worker_report.c
 *	  What a worker tells of leases: lines of the server log, and notifications.
 *
 * The lines are events (events.c).  The notification of losses is a JSON array on channel
 * hloom_lost, as many to a message as fit, each in a transaction of its own that holds nothing
 * else: what goes wrong with it is logged and delays nobody.  Anybody may listen, so the key is
 * left out where the namespace is for members of a role.
 *
 * Owner tokens are not known here.
 */
#include "postgres.h"

#include "access/xact.h"
#include "commands/async.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/json.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "contain.h"
#include "events.h"
#include "guc.h"
#include "lease_time.h"
#include "losses.h"
#include "options.h"
#include "worker_report.h"

#define CHANNEL "hloom_lost"

#define RENEWAL_HINT \
	"It is tried again until the lease ends; hloom_health() tells who is in the way."

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

/*
 * LockHoldThreshold: four fifths of a lease are over, and it was neither extended nor given back.
 */
void
hloom_report_threshold(const HloomGrantName *name, int64 lease, TimestampTz end)
{
	HloomEvent	event;

	if (!hloom_event_begin(&event, HLOOM_EVENT_THRESHOLD, name->ns, name->key))
		return;
	hloom_event_add_number(&event, "lease_ms", lease / 1000);
	hloom_event_add_time(&event, "lease_end", end);
	event.hint = "Use a longer lease, hloom_extend() or auto_extend.";
	hloom_event_write(&event, "the lease on key \"%s\" is held for more than 80 %% of its time",
					  name->key);
}

/*
 * LockAutoExtendStopped: a lease is as old as max_hold lets it get.
 */
void
hloom_report_stopped(const HloomGrantName *name, const HloomTerms *terms)
{
	HloomEvent	event;

	if (!hloom_event_begin(&event, HLOOM_EVENT_STOPPED, name->ns, name->key))
		return;
	hloom_event_add_number(&event, "max_hold_ms", terms->max_hold / 1000);
	hloom_event_add_time(&event, "lease_end", terms->end);
	event.hint = "If the work takes so long, raise max_hold or use hloom_extend().";
	hloom_event_write(&event, "the lease on key \"%s\" is renewed no more", name->key);
}

/*
 * LockExtendFailed: a lease could not be renewed; without name when that cannot be read either.
 */
void
hloom_report_not_renewed(const HloomGrantName *name, int64 fence, const char *cause)
{
	HloomEvent	event;

	if (!hloom_event_begin(&event, HLOOM_EVENT_EXTEND_FAILED, name ? name->ns : NULL,
						   name ? name->key : NULL))
		return;
	hloom_event_add_number(&event, "fence", fence);
	hloom_event_add(&event, "cause", cause);
	event.hint = RENEWAL_HINT;
	if (name)
		hloom_event_write(&event, "could not renew the lease on key \"%s\": %s", name->key, cause);
	else
		hloom_event_write(&event, "could not renew a lease: %s", cause);
}

/*
 * LockExtendFailed: these leases could not be renewed, nor could their names be read.
 */
void
hloom_report_table_locked(const int64 *fences, int count)
{
	const char *cause = "the lease table is locked";
	HloomEvent	event;

	if (!hloom_event_begin(&event, HLOOM_EVENT_EXTEND_FAILED, NULL, NULL))
		return;
	hloom_event_add_number(&event, "leases", count);
	hloom_event_add_numbers(&event, "fences", fences, count);
	hloom_event_add(&event, "cause", cause);
	event.hint = RENEWAL_HINT;
	hloom_event_write(&event, "could not renew %d %s: %s", count, count == 1 ? "lease" : "leases",
					  cause);
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

static void
log_loss(const HloomLoss *loss, const char *ns, const char *key)
{
	bool		expired = loss->reason == HLOOM_LOSS_EXPIRED;
	HloomEvent	event;

	if (!hloom_event_begin(&event, HLOOM_EVENT_LOST, ns, key))
		return;
	hloom_event_add_number(&event, "fence", loss->fence);
	hloom_event_add(&event, "reason", hloom_losses_reason(loss->reason));
	if (expired)
		hloom_event_add_time(&event, "expired_at", loss->expired_at);
	hloom_event_write(&event, "the lease on key \"%s\" %s", key,
					  expired ? "ended without being given back" : "was taken away");
}

/*
 * There are losses nobody will hear of one by one.
 */
static void
log_dropped(int64 count)
{
	HloomEvent	event;

	if (!hloom_event_begin(&event, HLOOM_EVENT_LOST, NULL, NULL))
		return;
	hloom_event_add_number(&event, "leases", count);
	hloom_event_write(&event, INT64_FORMAT " losses were counted but are not told one by one, there"
					  " were too many at a time", count);
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
					 hloom_losses_reason(loss->reason));
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
		log_dropped(losses->dropped);
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
 * LockCancellationCallbackFailed: who listens is not told.
 */
static void
log_not_told(const ErrorData *error)
{
	HloomEvent	event;

	if (!hloom_event_begin(&event, HLOOM_EVENT_CALLBACK_FAILED, NULL, NULL))
		return;
	event.sqlstate = error->sqlerrcode;
	event.hint = "The losses are counted and logged all the same.";
	hloom_event_add(&event, "channel", CHANNEL);
	hloom_event_add(&event, "sqlstate", unpack_sql_state(error->sqlerrcode));
	hloom_event_add(&event, "cause", error->message);
	hloom_event_write(&event, "could not notify of lost leases: %s", error->message);
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
			log_not_told(error);
		}
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
}
