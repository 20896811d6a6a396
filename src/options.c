/*
 * options.c
 *	  What applies to the calls on a namespace: its row of hloom_namespaces over the settings.
 *
 * Each backend keeps the whole table in memory.  It is read with a snapshot of its own, not the
 * caller's: a change counts from its commit on, in the middle of a transaction of any isolation
 * level, too, and is no reason to fail for a SERIALIZABLE one.  Triggers on the table queue its
 * relcache invalidation with each change, so the copy is dropped when a change is committed
 * elsewhere, made here, or undone here by ROLLBACK or ROLLBACK TO.  The table's lock is not kept:
 * nobody has to wait with ALTER TABLE for a session in a transaction.
 *
 * A row that is not valid, made with the triggers disabled, is an error for its own namespace only,
 * and not before that is used.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/tableam.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/sinval.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

#include "compat.h"
#include "guc.h"
#include "options.h"
#include "options_row.h"

typedef struct CachedRow
{
	char		ns[HLOOM_MAX_NAMESPACE + 1];	/* padded with zeros */
	HloomOptions row;
	HloomViolations violations;
	Oid			member;			/* last user found to be a member of the row's role, */
	uint64		member_at;		/* when role_changes was this */
} CachedRow;

static MemoryContext cache_context = NULL;
static HTAB *cached_rows = NULL;	/* NULL: the table is empty */

static Oid	cached_table = InvalidOid;
static uint64 table_changes = 1;	/* invalidations so far */
static uint64 cached_at = 0;	/* of them when the table was read */
static uint64 role_changes = 1;

/*
 * Relcache callback.  May be called at any time, also during an abort.
 */
static void
forget_table(Datum arg, Oid relid)
{
	if (relid == InvalidOid || relid == cached_table)
		table_changes++;
}

/*
 * Syscache callback for everything membership is made of; pg_database_owner depends on databases.
 */
static void
forget_members(Datum arg, int cacheid, uint32 hashvalue)
{
	role_changes++;
}

static void
register_callbacks(void)
{
	static bool registered = false;

	if (registered)
		return;
	CacheRegisterRelcacheCallback(forget_table, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHOID, forget_members, (Datum) 0);
	CacheRegisterSyscacheCallback(AUTHMEMROLEMEM, forget_members, (Datum) 0);
	CacheRegisterSyscacheCallback(DATABASEOID, forget_members, (Datum) 0);
	registered = true;
}

static void
pad_namespace(char *padded, const char *ns, int ns_len)
{
	memset(padded, 0, HLOOM_MAX_NAMESPACE + 1);
	memcpy(padded, ns, ns_len);
}

static CachedRow *
find_row(const char *ns, int ns_len)
{
	char		padded[HLOOM_MAX_NAMESPACE + 1];

	if (cached_rows == NULL)
		return NULL;
	pad_namespace(padded, ns, ns_len);
	return (CachedRow *) hash_search(cached_rows, padded, HASH_FIND, NULL);
}

/*
 * Adds a row of the table.  What is no namespace cannot be asked for.
 */
