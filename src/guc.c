/*
 * guc.c
 *	  The settings hloom_lock.*, in alphabetical order.
 *
 * Defined whether the library is preloaded or not, so that a SET in a session that loads it late
 * behaves the same.
 */
#include "postgres.h"

#include <limits.h>

#include "miscadmin.h"
#include "utils/guc.h"

#include "guc.h"
#include "hloom.h"
#include "retry.h"
#include "trace.h"

/*
 * How many activities are kept, those of all databases together.  More where many are made between
 * two looks of whoever exports them; 0, nothing is kept and nothing spent on it.
 */
int			hloom_activity_history = 1024;

/*
 * Whether the server renews leases of scope "session" and "transaction" while their backend lives.
 * On where work often takes longer than a lease and its holder should not have to think of it.
 */
bool		hloom_auto_extend = false;

/*
 * The lease of a call that names none.  Longer where work usually takes longer than this;
 * shorter where a crashed holder must not block the next one for long.
 */
int			hloom_default_lease = 30 * 1000;

/*
 * Whether a key already locked by an outer hloom_execute_with_lock is an error at once.  Off, it
 * is contention like any other, which helps code that means to skip what is busy.
 */
bool		hloom_detect_reentrancy = true;

/*
 * Off, every call succeeds at once and nothing is locked: for tests and for a database with a
 * single worker.
 */
bool		hloom_enabled = true;

/*
 * The server renews no lease beyond this age.  Raise it for work that runs longer; lower it to
 * see sooner that work hangs.
 */
int			hloom_max_hold = 10 * 60 * 1000;

/*
 * Longest key accepted.  Lower it to catch keys that grow by mistake (a serialized object).
 */
int			hloom_max_key_length = 512;

/*
 * No lease is longer, whatever a call asks for: the longest time a key stays blocked when its
 * holder dies.  Raise it only for work that cannot extend while it runs.
 */
int			hloom_max_lease = 5 * 60 * 1000;

/*
 * How many leases can follow a session or a transaction at a time, with those given back at the end
 * of one and not removed yet.  Each takes some 150 bytes of shared memory.
 */
int			hloom_max_tracked_leases = 10000;

/*
 * How many leases provider "memory" can keep, of all databases.  Each takes some 650 bytes of
 * shared memory, used or not.
 */
int			hloom_memory_leases = 10000;

/*
 * How many namespaces, of all databases, are counted by themselves in hloom_metrics; what is more
 * is counted together, as "(other)".  More where there are more namespaces, or databases.  Each
 * takes 1.6 to 3.2 kB of shared memory.
 */
int			hloom_metrics_namespaces = 256;

/*
 * Whether a lost lease is told on channel hloom_lost.  Off where nobody listens: each message
 * costs a transaction.
 */
bool		hloom_notify_lost = true;

/*
 * Who keeps the leases of namespaces that name no provider.
 */
char	   *hloom_provider_name = NULL;

/*
 * How often at most the table is searched for leases that have ended.  Shorter to hear of a loss
 * sooner; longer where a million leases make a search cost something.
 */
int			hloom_reap_interval = 1000;

/*
 * The retry policy of calls and namespaces that name none is linear: retry n comes after n steps
 * and a random share of the jitter.  More retries where holders take long and callers can wait;
 * more jitter where many callers start at the same instant.
 */
int			hloom_retry_jitter = 50;
int			hloom_retry_limit = 10;
int			hloom_retry_step = 50;

/*
 * Whether a namespace needs a row in hloom_namespaces.  On, a mistyped one is an error instead of
 * a lock of its own.
 */
bool		hloom_strict_namespaces = false;

/*
 * The span of the client's in which activities begin, as a W3C traceparent: set by a client that
 * traces.  hloom_client_span is what it tells.
 */
static char *traceparent = NULL;
HloomSpan	hloom_client_span = {0};

/*
 * Assign hook.  What is no valid traceparent is none: tracing must not fail who is traced.
 */
static void
assign_traceparent(const char *value, void *extra)
{
	(void) hloom_trace_parse(value, &hloom_client_span);
}

static void
define_durations(void)
{
	DefineCustomIntVariable("hloom_lock.default_lease",
							"Lease of a call that names none.",
							NULL,
							&hloom_default_lease,
							30 * 1000, 1, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);

	DefineCustomIntVariable("hloom_lock.max_hold",
							"A lease older than this is not renewed by the server.",
							NULL,
							&hloom_max_hold,
							10 * 60 * 1000, 1, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS,
							NULL, NULL, NULL);

	DefineCustomIntVariable("hloom_lock.max_lease",
							"Longest lease granted; a longer one is cut to this with a notice.",
							NULL,
							&hloom_max_lease,
							5 * 60 * 1000, 1, INT_MAX,
							PGC_SUSET, GUC_UNIT_MS,
							NULL, NULL, NULL);

	DefineCustomIntVariable("hloom_lock.reap_interval",
							"The table is searched for leases that have ended so often at most.",
							NULL,
							&hloom_reap_interval,
							1000, 1, 60 * 60 * 1000,
							PGC_SIGHUP, GUC_UNIT_MS,
							NULL, NULL, NULL);
}

