/*
 * sql_namespace.c
 *	  The SQL functions that configure a namespace, and the trigger of table hloom_namespaces.
 *
 * hloom_configure() and hloom_unconfigure() are SECURITY DEFINER: who may execute them needs no
 * right on the table.  They write by SPI with the table's qualified name, parameters, and a
 * search_path of pg_catalog set by the function.  A lock on the table that conflicts with itself
 * orders them, so that two of them on one namespace lose nothing; readers are in nobody's way.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "port/pg_bitutils.h"
#include "tcop/utility.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"

#include "calls_store.h"
#include "compat.h"
#include "errors.h"
#include "events.h"
#include "guc.h"
#include "lease_key.h"
#include "lease_time.h"
#include "moving.h"
#include "options_row.h"
#include "provider.h"
#include "retry_row.h"

PG_FUNCTION_INFO_V1(hloom_sql_configure);
PG_FUNCTION_INFO_V1(hloom_sql_unconfigure);
PG_FUNCTION_INFO_V1(hloom_sql_namespaces_trigger);

/* Arguments of hloom_configure: the columns of the table, then reset. */
#define ARG_OPTION(option) ((option) + 1)
#define ARG_RESET HLOOM_NAMESPACES_COLUMNS

#define BIT(option) (1u << (option))

/* The namespace whose row is changed, while the table is locked and SPI is connected. */
typedef struct Target
{
	const char *ns;
	int			ns_len;
	Relation	rel;
	const char *table;			/* its name, qualified and quoted */
	bool		exists;
	Datum		values[HLOOM_NAMESPACES_COLUMNS];	/* of the row, as it was or shall be */
	bool		nulls[HLOOM_NAMESPACES_COLUMNS];
} Target;

static void
run(const char *command, Target *target, int columns)
{
	Oid			types[HLOOM_NAMESPACES_COLUMNS];
	char		nulls[HLOOM_NAMESPACES_COLUMNS];

	for (int i = 0; i < columns; i++)
	{
		types[i] = TupleDescAttr(RelationGetDescr(target->rel), i)->atttypid;
		nulls[i] = target->nulls[i] ? 'n' : ' ';
	}
	if (SPI_execute_with_args(command, columns, types, target->values, nulls, false, 0) < 0)
		elog(ERROR, "could not execute \"%s\"", command);	/* cannot happen */
}

/*
 * Locks the table until the end of the transaction and reads the namespace's row.
 */
static void
open_target(Target *target, const char *function, text *ns)
{
	const char *schema;

	PreventCommandIfReadOnly(function);
	PreventCommandDuringRecovery(function);
	PreventCommandIfParallelMode(function);
	memset(target, 0, sizeof(Target));
	target->ns = VARDATA_ANY(ns);
	target->ns_len = VARSIZE_ANY_EXHDR(ns);
	target->rel = hloom_options_row_open(ShareRowExclusiveLock);
	schema = get_namespace_name(RelationGetNamespace(target->rel));
	target->table = quote_qualified_identifier(schema, RelationGetRelationName(target->rel));
	for (int i = 0; i < HLOOM_NAMESPACES_COLUMNS; i++)
		target->nulls[i] = i > 0;
	target->values[0] = PointerGetDatum(ns);

	SPI_connect();
	run(psprintf("SELECT * FROM %s WHERE namespace = $1", target->table), target, 1);
	target->exists = SPI_processed > 0;
	if (target->exists)
		for (int i = 0; i < HLOOM_NAMESPACES_COLUMNS; i++)
			target->values[i] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, i + 1,
											  &target->nulls[i]);
}

/*
 * Reads the target's row; what is wrong with it is added to the violations.
 */
static void
read_target(const Target *target, HloomOptions *options, HloomViolations *violations)
{
	hloom_options_row_read(options, target->values, target->nulls, violations);
	if ((options->in_row & BIT(HLOOM_OPTION_PROVIDER)) == 0)
		options->provider = hloom_provider_name;
}

static void
close_target(Target *target)
{
	table_close(target->rel, NoLock);
	SPI_finish();
}

/*
 * Puts the options given into the row.  Returns their bits.
 */
