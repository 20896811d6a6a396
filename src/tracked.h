/*
 * tracked.h
 *	  Leases that follow a session or a transaction, in shared memory, and those given back there.
 */
#ifndef HLOOM_TRACKED_H
#define HLOOM_TRACKED_H

#include "hloom.h"
#include "shmem.h"

/*
 * Names a grant for as long as this shared memory lives: in one table no two grants to keys of the
 * same hash have one fence.  No padding, compared byte by byte.
 */
typedef struct HloomTrackedId
{
	Oid			database;
	uint32		hash;			/* low half of the key's hash, as in the row */
	int64		fence;
} HloomTrackedId;

StaticAssertDecl(sizeof(HloomTrackedId) == 16, "no padding");

extern Size hloom_tracked_size(void);
extern void hloom_tracked_start(bool found);
extern bool hloom_tracked_reserve(uint32 hash);
extern void hloom_tracked_unreserve(void);
extern void hloom_tracked_hold(const HloomTrackedId *id);
extern bool hloom_tracked_drop(const HloomTrackedId *id, bool present);
extern bool hloom_tracked_give_back(const HloomTrackedId *id, int orphan_of);
extern bool hloom_tracked_is_given_back(uint32 hash, int64 fence);
extern int	hloom_tracked_collect(HloomTrackedId *ids, int room);

/*
 * Whether some lease whose hash ends like this is given back and its row may still be there.  The
 * low bits of a bucket's number are those of its hashes.
 */
static inline bool
hloom_tracked_any_given_back(uint32 hash)
{
	return hloom_shared != NULL &&
		pg_atomic_read_u32(&hloom_shared->given_back[hash % HLOOM_PARTITIONS]) != 0;
}

#endif							/* HLOOM_TRACKED_H */
