/*
 * trace.c
 *	  Unit test of traceparents, good and hostile, and of the ids of spans.
 */
#include "postgres.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/pg_prng.h"

#include "trace.h"

/* PostgreSQL's own printf would need its library. */
#undef printf
#undef snprintf

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define TRACE_HIGH UINT64CONST(0x4bf92f3577b34da6)
#define TRACE_LOW UINT64CONST(0xa3ce929d0e0e4736)
#define PARENT "00f067aa0ba902b7"
#define PARENT_ID UINT64CONST(0x00f067aa0ba902b7)
#define GOOD "00-" TRACE "-" PARENT "-01"

static int	failed = 0;

static void
check(bool good, const char *what)
{
	printf("%s - %s\n", good ? "ok" : "not ok", what);
	failed += !good;
}

static bool
is_none(const HloomSpan *span)
{
	return span->trace_high == 0 && span->trace_low == 0 && span->id == 0 && span->parent == 0 &&
		span->sampled == HLOOM_SAMPLED_UNKNOWN;
}

static void
accept(const char *traceparent, HloomSampled sampled, const char *what)
{
	HloomSpan	span;

	check(hloom_trace_parse(traceparent, &span) && span.trace_high == TRACE_HIGH &&
		  span.trace_low == TRACE_LOW && span.id == PARENT_ID && span.parent == 0 &&
		  span.sampled == sampled, what);
}

/*
 * Nothing of an earlier value may be left.
 */
static void
refuse(const char *traceparent, const char *what)
{
	HloomSpan	span;

	memset(&span, 0x5a, sizeof(span));
	check(!hloom_trace_parse(traceparent, &span) && is_none(&span), what);
}

static void
check_accepted(void)
{
	accept(GOOD, HLOOM_SAMPLED_YES, "version 00, sampled");
	accept("00-" TRACE "-" PARENT "-00", HLOOM_SAMPLED_NO, "not sampled");
	accept("00-" TRACE "-" PARENT "-02", HLOOM_SAMPLED_NO, "the flag of random ids is not sampled");
	accept("00-" TRACE "-" PARENT "-ff", HLOOM_SAMPLED_YES, "flags not known yet are ignored");
	accept("01-" TRACE "-" PARENT "-01", HLOOM_SAMPLED_YES, "a later version of the same length");
	accept("cc-" TRACE "-" PARENT "-01-what-comes", HLOOM_SAMPLED_YES, "and a longer one");
	accept("fe-" TRACE "-" PARENT "-01-", HLOOM_SAMPLED_YES, "the last version");
}

static void
check_refused(void)
{
	refuse(NULL, "none");
	refuse("", "empty");
	refuse("00", "a version alone");
	refuse("ff-" TRACE "-" PARENT "-01", "version ff");
	refuse("ff-" TRACE "-" PARENT "-01-what-comes", "version ff, longer");
	refuse(GOOD "-", "version 00 with more");
	refuse(GOOD "0", "version 00 with a digit more");
	refuse("01-" TRACE "-" PARENT "-01.what", "a later version that goes on without a dash");
	refuse("01-" TRACE "-" PARENT "-011", "or with a digit");
	refuse("00-00000000000000000000000000000000-" PARENT "-01", "a trace of zeros");
	refuse("00-" TRACE "-0000000000000000-01", "a parent of zeros");
	refuse("00-4BF92f3577b34da6a3ce929d0e0e4736-" PARENT "-01", "upper case in the trace");
	refuse("00-" TRACE "-00F067aa0ba902b7-01", "in the parent");
	refuse("00-" TRACE "-" PARENT "-0A", "in the flags");
	refuse("0A-" TRACE "-" PARENT "-01", "in the version");
	refuse("0x-" TRACE "-" PARENT "-01", "no digit in the version");
	refuse("00-" TRACE "-" PARENT "-0g", "no digit in the flags");
	refuse("00-4bf92f3577b34da6a3ce929d0e0e473 -" PARENT "-01", "a blank for a digit");
	refuse("00-4bf92f3577b34da6a3ce929d0e0e47\xc3\xa4-" PARENT "-01", "a letter beyond ASCII");
	refuse("00-+bf92f3577b34da6a3ce929d0e0e4736-" PARENT "-01", "a sign");
	refuse(" " GOOD, "a blank before");
	refuse(GOOD " ", "a blank behind");
	refuse(GOOD "\n", "a line end behind");
	refuse("00_" TRACE "-" PARENT "-01", "no dash after the version");
	refuse("00-" TRACE "_" PARENT "-01", "no dash after the trace");
	refuse("00-" TRACE "-" PARENT "_01", "no dash after the parent");
	refuse("00--" TRACE "-" PARENT "-1", "a dash too many");
	refuse("traceparent: " GOOD, "the header's name");
}