static void
define_retry(void)
{
	DefineCustomIntVariable("hloom_lock.retry_jitter",
							"Of this a random share is added to each retry delay.",
							NULL,
							&hloom_retry_jitter,
							50, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);

	DefineCustomIntVariable("hloom_lock.retry_limit",
							"How often a busy key is tried again after the first attempt.",
							NULL,
							&hloom_retry_limit,
							10, 0, HLOOM_RETRY_MOST,
							PGC_USERSET, 0,
							NULL, NULL, NULL);

	DefineCustomIntVariable("hloom_lock.retry_step",
							"Retry n comes after n times this.",
							NULL,
							&hloom_retry_step,
							50, 0, INT_MAX,
							PGC_USERSET, GUC_UNIT_MS,
							NULL, NULL, NULL);
}

static void
define_switches(void)
{
	DefineCustomBoolVariable("hloom_lock.auto_extend",
							 "Renews leases while their session or transaction lives.",
							 "Of scope session and transaction, until hloom_lock.max_hold.",
							 &hloom_auto_extend,
							 false,
							 PGC_USERSET, 0,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("hloom_lock.detect_reentrancy",
							 "Locking a key again inside its own action is an error.",
							 NULL,
							 &hloom_detect_reentrancy,
							 true,
							 PGC_SUSET, 0,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("hloom_lock.enabled",
							 "Locks; off, every call succeeds and nothing is locked.",
							 NULL,
							 &hloom_enabled,
							 true,
							 PGC_SUSET, 0,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("hloom_lock.notify_lost",
							 "Tells lost leases on channel hloom_lost.",
							 NULL,
							 &hloom_notify_lost,
							 true,
							 PGC_SIGHUP, 0,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("hloom_lock.strict_namespaces",
							 "Refuses namespaces that are not in hloom_namespaces.",
							 NULL,
							 &hloom_strict_namespaces,
							 false,
							 PGC_SUSET, 0,
							 NULL, NULL, NULL);
}

/*
 * What shared memory is made for.  Core refuses to define these in a session.
 */
static void
define_capacities(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;

	DefineCustomIntVariable("hloom_lock.activity_history",
							"Activities that are kept, the latest ones.",
							"Of all databases; 0: none.",
							&hloom_activity_history,
							1024, 0, 1000000,
							PGC_POSTMASTER, 0,
							NULL, NULL, NULL);

	DefineCustomIntVariable("hloom_lock.max_tracked_leases",
							"Leases that can follow a session or a transaction at a time.",
							NULL,
							&hloom_max_tracked_leases,
							10000, 100, 10000000,
							PGC_POSTMASTER, 0,
							NULL, NULL, NULL);

	DefineCustomIntVariable("hloom_lock.memory_leases",
							"Leases that provider \"memory\" can keep at a time.",
							NULL,
							&hloom_memory_leases,
							10000, 100, 10000000,
							PGC_POSTMASTER, 0,
							NULL, NULL, NULL);

	DefineCustomIntVariable("hloom_lock.metrics_namespaces",
							"Namespaces that have metrics of their own.",
							"The others are counted together, as \"(other)\".",
							&hloom_metrics_namespaces,
							256, 1, 1000000,
							PGC_POSTMASTER, 0,
							NULL, NULL, NULL);
}

/*
 * Defines the settings.  Called once, from _PG_init.
 */
void
hloom_guc_init(void)
{
	define_capacities();
	define_durations();
	define_retry();
	define_switches();

	DefineCustomIntVariable("hloom_lock.max_key_length",
							"Longest lock key accepted, in characters.",
							NULL,
							&hloom_max_key_length,
							512, 1, HLOOM_MAX_KEY_CHARS,
							PGC_SUSET, 0,
							NULL, NULL, NULL);

	DefineCustomStringVariable("hloom_lock.provider",
							   "Keeps the leases of namespaces that name no provider.",
							   NULL,
							   &hloom_provider_name,
							   "table",
							   PGC_SIGHUP, 0,
							   NULL, NULL, NULL);

	DefineCustomStringVariable("hloom_lock.traceparent",
							   "Span of the client's in which activities begin.",
							   "A W3C traceparent; what is none is ignored.",
							   &traceparent,
							   "",
							   PGC_USERSET, 0,
							   NULL, assign_traceparent, NULL);

	MarkGUCPrefixReserved("hloom_lock");
}
