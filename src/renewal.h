/*
 * renewal.h
 *	  When a lease is renewed, tried again and warned of.  Arithmetic only.
 */
#ifndef HLOOM_RENEWAL_H
#define HLOOM_RENEWAL_H

#include "datatype/timestamp.h"

extern TimestampTz hloom_renewal_first(TimestampTz start, TimestampTz end);
extern TimestampTz hloom_renewal_retry(TimestampTz due, TimestampTz now, TimestampTz end,
									   int64 lease);
extern TimestampTz hloom_renewal_end(TimestampTz now, int64 lease, TimestampTz hold_until);
extern TimestampTz hloom_renewal_warning(TimestampTz start, TimestampTz end);
extern int64 hloom_renewal_slack(int64 lease);

#endif							/* HLOOM_RENEWAL_H */
