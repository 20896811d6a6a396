/*
 * retry.c
 *	  Retry policies: how often and after which delays a busy key is tried again.
 *
 * Arithmetic alone: no clock, no sleep, no randomness, no error.  What does not fit into 64 bits
 * is the largest number that does.  Links with libpgcommon in place of a server, for the unit test.
 */
#include "postgres.h"

#include <math.h>

#include "common/int.h"
#include "common/shortest_dec.h"
#include "lib/stringinfo.h"

#include "retry.h"

/* Both for numbers that are not negative. */
static int64
add_capped(int64 a, int64 b)
{
	int64		sum;

	return pg_add_s64_overflow(a, b, &sum) ? PG_INT64_MAX : sum;
}

static int64
mul_capped(int64 a, int64 b)
{
	int64		product;

	return pg_mul_s64_overflow(a, b, &product) ? PG_INT64_MAX : product;
}

static int64
exponential_delay(const HloomRetry *policy, int64 n)
{
	double		grown;

	/* Zero times infinity would not be zero. */
	if (policy->delay <= 0)
		return 0;
	grown = (double) policy->delay * pow(policy->factor, (double) (n - 1));
	if (grown >= (double) policy->max_delay)
		return policy->max_delay;
	return (int64) grown;
}

/*
 * Returns the delay before retry n (>= 1, and not limited by the policy's retries) in
 * microseconds, without jitter.
 */
int64
hloom_retry_delay(const HloomRetry *policy, int64 n)
{
	switch (policy->kind)
	{
		case HLOOM_RETRY_IMMEDIATE:
			break;
		case HLOOM_RETRY_INTERVAL:
			return policy->delay;
		case HLOOM_RETRY_LINEAR:
			return mul_capped(policy->delay, n);
		case HLOOM_RETRY_EXPONENTIAL:
			return exponential_delay(policy, n);
	}
	return 0;
}

static int64
exponential_total(const HloomRetry *policy)
{
	int64		total = 0;

	if (policy->delay <= 0 || policy->factor <= 1)
		return mul_capped(hloom_retry_delay(policy, 1), policy->retries);
	for (int64 n = 1; n <= policy->retries; n++)
	{
		int64		delay = exponential_delay(policy, n);

		if (delay >= policy->max_delay)
			return add_capped(total, mul_capped(delay, policy->retries - n + 1));
		total = add_capped(total, delay);
	}
	return total;
}

/*
 * Returns the longest time all retries of a policy can wait, in microseconds: the sum of their
 * delays, each with the whole jitter.
 */
int64
hloom_retry_max_total(const HloomRetry *policy)
{
	int64		retries = policy->retries;
	int64		total = 0;

	switch (policy->kind)
	{
		case HLOOM_RETRY_IMMEDIATE:
			break;
		case HLOOM_RETRY_INTERVAL:
			total = mul_capped(policy->delay, retries);
			break;
		case HLOOM_RETRY_LINEAR:
			total = mul_capped(policy->delay, retries * (retries + 1) / 2);
			break;
		case HLOOM_RETRY_EXPONENTIAL:
			total = exponential_total(policy);
			break;
	}
	return add_capped(total, mul_capped(policy->jitter, retries));
}

static int64
rounded_ms(int64 usec)
{
	return usec / 1000 + (usec % 1000 >= 500);
}

/*
 * Returns a policy in words, palloc'd and the same in every locale: its shape, its retries, and
 * its jitter if there is any.
 */
char *
hloom_retry_describe(const HloomRetry *policy)
{
	char		factor[DOUBLE_SHORTEST_DECIMAL_LEN];
	StringInfoData words;

	initStringInfo(&words);
	switch (policy->kind)
	{
		case HLOOM_RETRY_IMMEDIATE:
			appendStringInfoString(&words, "immediate");
			break;
		case HLOOM_RETRY_INTERVAL:
			appendStringInfo(&words, "interval " INT64_FORMAT " ms", rounded_ms(policy->delay));
			break;
		case HLOOM_RETRY_LINEAR:
			appendStringInfo(&words, "linear step " INT64_FORMAT " ms", rounded_ms(policy->delay));
			break;
		case HLOOM_RETRY_EXPONENTIAL:
			double_to_shortest_decimal_buf(policy->factor, factor);
			appendStringInfo(&words, "exponential " INT64_FORMAT " ms to " INT64_FORMAT " ms x %s",
							 rounded_ms(policy->delay), rounded_ms(policy->max_delay), factor);
			break;
	}
	appendStringInfo(&words, ", %d retries", policy->retries);
	if (policy->jitter != 0)
		appendStringInfo(&words, ", jitter " INT64_FORMAT " ms", rounded_ms(policy->jitter));
	return words.data;
}

/*
 * Whether a refused attempt is followed by another one, and if so, after which delay in
 * microseconds.  attempts counts the refused one, waited (>= 0) and max_wait are microseconds since
 * the first began, max_wait may be HLOOM_NO_BOUND, and share, in [0, 1), is that of the jitter.
 *
 * A remainder of the bound that no attempt could use is not waited out, so max_wait <= 0 means
 * one attempt under any policy.
 */
bool
hloom_retry_next(const HloomRetry *policy, int64 attempts, int64 waited,
				 int64 max_wait, double share, int64 *delay)
{
	if (attempts > policy->retries)
		return false;
	*delay = add_capped(hloom_retry_delay(policy, attempts),
						(int64) ((double) policy->jitter * share));
	if (max_wait == HLOOM_NO_BOUND)
		return true;
	return max_wait > waited && *delay < max_wait - waited;
}
