/*
 * sql_metrics.c
 *	  SQL: hloom_metrics(), the counters of this database as rows for a monitoring system.
 *
 * Names are those of the metrics an exporter serves, a row is one series.  Every series of a
 * namespace is there from its first count on, at 0 where nothing happened, so that rates can be
 * computed from the start.
 */
#include "postgres.h"

#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "shmem.h"
#include "stats.h"

PG_FUNCTION_INFO_V1(hloom_sql_metrics);

/* Stands for the namespaces that have no counters of their own; no namespace has parentheses. */
#define OTHER "(other)"

/* Microseconds become seconds. */
#define USEC 1e-6

typedef struct HloomSeries
{
	const char *name;
	const char *outcome;		/* NULL: the metric has none */
	HloomStat	stat;
	double		unit;
} HloomSeries;

#define DURATION "hostloom_lock_acquire_duration_seconds"
#define ORPHANS "hostloom_lock_orphan_releases"

static const HloomSeries series[] = {
	{DURATION "_count", "acquired", HLOOM_STAT_ACQUIRED, 1},
	{DURATION "_count", "not_acquired", HLOOM_STAT_NOT_ACQUIRED, 1},
	{DURATION "_count", "unavailable", HLOOM_STAT_UNAVAILABLE, 1},
	{DURATION "_sum", "acquired", HLOOM_STAT_ACQUIRED_TIME, USEC},
	{DURATION "_sum", "not_acquired", HLOOM_STAT_NOT_ACQUIRED_TIME, USEC},
	{DURATION "_sum", "unavailable", HLOOM_STAT_UNAVAILABLE_TIME, USEC},
	{"hostloom_lock_lost", NULL, HLOOM_STAT_LOST, 1},
	{ORPHANS, "released", HLOOM_STAT_ORPHAN_RELEASED, 1},
	{ORPHANS, "absent", HLOOM_STAT_ORPHAN_ABSENT, 1},
	{ORPHANS, "failed", HLOOM_STAT_ORPHAN_FAILED, 1},
	{"hostloom_lock_waits", NULL, HLOOM_STAT_WAITS, 1},
	{"hostloom_lock_wakeups", NULL, HLOOM_STAT_WAKEUPS, 1},
	{"hostloom_lock_missed_turns", NULL, HLOOM_STAT_MISSED_TURNS, 1},
	{"hostloom_lock_deadlocks", NULL, HLOOM_STAT_DEADLOCKS, 1}
};

StaticAssertDecl(lengthof(series) == HLOOM_STATS, "each counter is one series");

static void
put_row(ReturnSetInfo *result, const char *ns, const char *name, const char *outcome, double value)
{
	Datum		values[4] = {0};
	bool		nulls[4] = {0};

	nulls[0] = ns == NULL;
	if (ns)
		values[0] = CStringGetTextDatum(ns);
	values[1] = CStringGetTextDatum(name);
	nulls[2] = outcome == NULL;
	if (outcome)
		values[2] = CStringGetTextDatum(outcome);
	values[3] = Float8GetDatum(value);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * SQL: hloom_metrics().  Raises 55000.
 */
Datum
hloom_sql_metrics(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	HloomStatsCopy copy;
	int			at = 0;

	hloom_shmem_require();
	InitMaterializedSRF(fcinfo, 0);

	/* Since when, as exporters tell it of a process. */
	put_row(result, NULL, "hostloom_lock_start_time_seconds", NULL,
			(hloom_stats_since() - SetEpochTimestamp()) * USEC);
	while (hloom_stats_next(&at, &copy))
		for (int i = 0; i < lengthof(series); i++)
			put_row(result, copy.ns[0] ? copy.ns : OTHER, series[i].name, series[i].outcome,
					copy.counts[series[i].stat] * series[i].unit);
	return (Datum) 0;
}
