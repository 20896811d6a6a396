/*
 * retry.c
 *	  Unit test of retry policies and of the attempt loop, under a clock of its own.
 */
#include "postgres.h"

#include <float.h>
#include <stdio.h>

#include "attempts.h"
#include "common/int.h"

/* PostgreSQL's own printf would need its library. */
#undef printf

#define MS INT64CONST(1000)
#define START 77777				/* of the clock */
#define MOST PG_INT64_MAX

static int	failed = 0;

/* Of any kind; what a kind does not use is 0. */
#define IMMEDIATE(n) {.kind = HLOOM_RETRY_IMMEDIATE, .retries = (n)}
#define INTERVAL(n, d) {.kind = HLOOM_RETRY_INTERVAL, .retries = (n), .delay = (d)}
#define LINEAR(n, d) {.kind = HLOOM_RETRY_LINEAR, .retries = (n), .delay = (d)}
#define EXPONENTIAL(n, d, m, f) \
	{.kind = HLOOM_RETRY_EXPONENTIAL, .retries = (n), .delay = (d), .max_delay = (m), .factor = (f)}

static const HloomRetry standard = {
	.kind = HLOOM_RETRY_LINEAR, .retries = 10, .delay = 50 * MS, .jitter = 50 * MS
};

static void
check(bool good, const char *what)
{
	printf("%s - %s\n", good ? "ok" : "not ok", what);
	failed += !good;
}

static void
check_number(int64 got, int64 expected, const char *what)
{
	check(got == expected, what);
	if (got != expected)
		printf("# got %lld, expected %lld\n", (long long) got, (long long) expected);
}

static void
check_words(const HloomRetry *policy, const char *expected, const char *what)
{
	char	   *got = hloom_retry_describe(policy);

	check(strcmp(got, expected) == 0, what);
	if (strcmp(got, expected) != 0)
		printf("# got \"%s\", expected \"%s\"\n", got, expected);
}

static uint64 draw_state = UINT64CONST(88172645463325252);

static uint64
draw(void)
{
	draw_state ^= draw_state << 13;
	draw_state ^= draw_state >> 7;
	draw_state ^= draw_state << 17;
	return draw_state;
}

/* In [0, 1), and now and then the last number before 1. */
static double
draw_share(void)
{
	return draw() % 16 == 0 ? 1.0 - DBL_EPSILON / 2 : (double) (draw() >> 11) / 9007199254740992.0;
}

/* The sum by definition; the retries must be few. */
static int64
sum_of(const HloomRetry *policy)
{
	int64		sum = 0;

	for (int n = 1; n <= policy->retries; n++)
	{
		if (pg_add_s64_overflow(sum, hloom_retry_delay(policy, n), &sum) ||
			pg_add_s64_overflow(sum, policy->jitter, &sum))
			return MOST;
	}
	return sum;
}

/*
 * An acquisition under a clock that only this test moves.  The key stays busy unless an attempt is
 * told to answer otherwise.
 */
typedef struct Run
{
	int64		trip;			/* how long each attempt takes */
	int64		oversleep;		/* each sleep takes up to this longer */
	int64		wake_every;		/* 0: nobody wakes; else a sleep is interrupted so often */
	int64		enough_at;		/* 0: never; else patience ends in a sleep, then */
	int64		answer_at;		/* this attempt, counted from 1, answers ... */
	HloomReply	answer;			/* ... this */
	int64		lease;			/* 0: so long that no grant is late */
	HloomReply	reply;			/* how it ended */
	bool		late;
	bool		had_enough;
	int64		attempts;
	int64		extra;
	int64		waited;
	int64		sleeps;
	int64		at[200];		/* when each attempt began */
} Run;

static Run *current;
static int64 clock_now;

static int64
test_now(void)
{
	return clock_now;
}