static HTAB *
add_row(HTAB *rows, MemoryContext context, const Datum *values, const bool *nulls)
{
	text	   *ns = DatumGetTextPP(values[0]);
	int			ns_len = VARSIZE_ANY_EXHDR(ns);
	char		padded[HLOOM_MAX_NAMESPACE + 1];
	CachedRow  *row;

	if (ns_len > HLOOM_MAX_NAMESPACE)
		return rows;
	if (rows == NULL)
	{
		HASHCTL		ctl = {
			.keysize = HLOOM_MAX_NAMESPACE + 1,
			.entrysize = sizeof(CachedRow),
			.hcxt = context
		};

		rows = hash_create("hloom_lock namespaces", 64, &ctl,
						   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	pad_namespace(padded, VARDATA_ANY(ns), ns_len);
	row = (CachedRow *) hash_search(rows, padded, HASH_ENTER, NULL);
	memset((char *) row + sizeof(row->ns), 0, sizeof(CachedRow) - sizeof(row->ns));
	hloom_options_row_read(&row->row, values, nulls, &row->violations);
	return rows;
}

/*
 * Reads the table's rows into a hash table in the context; NULL when there are none.  All versions
 * of the rows are looked at and judged here, since a scan with the snapshot would take part in
 * SERIALIZABLE, and the caller's transaction could fail for what an administrator does.
 */
static HTAB *
read_rows(Relation rel, MemoryContext context)
{
	Snapshot	snapshot = RegisterSnapshot(GetLatestSnapshot());
	TupleTableSlot *slot = table_slot_create(rel, NULL);
	TableScanDesc scan = table_beginscan(rel, SnapshotAny, 0, NULL);
	MemoryContext old = MemoryContextSwitchTo(context);
	HTAB	   *rows = NULL;

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		if (!table_tuple_satisfies_snapshot(rel, slot, snapshot))
			continue;
		slot_getsomeattrs(slot, HLOOM_NAMESPACES_COLUMNS);
		rows = add_row(rows, context, slot->tts_values, slot->tts_isnull);
	}
	MemoryContextSwitchTo(old);
	table_endscan(scan);
	ExecDropSingleTupleTableSlot(slot);
	UnregisterSnapshot(snapshot);
	return rows;
}

/*
 * Reads the table anew.  After an error the old copy is still there, and still known to be old.
 */
static void
load(void)
{
	MemoryContext context;
	Relation	rel;
	HTAB	   *rows;
	uint64		seen;

	/* A parallel worker may take no snapshot of its own. */
	PreventCommandIfParallelMode("reading " HLOOM_NAMESPACES);
	register_callbacks();
	rel = hloom_options_row_open(AccessShareLock);
	cached_table = RelationGetRelid(rel);
	seen = table_changes;
	context = AllocSetContextCreate(CurrentMemoryContext, "hloom_lock namespaces",
									ALLOCSET_SMALL_SIZES);
	rows = read_rows(rel, context);
	table_close(rel, AccessShareLock);

	/* Nothing from here on can fail. */
	MemoryContextSetParent(context, CacheMemoryContext);
	if (cache_context != NULL)
		MemoryContextDelete(cache_context);
	cache_context = context;
	cached_rows = rows;
	cached_at = seen;
}

static void
take_settings(HloomOptions *options)
{
	options->in_row = 0;
	options->enabled = hloom_enabled;
	options->auto_extend = hloom_auto_extend;
	options->detect_reentrancy = hloom_detect_reentrancy;
	options->max_key_length = hloom_max_key_length;
	options->default_lease = (int64) hloom_default_lease * 1000;
	options->max_lease = (int64) hloom_max_lease * 1000;
	options->max_hold = (int64) hloom_max_hold * 1000;
	options->retry.kind = HLOOM_RETRY_LINEAR;
	options->retry.retries = hloom_retry_limit;
	options->retry.delay = (int64) hloom_retry_step * 1000;
	options->retry.max_delay = 0;
	options->retry.factor = 0;
	options->retry.jitter = (int64) hloom_retry_jitter * 1000;
	options->provider = hloom_provider_name;
	options->role = NULL;
}

/*
 * Replaces the settings by what the row decides.
 */
static void
take_row(HloomOptions *options, const HloomOptions *row)
{
	options->in_row = row->in_row;

#define TAKE(option, field) \
	if (row->in_row & (1u << (option))) \
		options->field = row->field

	TAKE(HLOOM_OPTION_ENABLED, enabled);
	TAKE(HLOOM_OPTION_PROVIDER, provider);
	TAKE(HLOOM_OPTION_DEFAULT_LEASE, default_lease);
	TAKE(HLOOM_OPTION_MAX_LEASE, max_lease);
	TAKE(HLOOM_OPTION_MAX_HOLD, max_hold);
	TAKE(HLOOM_OPTION_RETRY, retry);
	TAKE(HLOOM_OPTION_AUTO_EXTEND, auto_extend);
	TAKE(HLOOM_OPTION_DETECT_REENTRANCY, detect_reentrancy);
	TAKE(HLOOM_OPTION_MAX_KEY_LENGTH, max_key_length);
	TAKE(HLOOM_OPTION_ROLE, role);
#undef TAKE
}

/*
 * Fills the options of a valid namespace: its row over the settings, as they are now.  Raises 42704
 * for a namespace without a row when strict_namespaces is on, 22023 (0A000 when all that is wrong
 * is not supported yet) for a row that is not valid, and 55000 without the extension.
 */
void
hloom_options_of(HloomOptions *options, const char *ns, int ns_len)
{
	CachedRow  *row;

	AcceptInvalidationMessages();
	if (unlikely(cached_at != table_changes))
		load();
	take_settings(options);
	row = find_row(ns, ns_len);
	if (row != NULL)
	{
		hloom_options_row_judge(&row->violations, ns, ns_len,
								"Repair the row with hloom_configure().");
		take_row(options, &row->row);
	}
	else if (hloom_strict_namespaces)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("lock namespace \"%s\" is not configured", pnstrdup(ns, ns_len)),
				 errhint("Use hloom_configure() to add it, or set"
						 " hloom_lock.strict_namespaces to off.")));
}

