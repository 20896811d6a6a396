/*
 * durable.c
 *	  When a change of the lease table is durable, and what COMMIT still has to do for it.
 *
 * A COMMIT without an xid neither flushes nor waits for a standby, and inside BEGIN the caller
 * hears of a grant long before any COMMIT.  So a grant is made durable here, inside the call, as
 * synchronous_commit says.
 *
 * Others may see a change before it is durable.  That is sound: WAL is one stream, so whoever
 * builds a grant on a release not yet flushed flushes that release with the grant.  It is also why
 * a release needs no flush: losing one only delays the next owner until the lease ends.
 *
 * XactLastRecEnd makes COMMIT flush (with an xid) or signal the WAL writer (without one).  Our
 * records must cause neither, and what the caller's own records asked for must stay: it is saved
 * before the page change and put back to the saved value, never to 0.
 *
 * Called with no buffer lock held.  Knows no page and no lease.
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "postmaster/walwriter.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "tcop/tcopprot.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "durable.h"
#include "shmem.h"

/*
 * Whether a test module wants the point to go differently.  Always false without one.
 */
bool
hloom_durable_test_point(HloomTestPoint point)
{
	static void **slot = NULL;

	if (unlikely(slot == NULL))
		slot = find_rendezvous_variable(HLOOM_TEST_RENDEZVOUS);
	return unlikely(*slot != NULL) && ((HloomTestHook) *slot) (point);
}

/*
 * Returns what hloom_durable_forget and hloom_durable_wait put back.  Call it before the page
 * change.
 */
XLogRecPtr
hloom_durable_begin(void)
{
	return XactLastRecEnd;
}

/*
 * Has the WAL writer flush what was inserted so far, at the cost of one signal per
 * wal_writer_delay for the whole server.  In between it is told of records on the WAL page it was
 * signalled for, which costs no signal, so that a few grants followed by silence are flushed in
 * time.  The last ones of a burst that filled the page wait for the next nudge of anybody, at
 * most for the background writer's snapshot (some 25 s, not with wal_level = minimal).
 */
static void
nudge_wal_writer(XLogRecPtr lsn, TimestampTz at)
{
	uint64		now = (uint64) at;
	uint64		last = pg_atomic_read_u64(&hloom_shared->nudged_at);
	uint64		delay = (uint64) WalWriterDelay * 1000;
	uint64		page = (lsn - 1) / XLOG_BLCKSZ;

	/* The unsigned difference also nudges after the clock was set back. */
	if (now - last >= delay)
	{
		if (!pg_atomic_compare_exchange_u64(&hloom_shared->nudged_at, &last, now))
			return;
		pg_atomic_write_u64(&hloom_shared->nudged_page, page);
	}
	else if (page != pg_atomic_read_u64(&hloom_shared->nudged_page))
		return;
	XLogSetAsyncXactLSN(lsn);
}

/*
 * The change need not be durable: COMMIT owes it nothing.  Call it after the page change, with a
 * recent clock.
 */
void
hloom_durable_forget(XLogRecPtr saved, TimestampTz now)
{
	XLogRecPtr	lsn = XactLastRecEnd;

	XactLastRecEnd = saved;
	nudge_wal_writer(lsn, now);
}

/* The deadline has ended the wait for a standby.  Set by a signal handler. */
static volatile sig_atomic_t standby_late = false;

static bool
standby_reached(XLogRecPtr lsn)
{
	int			mode;
	bool		reached;

	switch (synchronous_commit)
	{
		case SYNCHRONOUS_COMMIT_REMOTE_WRITE:
			mode = SYNC_REP_WAIT_WRITE;
			break;
		case SYNCHRONOUS_COMMIT_REMOTE_APPLY:
			mode = SYNC_REP_WAIT_APPLY;
			break;
		default:
			mode = SYNC_REP_WAIT_FLUSH;
	}

	LWLockAcquire(SyncRepLock, LW_SHARED);
	reached = !HLOOM_SYNC_STANDBYS_DEFINED() || WalSndCtl->lsn[mode] >= lsn;
	LWLockRelease(SyncRepLock);
	return reached;
}

/*
 * Timeout handler: ends the wait for a standby, as a cancel would.
 */
static void
end_standby_wait(void)
{
	standby_late = true;
	QueryCancelPending = true;
	InterruptPending = true;
	SetLatch(MyLatch);
}

/*
 * Waits for synchronous standbys until the deadline.  Returns false when the wait was cut short;
 * a cancel or termination that did it is pending, and the next CHECK_FOR_INTERRUPTS raises it.
 */
static bool
wait_for_standbys(XLogRecPtr lsn, TimestampTz deadline)
{
	static TimeoutId timeout = 0;
	CommandDest dest = whereToSendOutput;
	bool		reached;

	if (timeout == 0)
		timeout = RegisterTimeout(USER_TIMEOUT, end_standby_wait);
	standby_late = false;
	enable_timeout_at(timeout, deadline);

	/* "commit" is true, or remote_apply would be lowered to a flush. */
	SyncRepWaitForLSN(lsn, true);
	disable_timeout(timeout, false);
	reached = standby_reached(lsn);

	/*
	 * Core ends a cut wait with a warning, since a commit cannot be undone, and eats the cancel.
	 * A grant can be given back, so the caller gets the error, and gets to hear of it.  The
	 * deadline's own cancel is not for the caller.
	 */
	whereToSendOutput = dest;
	if (standby_late)
		QueryCancelPending = false;
	else if (!reached && !ProcDiePending)
		QueryCancelPending = true;
	if (!reached)
		InterruptPending = true;
	return reached;
}

/*
 * Makes everything up to lsn as durable as synchronous_commit says.  Returns false when the wait
 * for a standby was cut short or took until the deadline; the caller then undoes its change and
 * lets interrupts in.  The caller holds interrupts.  Does not raise: a failing fsync is a PANIC,
 * as in a COMMIT.
 */
bool
hloom_durable_wait(XLogRecPtr lsn, XLogRecPtr saved, TimestampTz now, TimestampTz deadline)
{
	Assert(InterruptHoldoffCount > 0);

	XactLastRecEnd = saved;
	if (synchronous_commit == SYNCHRONOUS_COMMIT_OFF)
	{
		nudge_wal_writer(lsn, now);
		return true;
	}
	if (hloom_durable_test_point(HLOOM_POINT_FLUSH))
		return true;
	XLogFlush(lsn);
	if (SyncRepRequested() && HLOOM_SYNC_STANDBYS_DEFINED())
		return wait_for_standbys(lsn, deadline);
	return true;
}