static HloomSlept
test_sleep(HloomAttempts *attempts, int64 usec)
{
	bool		woken = current->wake_every > 0 && usec >= current->wake_every;

	current->sleeps++;
	if (woken)
		usec = current->wake_every;
	else if (current->oversleep > 0)
		usec += (int64) (draw() % current->oversleep);
	if (current->enough_at > 0 && clock_now - START + usec >= current->enough_at)
	{
		clock_now = Max(clock_now, START + current->enough_at);
		return HLOOM_SLEPT_ENOUGH;
	}
	clock_now += usec;
	return woken ? HLOOM_WOKEN : HLOOM_SLEPT;
}

static HloomReply
test_attempt(HloomAttempts *attempts)
{
	Run		   *r = (Run *) attempts->state;

	if (attempts->made <= lengthof(r->at))
		r->at[attempts->made - 1] = attempts->waited;
	clock_now += r->trip;
	return attempts->made == r->answer_at ? r->answer : HLOOM_NO;
}

static void
run(Run *r, const HloomRetry *policy, int64 max_wait)
{
	static const HloomClock clock = {.now = test_now, .sleep = test_sleep, .share = draw_share};
	HloomAttempts attempts = {
		.clock = &clock,
		.retry = policy,
		.lease = r->lease > 0 ? r->lease : MOST,
		.max_wait = max_wait,
		.attempt = test_attempt,
		.state = r
	};

	current = r;
	clock_now = START;
	r->sleeps = 0;
	r->reply = hloom_attempts_run(&attempts);
	r->late = attempts.late;
	r->had_enough = attempts.had_enough;
	r->attempts = attempts.made;
	r->extra = attempts.extra;
	r->waited = attempts.waited;
}

static void
test_delays(void)
{
	const HloomRetry immediate = IMMEDIATE(3);
	const HloomRetry interval = INTERVAL(3, 7 * MS);
	const HloomRetry exponential = EXPONENTIAL(3, 10 * MS, 30 * MS, 2);
	const HloomRetry thirds = EXPONENTIAL(9, 10, 1000, 1.5);
	const HloomRetry still = EXPONENTIAL(1000000, 10 * MS, 30 * MS, 1);
	const HloomRetry nothing = EXPONENTIAL(1000000, 0, 30 * MS, DBL_MAX);
	bool		good = true;

	for (int n = 1; n <= 10; n++)
		good &= hloom_retry_delay(&standard, n) == n * 50 * MS;
	check(good, "item 1: the default's delays are 50, 100 .. 500 ms");
	check_number(hloom_retry_max_total(&standard), 3250 * MS, "item 1: they total 3.25 s");
	check_words(&standard, "linear step 50 ms, 10 retries, jitter 50 ms",
				"item 1: described as linear");

	good = true;
	for (int n = 1; n <= 10; n++)
		good &= hloom_retry_delay(&immediate, n) == 0 &&
			hloom_retry_delay(&interval, n) == 7 * MS;
	check(good, "item 3: immediate is 0, interval is constant");
	check_number(hloom_retry_max_total(&immediate), 0, "item 3: immediate totals 0");
	check_number(hloom_retry_max_total(&interval), 21 * MS, "item 3: interval's total");
	check_number(hloom_retry_delay(&exponential, 1), 10 * MS, "item 3: exponential, first");
	check_number(hloom_retry_delay(&exponential, 2), 20 * MS, "item 3: exponential, second");
	check_number(hloom_retry_delay(&exponential, 3), 30 * MS, "item 3: exponential, third");
	check_number(hloom_retry_max_total(&exponential), 60 * MS, "item 3: exponential's total");
	/* 15, 22.5, 33.75, 50.6, 75.9 */
	check_number(hloom_retry_delay(&thirds, 3), 22, "item 3: exponential delays are truncated");
	check_number(hloom_retry_delay(&thirds, 6), 75, "item 3: exponential delays do not add errors");
	check_number(hloom_retry_max_total(&still), 10000000 * MS, "item 3: factor 1 is constant");
	check_number(hloom_retry_delay(&nothing, 500), 0, "item 3: nothing times infinity is nothing");
	check_number(hloom_retry_max_total(&nothing), 0, "item 3: and totals nothing");
}

