/*
 * renewal.c
 *	  When a lease is renewed, tried again and warned of.  Arithmetic only.
 *
 * The rules are those of the HostLoom lock kernel: a heartbeat at half of what is left; after a
 * failure again half-way to the end, and half-way again, but no sooner than a twentieth of the
 * lease later, and at its end at the latest.  A lease of a second that cannot be renewed is tried
 * at 0.5, 0.75, 0.875, 0.9375, 0.9875 and 1 s.  Durations are microseconds, a lease at
 * most hloom_lock.max_lease, so nothing overflows.
 */
#include "postgres.h"

#include "renewal.h"

/* So small a part of a lease its first renewal may come late, to be done together with others. */
#define SLACK_PART 50

#define LEAST_RETRY_PART 20

/*
 * Returns when a lease that was granted or renewed at "start" is renewed.
 */
TimestampTz
hloom_renewal_first(TimestampTz start, TimestampTz end)
{
	return start + Max(end - start, 0) / 2;
}

/*
 * Returns when a renewal that was due at "due" and has failed now is tried again, or DT_NOEND when
 * the lease is at its end.  Counts from when it was due, so that being a little late does not add
 * up, unless that is over, too.
 */
TimestampTz
hloom_renewal_retry(TimestampTz due, TimestampTz now, TimestampTz end, int64 lease)
{
	TimestampTz bases[] = {due, now};

	if (now >= end)
		return DT_NOEND;
	for (int i = 0; i < lengthof(bases); i++)
	{
		int64		remaining = end - bases[i];
		int64		delay = Max(remaining / 2, lease / LEAST_RETRY_PART);

		if (bases[i] + Min(delay, remaining) > now)
			return bases[i] + Min(delay, remaining);
	}
	return end;
}

/*
 * Returns until when a lease renewed now is held: never past hold_until.
 */
TimestampTz
hloom_renewal_end(TimestampTz now, int64 lease, TimestampTz hold_until)
{
	return Min(now + lease, hold_until);
}

/*
 * Returns when four fifths of a lease that was granted or renewed at "start" are over.
 */
TimestampTz
hloom_renewal_warning(TimestampTz start, TimestampTz end)
{
	int64		remaining = Max(end - start, 0);

	return start + remaining - remaining / 5;
}

/*
 * Returns how much later than due a first renewal may come.
 */
int64
hloom_renewal_slack(int64 lease)
{
	return lease / SLACK_PART;
}
