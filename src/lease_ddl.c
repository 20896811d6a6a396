/*
 * lease_ddl.c
 *	  DDL that would break the lease table and reaches no callback of its access method.
 *
 * Changes of columns touch only catalogs, or fail in the middle with a message about something
 * else; SET ACCESS METHOD writes into a table of another method.  Core tells an object access hook
 * of the objects they create and alter.  The extension's own scripts may change columns.
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/relcache.h"
#include "utils/snapmgr.h"

#include "compat.h"
#include "lease_am.h"
#include "lease_ddl.h"
#include "lease_table.h"

static object_access_hook_type prev_object_access = NULL;

/*
 * Raises when a column of our table is added or altered.
 */
static void
check_column(Oid relid, const char *operation)
{
	Relation	rel;

	if (creating_extension || IsBinaryUpgrade || (rel = RelationIdGetRelation(relid)) == NULL)
		return;
	if (hloom_table_is_ours(rel))
		hloom_am_refuse(rel, operation);
	RelationClose(rel);
}

/*
 * Raises when the table is ours and is not kept by this method.
 */
static void
check_table(Oid relid, Oid method, const char *operation)
{
	Relation	rel = RelationIdGetRelation(relid);

	if (rel == NULL)
		return;
	if (hloom_table_is_ours(rel) && rel->rd_rel->relam != method)
		hloom_am_refuse(rel, operation);
	RelationClose(rel);
}

/*
 * Returns a copy of a new relation's row in a catalog.  It is not visible yet to the command that
 * wrote it, hence SnapshotSelf.
 */
static HeapTuple
find_new_row(Oid catalog_id, Oid index_id, AttrNumber column, Oid relid)
{
	Relation	catalog = table_open(catalog_id, AccessShareLock);
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;

	ScanKeyInit(&key, column, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(catalog, index_id, true, SnapshotSelf, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		tuple = heap_copytuple(tuple);
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return tuple;
}

/*
 * Raises when the new relation is the transient table of a rewrite of our table into another
 * method, or an index of our table.  CREATE INDEX CONCURRENTLY would leave an invalid one.
 */
static void
check_new_relation(Oid relid)
{
	HeapTuple	tuple = find_new_row(RelationRelationId, ClassOidIndexId, Anum_pg_class_oid, relid);
	Form_pg_class row;
	Oid			origin;

	if (!HeapTupleIsValid(tuple))
		return;
	row = (Form_pg_class) GETSTRUCT(tuple);
	if (row->relkind == RELKIND_RELATION &&
		sscanf(NameStr(row->relname), "pg_temp_%u", &origin) == 1)
		check_table(origin, row->relam, "ALTER TABLE SET ACCESS METHOD");
	if (row->relkind == RELKIND_INDEX)
	{
		HeapTuple	index = find_new_row(IndexRelationId, IndexRelidIndexId,
										 Anum_pg_index_indexrelid, relid);

		if (HeapTupleIsValid(index))
			check_table(((Form_pg_index) GETSTRUCT(index))->indrelid, InvalidOid, "CREATE INDEX");
	}
}

static void
look_at_object(ObjectAccessType access, Oid class, Oid object, int sub, void *arg)
{
	if (prev_object_access)
		prev_object_access(access, class, object, sub, arg);
	if (class != RelationRelationId)
		return;
	if (access == OAT_POST_CREATE && sub == 0)
		check_new_relation(object);
	else if (access == OAT_POST_CREATE)
		check_column(object, "ALTER TABLE ADD COLUMN");
	else if (access == OAT_POST_ALTER && sub > 0)
		check_column(object, "ALTER TABLE ALTER COLUMN");
}

/*
 * Installs the hook.  Called once, from _PG_init.
 */
void
hloom_ddl_init(void)
{
	prev_object_access = object_access_hook;
	object_access_hook = look_at_object;
}