static void
test_extremes(void)
{
	const HloomRetry doubling = EXPONENTIAL(1000000, 1, MOST, 2);
	const HloomRetry huge = EXPONENTIAL(1000000, 1, 30 * MS, DBL_MAX);
	const HloomRetry slow = EXPONENTIAL(1000000, 1000, MOST, 1.0000001);
	const HloomRetry wide = EXPONENTIAL(1000000, MOST, MOST, 2);
	const HloomRetry linear = LINEAR(1000000, MOST / 1000);
	const HloomRetry interval = INTERVAL(1000000, MOST);
	const HloomRetry shaken = {.kind = HLOOM_RETRY_IMMEDIATE, .retries = 2, .jitter = MOST / 2};
	const HloomRetry shaken_more = {.kind = HLOOM_RETRY_INTERVAL, .retries = 1, .delay = 2,
	.jitter = MOST};
	int64		delay = -1;

	check_number(hloom_retry_delay(&doubling, 63), INT64CONST(1) << 62,
				 "item 5: exponential is exact as long as it fits");
	check_number(hloom_retry_delay(&doubling, 64), MOST, "item 5: and stays at max");
	check_number(hloom_retry_delay(&doubling, 2147483647), MOST, "item 5: at huge numbers");
	check_number(hloom_retry_delay(&doubling, MOST), MOST, "item 5: at the hugest");
	check_number(hloom_retry_delay(&huge, 2), 30 * MS, "item 5: with a huge factor");
	check_number(hloom_retry_delay(&huge, 3), 30 * MS, "item 5: with an infinite product");
	check_number(hloom_retry_max_total(&huge), 1 + 999999 * 30 * MS, "item 5: its total");
	check_number(hloom_retry_max_total(&doubling), MOST, "item 5: a total does not overflow");
	check_number(hloom_retry_delay(&wide, 1), MOST, "item 5: min may be the longest there is");
	check_number(hloom_retry_max_total(&slow), sum_of(&slow),
				 "item 5: a million different delays are all counted");
	check_number(hloom_retry_delay(&linear, 1000), MOST / 1000 * 1000, "linear, nearly too long");
	check_number(hloom_retry_delay(&linear, 1001), MOST, "linear does not overflow");
	check_number(hloom_retry_max_total(&linear), MOST, "linear's total does not overflow");
	check_number(hloom_retry_max_total(&interval), MOST, "interval's total does not overflow");
	check_number(hloom_retry_max_total(&shaken), MOST - 1, "jitter alone, nearly too long");
	check_number(hloom_retry_max_total(&shaken_more), MOST, "delay and jitter do not overflow");
	check(hloom_retry_next(&shaken_more, 1, 0, HLOOM_NO_BOUND, 1.0 - DBL_EPSILON / 2, &delay) &&
		  delay >= MOST - 1024, "a delay with its jitter does not overflow");
}

static void
test_totals(void)
{
	bool		good = true;

	for (int i = 0; i < 20000 && good; i++)
	{
		HloomRetry	policy = {.kind = i % 4, .retries = (int32) (draw() % 80)};

		if (policy.kind != HLOOM_RETRY_IMMEDIATE)
			policy.delay = (int64) (draw() >> (1 + draw() % 62));
		if (policy.kind == HLOOM_RETRY_EXPONENTIAL)
		{
			policy.max_delay = Max(policy.delay, (int64) (draw() >> (1 + draw() % 62)));
			policy.factor = 1 + draw_share() * (double) (draw() % 4);
		}
		policy.jitter = draw() % 2 ? 0 : (int64) (draw() >> (1 + draw() % 62));
		good = hloom_retry_max_total(&policy) == sum_of(&policy);
		for (int n = 1; n <= policy.retries && good; n++)
			good = policy.kind != HLOOM_RETRY_EXPONENTIAL ||
				(hloom_retry_delay(&policy, n) <= policy.max_delay &&
				 (n == 1 || hloom_retry_delay(&policy, n) >= hloom_retry_delay(&policy, n - 1)));
		if (!good)
			printf("# kind %d, retries %d, delay %lld, max %lld, factor %.17g, jitter %lld\n",
				   policy.kind, policy.retries, (long long) policy.delay,
				   (long long) policy.max_delay, policy.factor, (long long) policy.jitter);
	}
	check(good, "item 3: totals are sums, delays never shrink nor pass max");
}

