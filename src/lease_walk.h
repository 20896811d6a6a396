/*
 * lease_walk.h
 *	  One key's bucket, locked and looked through.
 */
#ifndef HLOOM_LEASE_WALK_H
#define HLOOM_LEASE_WALK_H

#include "lease_bucket.h"
#include "storage/itemptr.h"

/* What a walk along the chain found out. */
typedef struct HloomWalk
{
	const HloomCall *call;
	HloomJudge	judge;
	Size		need;			/* aligned size of the row to place; 0 to look only */

	bool		held;			/* the key has a live row, at held_at */
	bool		mine;			/* it is the call's owner's */
	ItemPointerData held_at;
	HloomRow	head;			/* its fixed part */
	Size		capacity;

	ItemPointerData stale;		/* the key's dead row that is no tombstone */
	HloomRow	stale_head;		/* its fixed part */
	Size		stale_capacity;
	ItemPointerData reuse;		/* a dead row whose place fits, and which was not lost */
	BlockNumber room;			/* a page with room */
	BlockNumber purge;			/* a page that would have room without its dead rows */
	BlockNumber last;			/* of the chain */
	int			live;
	Size		live_bytes;
} HloomWalk;

extern HloomTerms hloom_walk_terms(const HloomRow *row, TimestampTz now, int64 max_hold);
extern bool hloom_walk_is_committing(const HloomWalk *walk);
extern void hloom_walk_tell_holder(const HloomRow *row, bool mine, HloomGrant *grant);
extern void hloom_walk_lock(Relation rel, const HloomCall *call, Size need, int mode,
							HloomBucket *bucket, HloomWalk *walk);

#endif							/* HLOOM_LEASE_WALK_H */
