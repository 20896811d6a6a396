/*
 * metrics.c
 *	  The instruments of this database as series of numbers, for whoever writes them down.
 *
 * Counters and histograms are those of stats.c.  Every series of a namespace is there from its
 * first count on, at 0 where nothing happened, so that rates can be computed from the start.  How
 * many leases are held is asked of the providers themselves: no counter could tell it after a
 * restart.  When one does not answer soon that number is left out, for then it matters that the
 * rest is seen.
 *
 * Knows the provider contract and no store.
 */
#include "postgres.h"

#include <math.h>

#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "calls_store.h"
#include "compat.h"
#include "contain.h"
#include "metrics.h"
#include "options.h"
#include "provider.h"
#include "stats.h"

/* Stands for the namespaces that have no counters of their own; no namespace has parentheses. */
#define OTHER "(other)"

/* Microseconds become seconds. */
#define USEC 1e6

/* A provider has so long to tell of its leases, in microseconds. */
#define LIST_TIME (3 * USECS_PER_SEC)

enum
{
	START, ACQUIRE, HOLD, LOST, ORPHANS, WAITS, WAKEUPS, MISSED, DEADLOCKS, ACTIVE, ENABLED
};

static const HloomMetric metrics[] = {
	[START] = {"hostloom_lock_start_time_seconds", HLOOM_METRIC_GAUGE, true,
	"Since when the counters count, as Unix time."},
	[ACQUIRE] = {"hostloom_lock_acquire_duration_seconds", HLOOM_METRIC_HISTOGRAM, true,
	"How long acquisitions took, by how they ended."},
	[HOLD] = {"hostloom_lock_hold_duration_seconds", HLOOM_METRIC_HISTOGRAM, true,
	"How long leases were held that were given back."},
	[LOST] = {"hostloom_lock_lost", HLOOM_METRIC_COUNTER, false,
	"Leases that ended without being given back."},
	[ORPHANS] = {"hostloom_lock_orphan_releases", HLOOM_METRIC_COUNTER, false,
	"Grants nobody heard of that were given back, by how that ended."},
	[WAITS] = {"hostloom_lock_waits", HLOOM_METRIC_COUNTER, false,
	"Acquisitions that had to wait."},
	[WAKEUPS] = {"hostloom_lock_wakeups", HLOOM_METRIC_COUNTER, false,
	"Waiters woken by others."},
	[MISSED] = {"hostloom_lock_missed_turns", HLOOM_METRIC_COUNTER, false,
	"Waiters passed over because they did not move in time."},
	[DEADLOCKS] = {"hostloom_lock_deadlocks", HLOOM_METRIC_COUNTER, false,
	"Waits ended because of a deadlock."},
	[ACTIVE] = {"hostloom_lock_active", HLOOM_METRIC_GAUGE, false,
	"Leases held now."},
	[ENABLED] = {"hostloom_lock_enabled", HLOOM_METRIC_GAUGE, false,
	"1 where leases are taken, 0 where locking is off."}
};

/* A part of a metric that stats.c keeps: a timing of a histogram, else a counter. */
typedef struct Part
{
	int			metric;
	const char *outcome;
	int			source;
} Part;

static const Part parts[] = {
	{ACQUIRE, "acquired", HLOOM_TIMING_ACQUIRED},
	{ACQUIRE, "not_acquired", HLOOM_TIMING_NOT_ACQUIRED},
	{ACQUIRE, "unavailable", HLOOM_TIMING_UNAVAILABLE},
	{HOLD, NULL, HLOOM_TIMING_HELD},
	{LOST, NULL, HLOOM_STAT_LOST},
	{ORPHANS, "released", HLOOM_STAT_ORPHAN_RELEASED},
	{ORPHANS, "absent", HLOOM_STAT_ORPHAN_ABSENT},
	{ORPHANS, "failed", HLOOM_STAT_ORPHAN_FAILED},
	{WAITS, NULL, HLOOM_STAT_WAITS},
	{WAKEUPS, NULL, HLOOM_STAT_WAKEUPS},
	{MISSED, NULL, HLOOM_STAT_MISSED_TURNS},
	{DEADLOCKS, NULL, HLOOM_STAT_DEADLOCKS}
};

StaticAssertDecl(lengthof(parts) == HLOOM_STATS + HLOOM_TIMINGS, "each is a part of one metric");

/* What is known of a namespace. */
typedef struct Entry
{
	char		ns[HLOOM_MAX_NAMESPACE + 1];	/* must be first; empty: the overflow */
	HloomStatsCopy *copy;		/* NULL: nothing was counted */
	int64		active;
} Entry;

typedef struct Writing
{
	HloomMetricsVisit visit;
	void	   *arg;
	HTAB	   *entries;
	const HloomProvider *provider;	/* asked now */
	bool		complete;		/* each provider has told of its leases */
} Writing;

