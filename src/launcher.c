/*
 * launcher.c
 *	  The background process that starts a worker for each database with something to do.
 *
 * It is connected to no database.  A worker is started when there is something to do in a database
 * and a client is connected to it: without one nobody waits for anything, and nothing must keep the
 * database from being dropped.  What ends meanwhile is looked after when the next client comes.
 *
 * It sleeps until the nearest of what databases without a worker wait for, or until its latch is
 * set (work.c).  A database that something is due in and that has no client is looked at once a
 * second.  So is one that is being dropped, copied or renamed: the clients that DROP DATABASE WITH
 * (FORCE) has terminated are still there when the worker is gone.
 *
 * Knows no lease and no table.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_database.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lock.h"
#include "storage/procarray.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "launcher.h"
#include "work.h"
#include "worker.h"

/* A worker that has not come by then is asked for again. */
#define START_LIMIT (10 * USECS_PER_SEC)

/* How soon a worker is asked for again when the server has none free. */
#define RETRY_PAUSE USECS_PER_SEC

/* How often a database in which no worker may be is looked at, and whether it is still there. */
#define CLIENT_POLL USECS_PER_SEC
#define EXISTENCE_POLL (10 * USECS_PER_SEC)

/* When no worker was to be had for the first and for the last time in a row. */
static TimestampTz short_since = 0;
static TimestampTz short_at = 0;

/* The lack of workers was reported. */
static bool reported = false;

/*
 * The server has no background worker for us: says so once.  The place of one that has just ended
 * may not be free yet, so it is not told of before it has failed for a while.
 */
static void
report_shortage(Oid database, TimestampTz now)
{
	if (now - short_at > 5 * RETRY_PAUSE)
		short_since = now;
	short_at = now;
	if (now - short_since < RETRY_PAUSE)
		return;
	hloom_work_note_shortage(true);
	if (reported)
		return;
	reported = true;
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("could not start a hloom_lock worker for the database with OID %u", database),
			 errdetail("Leases are granted and given back as before; nothing is renewed, and"
					   " losses are not reported, until it can be started."),
			 errhint("Increase max_worker_processes and restart the server.")));
}

static bool
start_worker(const HloomWorkSeen *seen)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_main_arg = Int32GetDatum(seen->place);
	worker.bgw_notify_pid = MyProcPid;
	snprintf(worker.bgw_library_name, sizeof(worker.bgw_library_name), HLOOM_EXTENSION);
	snprintf(worker.bgw_function_name, sizeof(worker.bgw_function_name), "hloom_worker_main");
	snprintf(worker.bgw_type, sizeof(worker.bgw_type), "hloom_lock worker");
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "hloom_lock worker for database %u",
			 seen->database);
	memcpy(worker.bgw_extra, &seen->database, sizeof(Oid));
	return RegisterDynamicBackgroundWorker(&worker, NULL);
}

static bool
database_exists(Oid database)
{
	char	   *name;

	StartTransactionCommand();
	name = get_database_name(database);
	CommitTransactionCommand();
	return name != NULL;
}

/*
 * Whether somebody has locked the database so that nobody can connect to it.
 */
static bool
is_locked(Oid database)
{
	LOCKTAG		tag;
	bool		locked;

	SET_LOCKTAG_OBJECT(tag, InvalidOid, DatabaseRelationId, database, 0);
	StartTransactionCommand();
	locked = LockAcquire(&tag, RowExclusiveLock, false, true) == LOCKACQUIRE_NOT_AVAIL;
	CommitTransactionCommand();
	return locked;
}

/*
 * A database has something to do, and no client.  Returns when to look again.
 */
static TimestampTz
look_at_deserted(const HloomWorkSeen *seen, TimestampTz now, bool may_be_gone)
{
	if (seen->next > now)
		return seen->next;
	if (may_be_gone && !database_exists(seen->database))
	{
		hloom_work_forget(seen);
		return DT_NOEND;
	}
	hloom_work_put_aside(seen);
	return now + CLIENT_POLL;
}

/*
 * Looks at a database without a worker.  Returns when to look again.
 */
static TimestampTz
look_at_idle(const HloomWorkSeen *seen, TimestampTz now, bool may_be_gone)
{
	if (seen->next == DT_NOEND)
		return DT_NOEND;
	if (seen->retry_at > now)
		return seen->retry_at;
	if (CountDBConnections(seen->database) == 0)
		return look_at_deserted(seen, now, may_be_gone);
	if (is_locked(seen->database))
		return now + CLIENT_POLL;
	if (!hloom_work_claim(seen))
		return now;
	if (start_worker(seen))
	{
		reported = false;
		short_at = 0;
		hloom_work_note_shortage(false);
		return now + START_LIMIT;
	}
	report_shortage(seen->database, now);
	hloom_work_not_started(seen, now + RETRY_PAUSE);
	return now + RETRY_PAUSE;
}

/*
 * Looks at all databases.  Returns when to look again.
 */
static TimestampTz
look_at_all(HloomWorkSeen *seen)
{
	static TimestampTz checked_at = 0;
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz next = DT_NOEND;
	int			count = hloom_work_see(seen);
	bool		may_be_gone = now - checked_at >= EXISTENCE_POLL;

	if (may_be_gone)
		checked_at = now;
	for (int i = 0; i < count; i++)
	{
		TimestampTz at = DT_NOEND;

		if (seen[i].state == HLOOM_WORK_NONE)
			at = look_at_idle(&seen[i], now, may_be_gone);
		else if (seen[i].state == HLOOM_WORK_STARTING)
		{
			at = seen[i].since + START_LIMIT;
			if (at <= now)
			{
				hloom_work_not_started(&seen[i], now);
				at = now;
			}
		}
		next = Min(next, at);
	}
	return next;
}

/*
 * Main function of the launcher.
 */
void
hloom_launcher_main(Datum arg)
{
	HloomWorkSeen *seen;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	hloom_work_launcher_begin();
	seen = MemoryContextAlloc(TopMemoryContext, HLOOM_WORK_PLACES * sizeof(HloomWorkSeen));

	for (;;)
	{
		hloom_worker_sleep(look_at_all(seen));
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
	}
}

/*
 * Registers the launcher.  Called from _PG_init while the server preloads libraries.
 */
void
hloom_launcher_init(void)
{
	BackgroundWorker launcher;

	if (IsBinaryUpgrade)
		return;
	memset(&launcher, 0, sizeof(launcher));
	launcher.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	launcher.bgw_start_time = BgWorkerStart_RecoveryFinished;
	launcher.bgw_restart_time = 1;
	snprintf(launcher.bgw_library_name, sizeof(launcher.bgw_library_name), HLOOM_EXTENSION);
	snprintf(launcher.bgw_function_name, sizeof(launcher.bgw_function_name),
			 "hloom_launcher_main");
	snprintf(launcher.bgw_name, sizeof(launcher.bgw_name), "hloom_lock launcher");
	snprintf(launcher.bgw_type, sizeof(launcher.bgw_type), "hloom_lock launcher");
	RegisterBackgroundWorker(&launcher);
}