static void
test_words(void)
{
	const HloomRetry immediate = IMMEDIATE(3);
	const HloomRetry interval = INTERVAL(0, 1499);
	const HloomRetry half = INTERVAL(1, 1500);
	const HloomRetry shaken = {.kind = HLOOM_RETRY_IMMEDIATE, .retries = 1, .jitter = 1};
	const HloomRetry exponential = EXPONENTIAL(3, 10 * MS, 30 * MS, 2);
	const HloomRetry fraction = EXPONENTIAL(1000000, 0, MOST, 1.1);
	const HloomRetry large = EXPONENTIAL(1, 0, 0, 1e308);

	check_words(&immediate, "immediate, 3 retries", "words of immediate");
	check_words(&interval, "interval 1 ms, 0 retries", "words of interval, rounded down");
	check_words(&half, "interval 2 ms, 1 retries", "words of interval, half rounded up");
	check_words(&shaken, "immediate, 1 retries, jitter 0 ms", "words of a little jitter");
	check_words(&exponential, "exponential 10 ms to 30 ms x 2, 3 retries",
				"words of exponential");
	check_words(&fraction, "exponential 0 ms to 9223372036854776 ms x 1.1, 1000000 retries",
				"words of a fraction and of the longest delay");
	check_words(&large, "exponential 0 ms to 0 ms x 1e+308, 1 retries", "words of a large factor");
}

static void
test_jitter(void)
{
	const HloomRetry linear = {
		.kind = HLOOM_RETRY_LINEAR, .retries = 9, .delay = 50 * MS, .jitter = 50 * MS
	};
	int64		least = MOST;
	int64		most = 0;
	bool		below = true;

	for (int i = 0; i < 100000; i++)
	{
		int64		delay = -1;

		if (!hloom_retry_next(&linear, 2, 0, HLOOM_NO_BOUND, draw_share(), &delay))
			delay = -1;
		least = Min(least, delay);
		most = Max(most, delay);
	}
	check(least >= 100 * MS && most < 150 * MS, "item 2: jitter stays within [100, 150) ms");
	check(least < 101 * MS && most > 149 * MS, "item 2: and uses all of it");
	for (int64 jitter = 1; jitter > 0 && jitter < MOST / 3; jitter = jitter * 3 / 2 + 1)
	{
		const HloomRetry policy = {
			.kind = HLOOM_RETRY_IMMEDIATE, .retries = 1, .jitter = jitter
		};
		int64		delay = -1;

		below &= hloom_retry_next(&policy, 1, 0, HLOOM_NO_BOUND, 1.0 - DBL_EPSILON / 2, &delay) &&
			delay >= 0 && delay < jitter;
	}
	check(below, "item 2: the share never is the whole jitter");
	check(hloom_retry_delay(&linear, 2) == 100 * MS, "item 6: the base delay knows no jitter");
}

