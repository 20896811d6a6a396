/*
 * nesting.c
 *	  The keys locked by the calls of hloom_execute_with_lock that are running.
 *
 * One list per backend, in the order of nesting.  A call enters after it got its lease and leaves
 * before it gives the lease back, on its way out by an error, too.  Knows nothing of leases.
 */
#include "postgres.h"

#include "nesting.h"

static HloomNesting *innermost = NULL;

/*
 * The caller's action begins.  Frame and name must outlive it.
 */
void
hloom_nesting_enter(HloomNesting *frame, const HloomKey *name)
{
	frame->name = name;
	frame->outer = innermost;
	innermost = frame;
}

/*
 * The caller's action has ended, with whatever was inside.  Does not raise.
 */
void
hloom_nesting_leave(const HloomNesting *frame)
{
	innermost = frame->outer;
}

/*
 * Whether an action that is running has locked the key.
 */
bool
hloom_nesting_holds(const HloomKey *name)
{
	for (const HloomNesting *at = innermost; at != NULL; at = at->outer)
		if (at->name->hash == name->hash &&
			at->name->ns_len == name->ns_len && at->name->key_len == name->key_len &&
			memcmp(at->name->ns, name->ns, name->ns_len) == 0 &&
			memcmp(at->name->key, name->key, name->key_len) == 0)
			return true;
	return false;
}
