/*
 * metrics.h
 *	  The instruments of this database as series of numbers, for whoever writes them down.
 */
#ifndef HLOOM_METRICS_H
#define HLOOM_METRICS_H

typedef enum HloomMetricKind
{
	HLOOM_METRIC_HISTOGRAM,
	HLOOM_METRIC_COUNTER,
	HLOOM_METRIC_GAUGE
} HloomMetricKind;

typedef struct HloomMetric
{
	const char *name;
	HloomMetricKind kind;
	bool		seconds;		/* its unit; else it counts */
	const char *help;
} HloomMetric;

/* One number.  All of a metric come one after the other. */
typedef struct HloomSample
{
	const HloomMetric *metric;
	const char *suffix;			/* of a histogram: _bucket, _sum, _count; else empty */
	const char *ns;				/* NULL: not of a namespace */
	const char *outcome;		/* NULL: the metric has none */
	bool		has_le;
	double		le;				/* upper bound of a bucket, infinite for the last */
	double		value;
} HloomSample;

typedef void (*HloomMetricsVisit) (const HloomSample *sample, void *arg);

extern void hloom_metrics_visit(bool active, HloomMetricsVisit visit, void *arg);

#endif							/* HLOOM_METRICS_H */
