/*
 * lease_time.h
 *	  Durations: from SQL intervals to microseconds and back.
 */
#ifndef HLOOM_LEASE_TIME_H
#define HLOOM_LEASE_TIME_H

#include "datatype/timestamp.h"

extern int64 hloom_time_from_interval(const Interval *span, const char *argument);
extern bool hloom_time_is_positive(const Interval *span);
extern void hloom_time_notice_cap(void);
extern int64 hloom_time_capped_lease(int64 lease);
extern Interval *hloom_time_to_interval(int64 usec);
extern TimestampTz hloom_time_add(TimestampTz at, int64 usec);

#endif							/* HLOOM_LEASE_TIME_H */
