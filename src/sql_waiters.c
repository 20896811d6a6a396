/*
 * sql_waiters.c
 *	  SQL: who waits for which key, and for whom: hloom_waiters(), hloom_blocking_pids().
 *
 * Whoever may use a namespace sees those who wait in it, as it sees their leases.  A holder is told
 * as its provider knows it now; when that one does not answer in time it is told as not known.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "queues.h"

PG_FUNCTION_INFO_V1(hloom_sql_waiters);
PG_FUNCTION_INFO_V1(hloom_sql_blocking_pids);

enum
{
	WAIT_PID,
	WAIT_ROLE,
	WAIT_APPLICATION,
	WAIT_NAMESPACE,
	WAIT_KEY,
	WAIT_SINCE,
	WAIT_ATTEMPTS,
	WAIT_POSITION,
	WAIT_GIVES_UP,
	WAIT_HOLDER_PID,
	WAIT_HOLDER_ROLE,
	WAIT_HOLDER_UNTIL,
	WAIT_COLUMNS
};

/* A row, and what all rows of a queue have in common. */
typedef struct WaitRow
{
	Datum		values[WAIT_COLUMNS];
	bool		nulls[WAIT_COLUMNS];
} WaitRow;

static void
set_role(WaitRow *row, int column, Oid role)
{
	char	   *name = OidIsValid(role) ? GetUserNameFromId(role, true) : NULL;

	row->nulls[column] = name == NULL;
	if (name)
		row->values[column] = CStringGetTextDatum(name);
}

/*
 * What never comes, or with the end of time only, is NULL.
 */
static void
set_time(WaitRow *row, int column, TimestampTz at)
{
	row->nulls[column] = at >= END_TIMESTAMP - 1;
	row->values[column] = TimestampTzGetDatum(at);
}

static void
add_waiter(ReturnSetInfo *result, WaitRow *row, const HloomWaiter *waiter, int position)
{
	row->values[WAIT_PID] = Int32GetDatum(waiter->pid);
	set_role(row, WAIT_ROLE, waiter->role);
	row->values[WAIT_APPLICATION] = CStringGetTextDatum(waiter->application);
	row->values[WAIT_SINCE] = TimestampTzGetDatum(waiter->since);
	row->values[WAIT_ATTEMPTS] = Int64GetDatum(waiter->attempts);
	row->values[WAIT_POSITION] = Int32GetDatum(position);
	set_time(row, WAIT_GIVES_UP, waiter->gives_up_at);
	tuplestore_putvalues(result->setResult, result->setDesc, row->values, row->nulls);
}

/*
 * Adds the waiters of one key, if the user may see them.
 */
static void
add_queue(ReturnSetInfo *result, HloomQueues *queues, const HloomQueue *queue)
{
	HloomKey	name = hloom_queues_name(queue);
	HloomGrant	holder;
	WaitRow		row = {0};
	bool		held;

	if (!hloom_queues_may_see(queues, &name))
		return;
	held = hloom_queues_holder(queues, queue, &holder);
	row.values[WAIT_NAMESPACE] = PointerGetDatum(cstring_to_text_with_len(name.ns, name.ns_len));
	row.values[WAIT_KEY] = PointerGetDatum(cstring_to_text_with_len(name.key, name.key_len));
	row.nulls[WAIT_HOLDER_PID] = holder.holder_pid == 0;
	row.values[WAIT_HOLDER_PID] = Int32GetDatum(holder.holder_pid);
	set_role(&row, WAIT_HOLDER_ROLE, holder.holder_role);
	set_time(&row, WAIT_HOLDER_UNTIL, held ? holder.expires_at : DT_NOEND);
	for (int i = 0; i < queue->count; i++)
		add_waiter(result, &row, queue->waiters[i], i + 1);
}

/*
 * SQL: hloom_waiters().  Raises 55000 without the extension, and what a broken store raises.
 */
Datum
hloom_sql_waiters(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	HloomQueues queues;

	InitMaterializedSRF(fcinfo, 0);
	hloom_queues_copy(&queues);
	for (int i = 0; i < queues.count; i++)
	{
		CHECK_FOR_INTERRUPTS();
		add_queue(result, &queues, &queues.queues[i]);
	}
	return (Datum) 0;
}

/*
 * Whether the wait, a copy, still goes on.
 */
static bool
still_waits(const HloomWaiter *waiter)
{
	HloomQueues queues;
	HloomQueue *queue;
	int			position;

	hloom_queues_copy(&queues);
	queue = hloom_queues_of_pid(&queues, waiter->pid, &position);
	return queue != NULL && queue->waiters[position]->ticket == waiter->ticket;
}

/*
 * Lists for whom a waiter waits: the holder, and who gets the key before it.  Returns how many, and
 * them, palloc'd, in *pids.
 */
static int
list_blockers(HloomQueues *queues, const HloomQueue *queue, int position, Datum **pids)
{
	const HloomWaiter *self = queue->waiters[position];
	TimestampTz now = GetCurrentTimestamp();
	HloomGrant	holder;
	int			count = 0;

	(void) hloom_queues_holder(queues, queue, &holder);

	/* It may have got the key since it was copied; but a lease can be in its own taker's way. */
	if (holder.holder_pid == self->pid && !still_waits(self))
		return 0;
	*pids = palloc((queue->count + 1) * sizeof(Datum));
	if (holder.holder_pid != 0)
		(*pids)[count++] = Int32GetDatum(holder.holder_pid);
	for (int i = 0; i < queue->count; i++)
	{
		const HloomWaiter *waiter = queue->waiters[i];

		/* Before one that has missed its turn there may be a younger one. */
		if ((i < position || (i > position && waiter->reserved_until > now)) &&
			waiter->pid != holder.holder_pid)
			(*pids)[count++] = Int32GetDatum(waiter->pid);
	}
	return count;
}

/*
 * SQL: hloom_blocking_pids(pid).  Raises as hloom_waiters().
 */
Datum
hloom_sql_blocking_pids(PG_FUNCTION_ARGS)
{
	HloomQueues queues;
	HloomQueue *queue;
	Datum	   *pids = NULL;
	int			count = 0;
	int			position;

	hloom_queues_copy(&queues);
	queue = hloom_queues_of_pid(&queues, PG_GETARG_INT32(0), &position);
	if (queue != NULL)
	{
		HloomKey	name = hloom_queues_name(queue);

		if (hloom_queues_may_see(&queues, &name))
			count = list_blockers(&queues, queue, position, &pids);
	}
	PG_RETURN_ARRAYTYPE_P(construct_array(pids, count, INT4OID, sizeof(int32), true, TYPALIGN_INT));
}