/*
 * Whether hloom_options_of() could tell something else than it did last: this backend has heard of
 * a change since, or of so many changes of all kinds that this one may be among them.
 */
bool
hloom_options_are_stale(void)
{
	return cached_at != table_changes;
}

/*
 * Returns the name of the namespace's provider as it is now.  Judges nothing: raises what reading
 * the table raises.
 */
const char *
hloom_options_provider(const char *ns, int ns_len)
{
	CachedRow  *row;

	if (cached_at != table_changes)
		load();
	row = find_row(ns, ns_len);
	return row != NULL && row->row.provider != NULL ? row->row.provider : hloom_provider_name;
}

/*
 * Visits the namespaces that have a row.  As above.
 */
void
hloom_options_visit(void (*visit) (const char *ns, void *arg), void *arg)
{
	HASH_SEQ_STATUS status;
	CachedRow  *row;

	if (cached_at != table_changes)
		load();
	if (cached_rows == NULL)
		return;
	hash_seq_init(&status, cached_rows);
	while ((row = (CachedRow *) hash_seq_search(&status)) != NULL)
		visit(row->ns, arg);
}

/*
 * Whether leases are taken in the namespace as it is now.  As above.
 */
bool
hloom_options_enabled(const char *ns, int ns_len)
{
	CachedRow  *row;

	if (cached_at != table_changes)
		load();
	row = find_row(ns, ns_len);
	return row != NULL && (row->row.in_row & (1 << HLOOM_OPTION_ENABLED)) != 0 ?
		row->row.enabled : hloom_enabled;
}

/*
 * Raises 42501 unless the current user may use the namespace, 42704 when its role does not exist
 * (any more).  Tells nothing of leases.  The options are those of the last hloom_options_of().
 */
void
hloom_options_check_role(const HloomOptions *options, const char *ns, int ns_len)
{
	CachedRow  *row;
	Oid			role;
	Oid			user = GetUserId();
	uint64		seen = role_changes;

	if (options->role == NULL)
		return;
	row = find_row(ns, ns_len);
	if (row != NULL && row->row.role != options->role)
		row = NULL;				/* read anew meanwhile */
	if (row != NULL && row->member == user && row->member_at == seen)
		return;

	role = get_role_oid(options->role, true);
	if (!OidIsValid(role))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("role \"%s\" does not exist", options->role),
				 errdetail("Lock namespace \"%s\" is for members of this role.",
						   pnstrdup(ns, ns_len)),
				 errhint("Use hloom_configure() to name another role, or to reset this option.")));
	if (!has_privs_of_role(user, role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for lock namespace \"%s\"", pnstrdup(ns, ns_len))));
	if (row != NULL)
	{
		row->member = user;
		row->member_at = seen;
	}
}

/*
 * Whether the current user may use the namespace, as hloom_options_check_role() would decide.
 * Nobody may when its role does not exist or its row is not valid.  Raises 55000 without the
 * extension.
 */
bool
hloom_options_may_use(const char *ns, int ns_len)
{
	CachedRow  *row;
	Oid			role;

	AcceptInvalidationMessages();
	if (unlikely(cached_at != table_changes))
		load();
	row = find_row(ns, ns_len);
	if (row == NULL)
		return true;
	if (row->violations.sqlstate != 0)
		return false;
	if (row->row.role == NULL)
		return true;
	role = get_role_oid(row->row.role, true);
	return OidIsValid(role) && has_privs_of_role(GetUserId(), role);
}
