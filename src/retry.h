/*
 * retry.h
 *	  Retry policies: how often and after which delays a busy key is tried again.
 */
#ifndef HLOOM_RETRY_H
#define HLOOM_RETRY_H

#define HLOOM_RETRY_MOST 1000000	/* retries */
#define HLOOM_NO_BOUND PG_INT64_MIN /* as max_wait */

typedef enum HloomRetryKind
{
	HLOOM_RETRY_IMMEDIATE,
	HLOOM_RETRY_INTERVAL,
	HLOOM_RETRY_LINEAR,
	HLOOM_RETRY_EXPONENTIAL
} HloomRetryKind;

/* A valid policy, all in microseconds.  Fields a kind does not use are 0. */
typedef struct HloomRetry
{
	HloomRetryKind kind;
	int32		retries;		/* after the first attempt: 0 .. HLOOM_RETRY_MOST */
	int64		delay;			/* >= 0: the interval, the step, or the least delay */
	int64		max_delay;		/* >= delay: the longest delay; exponential */
	double		factor;			/* >= 1; exponential */
	int64		jitter;			/* >= 0: a random share of it is added to each delay */
} HloomRetry;

extern int64 hloom_retry_delay(const HloomRetry *policy, int64 n);
extern int64 hloom_retry_max_total(const HloomRetry *policy);
extern char *hloom_retry_describe(const HloomRetry *policy);
extern bool hloom_retry_next(const HloomRetry *policy, int64 attempts, int64 waited,
							 int64 max_wait, double share, int64 *delay);

#endif							/* HLOOM_RETRY_H */
