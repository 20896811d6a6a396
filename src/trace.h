/*
 * trace.h
 *	  Spans of distributed traces: the W3C traceparent, and the ids of spans begun here.
 */
#ifndef HLOOM_TRACE_H
#define HLOOM_TRACE_H

/* Whether who began the trace records it. */
typedef enum HloomSampled
{
	HLOOM_SAMPLED_UNKNOWN,		/* begun here: nobody has decided */
	HLOOM_SAMPLED_NO,
	HLOOM_SAMPLED_YES
} HloomSampled;

/* Ids as the numbers their hex digits write. */
typedef struct HloomSpan
{
	uint64		trace_high;
	uint64		trace_low;
	uint64		id;				/* 0: no span at all */
	uint64		parent;			/* 0: none, or not known */
	HloomSampled sampled;
} HloomSpan;

extern bool hloom_trace_parse(const char *traceparent, HloomSpan *span);
extern void hloom_trace_begin(HloomSpan *span, const HloomSpan *parent);

#endif							/* HLOOM_TRACE_H */
