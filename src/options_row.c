/*
 * options_row.c
 *	  Table hloom_namespaces: opening it, and what a valid row of it is.
 *
 * A row is judged by itself, wherever it comes from: hloom_configure(), the table's trigger, the
 * cache.  What depends on more than the row (settings, roles, registered providers) is judged by
 * hloom_configure() alone: it can change under a row at any time, and a dump must be restorable
 * where it is otherwise.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/pg_type.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "lease_key.h"
#include "lease_table.h"
#include "lease_time.h"
#include "options_row.h"
#include "retry_row.h"

const char *const hloom_options_row_names[HLOOM_OPTIONS] = {
	[HLOOM_OPTION_ENABLED] = "enabled",
	[HLOOM_OPTION_PROVIDER] = "provider",
	[HLOOM_OPTION_DEFAULT_LEASE] = "default_lease",
	[HLOOM_OPTION_MAX_LEASE] = "max_lease",
	[HLOOM_OPTION_MAX_HOLD] = "max_hold",
	[HLOOM_OPTION_RETRY] = "retry",
	[HLOOM_OPTION_AUTO_EXTEND] = "auto_extend",
	[HLOOM_OPTION_DETECT_REENTRANCY] = "detect_reentrancy",
	[HLOOM_OPTION_MAX_KEY_LENGTH] = "max_key_length",
	[HLOOM_OPTION_ROLE] = "role"
};

/* Types of the columns; the retry policy's is one of ours. */
static const Oid option_types[HLOOM_OPTIONS] = {
	[HLOOM_OPTION_ENABLED] = BOOLOID,
	[HLOOM_OPTION_PROVIDER] = TEXTOID,
	[HLOOM_OPTION_DEFAULT_LEASE] = INTERVALOID,
	[HLOOM_OPTION_MAX_LEASE] = INTERVALOID,
	[HLOOM_OPTION_MAX_HOLD] = INTERVALOID,
	[HLOOM_OPTION_RETRY] = InvalidOid,
	[HLOOM_OPTION_AUTO_EXTEND] = BOOLOID,
	[HLOOM_OPTION_DETECT_REENTRANCY] = BOOLOID,
	[HLOOM_OPTION_MAX_KEY_LENGTH] = INT4OID,
	[HLOOM_OPTION_ROLE] = TEXTOID
};

/*
 * Raises 55000 unless the columns are those this library knows; more of them do no harm.
 */
void
hloom_options_row_check_columns(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);
	bool		good;

	good = rel->rd_rel->relkind == RELKIND_RELATION &&
		desc->natts >= HLOOM_NAMESPACES_COLUMNS && TupleDescAttr(desc, 0)->atttypid == TEXTOID;
	for (int i = 0; good && i < HLOOM_OPTIONS; i++)
	{
		Form_pg_attribute column = TupleDescAttr(desc, i + 1);

		good = strcmp(NameStr(column->attname), hloom_options_row_names[i]) == 0 &&
			(column->atttypid == option_types[i] ||
			 (i == HLOOM_OPTION_RETRY && type_is_rowtype(column->atttypid)));
	}
	if (!good)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"%s\" does not fit the installed library",
						RelationGetRelationName(rel)),
				 errhint("Use ALTER EXTENSION hloom_lock UPDATE.")));
}

/*
 * Opens the table.  Raises 55000 when it is not there.  Unlike the lease table it is waited for, as
 * any table is: calls read it only after it has changed.
 */
Relation
hloom_options_row_open(LOCKMODE mode)
{
	Oid			schema = hloom_table_schema();
	Oid			table;
	Relation	rel;

	if (!OidIsValid(schema))
		hloom_table_no_extension();
	table = get_relname_relid(HLOOM_NAMESPACES, schema);
	rel = OidIsValid(table) ? try_table_open(table, mode) : NULL;
	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("table \"" HLOOM_NAMESPACES "\" of extension \"" HLOOM_EXTENSION "\" is"
						" missing"),
				 errhint("Give the table its name back.")));
	hloom_options_row_check_columns(rel);
	return rel;
}

/*
 * Adds a sentence to what is wrong.
 */
void
hloom_options_row_violation(HloomViolations *violations, int sqlstate, const char *format,...)
{
	int			needed = 1;

	if (violations->sqlstate == 0)
	{
		initStringInfo(&violations->list);
		violations->sqlstate = sqlstate;
	}
	else
	{
		appendStringInfoChar(&violations->list, ' ');
		if (violations->sqlstate != sqlstate)
			violations->sqlstate = ERRCODE_INVALID_PARAMETER_VALUE;
	}
	while (needed > 0)
	{
		va_list		args;

		va_start(args, format);
		needed = appendStringInfoVA(&violations->list, format, args);
		va_end(args);
		if (needed > 0)
			enlargeStringInfo(&violations->list, needed);
	}
}

/*
 * Raises when anything is wrong, with all of it: 22023, or the SQLSTATE all of it has.
 */
void
hloom_options_row_judge(const HloomViolations *violations, const char *ns, int ns_len,
						const char *hint)
{
	if (violations->sqlstate == 0)
		return;
	ereport(ERROR,
			(errcode(violations->sqlstate),
			 errmsg("invalid options for lock namespace \"%s\"", pnstrdup(ns, ns_len)),
			 errdetail_internal("%s", violations->list.data),
			 hint ? errhint("%s", hint) : 0));
}

