/*
 * lease_sweep.c
 *	  Removes the rows of leases that were given back, and their entries (tracked.c).
 *
 * Nobody waits for it: such a row counts for nothing already.  Others may remove it at the same
 * time, so not finding a row or an entry is no error.  The row goes before its entry, or the lease
 * would come to life again.  Like a release it need not be durable.  Knows no transaction.
 */
#include "postgres.h"

#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "durable.h"
#include "events.h"
#include "lease_grant.h"
#include "lease_sweep.h"
#include "lease_table.h"
#include "memory_grant.h"

/* So many are looked at by one sweep of everything, and of what this backend gave back. */
#define SWEEP_AT_ONCE 1024
#define SWEEP_SOME 64

#define FIRST_ROOM 16

/* What this backend gave back and has not removed yet. */
static HloomTrackedId *later = NULL;
static int	later_count = 0;
static int	later_room = 0;

static void
report_removed(const HloomGrantName *name)
{
	HloomEvent	event;

	if (!hloom_event_begin(&event, HLOOM_EVENT_ORPHAN, name->ns, name->key))
		return;
	hloom_event_add(&event, "outcome", "released");
	hloom_event_write(&event, "clean-up release of key \"%s\": released", name->key);
}

/*
 * Drops the entry of a grant whose row is gone; removed: it went just now, and had this name.
 */
static void
drop_entry(const HloomTrackedId *id, bool removed, HloomGrantName *name)
{
	if (!removed && (!hloom_tracked_is_given_back(id) || hloom_tracked_is_committing(id, NULL)))
		return;					/* somebody else's by now, or a commit depends on it */
	if (hloom_tracked_drop(id, removed) && removed)
		report_removed(name);
	if (removed)
	{
		pfree(name->ns);
		pfree(name->key);
	}
}

static void
remove_row(Relation rel, const HloomTrackedId *id)
{
	XLogRecPtr	saved = hloom_durable_begin();
	HloomGrantName name;
	bool		removed = hloom_grant_remove(rel, id, &name);

	if (removed)
		hloom_durable_forget(saved, GetCurrentTimestamp());
	drop_entry(id, removed, &name);
}

/*
 * Removes those in shared memory.  Returns how many there are besides, which come first then.
 */
static int
sweep_memory(HloomTrackedId *ids, int count)
{
	int			left = 0;

	for (int i = 0; i < count; i++)
	{
		HloomTrackedId id = ids[i];
		HloomGrantName name;

		CHECK_FOR_INTERRUPTS();
		if (hloom_tracked_is_in_memory(&id))
			drop_entry(&id, hloom_memory_grant_remove(&id, &name), &name);
		else
			ids[left++] = id;
	}
	return left;
}

/*
 * Removes rows of this database, those of the table as far as that can be opened at once.  Returns
 * how many of the grants still need looking after, which come first then.  Raises what a broken
 * store raises, and 55000 without the extension.
 */
int
hloom_sweep(HloomTrackedId *ids, int count)
{
	int			left = sweep_memory(ids, count);
	Relation	rel = left > 0 ? hloom_table_open(RowExclusiveLock, 0) : NULL;

	if (rel == NULL)
		return left;
	for (int i = 0; i < left; i++)
	{
		CHECK_FOR_INTERRUPTS();
		remove_row(rel, &ids[i]);
	}
	hloom_table_close(rel, RowExclusiveLock);
	return 0;
}

/*
 * Removes what others left behind: in this database, in those that are gone, and in any other what
 * has ended.  Returns how many entries are free again.
 */
int
hloom_sweep_all(void)
{
	HloomTrackedId *ids = palloc(SWEEP_AT_ONCE * sizeof(HloomTrackedId));
	int			freed = 0;
	int			count = hloom_tracked_collect(true, ids, SWEEP_AT_ONCE, &freed);

	if (count > 0)
		freed += count - hloom_sweep(ids, count);
	count = freed > 0 ? 0 : hloom_tracked_collect(false, ids, SWEEP_AT_ONCE, &freed);
	for (int i = 0; i < count; i++)
		if (get_database_name(ids[i].database) == NULL)
		{
			(void) hloom_tracked_drop(&ids[i], false);
			freed++;
		}
	pfree(ids);
	return freed;
}

/*
 * Makes room for so many to be removed later, besides those there are.  Raises when memory is out.
 */
void
hloom_sweep_reserve(int more)
{
	int			room = Max(FIRST_ROOM, 2 * (later_count + more));

	if (likely(later_count + more <= later_room))
		return;
	if (later == NULL)
		later = MemoryContextAlloc(TopMemoryContext, room * sizeof(HloomTrackedId));
	else
		later = repalloc_huge(later, room * sizeof(HloomTrackedId));
	later_room = room;
}

/*
 * Takes note of a grant that was given back, if there is room for that.  Does not raise.
 */
void
hloom_sweep_later(const HloomTrackedId *id)
{
	if (later_count < later_room)
		later[later_count++] = *id;
}

/*
 * Removes some of what was noted.  What raises is left to others.
 */
void
hloom_sweep_some(void)
{
	int			count = Min(later_count, SWEEP_SOME);

	if (likely(count == 0))
		return;
	later_count -= count;
	later_count += hloom_sweep(&later[later_count], count);
}
