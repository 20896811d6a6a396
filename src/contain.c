/*
 * contain.c
 *	  Runs something whose error is not to end the statement, or that has a deadline.
 *
 * In a subtransaction, so that after its error the transaction is usable; or in none, when any
 * error is to end the transaction.  What to make of the error is the caller's, also of a cancel,
 * which counts as delivered.  A FATAL error is not contained.
 *
 * What has a deadline is cancelled then as by statement_timeout, by a timeout of core's.  A cancel
 * of somebody else that comes after the deadline has cancelled, and before the end of what ran, is
 * taken for the same one: either way it ends what ran.  One that was pending at the deadline stays
 * what it is.  What runs may contain something in turn, and then the nearer deadline counts.
 */
#include "postgres.h"

#include <signal.h>

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "contain.h"

static TimeoutId timeout = 0;

/* Of what runs; DT_NOEND: it has no deadline. */
static TimestampTz until = DT_NOEND;

/* The deadline has cancelled it. */
static volatile sig_atomic_t fired = false;

/*
 * Timeout handler.  Core does not call it once the timeout is disabled.
 */
static void
cancel(void)
{
	if (QueryCancelPending)
		return;
	fired = true;
	InterruptPending = true;
	QueryCancelPending = true;
	SetLatch(MyLatch);
}

/*
 * Sets the deadline of what runs from now on.  An outer one that has cancelled already does not do
 * so again.
 */
static void
set_until(TimestampTz deadline, bool has_fired)
{
	if (until != DT_NOEND)
		disable_timeout(timeout, false);
	until = deadline;
	fired = has_fired;
	if (until == DT_NOEND || fired)
		return;
	if (timeout == 0)
		timeout = RegisterTimeout(USER_TIMEOUT, cancel);
	enable_timeout_at(timeout, until);
}

/*
 * Ends a deadline, and goes back to that of what contains it.  Returns whether it has cancelled;
 * the cancel was not meant for what comes now.
 */
static bool
end_until(TimestampTz outer, bool outer_fired)
{
	bool		has_fired;

	/* First of all, so that it does not fire in between. */
	if (until != DT_NOEND)
		disable_timeout(timeout, false);
	has_fired = fired && !outer_fired;
	if (has_fired)
		QueryCancelPending = false;
	set_until(outer, outer_fired);
	return has_fired;
}

/*
 * Runs it in the current memory context, and cancels it at the deadline; at once if that is over.
 * Returns NULL, or the error that ended it, palloc'd.
 */
static ErrorData *
run_until(void (*run) (void *arg), void *arg, TimestampTz deadline, bool subtransaction,
		  bool *expired)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	TimestampTz outer = until;
	bool		outer_fired = fired;
	ErrorData  *volatile error = NULL;
	volatile bool has_fired = false;

	if (subtransaction)
		BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		set_until(Min(deadline, outer), outer_fired);
		run(arg);
		(void) end_until(outer, outer_fired);
		if (subtransaction)
			ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		has_fired = end_until(outer, outer_fired);
		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		if (subtransaction)
			RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	*expired = has_fired && error->sqlerrcode == ERRCODE_QUERY_CANCELED;
	return error;
}

/*
 * Runs it in the current memory context.  Returns NULL, or the error that ended it and undid what
 * it wrote, palloc'd.  Raises what beginning a subtransaction raises.
 */
ErrorData *
hloom_contain(void (*run) (void *arg), void *arg)
{
	bool		expired;

	return run_until(run, arg, DT_NOEND, true, &expired);
}

/*
 * The same, and cancels it at the deadline; at once if that is over.  *expired: this cancel is the
 * error that is returned.  When what ran did not notice the cancel, nor does anybody else.
 */
ErrorData *
hloom_contain_until(void (*run) (void *arg), void *arg, TimestampTz deadline, bool *expired)
{
	return run_until(run, arg, deadline, true, expired);
}

/*
 * The same without a subtransaction, for where none can begin, or what runs is to last: nothing is
 * undone, so after an error the caller raises it, or one of its own.
 */
ErrorData *
hloom_contain_bounded(void (*run) (void *arg), void *arg, TimestampTz deadline, bool *expired)
{
	return run_until(run, arg, deadline, false, expired);
}
