/*
 * worker.c
 *	  The background worker of one database: its turns, and when it leaves.
 *
 * It does what nobody waits for: renews leases and warns of them (worker_renew.c), removes rows of
 * leases that were given back (lease_sweep.c), and those of leases that have ended (worker_reap.c),
 * which it reports (worker_report.c).  No grant and no release depends on it; without it leases
 * that are to be renewed end, and losses are told later.
 *
 * A turn begins when something is due, or its latch is set (work.c).  It opens a transaction only
 * when there is something to do, and keeps no lock between two steps, so an idle worker does
 * nothing at all, and the table can be locked, truncated or dropped at any time.
 *
 * It leaves a second after the last client has left the database, which is looked at once a second:
 * DROP DATABASE and others wait five for such as this one.  It also leaves when the extension is
 * not there; the next call brings it back.
 *
 * What raises ends a step, not the worker, which then tries again after a pause that doubles.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "guc.h"
#include "lease_sweep.h"
#include "lease_table.h"
#include "losses.h"
#include "work.h"
#include "worker.h"
#include "worker_reap.h"
#include "worker_renew.h"
#include "worker_report.h"

/* How often clients are counted, and for how long there must be none. */
#define CLIENT_POLL USECS_PER_SEC

#define LONGEST_PAUSE (64 * USECS_PER_SEC)

/* Given back leases looked at by one step, and when those of a locked table are again. */
#define SWEEP_AT_ONCE 1024
#define SWEEP_AGAIN USECS_PER_SEC

/* What a turn works with. */
typedef struct Turn
{
	TimestampTz due;			/* when it is to be looked again */
	TimestampTz end;			/* the nearest end of a lease that a pass found */
	bool		deserted;		/* the extension is not there */
} Turn;

/* How long to wait after the last error; 0 after a good turn. */
static int64 retry_pause = 0;

/* Of one step.  What outlives a step is allocated once. */
static MemoryContext step_context = NULL;
static HloomTrackedDue *due_room = NULL;
static HloomTrackedId *id_room = NULL;

/*
 * Sleeps until then, or until the latch is set.  Lets interrupts in.
 */
