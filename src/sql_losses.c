/*
 * sql_losses.c
 *	  SQL: hloom_losses(), the latest leases of this database that were lost.
 *
 * Whoever may use a namespace sees its losses, as it sees its leases.
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

#include "compat.h"
#include "losses.h"
#include "options.h"
#include "shmem.h"

PG_FUNCTION_INFO_V1(hloom_sql_losses);

enum
{
	LOSS_NOTICED_AT,
	LOSS_NAMESPACE,
	LOSS_KEY,
	LOSS_FENCE,
	LOSS_REASON,
	LOSS_GRANTED_AT,
	LOSS_LEASE_END,
	LOSS_HOLDER,
	LOSS_HOLDER_PID,
	LOSS_COLUMNS
};

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

/*
 * Visit: adds a loss's row, if the user may see it.
 */
static void
add_loss(const HloomLoss *loss, void *arg)
{
	Looking    *looking = (Looking *) arg;
	MemoryContext old = MemoryContextSwitchTo(looking->row_context);
	Datum		values[LOSS_COLUMNS] = {0};
	bool		nulls[LOSS_COLUMNS] = {0};
	char	   *role;

	CHECK_FOR_INTERRUPTS();
	MemoryContextReset(looking->row_context);
	if (looking->sees_all || hloom_options_may_use(loss->ns, loss->ns_len))
	{
		role = GetUserNameFromId(loss->holder_role, true);
		values[LOSS_NOTICED_AT] = TimestampTzGetDatum(loss->noticed_at);
		values[LOSS_NAMESPACE] = text_datum(loss->ns, loss->ns_len);
		values[LOSS_KEY] = text_datum(loss->key, loss->key_len);
		values[LOSS_FENCE] = Int64GetDatum(loss->fence);
		values[LOSS_REASON] = CStringGetTextDatum(hloom_losses_reason(loss->reason));
		values[LOSS_GRANTED_AT] = TimestampTzGetDatum(loss->granted_at);
		values[LOSS_LEASE_END] = TimestampTzGetDatum(loss->expired_at);
		nulls[LOSS_HOLDER] = role == NULL;
		if (role)
			values[LOSS_HOLDER] = CStringGetTextDatum(role);
		values[LOSS_HOLDER_PID] = Int32GetDatum(loss->holder_pid);
		tuplestore_putvalues(looking->result->setResult, looking->result->setDesc, values, nulls);
	}
	MemoryContextSwitchTo(old);
}

/*
 * SQL: hloom_losses().  Raises 55000.
 */
Datum
hloom_sql_losses(PG_FUNCTION_ARGS)
{
	Looking		looking = {.result = (ReturnSetInfo *) fcinfo->resultinfo};

	hloom_shmem_require();
	InitMaterializedSRF(fcinfo, 0);
	looking.row_context = AllocSetContextCreate(CurrentMemoryContext, "hloom_lock row",
												ALLOCSET_SMALL_SIZES);
	looking.sees_all = has_privs_of_role(GetUserId(), ROLE_PG_MONITOR);
	hloom_losses_visit(add_loss, &looking);
	MemoryContextDelete(looking.row_context);
	return (Datum) 0;
}
