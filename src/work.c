/*
 * work.c
 *	  What there is to do for background workers, by database, in shared memory.
 *
 * Each database that leases were taken in has a place.  Whoever makes work there lowers "due" or
 * "end" of the place, and only when that is sooner than its worker would look anyway sets a latch:
 * the worker's, or the launcher's when there is none.  So a call costs one read as a rule.
 *
 * States of a place.  None: the launcher starts a worker when there is something to do and a
 * client is connected.  Starting: the launcher has asked the postmaster; one that never comes is
 * asked for again.  Running: the worker has attached.  It leaves by itself (worker.c), or its exit
 * callback detaches it, and tells the launcher in both cases.  What is still to be done is put
 * aside when it leaves, so that the next call brings another.
 *
 * Locking.  One LWLock guards which database a place is for, and its state.  It is taken after
 * any other lock of ours, and under it nothing is waited for.  due, end and wake_at are atomics:
 *	- a caller lowers due or end with a full barrier, then reads wake_at and proc;
 *	- a worker writes wake_at, then after a full barrier reads due and end once more.
 * So one of both sees the other.  A worker that leaves tells the launcher afterwards, which looks
 * at due and end.  Latches are those of process slots, which stay where they are: one set in vain
 * wakes somebody else for nothing.
 *
 * "due" is exact.  "end" is not: a pass over the table is made only so often, and finds what has
 * ended.  Knows nothing of leases.
 */
#include "postgres.h"

#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"

#include "compat.h"
#include "shmem.h"
#include "work_table.h"

/* A worker that has run so long and then fails is replaced at once. */
#define LONG_ENOUGH (10 * USECS_PER_SEC)

/* Otherwise after a second, doubled by each further failure up to a minute. */
#define MOST_DOUBLINGS 6
#define LONGEST_PAUSE (60 * USECS_PER_SEC)

/* This process's address of it. */
HloomWorkTable *hloom_work_table = NULL;

/* The place of this process's database, once it was needed; it may be another's by now. */
HloomWork  *hloom_work_mine = NULL;

/*
 * Returns the bytes of shared memory needed.
 */
Size
hloom_work_size(void)
{
	return MAXALIGN(sizeof(HloomWorkTable));
}

/*
 * Attaches to the memory, and makes it when it was not found.  Called with AddinShmemInitLock
 * held, after the tranche was requested.
 */
void
hloom_work_start(void *memory, bool found)
{
	hloom_work_table = (HloomWorkTable *) memory;
	if (found)
		return;
	memset(hloom_work_table, 0, sizeof(*hloom_work_table));
	hloom_work_table->lock = &GetNamedLWLockTranche(HLOOM_EXTENSION)[HLOOM_LWLOCK_WORK].lock;
	pg_atomic_init_u32(&hloom_work_table->launcher, 0);
	pg_atomic_init_u32(&hloom_work_table->shortage, 0);
	for (int i = 0; i < HLOOM_WORK_PLACES; i++)
	{
		pg_atomic_init_u64(&hloom_work_table->places[i].due, NEVER);
		pg_atomic_init_u64(&hloom_work_table->places[i].end, NEVER);
		pg_atomic_init_u64(&hloom_work_table->places[i].wake_at, NEVER);
		pg_atomic_init_u32(&hloom_work_table->places[i].proc, 0);
		pg_atomic_init_u64(&hloom_work_table->places[i].turns, 0);
		hloom_work_clear(&hloom_work_table->places[i]);
	}
}

static void
wake(uint32 number)
{
	if (number == 0)
		number = pg_atomic_read_u32(&hloom_work_table->launcher);
	if (number != 0)
		SetLatch(&ProcGlobal->allProcs[number - 1].procLatch);
}

static bool
has_work(HloomWork *work)
{
	return pg_atomic_read_u64(&work->due) != NEVER || pg_atomic_read_u64(&work->end) != NEVER ||
		work->left != DT_NOEND;
}

/*
 * Finds this database's place, or makes one out of a free one, or of one with no worker and
 * nothing to do.  Leaves NULL when there is none: then nobody works for this database until there
 * is.
 */
static void
find_mine(void)
{
	HloomWork  *spare = NULL;

	hloom_work_mine = NULL;
	LWLockAcquire(hloom_work_table->lock, LW_EXCLUSIVE);
	for (int i = 0; i < HLOOM_WORK_PLACES && hloom_work_mine == NULL; i++)
	{
		HloomWork  *work = &hloom_work_table->places[i];

		if (work->database == MyDatabaseId)
			hloom_work_mine = work;
		else if (!OidIsValid(work->database) ||
				 (spare == NULL && work->state == HLOOM_WORK_NONE && !has_work(work)))
			spare = work;
	}
	if (hloom_work_mine == NULL && spare != NULL)
	{
		hloom_work_clear(spare);
		spare->database = MyDatabaseId;
		hloom_work_mine = spare;
	}
	LWLockRelease(hloom_work_table->lock);
}

/*
 * Lowers the time.  Returns whether it was later.
 */
static bool
lower(pg_atomic_uint64 *at, TimestampTz to)
{
	uint64		old = pg_atomic_read_u64(at);

	while ((TimestampTz) old > to)
		if (pg_atomic_compare_exchange_u64(at, &old, (uint64) to))
			return true;
	return false;
}

/*
 * Lowers a time of this database, and wakes whoever would look later.
 */
