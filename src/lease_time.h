/*
 * lease_time.h
 *	  Durations: from SQL intervals to microseconds and back.
 */
#ifndef HLOOM_LEASE_TIME_H
#define HLOOM_LEASE_TIME_H

#include "datatype/timestamp.h"

extern const char *hloom_time_measure(const Interval *span, int64 *usec);
extern int64 hloom_time_from_interval(const Interval *span, const char *argument);
extern int64 hloom_time_from_bound(const Interval *span, const char *argument);
extern void hloom_time_notice_cap(int64 longest);
extern int64 hloom_time_capped_lease(int64 lease, int64 longest);
extern Interval *hloom_time_to_interval(int64 usec);
extern char *hloom_time_text(int64 usec);
extern TimestampTz hloom_time_add(TimestampTz at, int64 usec);

#endif							/* HLOOM_LEASE_TIME_H */
