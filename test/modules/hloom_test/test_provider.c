/*
 * test_provider.c
 *	  Lock provider "test": keeps leases in this process, and fails as it is told to.
 *
 * A state machine of its own on the clock of the server, with switches: hold and free a key as
 * somebody else, fail the next calls with a kind of failure, apply a call and then fail, answer
 * late, and a record of all calls in the order of their completion.  A failure is raised as an
 * error, or returned as a value where the kind is written with a leading "reply-".
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "hloom_provider.h"

#define MAX_KEYS 64
#define MAX_RECORDS 1024
#define NAME_ROOM (63 + 6 + 4096 + 1)	/* of the longest name */
#define MIDDLE ":lock:"

typedef struct Entry
{
	char		name[NAME_ROOM];	/* "{namespace}:lock:{key}", or empty */
	pg_uuid_t	owner;
	int64		fence;
	int64		lease;
	TimestampTz granted_at;
	TimestampTz expires_at;
	HloomScope	scope;
	Oid			role;
	int			pid;			/* 0: somebody else's */
	int			committing;		/* commits that depend on it; it does not end meanwhile */
} Entry;

typedef struct Record
{
	const char *operation;
	char		name[NAME_ROOM];
	pg_uuid_t	owner;
	const char *result;
	int64		bound;			/* microseconds from request to deadline */
} Record;

typedef enum Fault
{
	FAULT_NONE,
	FAULT_UNAVAILABLE,
	FAULT_TIMEOUT,
	FAULT_OTHER,
	FAULT_FOREIGN,
	FAULT_REPLY_UNAVAILABLE,
	FAULT_REPLY_TIMEOUT,
	FAULT_REPLY_OTHER,
	FAULT_CANCEL,				/* none: the statement is cancelled during an acquire */
	FAULT_CANCEL_RELEASE,		/* none: it is cancelled during a release, which notices */
	FAULT_STORE					/* raised by count, list and check alone */
} Fault;

static const char *const fault_names[] = {"none", "unavailable", "timeout", "other", "foreign",
"reply-unavailable", "reply-timeout", "reply-other", "cancel",
"cancel-release", "store"};

static Entry entries[MAX_KEYS];
static Record records[MAX_RECORDS];
static int	record_count = 0;
static int64 last_fence = 0;
static Fault fault = FAULT_NONE;
static int	fault_calls = 0;
static bool fault_applies = false;	/* the call takes effect before it fails */
static bool fault_acquire_only = false;
static int64 delay = 0;			/* microseconds before a call answers */
static char delayed[128] = "";	/* the calls that do, with a blank before and after each */
static bool delay_deaf = false; /* no interrupts are let in meanwhile */

static void
name_of(char *to, const HloomKey *key)
{
	snprintf(to, NAME_ROOM, "%.*s" MIDDLE "%.*s", key->ns_len, key->ns, key->key_len, key->key);
}

static bool
is_live(const Entry *entry)
{
	return entry->committing > 0 || entry->expires_at > GetCurrentTimestamp();
}

/*
 * The entry of a name, or one that nobody holds, which gets the name.
 */
static Entry *
entry_of(const char *name)
{
	Entry	   *unused = NULL;

	for (int i = 0; i < MAX_KEYS; i++)
	{
		if (strcmp(entries[i].name, name) == 0)
			return &entries[i];
		if (unused == NULL && !is_live(&entries[i]))
			unused = &entries[i];
	}
	if (unused == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("test provider is full")));
	strlcpy(unused->name, name, NAME_ROOM);
	unused->expires_at = 0;
	return unused;
}

static bool
is_owner(const Entry *entry, const HloomCall *call)
{
	return is_live(entry) && memcmp(&entry->owner, &call->owner, UUID_LEN) == 0;
}

static void
record(const char *operation, const HloomCall *call, const char *result)
{
	Record	   *next;

