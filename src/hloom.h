/*
 * hloom.h
 *	  Names and limits shared by all layers.  No state, no functions.
 */
#ifndef HLOOM_H
#define HLOOM_H

#include "hloom_provider.h"

/* From 18 under this name. */
#ifndef pg_noreturn
#define pg_noreturn pg_attribute_noreturn()
#endif

#define HLOOM_EXTENSION "hloom_lock"
#define HLOOM_TABLE "hloom_leases"
#define HLOOM_NAMESPACES "hloom_namespaces"
#define HLOOM_AM "hloom_lease"

#define HLOOM_MAX_NAMESPACE 63	/* characters, all of one byte */
#define HLOOM_MAX_KEY_CHARS 1024	/* upper limit of hloom_lock.max_key_length */
#define HLOOM_MAX_KEY_BYTES (4 * HLOOM_MAX_KEY_CHARS)
#define HLOOM_MAX_NOTE 256		/* bytes */

/*
 * Points at which a test module may look at or change what happens.  The module puts a function
 * into the rendezvous variable of this name; none is there outside of tests.
 */
#define HLOOM_TEST_RENDEZVOUS "hloom_lock.test_point"

typedef enum HloomTestPoint
{
	HLOOM_POINT_FLUSH,			/* true: a grant is reported without its flush */
	HLOOM_POINT_GRANTED,		/* the page is changed and unlocked, nothing is flushed yet */
	HLOOM_POINT_SPLIT,			/* a split's new pages are written and not yet reachable */
	HLOOM_POINT_GROW			/* true: growth fails as if the disk were full */
} HloomTestPoint;

typedef bool (*HloomTestHook) (HloomTestPoint point);

#endif							/* HLOOM_H */
