/*
 * tracked_table.h
 *	  Entries of the shared table of tracked leases, for tracked.c, tracked_commit.c and
 *	  tracked_due.c only.
 */
#ifndef HLOOM_TRACKED_TABLE_H
#define HLOOM_TRACKED_TABLE_H

#include "lib/ilist.h"
#include "storage/lwlock.h"
#include "utils/hsearch.h"

#include "tracked.h"

typedef struct HloomTracked
{
	HloomTrackedId id;			/* must be first */
	dlist_node	node;			/* in hloom_shared->tracked */
	HloomWatched watched;
	HloomTerms	terms;			/* but for the end, which is in "watched" */
	TimestampTz renew_at;		/* DT_NOEND: not to be renewed */
	TimestampTz warn_at;		/* DT_NOEND: warned */
	int64		slack;			/* so much later than these it may be */
	int			pid;			/* of the backend whose lease it is; 0: follows nobody */
	int			committer;		/* the last of those below to begin; 0 when it is done */
	uint16		committing;		/* transactions that are committing and depend on it */
	int16		orphan_of;		/* where an orphan is counted, see stats.h; -1 when it is none */
	bool		given_back;
	bool		renewing;		/* the row may end later, but that is not durable */
} HloomTracked;

extern LWLockPadded *hloom_tracked_locks;

extern HloomTracked *hloom_tracked_search(const HloomTrackedId *id, HASHACTION action);
extern HloomTracked *hloom_tracked_add(const HloomTrackedId *id, int pid);
extern void hloom_tracked_remove(HloomTracked *entry);
extern void hloom_tracked_rename(HloomTracked *entry, const HloomTrackedId *id);
extern void hloom_tracked_settle(HloomTracked *entry, bool was_marked);
extern void hloom_tracked_change_hands(HloomTracked *entry, int pid);
extern int	hloom_tracked_lose(HloomTracked *entry);
extern void hloom_tracked_set_terms(HloomTracked *entry, const HloomTerms *terms);
extern TimestampTz hloom_tracked_next(HloomTracked *entry);

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