void
hloom_worker_sleep(TimestampTz until)
{
	static uint32 event = 0;
	TimestampTz now = GetCurrentTimestamp();
	int			events = WL_LATCH_SET | WL_EXIT_ON_PM_DEATH;
	long		timeout = -1;

	if (until != DT_NOEND)
	{
		events |= WL_TIMEOUT;
		timeout = (long) Min((Max(until - now, 0) + 999) / 1000, INT_MAX);
	}
	(void) WaitLatch(MyLatch, events, timeout, hloom_wait_event("HloomWorkerMain", &event));
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

static void
begin(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	MemoryContextReset(step_context);
	MemoryContextSwitchTo(step_context);
}

static void
commit(void)
{
	CommitTransactionCommand();
	MemoryContextSwitchTo(step_context);
}

/*
 * Opens the table if that works at once; NULL when it is locked, or, with turn->deserted set, not
 * there.
 */
static Relation
open_table(Turn *turn)
{
	turn->deserted = !OidIsValid(hloom_table_oid());
	return turn->deserted ? NULL : hloom_table_open(RowExclusiveLock, 0);
}

/*
 * Renews and warns until nothing is due.
 */
static void
renew_due(Turn *turn)
{
	TimestampTz next;
	Relation	rel;
	int			count;

	while ((count = hloom_tracked_due(due_room, HLOOM_RENEW_AT_ONCE, GetCurrentTimestamp(),
									  &next)) > 0)
	{
		begin();
		rel = open_table(turn);
		if (!turn->deserted)
			hloom_worker_renew(rel, due_room, count);
		if (rel != NULL)
			hloom_table_close(rel, RowExclusiveLock);
		commit();
		if (turn->deserted)
			return;
	}
	turn->due = Min(turn->due, next);
}

/*
 * Removes the rows of what was given back.
 */
static void
sweep(Turn *turn)
{
	int			count = hloom_tracked_collect(true, id_room, SWEEP_AT_ONCE, NULL);

	if (count == 0)
		return;
	begin();
	turn->deserted = !OidIsValid(hloom_table_oid());
	if (!turn->deserted && hloom_sweep(id_room, count) > 0)
		turn->due = Min(turn->due, GetCurrentTimestamp() + SWEEP_AGAIN);
	else if (count == SWEEP_AT_ONCE)
		turn->due = 0;
	commit();
}

/*
 * Removes rows of leases that have ended, as many as can be kept until they are reported.
 */
static void
reap(Turn *turn)
{
	Relation	rel;

	if (!hloom_worker_reap_is_due())
		return;
	begin();
	rel = open_table(turn);
	if (!turn->deserted && !hloom_worker_reap(rel, &turn->end))
		turn->due = 0;
	if (rel != NULL)
		hloom_table_close(rel, RowExclusiveLock);
	commit();
}

/*
 * An error has ended reap().
 */
static void
skip_damage(Turn *turn)
{
	if (hloom_worker_reap_failed(GetCurrentTimestamp() + retry_pause))
		turn->due = 0;
	turn->end = 0;
}

static void
report(Turn *turn)
{
	bool		more = hloom_losses_are_any();

	while (more)
	{
		List	   *notices = NIL;

		CHECK_FOR_INTERRUPTS();
		begin();
		more = hloom_report_losses(&notices);
		commit();
		hloom_report_send(notices);
	}
}

/*
 * The table is gone, and with it every lease of the database: lets their holders know.  Those of a
 * table made meanwhile are newer than the list.
 */
static void
lose_all(Turn *turn)
{
	int			count;

	do
	{
		CHECK_FOR_INTERRUPTS();
		count = hloom_tracked_list(id_room, SWEEP_AT_ONCE);
		begin();
		if (OidIsValid(hloom_table_oid()))
			count = 0;
		for (int i = 0; i < count; i++)
			(void) hloom_tracked_drop(&id_room[i], false);
		commit();
	} while (count == SWEEP_AT_ONCE);
	hloom_worker_reap_stop();
}

/*
 * Takes one step.  Returns false when it raised an error, which is logged.
 */
static bool
take(void (*step) (Turn *turn), Turn *turn)
{
	volatile bool good = true;

	PG_TRY();
	{
		step(turn);
	}
	PG_CATCH();
	{
		EmitErrorReport();
		AbortCurrentTransaction();
		LWLockReleaseAll();
		FlushErrorState();
		good = false;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(step_context);
	if (!good)
	{
		retry_pause = Min(Max(2 * retry_pause, USECS_PER_SEC), LONGEST_PAUSE);
		turn->due = Min(turn->due, GetCurrentTimestamp() + retry_pause);
	}
	return good;
}

/*
 * Does what is due.  Returns false when the extension is not there.
 */
static bool
do_turn(Turn *turn)
{
	bool		good;

	hloom_work_begin_turn();
	good = take(renew_due, turn);
	good = take(sweep, turn) && good;
	if (!take(reap, turn))
	{
		skip_damage(turn);
		good = false;
	}
	good = take(report, turn) && good;
	if (turn->deserted)
		good = take(lose_all, turn) && good;
	if (good && hloom_worker_reap_is_good())
		retry_pause = 0;
	return !turn->deserted;
}

/*
 * Whether no client has been there for a while.
 */
static bool
is_alone(TimestampTz *poll_at)
{
	static TimestampTz alone_since = 0;
	TimestampTz now = GetCurrentTimestamp();

	if (now < *poll_at)
		return false;
	*poll_at = now + CLIENT_POLL;
	if (CountDBConnections(MyDatabaseId) > 0)
		alone_since = 0;
	else if (alone_since == 0)
		alone_since = now;
	return alone_since != 0 && now - alone_since >= CLIENT_POLL;
}

/*
 * Rests until something is due, or the configuration has changed.  Returns false when there is no
 * reason to stay.
 */
static bool
rest(TimestampTz wake_at)
{
	static TimestampTz poll_at = 0;

	do
	{
		if (is_alone(&poll_at) && hloom_work_leave())
			return false;
		(void) pgstat_report_stat(wake_at - GetCurrentTimestamp() > USECS_PER_SEC);
		hloom_worker_sleep(Min(wake_at, poll_at));
		wake_at = hloom_work_end_turn(DT_NOEND, DT_NOEND, hloom_worker_reap_after(false));
	} while (!ConfigReloadPending && wake_at > GetCurrentTimestamp());
	return true;
}

/*
 * Takes turns until there is no reason to stay.
 */
static void
take_turns(void)
{
	for (;;)
	{
		Turn		turn = {.due = DT_NOEND,.end = DT_NOEND};

		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			(void) hloom_worker_reap_after(true);
		}
		if (do_turn(&turn))
		{
			if (!rest(hloom_work_end_turn(turn.due, turn.end, hloom_worker_reap_after(false))))
				return;
		}
		else
		{
			(void) hloom_work_take_end();
			if (hloom_work_leave())
				return;
		}
	}
}

/*
 * Counts as the database owner's process: DROP DATABASE ... WITH (FORCE) ends it for whoever may
 * end that role's.
 */
static void
belong_to_owner(void)
{
	HeapTuple	tuple;

	StartTransactionCommand();
	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));
	if (HeapTupleIsValid(tuple))
	{
		MyProc->roleId = ((Form_pg_database) GETSTRUCT(tuple))->datdba;
		ReleaseSysCache(tuple);
	}
	CommitTransactionCommand();
}

static void
worker_ends(int code, Datum arg)
{
	hloom_work_detach(code != 0);
}

/*
 * Main function of a worker; arg is its place in work.c.
 */
void
hloom_worker_main(Datum arg)
{
	Oid			database;

	memcpy(&database, MyBgworkerEntry->bgw_extra, sizeof(database));
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	before_shmem_exit(worker_ends, (Datum) 0);
	if (!hloom_work_attach(DatumGetInt32(arg), database))
		return;
	BackgroundWorkerInitializeConnectionByOid(database, InvalidOid, BGWORKER_BYPASS_ALLOWCONN);
	pgstat_report_activity(STATE_IDLE, NULL);
	belong_to_owner();

	step_context = AllocSetContextCreate(TopMemoryContext, "hloom_lock step",
										 ALLOCSET_DEFAULT_SIZES);
	due_room = MemoryContextAlloc(TopMemoryContext,
								  HLOOM_RENEW_AT_ONCE * sizeof(HloomTrackedDue));
	id_room = MemoryContextAlloc(TopMemoryContext, SWEEP_AT_ONCE * sizeof(HloomTrackedId));

	/* What has ended before nobody has told. */
	hloom_work_note_end(0);
	take_turns();
}