	if (record_count == MAX_RECORDS)
		return;
	next = &records[record_count++];
	next->operation = operation;
	name_of(next->name, &call->name);
	next->owner = call->owner;
	next->result = result;
	next->bound = call->deadline - call->requested_at;
}

static HloomReply
fail(Fault how)
{
	switch (how)
	{
		case FAULT_UNAVAILABLE:
			ereport(ERROR,
					(errcode(MAKE_SQLSTATE('L', 'L', '0', '0', '2')),
					 errmsg("test provider is unavailable")));
			break;
		case FAULT_TIMEOUT:
			ereport(ERROR,
					(errcode(MAKE_SQLSTATE('L', 'L', '0', '0', '3')),
					 errmsg("test provider timed out")));
			break;
		case FAULT_OTHER:
			ereport(ERROR,
					(errcode(MAKE_SQLSTATE('L', 'L', '0', '0', '4')),
					 errmsg("test provider failed")));
			break;
		case FAULT_FOREIGN:
			ereport(ERROR,
					(errcode(ERRCODE_IO_ERROR),
					 errmsg("test provider met an error of another kind")));
			break;
		case FAULT_REPLY_UNAVAILABLE:
			return HLOOM_UNAVAILABLE;
		case FAULT_REPLY_TIMEOUT:
			return HLOOM_TIMEOUT;
		default:
			break;
	}
	return HLOOM_FAILURE;
}

/*
 * Takes one of the faults that are due.
 */
static Fault
next_fault(bool acquire)
{
	if (fault_calls == 0 || fault == FAULT_STORE || (fault_acquire_only && !acquire) ||
		(fault == FAULT_CANCEL_RELEASE && acquire))
		return FAULT_NONE;
	fault_calls--;
	return fault;
}

static HloomReply
answer(const char *operation, const HloomCall *call, bool yes)
{
	record(operation, call, yes ? "true" : "false");
	return yes ? HLOOM_YES : HLOOM_NO;
}

/*
 * Waits before it answers, whatever the caller thinks of it: a provider that does not look at its
 * deadline.
 */
static void
answer_late(const char *operation)
{
	TimestampTz end = GetCurrentTimestamp() + delay;
	char		word[32];

	snprintf(word, sizeof(word), " %s ", operation);
	while (delay > 0 && strstr(delayed, word) != NULL && GetCurrentTimestamp() < end)
	{
		if (!delay_deaf)
			CHECK_FOR_INTERRUPTS();
		pg_usleep(1000);
	}
}

static HloomReply
test_try_acquire(const HloomCall *call, HloomGrant *grant)
{
	Fault		due = next_fault(true);
	char		name[NAME_ROOM];
	Entry	   *entry;
	bool		free;

	if (due == FAULT_CANCEL)
	{
		InterruptPending = QueryCancelPending = true;
		due = FAULT_NONE;
	}
	if (due != FAULT_NONE && !fault_applies)
	{
		answer_late("acquire");
		record("acquire", call, fault_names[due]);
		return fail(due);
	}
	name_of(name, &call->name);
	entry = entry_of(name);
	free = !is_live(entry);
	if (free)
	{
		entry->owner = call->owner;
		entry->fence = ++last_fence;
		entry->granted_at = GetCurrentTimestamp();
		entry->scope = call->scope;
		entry->role = GetUserId();
		entry->pid = MyProcPid;
	}
	else if (!is_owner(entry, call))
	{
		grant->expires_at = entry->expires_at;
		answer_late("acquire");
		return answer("acquire", call, false);
	}
	entry->lease = call->lease;
	entry->expires_at = GetCurrentTimestamp() + call->lease;

	/* The store of a call that is ended may keep it for longer. */
	if (!delay_deaf)
		entry->expires_at += delay;
	answer_late("acquire");
	if (due != FAULT_NONE)
	{
		record("acquire", call, fault_names[due]);
		return fail(due);
	}
	grant->fence = entry->fence;
	grant->lease = entry->lease;
	grant->expires_at = entry->expires_at;
	grant->renewed = !free;
	return answer("acquire", call, true);
}