static uint32
merge_given(Target *target, FunctionCallInfo fcinfo)
{
	uint32		given = 0;

	for (int i = 0; i < HLOOM_OPTIONS; i++)
	{
		if (PG_ARGISNULL(ARG_OPTION(i)) ||
			(i == HLOOM_OPTION_RETRY &&
			 hloom_retry_is_empty(PG_GETARG_HEAPTUPLEHEADER(ARG_OPTION(i)))))
			continue;
		target->values[i + 1] = PG_GETARG_DATUM(ARG_OPTION(i));
		target->nulls[i + 1] = false;
		given |= BIT(i);
	}
	return given;
}

/*
 * Returns the bit of an option's name, or 0.
 */
static uint32
bit_of(const char *name)
{
	for (int i = 0; i < HLOOM_OPTIONS; i++)
		if (strcmp(hloom_options_row_names[i], name) == 0)
			return BIT(i);
	return 0;
}

/*
 * Takes the options named out of the row.  What is given stays, for its own violations to be told.
 */
static void
merge_reset(Target *target, FunctionCallInfo fcinfo, uint32 given, HloomViolations *violations)
{
	Datum	   *names;
	bool	   *nulls;
	int			count;

	if (PG_ARGISNULL(ARG_RESET))
		return;
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(ARG_RESET), TEXTOID, -1, false, TYPALIGN_INT,
					  &names, &nulls, &count);
	for (int i = 0; i < count; i++)
	{
		char	   *name = nulls[i] ? NULL : TextDatumGetCString(names[i]);
		uint32		bit = name ? bit_of(name) : 0;

		if (name == NULL)
			hloom_options_row_violation(violations, ERRCODE_INVALID_PARAMETER_VALUE,
										"reset must not contain nulls.");
		else if (bit == 0)
			hloom_options_row_violation(violations, ERRCODE_INVALID_PARAMETER_VALUE,
										"reset names \"%s\", which is no option.", name);
		else if (given & bit)
			hloom_options_row_violation(violations, ERRCODE_INVALID_PARAMETER_VALUE,
										"%s is both given and reset.", name);
		else
			target->nulls[pg_rightmost_one_pos32(bit) + 1] = true;
	}
}

/*
 * Compares the lease the row decides with the one a setting decides.  Two of the row have been
 * compared already, and two settings are not this namespace's business.
 */
static void
check_leases(const HloomOptions *options, const Target *target, HloomViolations *violations)
{
	bool		no_default = target->nulls[ARG_OPTION(HLOOM_OPTION_DEFAULT_LEASE)];
	bool		no_max = target->nulls[ARG_OPTION(HLOOM_OPTION_MAX_LEASE)];

	if (no_default && (options->in_row & BIT(HLOOM_OPTION_MAX_LEASE)) != 0 &&
		options->max_lease < (int64) hloom_default_lease * 1000)
		hloom_options_row_violation(violations, ERRCODE_INVALID_PARAMETER_VALUE,
									"max_lease must not be less than default_lease, which is %s"
									" by hloom_lock.default_lease.",
									hloom_time_text((int64) hloom_default_lease * 1000));
	if (no_max && (options->in_row & BIT(HLOOM_OPTION_DEFAULT_LEASE)) != 0 &&
		options->default_lease > (int64) hloom_max_lease * 1000)
		hloom_options_row_violation(violations, ERRCODE_INVALID_PARAMETER_VALUE,
									"default_lease must not be more than max_lease, which is %s"
									" by hloom_lock.max_lease.",
									hloom_time_text((int64) hloom_max_lease * 1000));
}

/*
 * Checks what is given against what is there now: providers and roles.
 */
static void
check_known(const HloomOptions *options, uint32 given, HloomViolations *violations)
{
	uint32		valid = given & options->in_row;

	if ((valid & BIT(HLOOM_OPTION_PROVIDER)) != 0 && hloom_provider_find(options->provider) == NULL)
		hloom_options_row_violation(violations, ERRCODE_INVALID_PARAMETER_VALUE,
									"provider \"%s\" is not known.", options->provider);
	if ((valid & BIT(HLOOM_OPTION_ROLE)) != 0 && !OidIsValid(get_role_oid(options->role, true)))
		hloom_options_row_violation(violations, ERRCODE_UNDEFINED_OBJECT,
									"role \"%s\" does not exist.", options->role);
}