/*
 * What it looks at ends with the text, however short, and however long.
 */
static void
check_bounds(void)
{
	long		page = sysconf(_SC_PAGESIZE);
	char	   *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE,
							 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int			size = 1024 * 1024;
	char	   *longest = malloc(size + 1);
	HloomSpan	span;
	int			accepted = 0;

	if (pages == MAP_FAILED || longest == NULL || mprotect(pages + page, page, PROT_NONE) != 0)
	{
		check(false, "memory");
		return;
	}
	for (int length = 0; length <= (int) strlen(GOOD); length++)
	{
		char	   *copy = pages + page - length - 1;

		memcpy(copy, GOOD, length);
		copy[length] = '\0';
		accepted += hloom_trace_parse(copy, &span);
	}
	check(accepted == 1, "only the whole text, and never looked beyond it");

	memset(longest, '0', size);
	longest[size] = '\0';
	refuse(longest, "a megabyte of zeros");
	memset(longest, '-', size);
	refuse(longest, "and of dashes");
	memcpy(longest, "7f" "-" TRACE "-" PARENT "-01", strlen(GOOD));
	accept(longest, HLOOM_SAMPLED_YES, "a megabyte behind a later version");
	free(longest);
	munmap(pages, 2 * page);
}

/*
 * Any one byte of a good text changed, to any value: then the text is refused, or it tells another
 * valid span.
 */
static void
check_changed(void)
{
	int			bad = 0;

	for (int at = 0; at < (int) strlen(GOOD); at++)
		for (int byte = 0; byte < 256; byte++)
		{
			char		copy[sizeof(GOOD)] = GOOD;
			bool		digit = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'f');
			bool		dash = at == 2 || at == 35 || at == 52;
			HloomSpan	span;

			copy[at] = (char) byte;
			if (hloom_trace_parse(copy, &span) != (dash ? byte == '-' : digit))
				bad++;
		}
	check(bad == 0, "each byte is judged");
}

static void
check_spans(void)
{
	const HloomSpan none = {0};
	HloomSpan	caller;
	HloomSpan	outer;
	HloomSpan	inner;
	HloomSpan	other;

	hloom_trace_parse(GOOD, &caller);
	hloom_trace_begin(&outer, &caller);
	check(outer.trace_high == TRACE_HIGH && outer.trace_low == TRACE_LOW &&
		  outer.parent == PARENT_ID && outer.id != 0 && outer.id != PARENT_ID &&
		  outer.sampled == HLOOM_SAMPLED_YES, "a span of the caller's trace");
	hloom_trace_begin(&inner, &outer);
	check(inner.trace_high == TRACE_HIGH && inner.trace_low == TRACE_LOW &&
		  inner.parent == outer.id && inner.id != outer.id &&
		  inner.sampled == HLOOM_SAMPLED_YES, "and its child");

	hloom_trace_begin(&outer, &none);
	check(outer.trace_high != 0 && outer.trace_low != 0 && outer.id != 0 && outer.parent == 0 &&
		  outer.sampled == HLOOM_SAMPLED_UNKNOWN, "a trace begun here");
	hloom_trace_begin(&inner, &outer);
	check(inner.trace_high == outer.trace_high && inner.trace_low == outer.trace_low &&
		  inner.parent == outer.id && inner.sampled == HLOOM_SAMPLED_UNKNOWN, "and its child");
	hloom_trace_begin(&other, &none);
	check(other.trace_low != outer.trace_low && other.id != outer.id, "another one is another one");
}

int
main(void)
{
	pg_prng_seed(&pg_global_prng_state, 1);
	check_accepted();
	check_refused();
	check_bounds();
	check_changed();
	check_spans();
	return failed != 0;
}
