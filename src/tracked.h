/*
 * tracked.h
 *	  Leases that follow a session or a transaction, or a commit depends on, in shared memory.
 */
#ifndef HLOOM_TRACKED_H
#define HLOOM_TRACKED_H

#include "miscadmin.h"
#include "port/atomics.h"
#include "utils/timestamp.h"

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
	int64		fence;			/* of provider "memory" with a mark that is above all fences */
} HloomTrackedId;

#define HLOOM_TRACKED_IN_MEMORY (INT64CONST(1) << 62)

StaticAssertDecl(sizeof(HloomTrackedId) == 16, "no padding");

/*
 * The part of an entry that a signal handler of the lease's backend reads, without a lock.
 * Whoever reads "end" first and then finds its own ticket has read the end of its own lease.
 */
typedef struct HloomWatched
{
	pg_atomic_uint64 ticket;	/* of the backend that watches; 0: none */
	pg_atomic_uint64 end;		/* TimestampTz of the lease's end; 0: lost before */
} HloomWatched;

/* What a lease is granted, renewed or extended for. */
typedef struct HloomTerms
{
	TimestampTz granted_at;
	TimestampTz start;			/* of the lease as it is now */
	TimestampTz end;
	int64		lease;			/* as long as last granted */
	int64		max_hold;		/* renewed by the server until it is so old; 0: not renewed */
} HloomTerms;

typedef enum HloomDueKind
{
	HLOOM_DUE_RENEWAL,
	HLOOM_DUE_WARNING,
	HLOOM_DUE_END				/* it is lost, but its row may last longer */
} HloomDueKind;

/* A lease that something is due of. */
typedef struct HloomTrackedDue
{
	HloomTrackedId id;
	TimestampTz due;
	TimestampTz end;
	int64		lease;
	HloomDueKind kind;
} HloomTrackedDue;

/* tracked_table.c */
extern Size hloom_tracked_size(void);
extern void hloom_tracked_start(bool found);
extern void hloom_tracked_lose_all(bool in_memory);
extern int	hloom_tracked_collect(bool ours, HloomTrackedId *ids, int room, int *removed);

/* tracked.c */
extern bool hloom_tracked_reserve(uint32 hash);
extern void hloom_tracked_unreserve(void);
extern bool hloom_tracked_hold(const HloomTrackedId *id, const HloomTerms *terms);
extern bool hloom_tracked_let_go(const HloomTrackedId *id);
extern HloomWatched *hloom_tracked_watch(const HloomTrackedId *id, uint64 ticket);
extern bool hloom_tracked_extend(const HloomTrackedId *id, const HloomTerms *terms,
								 bool follows);
extern TimestampTz hloom_tracked_end(const HloomTrackedId *id);
extern bool hloom_tracked_drop(const HloomTrackedId *id, bool present);
extern void hloom_tracked_expire(const HloomTrackedId *id);
extern bool hloom_tracked_give_back(const HloomTrackedId *id, int orphan_of, TimestampTz end,
									bool *late);
extern bool hloom_tracked_is_given_back(const HloomTrackedId *id);
extern bool hloom_tracked_counts(const HloomTrackedId *id, bool unexpired);
extern bool hloom_tracked_is_lost(const HloomTrackedId *id, bool expired);

/* tracked_commit.c */
extern HloomReply hloom_tracked_commit_begin(const HloomTrackedId *id, TimestampTz end);
extern bool hloom_tracked_commit_end(const HloomTrackedId *id);
extern bool hloom_tracked_is_committing(const HloomTrackedId *id, int *pid);
extern bool hloom_tracked_release_committing(const HloomTrackedId *id);

/* tracked_due.c */
extern void hloom_tracked_auto_extend(const HloomTrackedId *id, int64 max_hold);
extern int	hloom_tracked_due(HloomTrackedDue *found, int room, TimestampTz now,
							  TimestampTz *next);
extern HloomReply hloom_tracked_renewal_begin(const HloomTrackedId *id, TimestampTz now,
											  HloomTerms *terms);
extern bool hloom_tracked_renewal_done(const HloomTrackedId *id, const HloomTerms *terms);
extern bool hloom_tracked_ends_at(const HloomTrackedId *id, TimestampTz end);
extern int	hloom_tracked_list(HloomTrackedId *ids, int room);
extern void hloom_tracked_due_failed(const HloomTrackedDue *failed);

static inline HloomTrackedId
hloom_tracked_id(uint32 hash, int64 fence)
{
	HloomTrackedId id = {.database = MyDatabaseId,.hash = hash,.fence = fence};

	return id;
}

/*
 * Whether the lease is kept by provider "memory" and has no row in the table.
 */
static inline bool
hloom_tracked_is_in_memory(const HloomTrackedId *id)
{
	return id->fence >= HLOOM_TRACKED_IN_MEMORY;
}

/*
 * Whether some lease whose hash ends like this is given back, and its row may still be there, or
 * some commit depends on it.  The low bits of a bucket's number are those of its hashes.
 */
static inline bool
hloom_tracked_any_marked(uint32 hash)
{
	return hloom_shared != NULL &&
		pg_atomic_read_u32(&hloom_shared->marked[hash % HLOOM_PARTITIONS]) != 0;
}

#endif							/* HLOOM_TRACKED_H */
