/*
 * deadlock.c
 *	  Sessions that wait for each other, over leases and over PostgreSQL's own locks.
 *
 * Who waits for a key waits for the backend that the key's lease follows, not for those before it
 * in the queue.  That backend may wait for a lease itself, or for locks.  The search goes from
 * waiter to blocker, breadth first; when it is back at this backend there is a deadlock.  A lease
 * of scope "lease" belongs to no backend: anybody who knows its owner can give it back, so the
 * search ends there.  It also ends at a prepared transaction, and with leases of other databases.
 *
 * No false alarm.  The search sees one wait after the other, so that what it finds may never have
 * been there at one moment.  Therefore it looks at each wait of the cycle again, from the last,
 * which is for this backend, to this backend's own.  This backend waits all the time.  So the last
 * one, seen waiting, goes on to wait, for what it waits for does not move; so does the one before
 * it; and when the first one is seen all of them are there.  They could only be over because
 * somebody gives up, or a lease ends or is taken away.  Where a lease is waited for that is seen,
 * too: a ticket is of one wait and a fence of one grant, so with the ticket of the first look
 * found still listed in the end, and the fence and the process of the first look found by the
 * second, wait and lease have lasted all the time between both looks.
 *
 * One victim.  All of a cycle may find it at the same moment.  The first that marks its place in
 * the waiters' list (waitlist.c) ends; the others see the mark, or that this wait is over.
 *
 * The caller holds nothing.  No snapshot is needed, and none is kept but a catalogue's.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/array.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "deadlock.h"
#include "lease_time.h"
#include "options.h"
#include "provider.h"
#include "stats.h"
#include "waitlist.h"

/* A provider is asked who holds a key for so long at most, in microseconds. */
#define ASK_TIME 100000

#define FIRST_ROOM 16

/* A process waits for another one. */
typedef struct Edge
{
	int			waiter;
	int			blocker;
	int			before;			/* the edge to the waiter; -1: none, it is this backend */
	const HloomWaiter *wait;	/* for a lease; NULL: for a lock */
	int64		fence;			/* of the lease */
} Edge;

typedef struct Search
{
	HloomWaiter *waits;			/* of this database, as they were at the beginning */
	int			wait_count;
	Edge	   *edges;			/* one to each process found */
	int			count;
	int			room;
	bool		unanswered;		/* by the store, which is asked no more */
} Search;

/*
 * Returns the process's wait for a lease, or NULL.
 */
static const HloomWaiter *
find_wait(const Search *search, int pid)
{
	for (int i = 0; i < search->wait_count; i++)
		if (search->waits[i].pid == pid)
			return &search->waits[i];
	return NULL;
}

/*
 * Whether somebody is known to hold what is waited for, and who.  Leases of providers that are not
 * exact follow no backend.
 */
static bool
ask_holder(Search *search, const HloomWaiter *wait, HloomGrant *holder)
{
	HloomCall	call = {.name = hloom_waitlist_name(wait)};
	const HloomProvider *provider;
	HloomReply	reply;

	memset(holder, 0, sizeof(*holder));
	if (search->unanswered)
		return false;
	provider = hloom_provider_find(hloom_options_provider(call.name.ns, call.name.ns_len));
	if (provider == NULL || !hloom_provider_is_own(provider) || provider->holder == NULL)
		return false;
	call.requested_at = GetCurrentTimestamp();
	call.deadline = hloom_time_add(call.requested_at, ASK_TIME);
	reply = provider->holder(&call, holder);
	search->unanswered = reply != HLOOM_YES && reply != HLOOM_NO;
	return reply == HLOOM_YES;
}

/*
 * Returns the processes whose locks, or whose places in a lock's queue, the process waits for.
 */
static int *
ask_blockers(int pid, int *count)
{
	ArrayType  *pids = DatumGetArrayTypeP(DirectFunctionCall1(pg_blocking_pids,
															  Int32GetDatum(pid)));

	*count = ArrayGetNItems(ARR_NDIM(pids), ARR_DIMS(pids));
	return (int *) ARR_DATA_PTR(pids);
}

/*
 * Adds an edge to a process that was not found yet.  Returns whether it is this backend.
 */
static bool
add_edge(Search *search, Edge edge)
{
	if (edge.blocker == 0)
		return false;			/* a prepared transaction */
	for (int i = 0; i < search->count; i++)
		if (search->edges[i].blocker == edge.blocker)
			return false;
	if (search->count == search->room)
	{
		search->room *= 2;
		search->edges = repalloc_huge(search->edges, search->room * sizeof(Edge));
	}
	search->edges[search->count++] = edge;
	return edge.blocker == MyProcPid;
}

/*
 * Adds whom a process waits for that an edge has led to.  Returns whether the last one added is
 * this backend.  One that waits for a lease can be held up by a lock in between.
 */
