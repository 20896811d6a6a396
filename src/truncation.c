/*
 * truncation.c
 *	  TRUNCATE and DROP of the lease table, and who depends on its leases.
 *
 * When it commits all leases are lost, and the sessions that follow them are to notice, as those
 * who wait for a key: the next attempt finds the key free, or no table.  Rolled back, none is lost.
 * Until then its lock keeps everybody away.  Leases in shared memory are lost with the extension,
 * not with a TRUNCATE.  Of a prepared transaction's commit nobody is told, so there is none.
 *
 * TRUNCATE is told by statement.c; of a table about to be dropped core tells an object access hook,
 * since the command names the extension, its schema or its owner.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "utils/rel.h"
#include "utils/relcache.h"

#include "lease_table.h"
#include "memory_grant.h"
#include "tracked.h"
#include "truncation.h"
#include "waitlist.h"

static object_access_hook_type prev_object_access = NULL;

/* The outermost subtransactions that emptied and dropped the table and were not rolled back. */
static SubTransactionId emptied_in = InvalidSubTransactionId;
static SubTransactionId dropped_in = InvalidSubTransactionId;

static void
end_transaction(XactEvent event, void *arg)
{
	bool		dropped = dropped_in != InvalidSubTransactionId;
	bool		changed = dropped || emptied_in != InvalidSubTransactionId;

	if (event == XACT_EVENT_PRE_PREPARE && changed)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("cannot PREPARE a transaction that has dropped or truncated the lease"
						" table")));
	if (event == XACT_EVENT_COMMIT && changed)
	{
		if (dropped)
			hloom_memory_forget_all();
		hloom_tracked_lose_all(dropped);
		hloom_waitlist_wake_all();
	}
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		emptied_in = dropped_in = InvalidSubTransactionId;
}

static void
move_up(SubTransactionId *done_in, SubXactEvent event, SubTransactionId subid,
		SubTransactionId parent)
{
	if (subid != *done_in)
		return;
	if (event == SUBXACT_EVENT_COMMIT_SUB)
		*done_in = parent;
	else if (event == SUBXACT_EVENT_ABORT_SUB)
		*done_in = InvalidSubTransactionId;
}

static void
end_subtransaction(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	move_up(&emptied_in, event, subid, parent);
	move_up(&dropped_in, event, subid, parent);
}

/*
 * This subtransaction has emptied or dropped the table, or will have.
 */
static void
note(SubTransactionId *done_in)
{
	static bool registered = false;

	if (*done_in != InvalidSubTransactionId)
		return;
	if (!registered)
	{
		RegisterXactCallback(end_transaction, NULL);
		RegisterSubXactCallback(end_subtransaction, NULL);
		registered = true;
	}
	*done_in = GetCurrentSubTransactionId();
}

/*
 * Whether the relation is our table.  VACUUM FULL drops a table of the same access method.
 */
static bool
is_our_table(Oid relid)
{
	Relation	rel = RelationIdGetRelation(relid);
	bool		ours;

	if (rel == NULL)
		return false;
	ours = hloom_table_is_ours(rel);
	RelationClose(rel);
	return ours && relid == hloom_table_oid();
}

static void
look_at_object(ObjectAccessType access, Oid class, Oid object, int sub, void *arg)
{
	if (prev_object_access)
		prev_object_access(access, class, object, sub, arg);
	if (access == OAT_DROP && class == RelationRelationId && sub == 0 && is_our_table(object))
		note(&dropped_in);
}

/*
 * Some table has been truncated: takes note if it is ours.
 */
void
hloom_truncation_note(void)
{
	if (hloom_table_has_new_file())
		note(&emptied_in);
}

/*
 * Installs the hook.  Called from _PG_init while the server preloads libraries.
 */
void
hloom_truncation_init(void)
{
	prev_object_access = object_access_hook;
	object_access_hook = look_at_object;
}
