/*
 * truncation.c
 *	  TRUNCATE of the lease table, and the leases that follow a session or a transaction.
 *
 * When it commits all of them are lost, and their sessions are to notice, as those who wait for
 * their keys; rolled back, none is.
 * Until then its lock keeps everybody away.
 */
#include "postgres.h"

#include "access/xact.h"

#include "lease_table.h"
#include "tracked.h"
#include "truncation.h"
#include "waitlist.h"

/* The outermost subtransaction that truncated the table and has not been rolled back. */
static SubTransactionId truncated_in = InvalidSubTransactionId;

static void
end_transaction(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_COMMIT && truncated_in != InvalidSubTransactionId)
	{
		hloom_tracked_lose_all();
		hloom_waitlist_wake_all();
	}
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		truncated_in = InvalidSubTransactionId;
}

static void
end_subtransaction(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	if (subid != truncated_in)
		return;
	if (event == SUBXACT_EVENT_COMMIT_SUB)
		truncated_in = parent;
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		truncated_in = InvalidSubTransactionId;
}

/*
 * Some table has been truncated: takes note if it is ours.
 */
void
hloom_truncation_note(void)
{
	static bool registered = false;

	if (truncated_in != InvalidSubTransactionId || !hloom_table_has_new_file())
		return;
	if (!registered)
	{
		RegisterXactCallback(end_transaction, NULL);
		RegisterSubXactCallback(end_subtransaction, NULL);
		registered = true;
	}
	truncated_in = GetCurrentSubTransactionId();
}
