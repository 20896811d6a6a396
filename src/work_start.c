/*
 * work_start.c
 *	  The shared table of work as the launcher sees it, and those who look.
 *
 * work.c tells what a place is for, its states and the lock protocol.  What was seen is a copy:
 * each change says what it was made for, and is not made when the place has changed meanwhile.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"

#include "compat.h"
#include "work_table.h"

/*
 * Makes a place free.  The lock is held.
 */
void
hloom_work_clear(HloomWork *work)
{
	work->database = InvalidOid;
	work->state = HLOOM_WORK_NONE;
	work->pid = 0;
	work->since = work->retry_at = 0;
	work->left = DT_NOEND;
	work->failures = 0;
	pg_atomic_write_u64(&work->due, NEVER);
	pg_atomic_write_u64(&work->end, NEVER);
	pg_atomic_write_u64(&work->wake_at, NEVER);
	pg_atomic_write_u32(&work->proc, 0);
	pg_atomic_write_u64(&work->turns, 0);
}

/*
 * There is no worker: what is to be done is put aside, so that the next call in this database tells
 * the launcher, even if what it asks for is due later.  The lock is held.
 */
void
hloom_work_set_aside(HloomWork *work)
{
	TimestampTz due = (TimestampTz) pg_atomic_exchange_u64(&work->due, NEVER);
	TimestampTz end = (TimestampTz) pg_atomic_exchange_u64(&work->end, NEVER);

	work->left = Min(work->left, due);
	work->left = Min(work->left, end);
}

static void
launcher_ends(int code, Datum arg)
{
	pg_atomic_write_u32(&hloom_work_table->launcher, 0);
}

/*
 * This process is the launcher, from now on until it ends.
 */
void
hloom_work_launcher_begin(void)
{
	before_shmem_exit(launcher_ends, (Datum) 0);
	pg_atomic_write_u32(&hloom_work_table->launcher, hloom_work_own_number());
}

static void
copy_place(HloomWorkSeen *seen, int place)
{
	HloomWork  *work = &hloom_work_table->places[place];

	seen->place = place;
	seen->database = work->database;
	seen->state = work->state;
	seen->pid = work->pid;
	seen->since = work->since;
	seen->retry_at = work->retry_at;
	seen->due = (TimestampTz) pg_atomic_read_u64(&work->due);
	seen->next = Min(seen->due, (TimestampTz) pg_atomic_read_u64(&work->end));
	seen->next = Min(seen->next, work->left);
	seen->wake_at = (TimestampTz) pg_atomic_read_u64(&work->wake_at);
	seen->turns = pg_atomic_read_u64(&work->turns);
}

/*
 * Copies the places in use, at most HLOOM_WORK_PLACES.  Returns how many.
 */
int
hloom_work_see(HloomWorkSeen *seen)
{
	int			count = 0;

	LWLockAcquire(hloom_work_table->lock, LW_SHARED);
	for (int i = 0; i < HLOOM_WORK_PLACES; i++)
		if (OidIsValid(hloom_work_table->places[i].database))
			copy_place(&seen[count++], i);
	LWLockRelease(hloom_work_table->lock);
	return count;
}

/*
 * Locks the place that was seen; NULL, with nothing locked, when it is not as it was.
 */
static HloomWork *
lock_seen(const HloomWorkSeen *seen)
{
	HloomWork  *work = &hloom_work_table->places[seen->place];

	LWLockAcquire(hloom_work_table->lock, LW_EXCLUSIVE);
	if (work->database == seen->database && work->state == seen->state)
		return work;
	LWLockRelease(hloom_work_table->lock);
	return NULL;
}

/*
 * The launcher is about to ask for a worker.  Returns false when the place has changed.
 */
bool
hloom_work_claim(const HloomWorkSeen *seen)
{
	HloomWork  *work = lock_seen(seen);

	if (work == NULL)
		return false;
	work->state = HLOOM_WORK_STARTING;
	work->since = GetCurrentTimestamp();
	LWLockRelease(hloom_work_table->lock);
	return true;
}

/*
 * It was not to be had, or has not come: asked for again at retry_at.
 */
void
hloom_work_not_started(const HloomWorkSeen *seen, TimestampTz retry_at)
{
	HloomWork  *work = &hloom_work_table->places[seen->place];

	LWLockAcquire(hloom_work_table->lock, LW_EXCLUSIVE);
	if (work->database == seen->database && work->state == HLOOM_WORK_STARTING)
	{
		work->state = HLOOM_WORK_NONE;
		work->since = GetCurrentTimestamp();
		work->retry_at = retry_at;
	}
	LWLockRelease(hloom_work_table->lock);
}

/*
 * Something is due in a database, and no client is there: puts it aside.
 */
void
hloom_work_put_aside(const HloomWorkSeen *seen)
{
	HloomWork  *work = lock_seen(seen);

	if (work == NULL)
		return;
	hloom_work_set_aside(work);
	LWLockRelease(hloom_work_table->lock);
}

/*
 * The database is gone: frees its place.
 */
void
hloom_work_forget(const HloomWorkSeen *seen)
{
	HloomWork  *work = lock_seen(seen);

	if (work == NULL)
		return;
	hloom_work_clear(work);
	LWLockRelease(hloom_work_table->lock);
}

/*
 * Tells those who look whether the server has no free background worker for us.
 */
void
hloom_work_note_shortage(bool shortage)
{
	pg_atomic_write_u32(&hloom_work_table->shortage, shortage);
}

/*
 * Tells of this database's place; false when it has none.  Also whether the launcher runs, and
 * whether the server has no free background worker.
 */
bool
hloom_work_look(HloomWorkSeen *seen, bool *launcher, bool *shortage)
{
	bool		found = false;

	*launcher = pg_atomic_read_u32(&hloom_work_table->launcher) != 0;
	*shortage = pg_atomic_read_u32(&hloom_work_table->shortage) != 0;
	LWLockAcquire(hloom_work_table->lock, LW_SHARED);
	for (int i = 0; i < HLOOM_WORK_PLACES && !found; i++)
		if (hloom_work_table->places[i].database == MyDatabaseId)
		{
			copy_place(seen, i);
			found = true;
		}
	LWLockRelease(hloom_work_table->lock);
	return found;
}
