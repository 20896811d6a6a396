/*
 * trace.c
 *	  Spans of distributed traces: the W3C traceparent, and the ids of spans begun here.
 *
 * A traceparent is "version-trace_id-parent_id-flags" in lower-case hex digits.  As the standard
 * wants it, one of a later version is read as far as this version's goes, and what cannot be read
 * is ignored: its receiver begins a trace of its own.
 *
 * Ids need to be unique and not secret, so they come from the process's fast generator.  Knows no
 * lease and no memory but the caller's.
 */
#include "postgres.h"

#include "common/pg_prng.h"

#include "trace.h"

/* Where the parts begin in the text, and its length in version 00. */
#define TRACE_ID_AT 3
#define PARENT_ID_AT 36
#define FLAGS_AT 53
#define LENGTH 55

#define ID_DIGITS 16
#define FLAG_SAMPLED 0x01

/*
 * Reads a number of so many hex digits.  Returns false for anything else, the end of the text
 * included, beyond which it does not look.
 */
static bool
read_hex(const char *digits, int count, uint64 *number)
{
	*number = 0;
	for (int i = 0; i < count; i++)
	{
		char		digit = digits[i];

		if (digit >= '0' && digit <= '9')
			*number = *number << 4 | (uint64) (digit - '0');
		else if (digit >= 'a' && digit <= 'f')
			*number = *number << 4 | (uint64) (digit - 'a' + 10);
		else
			return false;
	}
	return true;
}

/*
 * Reads the span that a traceparent tells.  Returns false, and a span that is none, for what is no
 * valid traceparent, NULL included.
 */
bool
hloom_trace_parse(const char *traceparent, HloomSpan *span)
{
	HloomSpan	read = {0};
	uint64		version;
	uint64		flags;

	memset(span, 0, sizeof(*span));
	if (traceparent == NULL || strnlen(traceparent, LENGTH) < LENGTH)
		return false;
	if (!read_hex(traceparent, 2, &version) || version == 0xff ||
		!read_hex(traceparent + TRACE_ID_AT, ID_DIGITS, &read.trace_high) ||
		!read_hex(traceparent + TRACE_ID_AT + ID_DIGITS, ID_DIGITS, &read.trace_low) ||
		!read_hex(traceparent + PARENT_ID_AT, ID_DIGITS, &read.id) ||
		!read_hex(traceparent + FLAGS_AT, 2, &flags))
		return false;
	if (traceparent[TRACE_ID_AT - 1] != '-' || traceparent[PARENT_ID_AT - 1] != '-' ||
		traceparent[FLAGS_AT - 1] != '-')
		return false;
	if (traceparent[LENGTH] != '\0' && (version == 0 || traceparent[LENGTH] != '-'))
		return false;
	if ((read.trace_high == 0 && read.trace_low == 0) || read.id == 0)
		return false;
	read.sampled = flags & FLAG_SAMPLED ? HLOOM_SAMPLED_YES : HLOOM_SAMPLED_NO;
	*span = read;
	return true;
}

static uint64
draw_id(void)
{
	uint64		id;

	do
		id = pg_prng_uint64(&pg_global_prng_state);
	while (unlikely(id == 0));
	return id;
}

/*
 * Begins a span: of its parent's trace, or of a new one when the parent is none.
 */
void
hloom_trace_begin(HloomSpan *span, const HloomSpan *parent)
{
	static uint64 own_half = 0;
	uint64		id = draw_id();

	if (parent->id != 0)
	{
		*span = *parent;
		span->id = id;
		span->parent = parent->id;
		return;
	}

	/* One draw is enough: half of the trace is the process's, the other half its first span. */
	if (unlikely(own_half == 0))
		own_half = draw_id();
	span->trace_high = own_half;
	span->trace_low = span->id = id;
	span->parent = 0;
	span->sampled = HLOOM_SAMPLED_UNKNOWN;
}