static HloomReply
test_release(const HloomCall *call)
{
	Fault		due = next_fault(false);
	char		name[NAME_ROOM];
	Entry	   *entry;
	bool		owner;

	if (due == FAULT_CANCEL_RELEASE)
	{
		InterruptPending = QueryCancelPending = true;
		CHECK_FOR_INTERRUPTS();
	}
	if (due != FAULT_NONE && !fault_applies)
	{
		record("release", call, fault_names[due]);
		return fail(due);
	}
	name_of(name, &call->name);
	entry = entry_of(name);
	owner = is_owner(entry, call);
	if (owner)
		entry->expires_at = 0;
	answer_late("release");
	if (due != FAULT_NONE)
	{
		record("release", call, fault_names[due]);
		return fail(due);
	}
	return answer("release", call, owner);
}

static HloomReply
test_extend(const HloomCall *call, HloomGrant *grant)
{
	Fault		due = next_fault(false);
	char		name[NAME_ROOM];
	Entry	   *entry;

	if (due != FAULT_NONE)
	{
		record("extend", call, fault_names[due]);
		return fail(due);
	}
	name_of(name, &call->name);
	entry = entry_of(name);
	if (!is_owner(entry, call))
		return answer("extend", call, false);
	answer_late("extend");
	grant->capped = call->lease == 0 && entry->lease > call->max_lease;
	entry->lease = call->lease > 0 ? call->lease : Min(entry->lease, call->max_lease);
	entry->expires_at = GetCurrentTimestamp() + entry->lease;
	grant->fence = entry->fence;
	grant->lease = entry->lease;
	grant->expires_at = entry->expires_at;
	return answer("extend", call, true);
}

static HloomReply
test_is_held(const HloomCall *call, HloomGrant *grant)
{
	Fault		due = next_fault(false);
	char		name[NAME_ROOM];
	Entry	   *entry;

	if (due != FAULT_NONE)
		return fail(due);
	answer_late("is_held");
	name_of(name, &call->name);
	entry = entry_of(name);
	if (!is_owner(entry, call))
		return HLOOM_NO;
	grant->fence = entry->fence;
	grant->lease = entry->lease;
	grant->expires_at = entry->expires_at;
	return HLOOM_YES;
}

static HloomReply
test_holder(const HloomCall *call, HloomGrant *grant)
{
	Fault		due = next_fault(false);
	char		name[NAME_ROOM];
	Entry	   *entry;

	if (due != FAULT_NONE)
		return fail(due);
	answer_late("holder");
	name_of(name, &call->name);
	entry = entry_of(name);
	if (!is_live(entry))
		return HLOOM_NO;
	grant->fence = entry->fence;
	grant->expires_at = entry->expires_at;
	grant->holder_role = entry->role;
	grant->holder_pid = entry->pid;
	return HLOOM_YES;
}

static HloomReply
test_force_release(const HloomCall *call, HloomGrant *grant)
{
	Fault		due = next_fault(false);
	char		name[NAME_ROOM];
	Entry	   *entry;
	bool		live;

	if (due != FAULT_NONE && !fault_applies)
	{
		record("force_release", call, fault_names[due]);
		return fail(due);
	}
	answer_late("force_release");
	name_of(name, &call->name);
	entry = entry_of(name);
	grant->committing = entry->committing > 0;
	grant->holder_pid = entry->pid;
	grant->holder_role = entry->role;
	grant->fence = entry->fence;
	live = is_live(entry) && !grant->committing;
	if (live)
		entry->expires_at = 0;
	if (due != FAULT_NONE)
	{
		record("force_release", call, fault_names[due]);
		return fail(due);
	}
	return answer("force_release", call, live);
}