static void
ask(pg_atomic_uint64 *at, TimestampTz to)
{
	if (lower(at, to) && !hloom_work_is_before(&hloom_work_mine->wake_at, to))
		wake(pg_atomic_read_u32(&hloom_work_mine->proc));
}

static bool
have_place(void)
{
	if (!OidIsValid(MyDatabaseId))
		return false;
	if (hloom_work_mine == NULL || hloom_work_mine->database != MyDatabaseId)
		find_mine();
	return hloom_work_mine != NULL;
}

/*
 * See hloom_work_ask.
 */
void
hloom_work_lower_due(TimestampTz due)
{
	if (have_place())
		ask(&hloom_work_mine->due, due);
}

/*
 * See hloom_work_note_end.
 */
void
hloom_work_lower_end(TimestampTz end)
{
	if (have_place())
		ask(&hloom_work_mine->end, end);
}

/*
 * This process is a worker that was asked for.  Returns false when it is not needed any more.
 */
bool
hloom_work_attach(int place, Oid database)
{
	HloomWork  *work = &hloom_work_table->places[place];
	bool		needed;

	LWLockAcquire(hloom_work_table->lock, LW_EXCLUSIVE);
	needed = work->database == database && work->state == HLOOM_WORK_STARTING;
	if (needed)
	{
		work->state = HLOOM_WORK_RUNNING;
		work->pid = MyProcPid;
		work->since = GetCurrentTimestamp();
		work->left = DT_NOEND;
		pg_atomic_write_u64(&work->wake_at, (uint64) work->since);
		pg_atomic_write_u32(&work->proc, hloom_work_own_number());
		hloom_work_mine = work;
	}
	LWLockRelease(hloom_work_table->lock);
	return needed;
}

/*
 * The place has no worker any more.  The lock is held.
 */
static void
become_none(HloomWork *work)
{
	work->state = HLOOM_WORK_NONE;
	work->pid = 0;
	work->since = GetCurrentTimestamp();
	pg_atomic_write_u32(&work->proc, 0);
	pg_atomic_write_u64(&work->wake_at, NEVER);
}

/*
 * The worker ends, unless it has left before; after an error when it has failed.  Does not raise.
 */
void
hloom_work_detach(bool failed)
{
	HloomWork  *work = hloom_work_mine;

	if (work == NULL)
		return;
	LWLockAcquire(hloom_work_table->lock, LW_EXCLUSIVE);
	if (work->pid == MyProcPid)
	{
		TimestampTz now = GetCurrentTimestamp();
		bool		soon = failed && now - work->since < LONG_ENOUGH;

		work->failures = soon ? Min(work->failures + 1, MOST_DOUBLINGS + 1) : 0;
		/* It may have ended in a turn, and what is due next be known to nobody. */
		(void) lower(&work->due, now);
		work->retry_at = now;
		if (work->failures > 1)
			work->retry_at += Min(USECS_PER_SEC << (work->failures - 2), LONGEST_PAUSE);
		become_none(work);
	}
	LWLockRelease(hloom_work_table->lock);
	wake(0);
}

/*
 * The worker leaves, unless something is due at this moment.  Returns whether it did.
 */
bool
hloom_work_leave(void)
{
	HloomWork  *work = hloom_work_mine;
	bool		leaves;

	LWLockAcquire(hloom_work_table->lock, LW_EXCLUSIVE);
	leaves = !hloom_work_is_before(&work->due, GetCurrentTimestamp());
	if (leaves)
	{
		work->failures = 0;
		become_none(work);
		hloom_work_set_aside(work);
	}
	LWLockRelease(hloom_work_table->lock);
	if (leaves)
		wake(0);
	return leaves;
}

/*
 * The worker begins to look: what is asked for from now on is seen by this turn or the next.
 */
void
hloom_work_begin_turn(void)
{
	pg_atomic_write_u64(&hloom_work_mine->wake_at, (uint64) GetCurrentTimestamp());
	(void) pg_atomic_exchange_u64(&hloom_work_mine->due, NEVER);
	pg_atomic_fetch_add_u64(&hloom_work_mine->turns, 1);
}

/*
 * The worker begins a pass over the table.  Returns what "end" was.
 */
TimestampTz
hloom_work_take_end(void)
{
	return (TimestampTz) pg_atomic_exchange_u64(&hloom_work_mine->end, NEVER);
}

static TimestampTz
next_turn(HloomWork *work, TimestampTz pass_after)
{
	TimestampTz due = (TimestampTz) pg_atomic_read_u64(&work->due);
	TimestampTz end = (TimestampTz) pg_atomic_read_u64(&work->end);

	return end == DT_NOEND ? due : Min(due, Max(end, pass_after));
}

/*
 * The worker has looked and found when something is due next and when the next lease ends; it makes
 * no pass before pass_after.  Returns when it is to look again.  A worker that was woken and has
 * not looked has found nothing.
 */
TimestampTz
hloom_work_end_turn(TimestampTz due, TimestampTz end, TimestampTz pass_after)
{
	HloomWork  *work = hloom_work_mine;
	TimestampTz wake_at;
	TimestampTz next;

	/* At once is now: those who look tell how late a worker is. */
	(void) lower(&work->due, Max(due, GetCurrentTimestamp()));
	(void) lower(&work->end, end);
	next = next_turn(work, pass_after);
	do
	{
		wake_at = next;
		pg_atomic_write_u64(&work->wake_at, (uint64) wake_at);
		pg_memory_barrier();
		next = next_turn(work, pass_after);
	} while (next < wake_at);
	return wake_at;
}
