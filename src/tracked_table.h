/*
 * tracked_table.h
 *	  Entries of the shared table of tracked leases, for tracked.c and tracked_commit.c only.
 */
#ifndef HLOOM_TRACKED_TABLE_H
#define HLOOM_TRACKED_TABLE_H

#include "storage/lwlock.h"
#include "utils/hsearch.h"

#include "tracked.h"

typedef struct HloomTracked
{
	HloomTrackedId id;			/* must be first */
	HloomWatched watched;
	int			pid;			/* of the backend whose lease it is; 0: follows nobody */
	int			committer;		/* the last of those below to begin; 0 when it is done */
	uint16		committing;		/* transactions that are committing and depend on it */
	int16		orphan_of;		/* where an orphan is counted, see stats.h; -1 when it is none */
	bool		given_back;
} HloomTracked;

extern LWLockPadded *hloom_tracked_locks;

extern HloomTracked *hloom_tracked_search(const HloomTrackedId *id, HASHACTION action);
extern HloomTracked *hloom_tracked_add(const HloomTrackedId *id, int pid);
extern void hloom_tracked_rename(HloomTracked *entry, const HloomTrackedId *id);
extern void hloom_tracked_settle(HloomTracked *entry, bool was_marked);
extern void hloom_tracked_change_hands(HloomTracked *entry, int pid);
extern int	hloom_tracked_lose(HloomTracked *entry);

/*
 * Returns the lock that guards the entry of this name.
 */
static inline LWLock *
hloom_tracked_lock_of(const HloomTrackedId *id)
{
	return &hloom_tracked_locks[id->hash % HLOOM_PARTITIONS].lock;
}

static inline bool
hloom_tracked_is_marked(const HloomTracked *entry)
{
	return entry->given_back || entry->committing > 0;
}

#endif							/* HLOOM_TRACKED_TABLE_H */