static HloomReply
test_commit_begin(const HloomCall *call, int64 fence, HloomGrant *grant)
{
	Fault		due = next_fault(false);
	char		name[NAME_ROOM];
	Entry	   *entry;
	bool		held;

	if (due != FAULT_NONE)
	{
		record("commit_begin", call, fault_names[due]);
		return fail(due);
	}
	answer_late("commit_begin");
	name_of(name, &call->name);
	entry = entry_of(name);
	held = is_owner(entry, call) && entry->fence == fence;
	if (held)
		entry->committing++;
	else if (entry->fence == fence)
		grant->expires_at = entry->expires_at;
	return answer("commit_begin", call, held);
}

/*
 * There is an entry: its commits keep it.
 */
static void
test_commit_end(const HloomCall *call, int64 fence)
{
	char		name[NAME_ROOM];
	Entry	   *entry;

	name_of(name, &call->name);
	entry = entry_of(name);
	Assert(entry->fence == fence && entry->committing > 0);
	entry->committing--;
	record("commit_end", call, "done");
}

/*
 * Of the calls about the whole store, which are not recorded.
 */
static void
answer_about_store(const char *operation)
{
	answer_late(operation);
	if (fault != FAULT_STORE || fault_calls == 0)
		return;
	fault_calls--;
	(void) fail(FAULT_FOREIGN);
}

static int64
test_count(const char *ns, uint16 ns_len)
{
	int64		live = 0;

	answer_about_store("count");
	for (int i = 0; i < MAX_KEYS; i++)
		if (strncmp(entries[i].name, ns, ns_len) == 0 &&
			strncmp(entries[i].name + ns_len, MIDDLE, strlen(MIDDLE)) == 0 && is_live(&entries[i]))
			live++;
	return live;
}

static bool
test_list(HloomVisit visit, void *arg)
{
	answer_about_store("list");
	for (int i = 0; i < MAX_KEYS; i++)
	{
		const Entry *entry = &entries[i];
		HloomLease	lease = {0};
		const char *middle = strstr(entry->name, MIDDLE);

		if (middle == NULL || !is_live(entry))
			continue;
		lease.name.ns = entry->name;
		lease.name.ns_len = middle - entry->name;
		lease.name.key = middle + strlen(MIDDLE);
		lease.name.key_len = strlen(lease.name.key);
		lease.fence = entry->fence;
		lease.granted_at = entry->granted_at;
		lease.expires_at = entry->expires_at;
		lease.scope = entry->scope;
		lease.committing = entry->committing > 0;
		lease.holder_role = entry->role;
		lease.holder_pid = entry->pid;
		lease.application = "";
		visit(&lease, arg);
	}
	return true;
}

static bool
test_check(char *text, Size size)
{
	answer_about_store("check");
	snprintf(text, size, "test provider %s", fault_calls > 0 ? "is told to fail" : "answers");
	return fault_calls == 0;
}

static HloomProvider test_provider = {
	.abi = HLOOM_PROVIDER_ABI,
	.name = "test",
	.try_acquire = test_try_acquire,
	.release = test_release,
	.extend = test_extend,
	.is_held = test_is_held,
	.holder = test_holder,
	.force_release = test_force_release,
	.commit_begin = test_commit_begin,
	.commit_end = test_commit_end,
	.count = test_count,
	.list = test_list,
	.check = test_check
};

/* As a provider of another version of the interface would look, and a second one of the name. */
static HloomProvider foreign_provider = {.abi = HLOOM_PROVIDER_ABI + 1, .name = "foreign"};
static HloomProvider second_provider = {.abi = HLOOM_PROVIDER_ABI, .name = "test"};
static HloomProvider table_provider = {.abi = HLOOM_PROVIDER_ABI, .name = "table"};

void		test_provider_init(void);

void
test_provider_init(void)
{
	hloom_provider_register(&test_provider);
}

