/*
 * retry_row.h
 *	  Retry policies as values of type hloom_retry_policy.
 */
#ifndef HLOOM_RETRY_ROW_H
#define HLOOM_RETRY_ROW_H

#include "access/htup.h"
#include "lib/stringinfo.h"
#include "retry.h"

/* The fields of type hloom_retry_policy, in order. */
typedef enum HloomRetryField
{
	HLOOM_RETRY_FIELD_KIND,
	HLOOM_RETRY_FIELD_RETRIES,
	HLOOM_RETRY_FIELD_DELAY,
	HLOOM_RETRY_FIELD_MAX_DELAY,
	HLOOM_RETRY_FIELD_FACTOR,
	HLOOM_RETRY_FIELD_JITTER
} HloomRetryField;

#define HLOOM_RETRY_FIELDS (HLOOM_RETRY_FIELD_JITTER + 1)

/* A policy somebody gave, not judged yet. */
typedef struct HloomRetryRow
{
	Datum		values[HLOOM_RETRY_FIELDS];
	bool		nulls[HLOOM_RETRY_FIELDS];
} HloomRetryRow;

extern bool hloom_retry_judge(HloomRetry *policy, const HloomRetryRow *row,
							  const char *const *names, StringInfo violations);
extern bool hloom_retry_read(HloomRetry *policy, HeapTupleHeader row, StringInfo violations);
extern bool hloom_retry_is_empty(HeapTupleHeader row);
extern bool hloom_retry_require(HloomRetry *policy, HeapTupleHeader row);
extern void hloom_retry_fields(HloomRetryRow *row, const HloomRetry *policy);
extern Datum hloom_retry_form(const HloomRetry *policy, Oid type);

#endif							/* HLOOM_RETRY_ROW_H */