static void
test_bounds(void)
{
	const HloomRetry interval = INTERVAL(100, 40 * MS);
	Run			r = {0};
	bool		good = true;

	run(&r, &interval, 100 * MS);
	check(r.attempts == 3 && r.at[0] == 0 && r.at[1] == 40 * MS && r.at[2] == 80 * MS,
		  "item 22: 100 ms with a 40 ms interval tries at 0, 40 and 80 ms");
	check_number(r.waited, 80 * MS, "item 22: and ends at 80 ms");
	run(&r, &interval, 80 * MS);
	check(r.attempts == 2 && r.waited == 40 * MS,
		  "item 22: an attempt exactly at the bound is none, nor is it waited for");
	run(&r, &interval, 80 * MS + 1);
	check_number(r.attempts, 3, "item 22: one just before it is one");
	r.trip = 15 * MS;
	run(&r, &interval, 100 * MS);
	check(r.attempts == 2 && r.waited == 70 * MS, "item 22: the attempts' own time counts");

	for (int i = 0; i < 2000; i++)
	{
		int64		bound = 1 + (int64) (draw() % (4000 * MS));

		r.trip = 0;
		r.oversleep = 0;
		run(&r, &standard, bound);
		good &= r.waited < bound;
		r.oversleep = 50 * MS;
		run(&r, &standard, bound);
		good &= r.waited < bound + 50 * MS;
	}
	check(good, "item 23: a wait stays below its bound, but for the clock's own slack");
}

static void
test_no_time(void)
{
	const HloomRetry interval = INTERVAL(100, 40 * MS);
	const HloomRetry immediate = IMMEDIATE(100);
	const HloomRetry none = IMMEDIATE(0);
	const HloomRetry linear = LINEAR(5, 50 * MS);
	const HloomRetry *const policies[] = {&interval, &immediate, &linear, &standard};
	Run			r = {0};
	int64		delay = -1;

	for (int i = 0; i < 4; i++)
	{
		run(&r, policies[i], 0);
		check(r.attempts == 1 && r.waited == 0, "item 24: no time to wait is one attempt");
		run(&r, policies[i], -1);
		check(r.attempts == 1 && r.waited == 0, "item 25: less than that is the same");
		run(&r, policies[i], PG_INT64_MIN + 1);
		check(r.attempts == 1 && r.waited == 0, "item 25: however much less");
		run(&r, policies[i], HLOOM_NO_BOUND);
		check_number(r.attempts, policies[i]->retries + 1,
					 "item 26: without a bound all retries are used");
	}
	check(!hloom_retry_next(&immediate, 1, 5, PG_INT64_MIN + 1, 0, &delay),
		  "item 25: the least bound does not overflow");
	run(&r, &none, HLOOM_NO_BOUND);
	check_number(r.attempts, 1, "item 26: no retries are one attempt");
	run(&r, &linear, HLOOM_NO_BOUND);
	check_number(r.waited, hloom_retry_max_total(&linear), "item 26: after the policy's total");
	run(&r, &standard, HLOOM_NO_BOUND);
	check(r.waited >= 2750 * MS && r.waited < 3250 * MS,
		  "item 26: the default takes from 2.75 s to 3.25 s");
}

static void
test_spent(void)
{
	const HloomRetry interval = INTERVAL(100, 40 * MS);
	const HloomRetry immediate = IMMEDIATE(100);
	Run			r = {0};
	bool		good = true;
	int64		delay = -1;

	check(!hloom_retry_next(&immediate, 1, 100 * MS, 100 * MS, 0, &delay) &&
		  !hloom_retry_next(&immediate, 1, 101 * MS, 100 * MS, 0, &delay) &&
		  !hloom_retry_next(&immediate, 1, MOST, 1, 0, &delay),
		  "item 37: a budget that is gone sends nothing, even without a delay");
	check(hloom_retry_next(&immediate, 1, 100 * MS - 1, 100 * MS, 0, &delay) && delay == 0,
		  "item 37: one that is not does");
	r.trip = 100 * MS;
	run(&r, &immediate, 100 * MS);
	check_number(r.attempts, 1, "item 37: an attempt that took all of it is the last");
	r.trip = 0;
	r.oversleep = 300 * MS;
	for (int i = 0; i < 1000; i++)
	{
		run(&r, &interval, 100 * MS);
		good &= r.attempts <= 3 && r.at[r.attempts - 1] < 100 * MS;
	}
	check(good, "item 37: none begins when a sleep took all of it");
}