/*
 * Raises 55006 when leases would be left behind at the provider the namespace had, and LL003 and
 * the like when that does not tell.  A provider that is not known any more has none that anybody
 * could still use.
 */
static void
check_provider_change(const Target *target, const char *before, const char *after)
{
	const HloomProvider *provider = hloom_provider_find(before);
	int64		count;

	if (strcmp(before, after) == 0)
		return;
	hloom_moving_note(target->ns, target->ns_len, before);
	if (provider == NULL)
		return;
	if (provider->count == NULL)
	{
		ereport(WARNING,
				(errcode(ERRCODE_WARNING),
				 errmsg("provider \"%s\" cannot tell whether lock namespace \"%s\" has leases",
						before, pnstrdup(target->ns, target->ns_len)),
				 errdetail("Leases that are held there do not count at provider \"%s\".", after)));
		return;
	}
	count = hloom_calls_count(provider, target->ns, target->ns_len);
	if (count > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("cannot change the provider of lock namespace \"%s\" while it has leases",
						pnstrdup(target->ns, target->ns_len)),
				 errdetail_plural("%lld lease is held at provider \"%s\".",
								  "%lld leases are held at provider \"%s\".",
								  (unsigned long) count, (long long) count, before),
				 errhint("Wait until they are released or have ended.")));
}

static bool
is_enabled(const HloomOptions *row)
{
	return (row->in_row & BIT(HLOOM_OPTION_ENABLED)) != 0 ? row->enabled : hloom_enabled;
}

/*
 * LockDerivedMaxWait: the row gives an enabled namespace a policy, or enables a namespace that has
 * one.  What settings decide is each session's own, and nothing to tell of here.
 */
static void
report_policy(const Target *target, const HloomOptions *before, const HloomOptions *after,
			  uint32 given)
{
	uint32		told = is_enabled(before) ? given : after->in_row;
	char	   *ns = pnstrdup(target->ns, target->ns_len);
	char	   *policy;
	int64		max_wait;
	HloomEvent	event;

	if (!is_enabled(after) || (told & BIT(HLOOM_OPTION_RETRY)) == 0 ||
		!hloom_event_begin(&event, HLOOM_EVENT_MAX_WAIT, ns, NULL))
		return;
	policy = hloom_retry_describe(&after->retry);
	max_wait = hloom_retry_max_total(&after->retry);
	hloom_event_add(&event, "retry", policy);
	hloom_event_add_number(&event, "max_wait_ms", max_wait / 1000);
	hloom_event_write(&event, "by its policy, %s, namespace \"%s\" waits %s at most", policy, ns,
					  hloom_time_text(max_wait));
}

/*
 * Writes the row.  Returns it as it is now, in the given context.  A transaction whose snapshot is
 * older than the row fails with 40001: with UPDATE, and with ON CONFLICT.
 */
static Datum
write_row(Target *target, MemoryContext context)
{
	StringInfoData command;
	MemoryContext old;
	Datum		row;

	initStringInfo(&command);
	if (target->exists)
	{
		appendStringInfo(&command, "UPDATE %s SET ", target->table);
		for (int i = 0; i < HLOOM_OPTIONS; i++)
			appendStringInfo(&command, "%s%s = $%d", i > 0 ? ", " : "",
							 hloom_options_row_names[i], i + 2);
		appendStringInfoString(&command, " WHERE namespace = $1");
	}
	else
	{
		appendStringInfo(&command, "INSERT INTO %s (namespace", target->table);
		for (int i = 0; i < HLOOM_OPTIONS; i++)
			appendStringInfo(&command, ", %s", hloom_options_row_names[i]);
		appendStringInfoString(&command, ") VALUES ($1");
		for (int i = 0; i < HLOOM_OPTIONS; i++)
			appendStringInfo(&command, ", $%d", i + 2);
		appendStringInfoString(&command, ") ON CONFLICT (namespace) DO NOTHING");
	}
	appendStringInfoString(&command, " RETURNING *");
	run(command.data, target, HLOOM_NAMESPACES_COLUMNS);
	if (SPI_processed != 1)
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
				 errmsg("a trigger on table \"%s\" suppressed the change",
						RelationGetRelationName(target->rel))));
	old = MemoryContextSwitchTo(context);
	row = heap_copy_tuple_as_datum(SPI_tuptable->vals[0], RelationGetDescr(target->rel));
	MemoryContextSwitchTo(old);
	return row;
}

