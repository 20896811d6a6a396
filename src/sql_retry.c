/*
 * sql_retry.c
 *	  The SQL functions that make retry policies and tell what they come to.
 *
 * Immutable and parallel safe: they read no setting, no clock and no shared memory, so they work
 * on a standby and in a server that does not preload the library.
 */
#include "postgres.h"

#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "errors.h"
#include "lease_time.h"
#include "retry.h"
#include "retry_row.h"
#include "sql_args.h"

PG_FUNCTION_INFO_V1(hloom_sql_retry_immediate);
PG_FUNCTION_INFO_V1(hloom_sql_retry_interval);
PG_FUNCTION_INFO_V1(hloom_sql_retry_linear);
PG_FUNCTION_INFO_V1(hloom_sql_retry_exponential);
PG_FUNCTION_INFO_V1(hloom_sql_retry_with_jitter);
PG_FUNCTION_INFO_V1(hloom_sql_retry_delay);
PG_FUNCTION_INFO_V1(hloom_sql_retry_max_total_delay);
PG_FUNCTION_INFO_V1(hloom_sql_retry_describe);

/*
 * Returns fields as a policy.  Raises 22023 with all violations; names as in hloom_retry_judge().
 */
static Datum
make(FunctionCallInfo fcinfo, const HloomRetryRow *row, const char *const *names)
{
	HloomRetry	policy;
	StringInfoData violations;

	initStringInfo(&violations);
	if (!hloom_retry_judge(&policy, row, names, &violations))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid retry policy"),
				 errdetail("%s.", violations.data)));
	return hloom_retry_form(&policy, get_func_rettype(fcinfo->flinfo->fn_oid));
}

/*
 * Makes a policy from arguments in the order of the fields that follow the kind.
 */
static Datum
make_from_args(FunctionCallInfo fcinfo, const char *kind, const char *const *names)
{
	HloomRetryRow row;

	memset(row.nulls, true, sizeof(row.nulls));
	row.values[HLOOM_RETRY_FIELD_KIND] = CStringGetTextDatum(kind);
	row.nulls[HLOOM_RETRY_FIELD_KIND] = false;
	for (int i = 0; i < PG_NARGS(); i++)
	{
		int			field = i + HLOOM_RETRY_FIELD_RETRIES;

		if (PG_ARGISNULL(i) && field != HLOOM_RETRY_FIELD_FACTOR)
			hloom_error_null(names[field]);
		row.values[field] = PG_GETARG_DATUM(i);
		row.nulls[field] = PG_ARGISNULL(i);
	}
	return make(fcinfo, &row, names);
}

/* SQL: hloom_retry_immediate(retries). */
Datum
hloom_sql_retry_immediate(PG_FUNCTION_ARGS)
{
	static const char *const names[HLOOM_RETRY_FIELDS] = {"kind", "retries"};

	return make_from_args(fcinfo, "immediate", names);
}

/* SQL: hloom_retry_interval(retries, delay). */
Datum
hloom_sql_retry_interval(PG_FUNCTION_ARGS)
{
	static const char *const names[HLOOM_RETRY_FIELDS] = {"kind", "retries", "delay"};

	return make_from_args(fcinfo, "interval", names);
}

/* SQL: hloom_retry_linear(retries, step). */
Datum
hloom_sql_retry_linear(PG_FUNCTION_ARGS)
{
	static const char *const names[HLOOM_RETRY_FIELDS] = {"kind", "retries", "step"};

	return make_from_args(fcinfo, "linear", names);
}

/* SQL: hloom_retry_exponential(retries, min, max, factor). */
Datum
hloom_sql_retry_exponential(PG_FUNCTION_ARGS)
{
	static const char *const names[HLOOM_RETRY_FIELDS] = {
		"kind", "retries", "min", "max", "factor"
	};

	return make_from_args(fcinfo, "exponential", names);
}

/*
 * Takes the first argument, a policy that must be there.  Raises 22004, 22023 and 55000.
 */
static void
policy_arg(HloomRetry *policy, FunctionCallInfo fcinfo)
{
	if (PG_ARGISNULL(0) || !hloom_retry_require(policy, PG_GETARG_HEAPTUPLEHEADER(0)))
		hloom_error_null("policy");
}

/*
 * SQL: hloom_retry_with_jitter(policy, jitter).  A policy of its own; any jitter there was is gone.
 */
Datum
hloom_sql_retry_with_jitter(PG_FUNCTION_ARGS)
{
	HloomRetry	policy;
	HloomRetryRow row;

	policy_arg(&policy, fcinfo);
	if (PG_ARGISNULL(1))
		hloom_error_null("jitter");
	hloom_retry_fields(&row, &policy);
	row.values[HLOOM_RETRY_FIELD_JITTER] = PG_GETARG_DATUM(1);
	return make(fcinfo, &row, NULL);
}

/*
 * SQL: hloom_retry_delay(policy, n).  Without jitter; n may exceed the policy's retries.
 */
Datum
hloom_sql_retry_delay(PG_FUNCTION_ARGS)
{
	HloomRetry	policy;

	policy_arg(&policy, fcinfo);
	if (PG_ARGISNULL(1))
		hloom_error_null("n");
	if (PG_GETARG_INT32(1) < 1)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("n must be at least 1"),
				 errdetail("The first attempt has no delay, n counts the retries after it.")));
	PG_RETURN_INTERVAL_P(hloom_time_to_interval(hloom_retry_delay(&policy, PG_GETARG_INT32(1))));
}

/* SQL: hloom_retry_max_total_delay(policy). */
Datum
hloom_sql_retry_max_total_delay(PG_FUNCTION_ARGS)
{
	HloomRetry	policy;

	policy_arg(&policy, fcinfo);
	PG_RETURN_INTERVAL_P(hloom_time_to_interval(hloom_retry_max_total(&policy)));
}

/* SQL: hloom_retry_describe(policy). */
Datum
hloom_sql_retry_describe(PG_FUNCTION_ARGS)
{
	HloomRetry	policy;

	policy_arg(&policy, fcinfo);
	PG_RETURN_TEXT_P(cstring_to_text(hloom_retry_describe(&policy)));
}