/*
 * A failure is never tried again, and a grant counts from the moment it was asked for.
 */
static void
test_answers(void)
{
	static const HloomRetry interval = INTERVAL(5, 10 * MS);
	static const HloomReply failures[] = {HLOOM_UNAVAILABLE, HLOOM_TIMEOUT, HLOOM_FAILURE};
	Run			r = {.answer_at = 2};

	for (int i = 0; i < lengthof(failures); i++)
	{
		r.answer = failures[i];
		run(&r, &interval, HLOOM_NO_BOUND);
		check(r.reply == failures[i] && r.attempts == 2 && r.sleeps == 1 && r.waited == 10 * MS &&
			  !r.late, "item 40: a failure ends it at once");
	}
	r.answer = HLOOM_YES;
	run(&r, &interval, HLOOM_NO_BOUND);
	check(r.reply == HLOOM_YES && r.attempts == 2 && r.waited == 10 * MS,
		  "item 17: so does a grant");

	r.answer_at = 1;
	r.lease = 1000 * MS;
	r.trip = 400 * MS;
	run(&r, &interval, HLOOM_NO_BOUND);
	check(r.reply == HLOOM_YES && !r.late, "item 44: a lease of 1 s granted after 400 ms");
	r.trip = r.lease - 1;
	run(&r, &interval, HLOOM_NO_BOUND);
	check(r.reply == HLOOM_YES && !r.late, "item 46: and just before its end");
	r.trip = r.lease;
	run(&r, &interval, HLOOM_NO_BOUND);
	check(r.reply == HLOOM_TIMEOUT && r.late && r.attempts == 1 && r.waited == r.trip,
		  "item 46: exactly at its end it is none");
	r.trip = r.lease + 1;
	run(&r, &interval, 10 * MS);
	check(r.reply == HLOOM_TIMEOUT && r.late && r.attempts == 1,
		  "item 46: nor after it, whatever max_wait says");
	r.answer_at = 3;
	r.trip = 400 * MS;
	run(&r, &interval, HLOOM_NO_BOUND);
	check(r.reply == HLOOM_YES && !r.late && r.waited == 1220 * MS,
		  "item 44: earlier attempts are not its time");
}

/*
 * A wake-up gives an attempt that the policy does not count, and the wait goes on to its end.
 */
static void
test_wakeups(void)
{
	const HloomRetry once = INTERVAL(1, 100 * MS);
	const HloomRetry interval = INTERVAL(100, 40 * MS);
	Run			r = {.wake_every = 30 * MS};

	run(&r, &once, HLOOM_NO_BOUND);
	check(r.attempts == 5 && r.extra == 3 && r.at[1] == 30 * MS && r.at[2] == 60 * MS &&
		  r.at[3] == 90 * MS && r.at[4] == 100 * MS && r.waited == 100 * MS,
		  "woken at 30, 60, 90 ms: attempts then, and the retry at 100 ms");
	r.wake_every = 50 * MS;
	run(&r, &once, HLOOM_NO_BOUND);
	check(r.attempts == 3 && r.extra == 1 && r.waited == 100 * MS,
		  "woken at the end of the delay: that attempt is the retry");
	r.wake_every = 30 * MS;
	r.trip = 15 * MS;
	run(&r, &once, HLOOM_NO_BOUND);
	check(r.attempts == 4 && r.extra == 2 && r.at[3] == 115 * MS && r.waited == 130 * MS,
		  "an extra attempt takes its time from the delay");
	r.trip = 90 * MS;
	run(&r, &once, HLOOM_NO_BOUND);
	check(r.attempts == 3 && r.extra == 1 && r.at[1] == 120 * MS && r.at[2] == 210 * MS &&
		  r.waited == 300 * MS, "one that takes all of it is followed by the retry");

	r.trip = 0;
	r.wake_every = 15 * MS;
	run(&r, &interval, 100 * MS);
	check(r.attempts == 7 && r.extra == 4 && r.at[3] == 40 * MS && r.at[6] == 80 * MS &&
		  r.waited == 80 * MS, "item 22: wake-ups do not move the retries at 40 and 80 ms");
	r.wake_every = 30 * MS;
	r.trip = 50 * MS;
	run(&r, &interval, 100 * MS);
	check(r.attempts == 2 && r.extra == 1 && r.waited == 130 * MS,
		  "item 37: an extra attempt that took all of the bound is the last");
	run(&r, &interval, 0);
	check(r.attempts == 1 && r.sleeps == 0, "item 24: no time to wait, nothing to be woken from");
}

