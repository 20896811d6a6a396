/*
 * lease_table.c
 *	  The lease table of this database: which one it is, opening it within a bound.
 *
 * The table is hloom_leases in the schema of the extension.  Its OID is found once per backend and
 * again when it does not open any more.  Every call locks the table anew and lets go of the lock
 * when it is done, inside the caller's transaction: nothing but the OID and rd_amcache is kept
 * from call to call, and taking the lock takes in invalidations, so a table truncated or rewritten
 * in between is seen as it is now.
 *
 * The lock is only ever taken when it is free, and tried again until a deadline: nobody queues
 * behind TRUNCATE or VACUUM FULL, and nobody hangs.  The price is that a stream of calls can keep
 * a waiting TRUNCATE company for long; it queues, so it gets its turn.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_extension.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/lmgr.h"
#include "storage/proc.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/relcache.h"

#include "compat.h"
#include "hloom.h"
#include "lease_table.h"

static Oid	cached_table = InvalidOid;

/*
 * Returns the schema of the extension, or InvalidOid.
 */
Oid
hloom_table_schema(void)
{
	Oid			extension = get_extension_oid(HLOOM_EXTENSION, true);
	Oid			schema = InvalidOid;
	Relation	catalog;
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;

	if (!OidIsValid(extension))
		return InvalidOid;
	catalog = table_open(ExtensionRelationId, AccessShareLock);
	ScanKeyInit(&key, Anum_pg_extension_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(extension));
	scan = systable_beginscan(catalog, ExtensionOidIndexId, true, NULL, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		schema = ((Form_pg_extension) GETSTRUCT(tuple))->extnamespace;
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return schema;
}

/*
 * Raises 55000: the extension is not there.
 */
void
hloom_table_no_extension(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("extension \"hloom_lock\" is not created in this database"),
			 errhint("Use CREATE EXTENSION hloom_lock.")));
	pg_unreachable();
}

/*
 * Returns the OID of the lease table, or InvalidOid when the extension is not there.
 */
Oid
hloom_table_oid(void)
{
	Oid			schema = hloom_table_schema();

	return OidIsValid(schema) ? get_relname_relid(HLOOM_TABLE, schema) : InvalidOid;
}

/*
 * Whether the relation is kept by the lease table's access method.
 */
bool
hloom_table_is_ours(Relation rel)
{
	return rel->rd_tableam == &hloom_am_routine;
}

/*
 * Whether this transaction has given the lease table another file.
 */
bool
hloom_table_has_new_file(void)
{
	Oid			table = hloom_table_oid();
	Relation	rel = OidIsValid(table) ? RelationIdGetRelation(table) : NULL;
	bool		has_new = false;

	if (rel == NULL)
		return false;
	has_new = hloom_table_is_ours(rel) &&
		hloom_rel_first_file_subid(rel) != InvalidSubTransactionId;
	RelationClose(rel);
	return has_new;
}

/*
 * Waits a little, or until the latch is set.  Lets interrupts in.
 */
static void
pause_for_lock(void)
{
	static uint32 event = 0;

	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, 5,
					 hloom_wait_event("HloomTableLock", &event));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

/*
 * Locks the table if that works before the deadline, or before lock_timeout is over.  At least one
 * pause is made.
 */
bool
hloom_table_lock(Oid table, LOCKMODE mode, TimestampTz deadline)
{
	if (likely(ConditionalLockRelationOid(table, mode)))
		return true;
	if (LockTimeout > 0)
		deadline = Min(deadline, GetCurrentTimestamp() + (int64) LockTimeout * 1000);
	do
	{
		pause_for_lock();
		if (ConditionalLockRelationOid(table, mode))
			return true;
	} while (GetCurrentTimestamp() < deadline);
	return false;
}

static void
refuse_new_file(Relation rel)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("cannot change leases in a transaction that created or truncated \"%s\"",
					RelationGetRelationName(rel)),
			 errdetail("Rolling the transaction back would undo the grant."),
			 errhint("Commit the transaction first.")));
}

/*
 * Returns the lease table, locked in a mode below ShareUpdateExclusiveLock, or NULL when the lock
 * was not to be had before the deadline; at least one pause is made.  RowExclusiveLock is for a
 * change: raises 55006 where a rollback could undo it.  Raises 55000 without the extension.
 */
Relation
hloom_table_open(LOCKMODE mode, TimestampTz deadline)
{
	Relation	rel;

	for (;;)
	{
		bool		looked_up = false;

		if (unlikely(!OidIsValid(cached_table)))
		{
			CHECK_FOR_INTERRUPTS();
			looked_up = true;
			cached_table = hloom_table_oid();
			if (!OidIsValid(cached_table))
				hloom_table_no_extension();
		}
		if (!hloom_table_lock(cached_table, mode, deadline))
			return NULL;
		rel = RelationIdGetRelation(cached_table);
		if (likely(rel != NULL && hloom_table_is_ours(rel)))
			break;

		/* Dropped, and perhaps created again; but another table of the name is not ours. */
		UnlockRelationOid(cached_table, mode);
		cached_table = InvalidOid;
		if (rel != NULL)
			RelationClose(rel);
		if (rel != NULL && looked_up)
			ereport(ERROR,
					(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					 errmsg("table \"" HLOOM_TABLE "\" is not the lease table of extension"
							" \"" HLOOM_EXTENSION "\""),
					 errhint("Give the lease table its name back.")));
	}
	if (mode == RowExclusiveLock &&
		(rel->rd_createSubid != InvalidSubTransactionId ||
		 hloom_rel_first_file_subid(rel) != InvalidSubTransactionId))
		refuse_new_file(rel);
	return rel;
}

/*
 * Closes the table and lets go of its lock.  Does not raise.
 */
void
hloom_table_close(Relation rel, LOCKMODE mode)
{
	Oid			table = RelationGetRelid(rel);

	RelationClose(rel);
	UnlockRelationOid(table, mode);
}
