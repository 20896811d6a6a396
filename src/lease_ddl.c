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
 * Raises when a rewrite's transient table stands for the lease table but has another method.  The
 * row of pg_class is not visible to the command that wrote it, hence SnapshotSelf.
 */
static void
check_new_relation(Oid relid)
{
	Relation	catalog = table_open(RelationRelationId, AccessShareLock);
	Oid			origin = InvalidOid;
	Oid			method = InvalidOid;
	SysScanDesc scan;
	ScanKeyData key;
	HeapTuple	tuple;
	Relation	table;

	ScanKeyInit(&key, Anum_pg_class_oid, BTEqualStrategyNumber, F_OIDEQ, ObjectIdGetDatum(relid));
	scan = systable_beginscan(catalog, ClassOidIndexId, true, SnapshotSelf, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
	{
		Form_pg_class row = (Form_pg_class) GETSTRUCT(tuple);

		method = row->relam;
		if (row->relkind == RELKIND_RELATION)
			(void) sscanf(NameStr(row->relname), "pg_temp_%u", &origin);
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);

	if (!OidIsValid(origin) || (table = RelationIdGetRelation(origin)) == NULL)
		return;
	if (hloom_table_is_ours(table) && table->rd_rel->relam != method)
		hloom_am_refuse(table, "ALTER TABLE SET ACCESS METHOD");
	RelationClose(table);
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