static void
invalid(HloomViolations *violations, HloomOption option, const char *problem)
{
	hloom_options_row_violation(violations, ERRCODE_INVALID_PARAMETER_VALUE, "%s %s.",
								hloom_options_row_names[option], problem);
}

static bool
read_duration(int64 *usec, HloomOption option, Datum value, HloomViolations *violations)
{
	const char *problem = hloom_time_measure(DatumGetIntervalP(value), usec);

	if (problem == NULL && *usec <= 0)
		problem = "must be positive";
	if (problem != NULL)
		invalid(violations, option, problem);
	return problem == NULL;
}

/*
 * Reads a name: of a provider, or of a role.
 */
static bool
read_name(const char **name, HloomOption option, Datum value, HloomViolations *violations)
{
	char	   *given = TextDatumGetCString(value);
	int			len = strlen(given);
	bool		provider = option == HLOOM_OPTION_PROVIDER;

	*name = given;
	if (provider ? hloom_key_is_namespace(given, len) : len > 0 && len < NAMEDATALEN)
		return true;
	invalid(violations, option,
			provider ? "must be 1 to 63 of the characters a-z, 0-9 and \"-\"" :
			"must be 1 to 63 bytes long");
	return false;
}

static bool
read_retry(HloomRetry *retry, Datum value, HloomViolations *violations)
{
	StringInfoData found;
	bool		valid;

	initStringInfo(&found);
	valid = hloom_retry_read(retry, DatumGetHeapTupleHeader(value), &found);
	if (!valid)
		hloom_options_row_violation(violations, ERRCODE_INVALID_PARAMETER_VALUE, "retry: %s.",
									found.data);
	pfree(found.data);
	return valid;
}

/*
 * Reads an option that is given.  Returns whether it is valid.
 */
static bool
read_option(HloomOptions *options, HloomOption option, Datum value, HloomViolations *violations)
{
	switch (option)
	{
		case HLOOM_OPTION_ENABLED:
			options->enabled = DatumGetBool(value);
			return true;
		case HLOOM_OPTION_PROVIDER:
			return read_name(&options->provider, option, value, violations);
		case HLOOM_OPTION_DEFAULT_LEASE:
			return read_duration(&options->default_lease, option, value, violations);
		case HLOOM_OPTION_MAX_LEASE:
			return read_duration(&options->max_lease, option, value, violations);
		case HLOOM_OPTION_MAX_HOLD:
			return read_duration(&options->max_hold, option, value, violations);
		case HLOOM_OPTION_RETRY:
			return !hloom_retry_is_empty(DatumGetHeapTupleHeader(value)) &&
				read_retry(&options->retry, value, violations);
		case HLOOM_OPTION_AUTO_EXTEND:
			options->auto_extend = DatumGetBool(value);
			return true;
		case HLOOM_OPTION_DETECT_REENTRANCY:
			options->detect_reentrancy = DatumGetBool(value);
			return true;
		case HLOOM_OPTION_MAX_KEY_LENGTH:
			options->max_key_length = DatumGetInt32(value);
			if (options->max_key_length >= 1 && options->max_key_length <= HLOOM_MAX_KEY_CHARS)
				return true;
			hloom_options_row_violation(violations, ERRCODE_INVALID_PARAMETER_VALUE,
										"max_key_length must be between 1 and %d.",
										HLOOM_MAX_KEY_CHARS);
			return false;
		case HLOOM_OPTION_ROLE:
			return read_name(&options->role, option, value, violations);
	}
	return false;
}

/*
 * Reads a row of the table, its values in the order of the columns: the options that are not NULL
 * and valid, each with its bit in in_row, in the current memory context.  Everything wrong is
 * added to the violations.
 */
void
hloom_options_row_read(HloomOptions *options, const Datum *values, const bool *nulls,
					   HloomViolations *violations)
{
	const uint32 leases = 1u << HLOOM_OPTION_DEFAULT_LEASE | 1u << HLOOM_OPTION_MAX_LEASE;

	memset(options, 0, sizeof(HloomOptions));
	options->in_row = 1u << HLOOM_OPTION_ANY;
	if (!nulls[0])
	{
		text	   *ns = DatumGetTextPP(values[0]);

		if (!hloom_key_is_namespace(VARDATA_ANY(ns), VARSIZE_ANY_EXHDR(ns)))
			hloom_options_row_violation(violations, ERRCODE_INVALID_PARAMETER_VALUE,
										"namespace must be 1 to %d of the characters a-z, 0-9 and"
										" \"-\".", HLOOM_MAX_NAMESPACE);
	}
	for (int i = 0; i < HLOOM_OPTIONS; i++)
		if (!nulls[i + 1] && read_option(options, (HloomOption) i, values[i + 1], violations))
			options->in_row |= 1u << i;
	if ((options->in_row & leases) == leases && options->max_lease < options->default_lease)
		invalid(violations, HLOOM_OPTION_MAX_LEASE, "must not be less than default_lease");
}
