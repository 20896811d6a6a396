/*
 * lease_time.c
 *	  Durations: from SQL intervals to microseconds and back.
 *
 * A duration is a positive number of microseconds.  A day is 24 hours, whatever the time zone
 * does; months have no length and are refused.  Knows no lease and reads no clock.
 */
#include "postgres.h"

#include "common/int.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "lease_time.h"

/*
 * Measures an interval of any sign.  Returns NULL with its length in microseconds, or what is wrong
 * with it, to be read after its name: months, infinity and what overflows have no length.
 */
const char *
hloom_time_measure(const Interval *span, int64 *usec)
{
	int64		days;

	if (hloom_interval_is_infinite(span))
		return "must be finite";
	if (span->month != 0)
		return "must not contain months or years";
	if (pg_mul_s64_overflow((int64) span->day, USECS_PER_DAY, &days) ||
		pg_add_s64_overflow(days, span->time, usec))
		return "is out of range";
	return NULL;
}

static void
refuse(const Interval *span, const char *argument, const char *fault)
{
	bool		months = span->month != 0 && !hloom_interval_is_infinite(span);

	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s %s", argument, fault),
			 months ? errdetail("A month has no fixed length.") : 0,
			 months ? errhint("Use days, hours, minutes and seconds.") : 0));
}

/*
 * Returns an interval's length in microseconds, > 0.  Raises 22023, naming the argument, for
 * months, infinity, overflow and what is not positive.
 */
int64
hloom_time_from_interval(const Interval *span, const char *argument)
{
	int64		usec = 0;
	const char *fault = hloom_time_measure(span, &usec);

	if (fault == NULL && usec <= 0)
		fault = "must be positive";
	if (fault != NULL)
		refuse(span, argument, fault);
	return usec;
}

/*
 * Returns a bound on waiting in microseconds, 0 for what is not positive.  Raises 22023 as above,
 * but not for an interval that is negative in every part.
 */
int64
hloom_time_from_bound(const Interval *span, const char *argument)
{
	int64		usec = 0;
	const char *fault;

	if (span->month <= 0 && span->day <= 0 && span->time <= 0)
		return 0;
	fault = hloom_time_measure(span, &usec);
	if (fault != NULL)
		refuse(span, argument, fault);
	return Max(usec, 0);
}

/*
 * Tells that a lease is cut to the longest one allowed, in microseconds.
 */
void
hloom_time_notice_cap(int64 longest)
{
	ereport(NOTICE,
			(errcode(ERRCODE_SUCCESSFUL_COMPLETION),
			 errmsg("lease is cut to max_lease, " INT64_FORMAT " ms", longest / 1000)));
}

/*
 * Returns the lease cut to the longest one allowed, with a NOTICE when it was longer.
 */
int64
hloom_time_capped_lease(int64 lease, int64 longest)
{
	if (lease <= longest)
		return lease;
	hloom_time_notice_cap(longest);
	return longest;
}

/*
 * Returns microseconds as an interval, palloc'd: hours, minutes and seconds, never days, so that
 * it compares and prints the same in every time zone.
 */
Interval *
hloom_time_to_interval(int64 usec)
{
	Interval   *span = (Interval *) palloc0(sizeof(Interval));

	span->time = usec;
	return span;
}

/*
 * Returns microseconds (>= 0) as text, palloc'd: hh:mm:ss with as many decimals as there are,
 * whatever IntervalStyle says.
 */
char *
hloom_time_text(int64 usec)
{
	int64		seconds = usec / USECS_PER_SEC;
	char	   *shown = psprintf("%02lld:%02d:%02d.%06d", (long long) (seconds / SECS_PER_HOUR),
								 (int) (seconds % SECS_PER_HOUR / SECS_PER_MINUTE),
								 (int) (seconds % SECS_PER_MINUTE), (int) (usec % USECS_PER_SEC));
	char	   *end = shown + strlen(shown);

	while (end[-1] == '0')
		end--;
	if (end[-1] == '.')
		end--;
	*end = '\0';
	return shown;
}

/*
 * Returns the instant usec (>= 0) after at, at most the last finite one.
 */
TimestampTz
hloom_time_add(TimestampTz at, int64 usec)
{
	TimestampTz sum;

	if (pg_add_s64_overflow(at, usec, &sum) || sum >= END_TIMESTAMP)
		return END_TIMESTAMP - 1;
	return sum;
}
