/*
 * retry_row.c
 *	  Retry policies as values of type hloom_retry_policy.
 *
 * hloom_retry_judge() decides what is a policy, wherever it comes from: a function that makes one,
 * a row written by hand, a row of a table.  Every duration is finite, without months, and zero or
 * more.  A field that a kind does not use is NULL or zero.
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "access/tupmacs.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

#include "lease_time.h"
#include "retry_row.h"

#define DEFAULT_FACTOR 2.0

#define BIT(field) (1 << HLOOM_RETRY_FIELD_##field)

/* The kinds in the order of HloomRetryKind, and the fields each uses besides kind and retries. */
typedef struct Kind
{
	const char *name;
	int			uses;
} Kind;

static const Kind kinds[] = {
	[HLOOM_RETRY_IMMEDIATE] = {"immediate", BIT(JITTER)},
	[HLOOM_RETRY_INTERVAL] = {"interval", BIT(DELAY) | BIT(JITTER)},
	[HLOOM_RETRY_LINEAR] = {"linear", BIT(DELAY) | BIT(JITTER)},
	[HLOOM_RETRY_EXPONENTIAL] = {
		"exponential", BIT(DELAY) | BIT(MAX_DELAY) | BIT(FACTOR) | BIT(JITTER)
	}
};

static const char *const field_names[] = {
	"kind", "retries", "delay", "max_delay", "factor", "jitter"
};

/* A policy being judged. */
typedef struct Judgement
{
	const HloomRetryRow *row;
	const char *const *names;	/* of the fields */
	const Kind *kind;			/* NULL if it is not known */
	StringInfo	violations;
} Judgement;

/*
 * Begins a further violation.
 */
static StringInfo
next_violation(const Judgement *judgement)
{
	if (judgement->violations->len > 0)
		appendStringInfoString(judgement->violations, "; ");
	return judgement->violations;
}

static void
violate(const Judgement *judgement, HloomRetryField field, const char *fault)
{
	appendStringInfo(next_violation(judgement), "%s %s", judgement->names[field], fault);
}

static void
read_kind(HloomRetry *policy, Judgement *judgement)
{
	const HloomRetryField field = HLOOM_RETRY_FIELD_KIND;
	char	   *given;

	if (judgement->row->nulls[field])
	{
		violate(judgement, field, "must not be null");
		return;
	}
	given = TextDatumGetCString(judgement->row->values[field]);
	for (int i = 0; i < lengthof(kinds); i++)
	{
		if (strcmp(given, kinds[i].name) == 0)
		{
			policy->kind = (HloomRetryKind) i;
			judgement->kind = &kinds[i];
			return;
		}
	}
	appendStringInfo(next_violation(judgement),
					 "kind \"%s\" is none of immediate, interval, linear, exponential", given);
}

static void
read_retries(HloomRetry *policy, const Judgement *judgement)
{
	const HloomRetryField field = HLOOM_RETRY_FIELD_RETRIES;

	if (judgement->row->nulls[field])
	{
		violate(judgement, field, "must not be null");
		return;
	}
	policy->retries = DatumGetInt32(judgement->row->values[field]);
	if (policy->retries < 0 || policy->retries > HLOOM_RETRY_MOST)
		appendStringInfo(next_violation(judgement), "%s must be between 0 and %d",
						 judgement->names[field], HLOOM_RETRY_MOST);
}

/*
 * Whether a kind has a field.  One that is not known may have any.
 */
static bool
uses(const Judgement *judgement, HloomRetryField field)
{
	return judgement->kind == NULL || (judgement->kind->uses & (1 << field)) != 0;
}

static void
refuse_unused(const Judgement *judgement, HloomRetryField field)
{
	appendStringInfo(next_violation(judgement), "kind %s has no %s",
					 judgement->kind->name, judgement->names[field]);
}

/*
 * Returns a duration in microseconds, 0 if the kind does not use it, -1 after a violation.
 */
static int64
read_span(const Judgement *judgement, HloomRetryField field)
{
	bool		used = uses(judgement, field);
	const char *fault;
	int64		usec = 0;

	if (judgement->row->nulls[field])
	{
		if (!used || field == HLOOM_RETRY_FIELD_JITTER)
			return 0;
		if (judgement->kind != NULL)
			violate(judgement, field, "must not be null");
		return -1;
	}
	fault = hloom_time_measure(DatumGetIntervalP(judgement->row->values[field]), &usec);
	if (!used)
	{
		if (fault != NULL || usec != 0)
			refuse_unused(judgement, field);
		return 0;
	}
	if (fault == NULL && usec < 0)
		fault = "must not be negative";
	if (fault == NULL)
		return usec;
	violate(judgement, field, fault);
	return -1;
}

static void
read_spans(HloomRetry *policy, const Judgement *judgement)
{
	policy->delay = read_span(judgement, HLOOM_RETRY_FIELD_DELAY);
	policy->max_delay = read_span(judgement, HLOOM_RETRY_FIELD_MAX_DELAY);
	if (uses(judgement, HLOOM_RETRY_FIELD_MAX_DELAY) &&
		policy->max_delay >= 0 && policy->max_delay < policy->delay)
		appendStringInfo(next_violation(judgement), "%s must not be less than %s",
						 judgement->names[HLOOM_RETRY_FIELD_MAX_DELAY],
						 judgement->names[HLOOM_RETRY_FIELD_DELAY]);
}

