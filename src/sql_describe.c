/*
 * sql_describe.c
 *	  The SQL functions that tell what applies to a namespace.
 *
 * No provider is asked, nothing is written, and nothing is told to a role that may not use the
 * namespace.  VOLATILE: the options are those of now, not of the statement's snapshot, so a change
 * committed while a statement runs is seen by its later calls.
 */
#include "postgres.h"

#include "funcapi.h"
#include "utils/builtins.h"

#include "compat.h"
#include "errors.h"
#include "lease_key.h"
#include "lease_time.h"
#include "options.h"

PG_FUNCTION_INFO_V1(hloom_sql_describe);
PG_FUNCTION_INFO_V1(hloom_sql_is_coordinated);

/*
 * Takes the namespace and its options.  Raises 22004, 22023, 42501 and 42704.
 */
static text *
take_namespace(FunctionCallInfo fcinfo, HloomOptions *options)
{
	text	   *given;
	const char *ns;
	int			ns_len;

	if (PG_ARGISNULL(0))
		hloom_error_null("namespace");
	given = PG_GETARG_TEXT_PP(0);
	ns = VARDATA_ANY(given);
	ns_len = VARSIZE_ANY_EXHDR(given);
	hloom_key_check_namespace(ns, ns_len, false);
	hloom_options_of(options, ns, ns_len);
	hloom_options_check_role(options, ns, ns_len);
	return given;
}

/*
 * Adds a line of hloom_describe: the row decides when its bit is set, else the setting named.
 */
static void
tell(FunctionCallInfo fcinfo, const HloomOptions *options, HloomOption option, const char *part,
	 const char *setting, const char *value)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	bool		in_row = (options->in_row & (1u << option)) != 0;
	Datum		values[3];
	bool		nulls[3] = {0};

	values[0] = CStringGetTextDatum(part);
	values[1] = CStringGetTextDatum(value);
	values[2] = CStringGetTextDatum(in_row ? HLOOM_NAMESPACES : setting);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

static const char *
bool_text(bool value)
{
	return value ? "true" : "false";
}

/*
 * SQL: hloom_describe(namespace).
 */
Datum
hloom_sql_describe(PG_FUNCTION_ARGS)
{
	const char *retry = "hloom_lock.retry_limit, hloom_lock.retry_step, hloom_lock.retry_jitter";
	HloomOptions o;
	text	   *ns = take_namespace(fcinfo, &o);

	InitMaterializedSRF(fcinfo, 0);

	/* Without a row the namespace is there because the setting lets it be. */
	tell(fcinfo, &o, HLOOM_OPTION_ANY, "namespace", "hloom_lock.strict_namespaces",
		 text_to_cstring(ns));
	if (o.enabled)
		tell(fcinfo, &o, HLOOM_OPTION_PROVIDER, "provider", "hloom_lock.provider", o.provider);
	else
		tell(fcinfo, &o, HLOOM_OPTION_ENABLED, "provider", "hloom_lock.enabled", "(disabled)");
	tell(fcinfo, &o, HLOOM_OPTION_ENABLED, "enabled", "hloom_lock.enabled", bool_text(o.enabled));
	tell(fcinfo, &o, HLOOM_OPTION_DEFAULT_LEASE, "default_lease", "hloom_lock.default_lease",
		 hloom_time_text(o.default_lease));
	tell(fcinfo, &o, HLOOM_OPTION_MAX_LEASE, "max_lease", "hloom_lock.max_lease",
		 hloom_time_text(o.max_lease));
	tell(fcinfo, &o, HLOOM_OPTION_MAX_HOLD, "max_hold", "hloom_lock.max_hold",
		 hloom_time_text(o.max_hold));
	tell(fcinfo, &o, HLOOM_OPTION_RETRY, "retry", retry, hloom_retry_describe(&o.retry));
	tell(fcinfo, &o, HLOOM_OPTION_RETRY, "max_wait", retry,
		 hloom_time_text(hloom_retry_max_total(&o.retry)));
	tell(fcinfo, &o, HLOOM_OPTION_AUTO_EXTEND, "auto_extend", "hloom_lock.auto_extend",
		 psprintf("%s (ignored for scope lease)", bool_text(o.auto_extend)));
	tell(fcinfo, &o, HLOOM_OPTION_DETECT_REENTRANCY, "detect_reentrancy",
		 "hloom_lock.detect_reentrancy", bool_text(o.detect_reentrancy));
	tell(fcinfo, &o, HLOOM_OPTION_MAX_KEY_LENGTH, "max_key_length", "hloom_lock.max_key_length",
		 psprintf("%d", o.max_key_length));
	/* There is no setting of a role. */
	tell(fcinfo, &o, HLOOM_OPTION_ROLE, "role", HLOOM_NAMESPACES, o.role ? o.role : "(any)");
	PG_RETURN_NULL();
}

/*
 * SQL: hloom_is_coordinated(namespace): whether locks of the namespace are real.
 */
Datum
hloom_sql_is_coordinated(PG_FUNCTION_ARGS)
{
	HloomOptions options;

	(void) take_namespace(fcinfo, &options);
	PG_RETURN_BOOL(options.enabled);
}
