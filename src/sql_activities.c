/*
 * sql_activities.c
 *	  SQL: hloom_activities(), the latest activities of this database.
 *
 * Whoever may use a namespace sees its activities, as it sees its leases.
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "activities.h"
#include "compat.h"
#include "options.h"
#include "shmem.h"

PG_FUNCTION_INFO_V1(hloom_sql_activities);

enum
{
	ACTIVITY_STARTED_AT,
	ACTIVITY_DURATION,
	ACTIVITY_NAME,
	ACTIVITY_NAMESPACE,
	ACTIVITY_KEY,
	ACTIVITY_KEY_CUT,
	ACTIVITY_ACQUIRED,
	ACTIVITY_WAIT,
	ACTIVITY_HOLD,
	ACTIVITY_TRACE_ID,
	ACTIVITY_SPAN_ID,
	ACTIVITY_PARENT_SPAN_ID,
	ACTIVITY_SAMPLED,
	ACTIVITY_PID,
	ACTIVITY_ROLE,
	ACTIVITY_COLUMNS
};

typedef struct ActivityRow
{
	Datum		values[ACTIVITY_COLUMNS];
	bool		nulls[ACTIVITY_COLUMNS];
} ActivityRow;

typedef struct Looking
{
	ReturnSetInfo *result;
	MemoryContext row_context;	/* reset with each row */
	bool		sees_all;		/* the current user */
} Looking;

static Datum
text_datum(const char *s, int len)
{
	return PointerGetDatum(cstring_to_text_with_len(s, len));
}

static char *
hex_of(uint64 id)
{
	return psprintf("%08x%08x", (uint32) (id >> 32), (uint32) id);
}

/*
 * In milliseconds; -1 is NULL.
 */
static void
set_duration(ActivityRow *row, int column, int64 usec)
{
	row->nulls[column] = usec < 0;
	row->values[column] = Float8GetDatum(usec / 1000.0);
}

static void
set_role(ActivityRow *row, Oid role)
{
	char	   *name = GetUserNameFromId(role, true);

	row->nulls[ACTIVITY_ROLE] = name == NULL;
	if (name)
		row->values[ACTIVITY_ROLE] = CStringGetTextDatum(name);
}

static void
set_span(ActivityRow *row, const HloomSpan *span)
{
	char	   *trace = psprintf("%s%s", hex_of(span->trace_high), hex_of(span->trace_low));

	row->values[ACTIVITY_TRACE_ID] = CStringGetTextDatum(trace);
	row->values[ACTIVITY_SPAN_ID] = CStringGetTextDatum(hex_of(span->id));
	row->nulls[ACTIVITY_PARENT_SPAN_ID] = span->parent == 0;
	row->values[ACTIVITY_PARENT_SPAN_ID] = CStringGetTextDatum(hex_of(span->parent));
	row->nulls[ACTIVITY_SAMPLED] = span->sampled == HLOOM_SAMPLED_UNKNOWN;
	row->values[ACTIVITY_SAMPLED] = BoolGetDatum(span->sampled == HLOOM_SAMPLED_YES);
}

static void
form_row(ActivityRow *row, const HloomActivityRecord *record)
{
	const char *name = record->kind == HLOOM_ACTIVITY_ACQUIRE ? "lock.acquire" : "lock.execute";

	row->values[ACTIVITY_STARTED_AT] = TimestampTzGetDatum(record->started_at);
	set_duration(row, ACTIVITY_DURATION, record->duration);
	row->values[ACTIVITY_NAME] = CStringGetTextDatum(name);
	row->values[ACTIVITY_NAMESPACE] = text_datum(record->ns, record->ns_len);
	row->values[ACTIVITY_KEY] = text_datum(record->key, record->key_len);
	row->values[ACTIVITY_KEY_CUT] = BoolGetDatum(record->key_cut);
	row->nulls[ACTIVITY_ACQUIRED] = record->acquired == HLOOM_ACQUIRED_UNTOLD;
	row->values[ACTIVITY_ACQUIRED] = BoolGetDatum(record->acquired == HLOOM_ACQUIRED_YES);
	set_duration(row, ACTIVITY_WAIT, record->waited);
	set_duration(row, ACTIVITY_HOLD, record->held);
	set_span(row, &record->span);
	row->values[ACTIVITY_PID] = Int32GetDatum(record->pid);
	set_role(row, record->role);
}

/*
 * Visit: adds an activity's row, if the user may see it.
 */
static void
add_activity(const HloomActivityRecord *record, void *arg)
{
	Looking    *looking = (Looking *) arg;
	MemoryContext old = MemoryContextSwitchTo(looking->row_context);
	ActivityRow row = {0};

	MemoryContextReset(looking->row_context);
	if (looking->sees_all || hloom_options_may_use(record->ns, record->ns_len))
	{
		form_row(&row, record);
		tuplestore_putvalues(looking->result->setResult, looking->result->setDesc, row.values,
							 row.nulls);
	}
	MemoryContextSwitchTo(old);
}

/*
 * SQL: hloom_activities().  Raises 55000.
 */
Datum
hloom_sql_activities(PG_FUNCTION_ARGS)
{
	Looking		looking = {.result = (ReturnSetInfo *) fcinfo->resultinfo};

	hloom_shmem_require();
	InitMaterializedSRF(fcinfo, 0);
	looking.row_context = AllocSetContextCreate(CurrentMemoryContext, "hloom_lock row",
												ALLOCSET_SMALL_SIZES);
	looking.sees_all = has_privs_of_role(GetUserId(), ROLE_PG_MONITOR);
	hloom_activities_visit(add_activity, &looking);
	MemoryContextDelete(looking.row_context);
	return (Datum) 0;
}
