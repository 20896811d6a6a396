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
#include "guc.h"
#include "lease_time.h"

/*
 * Returns an interval's length in microseconds, > 0.  Raises 22023, naming the argument, for
 * months, infinity, overflow and what is not positive.
 */
int64
hloom_time_from_interval(const Interval *span, const char *argument)
{
	int64		days;
	int64		usec;

	if (hloom_interval_is_infinite(span))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be finite", argument)));
	if (span->month != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not contain months or years", argument),
				 errdetail("A month has no fixed length."),
				 errhint("Use days, hours, minutes and seconds.")));
	if (pg_mul_s64_overflow((int64) span->day, USECS_PER_DAY, &days) ||
		pg_add_s64_overflow(days, span->time, &usec))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s is out of range", argument)));
	if (usec <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must be positive", argument)));
	return usec;
}

/*
 * Whether an interval is longer than nothing, months and infinity included.
 */
bool
hloom_time_is_positive(const Interval *span)
{
	return span->month > 0 || span->day > 0 || span->time > 0;
}

/*
 * Tells that a lease is cut to hloom_lock.max_lease.
 */
void
hloom_time_notice_cap(void)
{
	ereport(NOTICE,
			(errcode(ERRCODE_SUCCESSFUL_COMPLETION),
			 errmsg("lease is cut to hloom_lock.max_lease, %d ms", hloom_max_lease)));
}

/*
 * Returns the lease cut to hloom_lock.max_lease, with a NOTICE when it was longer.
 */
int64
hloom_time_capped_lease(int64 lease)
{
	int64		longest = (int64) hloom_max_lease * 1000;

	if (lease <= longest)
		return lease;
	hloom_time_notice_cap();
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