static bool
follow(Search *search, int pid, int before)
{
	Edge		edge = {.waiter = pid,.before = before,.wait = find_wait(search, pid)};
	HloomGrant	holder;
	int		   *blockers;
	int			count;

	if (edge.wait != NULL && ask_holder(search, edge.wait, &holder) && holder.follows)
	{
		edge.blocker = holder.holder_pid;
		edge.fence = holder.fence;
		if (add_edge(search, edge))
			return true;
	}
	edge.wait = NULL;
	blockers = ask_blockers(pid, &count);
	for (int i = 0; i < count; i++)
	{
		edge.blocker = blockers[i];
		if (add_edge(search, edge))
			return true;
	}
	return false;
}

/*
 * Searches on from this backend's holder.  Returns the cycle found, in order from this backend on,
 * and its length, or NULL.
 */
static const Edge **
find_cycle(Search *search, int *length)
{
	const Edge **cycle;
	bool		found = search->edges[0].blocker == MyProcPid;

	for (int i = 0; i < search->count && !found; i++)
	{
		CHECK_FOR_INTERRUPTS();
		found = follow(search, search->edges[i].blocker, i);
	}
	if (!found)
		return NULL;
	*length = 0;
	for (int i = search->count - 1; i >= 0; i = search->edges[i].before)
		(*length)++;
	cycle = palloc(*length * sizeof(Edge *));
	for (int i = search->count - 1, at = *length; i >= 0; i = search->edges[i].before)
		cycle[--at] = &search->edges[i];
	return cycle;
}

/*
 * The second look.
 */
static bool
is_still_there(Search *search, const Edge *edge)
{
	HloomGrant	holder;
	int		   *blockers;
	int			count;

	if (edge->wait != NULL)
		return ask_holder(search, edge->wait, &holder) && holder.follows &&
			holder.holder_pid == edge->blocker && holder.fence == edge->fence;
	blockers = ask_blockers(edge->waiter, &count);
	for (int i = 0; i < count; i++)
		if (blockers[i] == edge->blocker)
			return true;
	return false;
}

/*
 * Whether the cycle is a deadlock that this backend is to break.
 */
static bool
is_mine_to_break(Search *search, const Edge **cycle, int length)
{
	const HloomWaiter **waits = palloc(length * sizeof(HloomWaiter *));
	int			count = 0;

	for (int i = length - 1; i >= 0; i--)
	{
		if (!is_still_there(search, cycle[i]))
			return false;
		if (cycle[i]->wait != NULL)
			waits[count++] = cycle[i]->wait;
	}
	return hloom_waitlist_be_victim(waits, count);
}

/*
 * Raises 40P01 with all sides.  What the user may not use is not named.
 */
static void
report(const HloomCourse *course, const Edge **cycle, int length)
{
	const HloomKey *name = course->name;
	StringInfoData text;

	hloom_stats_add(name->ns, name->ns_len, HLOOM_STAT_DEADLOCKS, 1);
	initStringInfo(&text);
	for (int i = 0; i < length; i++)
	{
		const Edge *edge = cycle[i];
		HloomKey	waited = {0};
		bool		told = false;

		if (edge->wait != NULL)
		{
			waited = hloom_waitlist_name(edge->wait);
			told = hloom_options_may_use(waited.ns, waited.ns_len);
		}
		hloom_error_add_wait(&text, edge->waiter, edge->wait != NULL, told ? &waited : NULL,
							 edge->blocker);
	}
	hloom_error_deadlock(course, &text);
}

/*
 * Looks for a deadlock of this backend, which is listed as waiting for the key of course, and
 * raises 40P01 when there is one and this backend is to break it.  Otherwise *holder, which was
 * zeroes, tells who holds the key, as far as that is known.  Takes 0.1 seconds when the store does
 * not answer.  Raises also what a broken store and interrupts raise.
 */
void
hloom_deadlock_check(const HloomProvider *provider, const HloomCourse *course, HloomGrant *holder)
{
	Search		search = {.room = FIRST_ROOM};
	MemoryContext context;
	MemoryContext old;
	const Edge **cycle;
	Edge		own = {.waiter = MyProcPid,.before = -1};
	int			length;

	if (!hloom_waitlist_is_in() || provider->holder == NULL)
		return;
	context = AllocSetContextCreate(CurrentMemoryContext, "hloom_lock deadlock",
									ALLOCSET_DEFAULT_SIZES);
	old = MemoryContextSwitchTo(context);
	search.waits = hloom_waitlist_copy(&search.wait_count);
	search.edges = palloc(search.room * sizeof(Edge));
	own.wait = find_wait(&search, MyProcPid);
	if (own.wait != NULL && ask_holder(&search, own.wait, holder) && holder->follows)
	{
		own.blocker = holder->holder_pid;
		own.fence = holder->fence;
		(void) add_edge(&search, own);
		cycle = find_cycle(&search, &length);
		if (cycle != NULL && is_mine_to_break(&search, cycle, length))
			report(course, cycle, length);
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
}