static Entry *
entry_of(Writing *writing, const char *ns, int ns_len)
{
	char		padded[HLOOM_MAX_NAMESPACE + 1] = {0};
	Entry	   *entry;
	bool		found;

	memcpy(padded, ns, Min(ns_len, HLOOM_MAX_NAMESPACE));
	entry = (Entry *) hash_search(writing->entries, padded, HASH_ENTER, &found);
	if (!found)
	{
		entry->copy = NULL;
		entry->active = 0;
	}
	return entry;
}

static void
count_active(const HloomLease *lease, void *arg)
{
	entry_of((Writing *) arg, lease->name.ns, lease->name.ns_len)->active++;
}

static void
add_configured(const char *ns, void *arg)
{
	(void) entry_of((Writing *) arg, ns, strlen(ns));
}

static void
list_active(void *arg)
{
	Writing    *writing = (Writing *) arg;

	hloom_calls_list(writing->provider, count_active, writing);
}

static void
ask_providers(Writing *writing)
{
	ErrorData  *error;
	bool		expired;

	writing->complete = true;
	for (const HloomProvider *at = hloom_provider_next(NULL); at; at = hloom_provider_next(at))
	{
		if (at->list == NULL)
			continue;
		writing->provider = at;
		error = hloom_contain_until(list_active, writing, GetCurrentTimestamp() + LIST_TIME,
									&expired);
		if (error != NULL && error->sqlerrcode == ERRCODE_QUERY_CANCELED && !expired)
			ReThrowError(error);
		writing->complete &= error == NULL;
	}
}

static void
collect(Writing *writing, bool active)
{
	HASHCTL		ctl = {
		.keysize = HLOOM_MAX_NAMESPACE + 1,
		.entrysize = sizeof(Entry),
		.hcxt = CurrentMemoryContext
	};
	HloomStatsCopy copy;
	int			at = 0;

	writing->entries = hash_create("hloom_lock metrics", 64, &ctl,
								   HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	hloom_options_visit(add_configured, writing);
	if (active)
		ask_providers(writing);
	while (hloom_stats_next(&at, &copy))
	{
		Entry	   *entry = entry_of(writing, copy.ns, strlen(copy.ns));

		entry->copy = palloc(sizeof(HloomStatsCopy));
		*entry->copy = copy;
	}
}

static void
put_timing(const Writing *writing, HloomSample *sample, const HloomTimingCopy *timing, int which)
{
	int			count;
	const int64 *bounds = hloom_stats_bounds((HloomTiming) which, &count);
	uint64		sum = 0;

	sample->suffix = "_bucket";
	sample->has_le = true;
	for (int i = 0; i <= count; i++)
	{
		sum += timing->buckets[i];
		sample->le = i < count ? bounds[i] / USEC : INFINITY;
		sample->value = sum;
		writing->visit(sample, writing->arg);
	}
	sample->has_le = false;
	sample->suffix = "_count";
	writing->visit(sample, writing->arg);
	sample->suffix = "_sum";
	sample->value = timing->sum / USEC;
	writing->visit(sample, writing->arg);
}

/*
 * Writes the samples of a metric for one namespace.
 */
static void
put_entry(const Writing *writing, int metric, const Entry *entry)
{
	HloomSample sample = {.metric = &metrics[metric],.suffix = ""};

	sample.ns = entry->ns[0] ? entry->ns : OTHER;
	if (metric == ACTIVE && writing->complete && entry->ns[0])
	{
		sample.value = entry->active;
		writing->visit(&sample, writing->arg);
	}
	if (metric == ENABLED && entry->ns[0])
	{
		sample.value = hloom_options_enabled(entry->ns, strlen(entry->ns));
		writing->visit(&sample, writing->arg);
	}
	for (int i = 0; i < lengthof(parts) && entry->copy != NULL; i++)
	{
		if (parts[i].metric != metric)
			continue;
		sample.outcome = parts[i].outcome;
		if (metrics[metric].kind == HLOOM_METRIC_HISTOGRAM)
			put_timing(writing, &sample, &entry->copy->timings[parts[i].source],
					   parts[i].source);
		else
		{
			sample.value = entry->copy->counts[parts[i].source];
			writing->visit(&sample, writing->arg);
		}
	}
}

/*
 * Visits each number of this database, those of the leases held now only if asked to, for they take
 * as long as there are leases.  The library is preloaded.  Raises 55000 without the extension, and
 * 57014.
 */
void
hloom_metrics_visit(bool active, HloomMetricsVisit visit, void *arg)
{
	Writing		writing = {.visit = visit,.arg = arg};
	HloomSample start = {.metric = &metrics[START],.suffix = ""};

	collect(&writing, active);
	start.value = (hloom_stats_since() - SetEpochTimestamp()) / USEC;
	visit(&start, arg);
	for (int metric = START + 1; metric < lengthof(metrics); metric++)
	{
		HASH_SEQ_STATUS status;
		Entry	   *entry;

		hash_seq_init(&status, writing.entries);
		while ((entry = (Entry *) hash_seq_search(&status)) != NULL)
			put_entry(&writing, metric, entry);
	}
	hash_destroy(writing.entries);
}
