/*
 * sql_wait.c
 *	  The SQL procedure that waits for a lease outside of any transaction.
 *
 * A function waits under the snapshot of its statement, and as long as that is there no VACUUM in
 * this database removes what it might still look at.  The procedure takes its arguments, commits
 * the transaction that CALL began, in which nothing has been done yet, and waits in the next one,
 * which has neither a snapshot nor an xid.  In a transaction that somebody else began, the commit
 * would be of that one's work: there the call is refused.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "nodes/parsenodes.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "acquire.h"
#include "compat.h"
#include "errors.h"
#include "events.h"
#include "sql_args.h"

PG_FUNCTION_INFO_V1(hloom_sql_acquire_wait);

#define RESULTS 3				/* owner, fence, lease_end */

/* After namespace, key and the results, of which owner is an option, too. */
static const HloomArgsPlaces places = {
	.owner = 2,
	.lease = 5,
	.max_wait = 6,
	.retry = 7,
	.scope = 8,
	.note = 9,
	.auto_extend = HLOOM_ARGS_ABSENT,
	.on_lost = HLOOM_ARGS_ABSENT
};

/*
 * Returns where the call is made that may not be made there, or NULL.  A call from a procedure or a
 * DO block could commit, but what it would commit is theirs.
 */
static const char *
forbidden_place(FunctionCallInfo fcinfo)
{
	const CallContext *context = (const CallContext *) fcinfo->context;

	if (IsTransactionBlock() || IsSubTransaction())
		return "inside a transaction block";
	if (MyXactFlags & XACT_FLAGS_PIPELINING)
		return "after another statement of a pipeline";
	if (context == NULL || !IsA(context, CallContext) || context->atomic ||
		SPI_inside_nonatomic_context())
		return "from a function, a procedure or a DO block";
	return NULL;
}

/*
 * Raises 25001 unless the transaction is this call's alone.
 */
static void
require_own_transaction(FunctionCallInfo fcinfo)
{
	const char *place = forbidden_place(fcinfo);

	if (place == NULL)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
			 errmsg("hloom_acquire_wait() cannot be called %s", place),
			 errdetail("It commits the transaction it is called in before it waits."),
			 errhint("Send the CALL alone and with autocommit on (in psycopg: autocommit=True), or"
					 " use hloom_acquire(), which waits inside the transaction.")));
}

/*
 * Takes what must survive the commit; what the arguments refer to does, in the portal's memory.
 * Raises what hloom_args_acquisition() raises.
 */
static void
take_arguments(HloomAcquisition *acquisition, FunctionCallInfo fcinfo)
{
	HloomOptions *options = &acquisition->options;

	hloom_args_acquisition(acquisition, fcinfo, &places, true, HLOOM_SCOPE_LEASE);
	if (acquisition->call.scope == HLOOM_SCOPE_TRANSACTION)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a lease of scope \"transaction\" would end with the call that takes it"),
				 errhint("Use scope => 'lease' or scope => 'session'; or hloom_acquire() after"
						 " BEGIN.")));

	/* The table of the options may be read anew while the call waits. */
	options->provider = pstrdup(options->provider);
	options->role = NULL;
}

/*
 * Returns what a row of the results is like.  Raises 55000 when that is another version's.
 */
static TupleDesc
result_desc(FunctionCallInfo fcinfo)
{
	TupleDesc	desc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE || desc->natts != RESULTS)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("procedure hloom_acquire_wait() does not fit the installed library"),
				 errhint("Use ALTER EXTENSION hloom_lock UPDATE.")));
	return desc;
}

/*
 * Ends the transaction and with it every snapshot, and begins another one, which ends with this
 * statement in a pipeline, too.
 */
static void
leave_transaction(void)
{
	SPI_connect_ext(SPI_OPT_NONATOMIC);
	SPI_commit();
	SPI_finish();

	/* At a higher level a look at the options' table would leave a snapshot for the whole wait. */
	XactIsoLevel = XACT_READ_COMMITTED;
	MyXactFlags |= XACT_FLAGS_NEEDIMMEDIATECOMMIT;
}

static Datum
form_results(TupleDesc desc, const HloomAcquisition *acquisition)
{
	Datum		values[RESULTS];
	bool		nulls[RESULTS] = {0};

	values[0] = UUIDPGetDatum(&acquisition->call.owner);
	values[1] = Int64GetDatum(acquisition->options.enabled ? acquisition->grant.fence : 0);
	values[2] = TimestampTzGetDatum(hloom_acquire_end(acquisition));
	return HeapTupleGetDatum(heap_form_tuple(desc, values, nulls));
}

/*
 * SQL: CALL hloom_acquire_wait(...).
 */
Datum
hloom_sql_acquire_wait(PG_FUNCTION_ARGS)
{
	HloomAcquisition acquisition = {0};
	TupleDesc	desc;

	hloom_args_require("hloom_acquire_wait()", true);
	require_own_transaction(fcinfo);
	take_arguments(&acquisition, fcinfo);
	desc = result_desc(fcinfo);
	leave_transaction();
	if (!acquisition.options.enabled)
		hloom_event_disabled(&acquisition.call.name);
	else if (!hloom_acquire(&acquisition))
		hloom_acquire_raise_busy(&acquisition);
	return form_results(desc, &acquisition);
}
