/*
 * sql_metrics.c
 *	  SQL: hloom_metrics(active), the instruments of this database as rows, hloom_openmetrics(), the
 *	  same as text, and hloom_metrics_reset().
 *
 * Names are those of the metrics an exporter serves; a row, or a line, is one series.
 */
#include "postgres.h"

#include <math.h>

#include "commands/dbcommands.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/float.h"

#include "compat.h"
#include "metrics.h"
#include "shmem.h"
#include "stats.h"

PG_FUNCTION_INFO_V1(hloom_sql_metrics);
PG_FUNCTION_INFO_V1(hloom_sql_openmetrics);
PG_FUNCTION_INFO_V1(hloom_sql_metrics_reset);

enum
{
	METRICS_NAMESPACE, METRICS_NAME, METRICS_OUTCOME, METRICS_LE, METRICS_VALUE,
	METRICS_COLUMNS
};

static void
put_row(const HloomSample *sample, void *arg)
{
	ReturnSetInfo *result = (ReturnSetInfo *) arg;
	Datum		values[METRICS_COLUMNS] = {0};
	bool		nulls[METRICS_COLUMNS] = {0};
	char	   *name = psprintf("%s%s", sample->metric->name, sample->suffix);

	nulls[METRICS_NAMESPACE] = sample->ns == NULL;
	if (sample->ns)
		values[METRICS_NAMESPACE] = CStringGetTextDatum(sample->ns);
	values[METRICS_NAME] = CStringGetTextDatum(name);
	nulls[METRICS_OUTCOME] = sample->outcome == NULL;
	if (sample->outcome)
		values[METRICS_OUTCOME] = CStringGetTextDatum(sample->outcome);
	nulls[METRICS_LE] = !sample->has_le;
	values[METRICS_LE] = Float8GetDatum(sample->le);
	values[METRICS_VALUE] = Float8GetDatum(sample->value);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	pfree(name);
}

/*
 * SQL: hloom_metrics(active).  Raises 55000.
 */
Datum
hloom_sql_metrics(PG_FUNCTION_ARGS)
{
	bool		active = PG_ARGISNULL(0) || PG_GETARG_BOOL(0);

	hloom_shmem_require();
	InitMaterializedSRF(fcinfo, 0);
	hloom_metrics_visit(active, put_row, fcinfo->resultinfo);
	return (Datum) 0;
}

/* A text of OpenMetrics on its way. */
typedef struct Exposition
{
	StringInfoData text;
	const HloomMetric *metric;	/* whose head was written last */
	char	   *database;		/* escaped */
} Exposition;

/*
 * As the text format wants a label's value.
 */
static char *
escape_label(const char *value)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (; *value; value++)
	{
		if (*value == '\n')
			appendStringInfoString(&buf, "\\n");
		else
		{
			if (*value == '"' || *value == '\\')
				appendStringInfoChar(&buf, '\\');
			appendStringInfoChar(&buf, *value);
		}
	}
	return buf.data;
}

static void
put_head(StringInfo text, const HloomMetric *metric)
{
	static const char *const kinds[] = {
		[HLOOM_METRIC_HISTOGRAM] = "histogram",
		[HLOOM_METRIC_COUNTER] = "counter",
		[HLOOM_METRIC_GAUGE] = "gauge"
	};

	appendStringInfo(text, "# TYPE %s %s\n", metric->name, kinds[metric->kind]);
	if (metric->seconds)
		appendStringInfo(text, "# UNIT %s seconds\n", metric->name);
	appendStringInfo(text, "# HELP %s %s\n", metric->name, metric->help);
}

/*
 * A bound is a float in the text, also when it is whole.
 */
static void
put_bound(StringInfo text, double bound)
{
	char	   *digits = float8out_internal(bound);

	if (isinf(bound))
		digits = "+Inf";
	appendStringInfo(text, ",le=\"%s%s\"", digits, strpbrk(digits, ".eI") ? "" : ".0");
}

static void
put_line(const HloomSample *sample, void *arg)
{
	Exposition *exposition = (Exposition *) arg;
	StringInfo text = &exposition->text;

	if (exposition->metric != sample->metric)
		put_head(text, sample->metric);
	exposition->metric = sample->metric;
	appendStringInfo(text, "%s%s{datname=\"%s\"", sample->metric->name,
					 sample->metric->kind == HLOOM_METRIC_COUNTER ? "_total" : sample->suffix,
					 exposition->database);
	if (sample->ns)
		appendStringInfo(text, ",hostloom_lock_namespace=\"%s\"", sample->ns);
	if (sample->outcome)
		appendStringInfo(text, ",hostloom_lock_outcome=\"%s\"", sample->outcome);
	if (sample->has_le)
		put_bound(text, sample->le);
	appendStringInfo(text, "} %s\n", float8out_internal(sample->value));
}

/*
 * SQL: hloom_openmetrics().  Raises 55000.
 */
Datum
hloom_sql_openmetrics(PG_FUNCTION_ARGS)
{
	Exposition	exposition = {.metric = NULL};

	hloom_shmem_require();
	initStringInfo(&exposition.text);
	exposition.database = escape_label(get_database_name(MyDatabaseId));
	hloom_metrics_visit(true, put_line, &exposition);
	appendStringInfoString(&exposition.text, "# EOF");
	PG_RETURN_TEXT_P(cstring_to_text_with_len(exposition.text.data, exposition.text.len));
}

/*
 * SQL: hloom_metrics_reset().  Raises 55000.
 */
Datum
hloom_sql_metrics_reset(PG_FUNCTION_ARGS)
{
	hloom_shmem_require();
	hloom_stats_reset();
	PG_RETURN_VOID();
}
