/*
 * renewal.c
 *	  Unit test of when a lease is renewed, tried again and warned of.
 */
#include "postgres.h"

#include <stdio.h>

#include "renewal.h"

/* PostgreSQL's own printf would need its library. */
#undef printf
#undef snprintf

#define MS INT64CONST(1000)
#define SECOND (1000 * MS)

static int	failed = 0;

static void
check(int64 got, int64 expected, const char *what)
{
	if (got == expected)
		printf("ok - %s\n", what);
	else
		printf("not ok - %s: %lld, expected %lld\n", what, (long long) got, (long long) expected);
	failed += got != expected;
}

/*
 * A lease of a second that cannot be renewed, seen "late" after each of its times.
 */
static void
check_sequence(int64 late, const int64 *expected, int count, const char *what)
{
	TimestampTz due = hloom_renewal_first(0, SECOND);

	for (int i = 0; i < count; i++)
	{
		char		text[80];

		snprintf(text, sizeof(text), "%s, time %d", what, i);
		check(due, expected[i], text);
		due = hloom_renewal_retry(due, due + late, SECOND, SECOND);
	}
	check(due, DT_NOEND, what);
}

int
main(void)
{
	const int64 exact[] = {500 * MS, 750 * MS, 875 * MS, 937500, 987500, SECOND};
	const int64 slow[] = {500 * MS, 750 * MS, SECOND};

	check_sequence(0, exact, lengthof(exact), "each retry half-way to the end");
	check_sequence(10 * MS, exact, lengthof(exact), "being a little late does not add up");
	check_sequence(200 * MS, slow, lengthof(slow), "who is too late counts from now");

	check(hloom_renewal_first(7 * SECOND, 9 * SECOND), 8 * SECOND, "at half of a lease");
	check(hloom_renewal_first(9 * SECOND, 7 * SECOND), 9 * SECOND, "at once when it is over");
	check(hloom_renewal_retry(5, 5, 5, SECOND), DT_NOEND, "never again at the end");
	check(hloom_renewal_retry(8 * SECOND, 8 * SECOND, 9 * SECOND, 30 * SECOND), 9 * SECOND,
		  "not past the end, though a twentieth is longer");
	check(hloom_renewal_retry(0, 0, 100 * SECOND, 10 * SECOND), 50 * SECOND,
		  "half-way after a manual extension that is longer than the lease");
	check(hloom_renewal_end(4 * SECOND, 2 * SECOND, 5 * SECOND), 5 * SECOND, "not past max_hold");
	check(hloom_renewal_end(3 * SECOND, 2 * SECOND, 9 * SECOND), 5 * SECOND, "a lease from now");
	check(hloom_renewal_warning(SECOND, 11 * SECOND), 9 * SECOND, "four fifths");
	check(hloom_renewal_warning(SECOND, 0), SECOND, "at once when it is over");
	check(hloom_renewal_slack(30 * SECOND), 600 * MS, "slack of half a minute");
	return failed > 0;
}