/*
 * What an extra attempt answers counts as that of any other.
 */
static void
test_answers_woken(void)
{
	static const HloomRetry interval = INTERVAL(5, 1000 * MS);
	static const HloomReply answers[] = {
		HLOOM_YES, HLOOM_UNAVAILABLE, HLOOM_TIMEOUT, HLOOM_FAILURE
	};
	Run			r = {.wake_every = 300 * MS};

	for (int i = 0; i < lengthof(answers); i++)
	{
		r.answer = answers[i];
		r.answer_at = 3;
		run(&r, &interval, HLOOM_NO_BOUND);
		check(r.reply == answers[i] && r.attempts == 3 && r.extra == 2 && r.waited == 600 * MS &&
			  r.sleeps == 2 && !r.late && !r.had_enough,
			  "a grant or a failure of an extra attempt ends it at once");
		r.answer_at = 5;
		run(&r, &interval, HLOOM_NO_BOUND);
		check(r.reply == answers[i] && r.attempts == 5 && r.extra == 3 && r.waited == 1000 * MS,
			  "so does that of the retry after three of them");
	}

	r.answer = HLOOM_YES;
	r.answer_at = 2;
	r.lease = r.trip = 500 * MS;
	run(&r, &interval, HLOOM_NO_BOUND);
	check(r.reply == HLOOM_TIMEOUT && r.late && r.attempts == 2 && r.extra == 1 &&
		  r.waited == 1300 * MS, "item 46: a late grant of an extra attempt is none");
	r.trip = r.lease - 1;
	run(&r, &interval, HLOOM_NO_BOUND);
	check(r.reply == HLOOM_YES && !r.late, "item 44: one in time is, whatever came before");
}

/*
 * The caller's patience ends in a sleep.
 */
static void
test_enough(void)
{
	const HloomRetry interval = INTERVAL(5, 100 * MS);
	const HloomRetry immediate = IMMEDIATE(100);
	Run			r = {.enough_at = 250 * MS};

	run(&r, &interval, HLOOM_NO_BOUND);
	check(r.reply == HLOOM_NO && r.had_enough && r.attempts == 3 && r.sleeps == 3 &&
		  r.waited == 250 * MS, "patience ends in the third delay: no further attempt");
	r.wake_every = 40 * MS;
	run(&r, &interval, HLOOM_NO_BOUND);
	check(r.reply == HLOOM_NO && r.had_enough && r.attempts - r.extra == 3 && r.extra == 5 &&
		  r.waited == 250 * MS, "the same with wake-ups");
	r.enough_at = 200 * MS;
	run(&r, &interval, HLOOM_NO_BOUND);
	check(r.had_enough && r.attempts - r.extra == 2 && r.waited == 200 * MS,
		  "at the end of a delay it goes before the retry");
	run(&r, &interval, 200 * MS);
	check(r.reply == HLOOM_NO && !r.had_enough && r.waited == 100 * MS,
		  "a bound that is not later goes before it");
	r.answer_at = 2;
	r.answer = HLOOM_YES;
	run(&r, &interval, HLOOM_NO_BOUND);
	check(r.reply == HLOOM_YES && !r.had_enough, "a grant before it is one");

	r.answer_at = 0;
	r.trip = 60 * MS;
	run(&r, &immediate, HLOOM_NO_BOUND);
	check(r.had_enough && r.attempts == 4 && r.extra == 0 && r.waited == 240 * MS,
		  "and it ends without any delay, too");
	r.enough_at = 0;
	run(&r, &immediate, HLOOM_NO_BOUND);
	check(r.attempts == 101 && r.sleeps == 100, "that is, there is a chance between any two");
}