/*
 * SQL: hloom_configure(...).
 */
Datum
hloom_sql_configure(PG_FUNCTION_ARGS)
{
	MemoryContext context = CurrentMemoryContext;
	HloomOptions before;
	HloomOptions after;
	HloomViolations ignored = {0};
	HloomViolations violations = {0};
	Target		target;
	uint32		given;
	Datum		row;

	if (PG_ARGISNULL(0))
		hloom_error_null("namespace");
	open_target(&target, "hloom_configure()", PG_GETARG_TEXT_PP(0));
	read_target(&target, &before, &ignored);
	given = merge_given(&target, fcinfo);
	merge_reset(&target, fcinfo, given, &violations);
	read_target(&target, &after, &violations);
	check_leases(&after, &target, &violations);
	check_known(&after, given, &violations);
	hloom_options_row_judge(&violations, target.ns, target.ns_len, NULL);
	check_provider_change(&target, before.provider, after.provider);
	row = write_row(&target, context);
	report_policy(&target, &before, &after, given);
	close_target(&target);
	PG_RETURN_DATUM(row);
}

/*
 * SQL: hloom_unconfigure(namespace).
 */
Datum
hloom_sql_unconfigure(PG_FUNCTION_ARGS)
{
	HloomOptions before;
	HloomViolations ignored = {0};
	Target		target;
	text	   *ns;

	if (PG_ARGISNULL(0))
		hloom_error_null("namespace");
	ns = PG_GETARG_TEXT_PP(0);
	hloom_key_check_namespace(VARDATA_ANY(ns), VARSIZE_ANY_EXHDR(ns), false);
	open_target(&target, "hloom_unconfigure()", ns);
	if (target.exists)
	{
		read_target(&target, &before, &ignored);
		check_provider_change(&target, before.provider, hloom_provider_name);
		run(psprintf("DELETE FROM %s WHERE namespace = $1", target.table), &target, 1);
	}
	close_target(&target);
	PG_RETURN_BOOL(target.exists);
}

/*
 * SQL: trigger of hloom_namespaces, for each row before it is written and before TRUNCATE.  Lets
 * every backend forget what it knows of the table once the change is committed, and this one with
 * the next command.  Raises 22023 or 0A000 for a row that is not valid.
 */
Datum
hloom_sql_namespaces_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *trigger = (TriggerData *) fcinfo->context;
	HloomOptions options;
	HloomViolations violations = {0};
	HeapTuple	tuple;
	Datum	   *values;
	bool	   *nulls;
	TupleDesc	desc;

	if (!CALLED_AS_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("hloom_namespaces_changed() was not called by the trigger manager")));
	CacheInvalidateRelcache(trigger->tg_relation);
	if (!TRIGGER_FIRED_FOR_ROW(trigger->tg_event))
		PG_RETURN_POINTER(NULL);
	if (TRIGGER_FIRED_BY_DELETE(trigger->tg_event))
		PG_RETURN_POINTER(trigger->tg_trigtuple);

	hloom_options_row_check_columns(trigger->tg_relation);
	tuple = TRIGGER_FIRED_BY_UPDATE(trigger->tg_event) ? trigger->tg_newtuple :
		trigger->tg_trigtuple;
	desc = RelationGetDescr(trigger->tg_relation);
	values = (Datum *) palloc(desc->natts * sizeof(Datum));
	nulls = (bool *) palloc(desc->natts * sizeof(bool));
	heap_deform_tuple(tuple, desc, values, nulls);
	hloom_options_row_read(&options, values, nulls, &violations);
	if (violations.sqlstate != 0)
	{
		text	   *ns = nulls[0] ? cstring_to_text("") : DatumGetTextPP(values[0]);

		hloom_options_row_judge(&violations, VARDATA_ANY(ns), VARSIZE_ANY_EXHDR(ns), NULL);
	}
	PG_RETURN_POINTER(tuple);
}
