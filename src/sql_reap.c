/*
 * sql_reap.c
 *	  SQL: hloom_reap().
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "errors.h"
#include "guc.h"
#include "lease_reap.h"
#include "lease_table.h"
#include "lease_time.h"
#include "losses.h"
#include "memory_grant.h"
#include "sql_args.h"
#include "work.h"

PG_FUNCTION_INFO_V1(hloom_sql_reap);

/* The worker is waited for so often while no loss is reported: about a second. */
#define MAX_PAUSES 100
#define PAUSE 10				/* milliseconds */

/*
 * Waits until the worker has reported losses, as long as there are pauses left.  Without a worker
 * the oldest reports will be dropped.
 */
static void
wait_for_room(int *pauses)
{
	static uint32 event = 0;

	hloom_work_ask(GetCurrentTimestamp());
	while (*pauses > 0)
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, PAUSE,
						 hloom_wait_event("HloomReap", &event));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		(*pauses)--;
		if (!hloom_losses_are_many())
		{
			*pauses = MAX_PAUSES;
			return;
		}
	}
}

/*
 * SQL: hloom_reap().  Raises 25006, 55000, 55006, and LL003 when the table stays locked.
 */
Datum
hloom_sql_reap(PG_FUNCTION_ARGS)
{
	int64		patience = (int64) hloom_default_lease * 1000;
	int			pauses = MAX_PAUSES;
	HloomMemoryReap memory;
	HloomReap	reap;
	Relation	rel;

	hloom_args_require("hloom_reap()", true);
	rel = hloom_table_open(RowExclusiveLock, hloom_time_add(GetCurrentTimestamp(), patience));
	if (rel == NULL)
		ereport(ERROR,
				(errcode(HLOOM_ERRCODE_TIMEOUT),
				 errmsg("lease table stayed locked"),
				 errhint("hloom_health() tells who is in the way.")));
	hloom_memory_reap_begin(&memory);
	while (!hloom_memory_reap_some(&memory))
		wait_for_room(&pauses);
	hloom_reap_begin(&reap);
	while (!hloom_reap_some(rel, &reap))
		wait_for_room(&pauses);
	hloom_table_close(rel, RowExclusiveLock);
	PG_RETURN_INT64(memory.reaped + reap.reaped);
}
