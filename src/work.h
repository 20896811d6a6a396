/*
 * work.h
 *	  What there is to do for background workers, by database, in shared memory.
 */
#ifndef HLOOM_WORK_H
#define HLOOM_WORK_H

#include "miscadmin.h"
#include "port/atomics.h"
#include "utils/timestamp.h"

#include "hloom.h"

/* Databases that can have a worker at a time. */
#define HLOOM_WORK_PLACES 256

typedef enum HloomWorkState
{
	HLOOM_WORK_NONE,			/* no worker */
	HLOOM_WORK_STARTING,		/* asked for */
	HLOOM_WORK_RUNNING
} HloomWorkState;

/* One database's place.  See work.c for who writes what. */
typedef struct HloomWork
{
	Oid			database;		/* invalid: free.  Changed under the lock, read without */

	/* Under the lock. */
	HloomWorkState state;
	int			pid;			/* of the worker that runs */
	TimestampTz since;			/* of the state */
	int			failures;		/* workers that ended soon with an error, in a row */
	TimestampTz retry_at;		/* no worker is started before */
	TimestampTz left;			/* put aside without a worker; DT_NOEND: nothing */

	/* Without the lock. */
	pg_atomic_uint64 due;		/* TimestampTz of the next renewal, warning or clean-up */
	pg_atomic_uint64 end;		/* no lease ends before, but those the last pass has seen */
	pg_atomic_uint64 wake_at;	/* when the worker looks next by itself */
	pg_atomic_uint32 proc;		/* its process number + 1; 0: tell the launcher */
	pg_atomic_uint64 turns;		/* of the worker, since the server was started */
} HloomWork;

/* A copy of a place, for the launcher and for those who look. */
typedef struct HloomWorkSeen
{
	int			place;
	Oid			database;
	HloomWorkState state;
	int			pid;
	TimestampTz since;
	TimestampTz retry_at;
	TimestampTz due;
	TimestampTz next;			/* nearest of due and end; DT_NOEND: nothing to do */
	TimestampTz wake_at;
	uint64		turns;
} HloomWorkSeen;

extern HloomWork *hloom_work_mine;

extern Size hloom_work_size(void);
extern void hloom_work_start(void *memory, bool found);
extern void hloom_work_lower_due(TimestampTz due);
extern void hloom_work_lower_end(TimestampTz end);

/* For the launcher. */
extern void hloom_work_launcher_begin(void);
extern int	hloom_work_see(HloomWorkSeen *seen);
extern bool hloom_work_claim(const HloomWorkSeen *seen);
extern void hloom_work_not_started(const HloomWorkSeen *seen, TimestampTz retry_at);
extern void hloom_work_forget(const HloomWorkSeen *seen);
extern void hloom_work_put_aside(const HloomWorkSeen *seen);
extern void hloom_work_note_shortage(bool shortage);

/* For a worker. */
extern bool hloom_work_attach(int place, Oid database);
extern void hloom_work_detach(bool failed);
extern bool hloom_work_leave(void);
extern void hloom_work_begin_turn(void);
extern TimestampTz hloom_work_take_end(void);
extern TimestampTz hloom_work_end_turn(TimestampTz due, TimestampTz end, TimestampTz pass_after);

/* For those who look. */
extern bool hloom_work_look(HloomWorkSeen *seen, bool *launcher, bool *shortage);

static inline bool
hloom_work_is_before(pg_atomic_uint64 *at, TimestampTz than)
{
	return (TimestampTz) pg_atomic_read_u64(at) <= than;
}

/*
 * Lets the worker of this database look at what is due no later than at "due".  The library is
 * preloaded.  Does not raise; may be called with any lock of ours held but work's.
 */
static inline void
hloom_work_ask(TimestampTz due)
{
	if (unlikely(hloom_work_mine == NULL || hloom_work_mine->database != MyDatabaseId ||
				 !hloom_work_is_before(&hloom_work_mine->due, due)))
		hloom_work_lower_due(due);
}

/*
 * A lease of this database has got this end: a pass over the table soon after finds it.  As
 * hloom_work_ask.
 */
static inline void
hloom_work_note_end(TimestampTz end)
{
	if (unlikely(hloom_work_mine == NULL || hloom_work_mine->database != MyDatabaseId ||
				 !hloom_work_is_before(&hloom_work_mine->end, end)))
		hloom_work_lower_end(end);
}

#endif							/* HLOOM_WORK_H */