/* SQL: hloom_test_hold(provider_key text, lease interval) boolean: somebody else takes the key. */
PG_FUNCTION_INFO_V1(hloom_test_hold);
Datum
hloom_test_hold(PG_FUNCTION_ARGS)
{
	Entry	   *entry = entry_of(text_to_cstring(PG_GETARG_TEXT_PP(0)));

	if (is_live(entry))
		PG_RETURN_BOOL(false);
	memset(&entry->owner, 0xEE, sizeof(entry->owner));
	entry->granted_at = GetCurrentTimestamp();
	entry->scope = HLOOM_SCOPE_LEASE;
	entry->role = InvalidOid;
	entry->pid = 0;
	entry->fence = ++last_fence;
	entry->expires_at = GetCurrentTimestamp() + PG_GETARG_INTERVAL_P(1)->time;
	PG_RETURN_BOOL(true);
}

/* SQL: hloom_test_free(provider_key text) boolean: whoever holds the key does no more. */
PG_FUNCTION_INFO_V1(hloom_test_free);
Datum
hloom_test_free(PG_FUNCTION_ARGS)
{
	Entry	   *entry = entry_of(text_to_cstring(PG_GETARG_TEXT_PP(0)));
	bool		live = is_live(entry);

	entry->expires_at = 0;
	PG_RETURN_BOOL(live);
}

/* SQL: hloom_test_held() bigint: leases held now. */
PG_FUNCTION_INFO_V1(hloom_test_held);
Datum
hloom_test_held(PG_FUNCTION_ARGS)
{
	int64		live = 0;

	for (int i = 0; i < MAX_KEYS; i++)
		live += is_live(&entries[i]);
	PG_RETURN_INT64(live);
}

/* SQL: hloom_test_fail(kind text, calls int, applies bool, acquire_only bool). */
PG_FUNCTION_INFO_V1(hloom_test_fail);
Datum
hloom_test_fail(PG_FUNCTION_ARGS)
{
	char	   *kind = text_to_cstring(PG_GETARG_TEXT_PP(0));

	for (int i = 0; i < lengthof(fault_names); i++)
	{
		if (strcmp(fault_names[i], kind) != 0)
			continue;
		fault = i;
		fault_calls = fault == FAULT_NONE ? 0 : PG_GETARG_INT32(1);
		fault_applies = PG_GETARG_BOOL(2);
		fault_acquire_only = PG_GETARG_BOOL(3);
		PG_RETURN_VOID();
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("kind of failure \"%s\" is not known", kind)));
}

/* SQL: hloom_test_delay(delay interval, operations text, deaf bool): they answer so much later. */
PG_FUNCTION_INFO_V1(hloom_test_delay);
Datum
hloom_test_delay(PG_FUNCTION_ARGS)
{
	delay = PG_GETARG_INTERVAL_P(0)->time;
	snprintf(delayed, sizeof(delayed), " %s ", text_to_cstring(PG_GETARG_TEXT_PP(1)));
	delay_deaf = PG_GETARG_BOOL(2);
	PG_RETURN_VOID();
}

/* SQL: hloom_test_calls() setof (operation, key, owner, result, bound): takes the record. */
PG_FUNCTION_INFO_V1(hloom_test_calls);
Datum
hloom_test_calls(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < record_count; i++)
	{
		Interval   *bound = palloc0(sizeof(Interval));
		Datum		values[5];
		bool		nulls[5] = {0};

		bound->time = records[i].bound;
		values[0] = CStringGetTextDatum(records[i].operation);
		values[1] = CStringGetTextDatum(records[i].name);
		values[2] = UUIDPGetDatum(&records[i].owner);
		values[3] = CStringGetTextDatum(records[i].result);
		values[4] = IntervalPGetDatum(bound);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	record_count = 0;
	return (Datum) 0;
}

/* SQL: hloom_test_register(which text): a provider that cannot be used gets into the list. */
PG_FUNCTION_INFO_V1(hloom_test_register);
Datum
hloom_test_register(PG_FUNCTION_ARGS)
{
	char	   *which = text_to_cstring(PG_GETARG_TEXT_PP(0));

	hloom_provider_register(strcmp(which, "foreign") == 0 ? &foreign_provider :
							strcmp(which, "table") == 0 ? &table_provider : &second_provider);
	PG_RETURN_VOID();
}