static void
test_long_delays(void)
{
	const HloomRetry longest = INTERVAL(3, MOST);
	const HloomRetry shaken = {
		.kind = HLOOM_RETRY_INTERVAL, .retries = 3, .delay = MOST - 10, .jitter = MOST
	};
	const HloomRetry *const policies[] = {&longest, &shaken};
	Run			r = {.wake_every = 1000 * MS,.trip = 7,.answer_at = 4,.answer = HLOOM_YES};

	for (int i = 0; i < lengthof(policies); i++)
	{
		run(&r, policies[i], HLOOM_NO_BOUND);
		check(r.reply == HLOOM_YES && r.attempts == 4 && r.extra == 3 &&
			  r.waited == 3000 * MS + 4 * r.trip, "the longest delay does not overflow");
	}
	r.answer_at = 0;
	r.enough_at = 5000 * MS;
	run(&r, &longest, HLOOM_NO_BOUND);
	check(r.had_enough && r.attempts == 5 && r.waited == 5000 * MS, "nor does its rest");
}

/*
 * Any policy and any bound, with wake-ups and without: the same retries, and the same end.
 */
static void
test_wakeups_change_no_end(void)
{
	int64		extra = 0;
	bool		good = true;

	for (int i = 0; i < 10000 && good; i++)
	{
		HloomRetry	policy = {.kind = i % 4, .retries = (int32) (draw() % 12)};
		uint64		seed = draw_state;
		int64		bound;
		Run			still = {0};
		Run			woken = {0};

		if (policy.kind != HLOOM_RETRY_IMMEDIATE)
			policy.delay = (int64) (draw() % (200 * MS));
		policy.max_delay = policy.delay + (int64) (draw() % (2000 * MS));
		policy.factor = 1 + 3 * draw_share();
		policy.jitter = draw() % 2 ? 0 : (int64) (draw() % (100 * MS));
		bound = draw() % 3 == 0 ? HLOOM_NO_BOUND :
			(int64) (draw() % (uint64) (hloom_retry_max_total(&policy) * 3 / 2 + 2));
		woken.wake_every = hloom_retry_max_total(&policy) / (int64) (1 + draw() % 150) + 1;

		draw_state = seed;
		run(&still, &policy, bound);
		draw_state = seed;
		run(&woken, &policy, bound);
		extra += woken.extra;
		good = still.reply == HLOOM_NO && woken.reply == HLOOM_NO && still.extra == 0 &&
			woken.waited == still.waited && woken.attempts - woken.extra == still.attempts &&
			still.attempts <= policy.retries + 1 &&
			(bound == HLOOM_NO_BOUND || woken.waited < Max(bound, 1));
		if (!good)
			printf("# round %d: kind %d, retries %d, delay %lld, jitter %lld, bound %lld, woken"
				   " every %lld: waited %lld and %lld, attempts %lld and %lld - %lld\n",
				   i, policy.kind, policy.retries, (long long) policy.delay,
				   (long long) policy.jitter, (long long) bound, (long long) woken.wake_every,
				   (long long) still.waited, (long long) woken.waited,
				   (long long) still.attempts, (long long) woken.attempts,
				   (long long) woken.extra);
	}
	check(good, "wake-ups change neither the end of a wait nor its retries");
	check(extra > 100000, "and there were some");
}

int
main(void)
{
	test_delays();
	test_extremes();
	test_totals();
	test_words();
	test_jitter();
	test_bounds();
	test_answers();
	test_no_time();
	test_spent();
	test_wakeups();
	test_answers_woken();
	test_enough();
	test_long_delays();
	test_wakeups_change_no_end();
	return failed != 0;
}
