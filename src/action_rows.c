/*
 * action_rows.c
 *	  Where the rows of an action go: nowhere, into a tuplestore, or into it as jsonb.
 *
 * Row by row as the executor makes them, so that memory is bounded by the tuplestore's work_mem.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "executor/tstoreReceiver.h"
#include "executor/tuptable.h"
#include "funcapi.h"
#include "nodes/makefuncs.h"
#include "utils/fmgroids.h"
#include "utils/memutils.h"

#include "action_rows.h"

/* Receives rows for hloom_execute_with_lock and hloom_query_with_lock_json. */
typedef struct Receiver
{
	DestReceiver pub;
	uint64		count;			/* rows received */

	/* For jsonb. */
	const HloomAction *action;
	TupleDesc	row;			/* of the action, registered as a record type */
	FmgrInfo	to_jsonb;
	MemoryContext row_context;	/* of one row */
} Receiver;

static void
drop_startup(DestReceiver *self, int operation, TupleDesc desc)
{
}

static bool
drop_row(TupleTableSlot *slot, DestReceiver *self)
{
	((Receiver *) self)->count++;
	return true;
}

static void
drop_shutdown(DestReceiver *self)
{
}

/*
 * The names of the columns are those of desc: a slot may be one of a table that is read, with the
 * table's names.
 */
static void
json_startup(DestReceiver *self, int operation, TupleDesc desc)
{
	Receiver   *receiver = (Receiver *) self;

	receiver->row = CreateTupleDescCopy(desc);
	receiver->row->tdtypeid = RECORDOID;
	receiver->row->tdtypmod = -1;
	BlessTupleDesc(receiver->row);
	receiver->row_context = AllocSetContextCreate(CurrentMemoryContext, "hloom_lock json row",
												  ALLOCSET_DEFAULT_SIZES);
}

static bool
json_row(TupleTableSlot *slot, DestReceiver *self)
{
	Receiver   *receiver = (Receiver *) self;
	MemoryContext caller = MemoryContextSwitchTo(receiver->row_context);
	bool		null = false;
	HeapTuple	tuple;
	Datum		value;

	slot_getallattrs(slot);
	tuple = heap_form_tuple(receiver->row, slot->tts_values, slot->tts_isnull);
	value = FunctionCall1(&receiver->to_jsonb, HeapTupleGetDatum(tuple));
	tuplestore_putvalues(receiver->action->rows, receiver->action->desc, &value, &null);
	receiver->count++;
	MemoryContextSwitchTo(caller);
	MemoryContextReset(receiver->row_context);
	return true;
}

static void
json_shutdown(DestReceiver *self)
{
	MemoryContextDelete(((Receiver *) self)->row_context);
}

static void
destroy(DestReceiver *self)
{
	pfree(self);
}

static DestReceiver *
create_json(const HloomAction *action)
{
	Receiver   *receiver = palloc0(sizeof(Receiver));
	List	   *args = list_make1(makeNullConst(RECORDOID, -1, InvalidOid));

	receiver->pub.receiveSlot = json_row;
	receiver->pub.rStartup = json_startup;
	receiver->pub.rShutdown = json_shutdown;
	receiver->pub.rDestroy = destroy;
	receiver->pub.mydest = DestTuplestore;
	receiver->action = action;
	fmgr_info(F_TO_JSONB, &receiver->to_jsonb);
	/* The function asks for the type of its argument. */
	fmgr_info_set_expr((Node *) makeFuncExpr(F_TO_JSONB, JSONBOID, args, InvalidOid, InvalidOid,
											 COERCE_EXPLICIT_CALL),
					   &receiver->to_jsonb);
	return &receiver->pub;
}

static DestReceiver *
create_store(const HloomAction *action)
{
	DestReceiver *receiver = CreateTuplestoreDestReceiver();

	SetTuplestoreDestReceiverParams(receiver, action->rows, CurrentMemoryContext, false,
									action->desc,
									gettext_noop("function return row and query-specified"
												 " return row do not match"));
	return receiver;
}

static DestReceiver *
create_drop(void)
{
	Receiver   *receiver = palloc0(sizeof(Receiver));

	receiver->pub.receiveSlot = drop_row;
	receiver->pub.rStartup = drop_startup;
	receiver->pub.rShutdown = drop_shutdown;
	receiver->pub.rDestroy = destroy;
	receiver->pub.mydest = DestNone;
	return &receiver->pub;
}

/*
 * Returns the receiver of an action's rows, in the current memory context.  It raises 42804 for
 * rows that do not fit action->desc.
 */
DestReceiver *
hloom_action_rows_create(const HloomAction *action)
{
	if (action->rows == NULL)
		return create_drop();
	return action->json ? create_json(action) : create_store(action);
}

/*
 * Returns the number of rows received; 0 from a receiver that does not count.
 */
uint64
hloom_action_rows_count(const DestReceiver *receiver)
{
	if (receiver->receiveSlot != drop_row && receiver->receiveSlot != json_row)
		return 0;
	return ((const Receiver *) receiver)->count;
}
