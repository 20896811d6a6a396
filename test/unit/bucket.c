/*
 * bucket.c
 *	  Unit test of linear hashing's arithmetic: where a hash belongs, and what a split moves.
 *
 * For every step of growth, a hash either stays where it was or moves to the new bucket, and it
 * moves only from the new bucket's parent.  The scan relies on more: the buckets split from b are
 * b with one higher bit set.
 */
#include "postgres.h"

#include <stdio.h>

#include "compat.h"
#include "lease_page.h"

/* PostgreSQL's own printf would need its library. */
#undef printf

#define HASHES 400

static int
fail(const char *what, uint32 hash, uint32 maxbucket)
{
	printf("not ok: %s, hash %u, maxbucket %u\n", what, hash, maxbucket);
	return 1;
}

int
main(void)
{
	uint32		hash = 2463534242U;
	uint32		last = HLOOM_MAX_BUCKETS - 1;

	for (uint32 max = HLOOM_CHUNK - 1; max < last; max++)
	{
		uint32		child = max + 1;
		uint32		parent = hloom_page_parent(child);

		if (parent >= child || (child ^ parent) <= parent || ((child ^ parent) & parent))
			return fail("parent is not the child without its highest bit", child, max);
		for (int i = 0; i < HASHES; i++)
		{
			uint32		before;
			uint32		after;

			/* xorshift; every other hash is made to fall into the split bucket */
			hash ^= hash << 13;
			hash ^= hash >> 17;
			hash ^= hash << 5;
			if (i % 2)
				hash = (hash & ~(child | (child - 1) | parent)) | child;
			before = hloom_page_bucket(hash, max);
			after = hloom_page_bucket(hash, child);
			if (before > max || after > child)
				return fail("bucket beyond the highest", hash, max);
			if (after != before && (after != child || before != parent))
				return fail("a split moved a hash of another bucket", hash, max);
		}
		if (hloom_page_bucket(child, child) != child || hloom_page_bucket(child, max) != parent)
			return fail("the new bucket's own number does not move to it", child, max);
	}
	printf("ok: %u splits\n", last - HLOOM_CHUNK + 1);
	return 0;
}