static void
read_factor(HloomRetry *policy, const Judgement *judgement)
{
	const HloomRetryField field = HLOOM_RETRY_FIELD_FACTOR;
	bool		null = judgement->row->nulls[field];
	double		given = null ? 0 : DatumGetFloat8(judgement->row->values[field]);

	if (!uses(judgement, field))
	{
		if (given != 0)
			refuse_unused(judgement, field);
		return;
	}
	policy->factor = null ? DEFAULT_FACTOR : given;
	if (isinf(policy->factor) || isnan(policy->factor))
		violate(judgement, field, "must be finite");
	else if (policy->factor < 1)
		violate(judgement, field, "must be at least 1");
}

/*
 * Takes a policy from its fields.  Returns whether it is valid; if not, appends all its violations
 * as clauses, with "; " between them and after what is there already.  A NULL jitter is none, the
 * NULL factor of an exponential policy is 2.  names are what the caller calls the fields, in their
 * order; NULL for their own names.
 */
bool
hloom_retry_judge(HloomRetry *policy, const HloomRetryRow *row, const char *const *names,
				  StringInfo violations)
{
	Judgement	judgement = {.row = row,.names = names,.violations = violations};
	int			before = violations->len;

	judgement.names = names != NULL ? names : field_names;
	memset(policy, 0, sizeof(*policy));
	read_kind(policy, &judgement);
	read_retries(policy, &judgement);
	read_spans(policy, &judgement);
	read_factor(policy, &judgement);
	policy->jitter = read_span(&judgement, HLOOM_RETRY_FIELD_JITTER);
	return violations->len == before;
}

/*
 * Returns the type's descriptor, to be released.  Raises 55000 when it is of another version.
 */
static TupleDesc
look_up(Oid type)
{
	TupleDesc	desc = lookup_rowtype_tupdesc(type, -1);

	if (desc->natts != HLOOM_RETRY_FIELDS)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("type hloom_retry_policy does not fit the installed library"),
				 errhint("Use ALTER EXTENSION hloom_lock UPDATE.")));
	return desc;
}

static void
deform(HloomRetryRow *fields, HeapTupleHeader row)
{
	TupleDesc	desc = look_up(HeapTupleHeaderGetTypeId(row));
	HeapTupleData tuple = {.t_len = HeapTupleHeaderGetDatumLength(row),.t_data = row};

	heap_deform_tuple(&tuple, desc, fields->values, fields->nulls);
	ReleaseTupleDesc(desc);
}

/*
 * Takes a policy from a row of type hloom_retry_policy.  Returns whether it is valid; appends its
 * violations, if any, as hloom_retry_judge() does.  Raises 55000 for another version's type only.
 */
bool
hloom_retry_read(HloomRetry *policy, HeapTupleHeader row, StringInfo violations)
{
	HloomRetryRow fields;

	deform(&fields, row);
	return hloom_retry_judge(policy, &fields, NULL, violations);
}

/*
 * Whether there is nothing in a row, which SQL calls NULL, too.
 */
bool
hloom_retry_is_empty(HeapTupleHeader row)
{
	int			fields = HeapTupleHeaderGetNatts(row);
	int			nulls = 0;

	if (row->t_infomask & HEAP_HASNULL)
		while (nulls < fields && att_isnull(nulls, row->t_bits))
			nulls++;
	return nulls == fields;
}

/*
 * Takes a policy from a row of type hloom_retry_policy.  Returns false when there is nothing in
 * it, which means that none is given.  Raises 22023 with all violations, and 55000.
 */
bool
hloom_retry_require(HloomRetry *policy, HeapTupleHeader row)
{
	HloomRetryRow fields;
	StringInfoData violations;

	if (hloom_retry_is_empty(row))
		return false;
	deform(&fields, row);
	initStringInfo(&violations);
	if (!hloom_retry_judge(policy, &fields, NULL, &violations))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid retry policy"),
				 errdetail("%s.", violations.data),
				 errhint("Use hloom_retry_immediate(), hloom_retry_interval(), "
						 "hloom_retry_linear() or hloom_retry_exponential() to make one.")));
	pfree(violations.data);
	return true;
}

/*
 * Puts a valid policy into fields; one that its kind does not use is NULL.
 */
void
hloom_retry_fields(HloomRetryRow *row, const HloomRetry *policy)
{
	const Kind *kind = &kinds[policy->kind];

	for (int i = 0; i < HLOOM_RETRY_FIELDS; i++)
		row->nulls[i] = i > HLOOM_RETRY_FIELD_RETRIES && !(kind->uses & (1 << i));
	row->values[HLOOM_RETRY_FIELD_KIND] = CStringGetTextDatum(kind->name);
	row->values[HLOOM_RETRY_FIELD_RETRIES] = Int32GetDatum(policy->retries);
	row->values[HLOOM_RETRY_FIELD_DELAY] = IntervalPGetDatum(hloom_time_to_interval(policy->delay));
	row->values[HLOOM_RETRY_FIELD_MAX_DELAY] =
		IntervalPGetDatum(hloom_time_to_interval(policy->max_delay));
	row->values[HLOOM_RETRY_FIELD_FACTOR] = Float8GetDatum(policy->factor);
	row->values[HLOOM_RETRY_FIELD_JITTER] =
		IntervalPGetDatum(hloom_time_to_interval(policy->jitter));
}

/*
 * Returns a valid policy as a row of the type, which is hloom_retry_policy; palloc'd.  Raises
 * 55000 when the type is another version's.
 */
Datum
hloom_retry_form(const HloomRetry *policy, Oid type)
{
	TupleDesc	desc = look_up(type);
	HloomRetryRow row;
	HeapTuple	tuple;

	hloom_retry_fields(&row, policy);
	tuple = heap_form_tuple(desc, row.values, row.nulls);
	ReleaseTupleDesc(desc);
	return HeapTupleGetDatum(tuple);
}
