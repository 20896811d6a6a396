/*
 * acquire.c
 *	  The composed lock: attempts until granted, given up or failed.
 *
 * Adds to the attempt loop (attempts.c) the waiting (waiting.c, waitlist.c), lock_timeout,
 * re-entrancy, the counters, and the activity that tells how it went.
 * Nothing is held when an acquisition ends otherwise than granted.  Knows the provider contract
 * and no SQL.
 */
#include "postgres.h"

#include "common/pg_prng.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/timestamp.h"

#include "acquire.h"
#include "activities.h"
#include "attempts.h"
#include "calls.h"
#include "compat.h"
#include "errors.h"
#include "guard.h"
#include "handle.h"
#include "lease_time.h"
#include "loss.h"
#include "moving.h"
#include "nesting.h"
#include "provider.h"
#include "stats.h"
#include "waiting.h"
#include "waitlist.h"

static double
random_share(void)
{
	return pg_prng_double(&pg_global_prng_state);
}

/* What an attempt and a wait work with. */
typedef struct Acquiring
{
	HloomAcquisition *acquisition;
	HloomWait	wait;
	bool		waiting;
	const char *cause;
} Acquiring;

/*
 * Returns when the acquisition gives up at the latest, DT_NOEND when that is not known.
 */
static TimestampTz
gives_up_at(const HloomAcquisition *acquisition, const HloomAttempts *run, int64 lock_timeout)
{
	int64		longest = hloom_retry_max_total(run->retry);

	if (run->max_wait != HLOOM_NO_BOUND)
		longest = Min(longest, run->max_wait);
	if (lock_timeout > 0)
		longest = Min(longest, lock_timeout);
	return hloom_time_add(GetCurrentTimestamp(), Max(longest - run->waited, 0));
}

/*
 * The first refusal: from here on the acquisition is a wait.  A session that waits for itself would
 * do so for as long as its lease is renewed.
 */
static void
begin_waiting(Acquiring *acquiring, const HloomAttempts *run)
{
	HloomAcquisition *acquisition = acquiring->acquisition;
	HloomWait  *wait = &acquiring->wait;
	const HloomKey *name = &acquisition->call.name;

	if (acquisition->grant.follows && acquisition->grant.holder_pid == MyProcPid)
	{
		hloom_stats_add(name->ns, name->ns_len, HLOOM_STAT_DEADLOCKS, 1);
		hloom_error_own_lease(name);
	}
	wait->name = name;
	wait->began = hloom_waiting_clock() - run->waited;
	wait->lock_timeout = (int64) LockTimeout * 1000;
	hloom_waitlist_be_patient(gives_up_at(acquisition, run, wait->lock_timeout));
	acquiring->waiting = true;
}

static HloomSlept
sleep_between(HloomAttempts *run, int64 usec)
{
	Acquiring  *acquiring = (Acquiring *) run->state;

	if (!acquiring->waiting)
		begin_waiting(acquiring, run);
	acquiring->wait.provider = acquiring->acquisition->provider;
	acquiring->wait.attempts = run->made;
	return hloom_waiting_sleep(&acquiring->wait, usec);
}

static const HloomClock system_clock = {
	.now = hloom_waiting_clock,
	.sleep = sleep_between,
	.share = random_share
};

static HloomTrackedId
grant_id(const HloomAcquisition *acquisition)
{
	return hloom_provider_grant_id(acquisition->provider, &acquisition->call,
								   acquisition->grant.fence);
}

/*
 * Gives a grant back that nobody will hear of.  If that fails it stays listed as this statement's,
 * which does not succeed.
 */
static void
clean_up(HloomAcquisition *acquisition)
{
	if (hloom_calls_clean_up(acquisition->provider, &acquisition->call))
		hloom_handle_forget(&acquisition->call);
}

/*
 * Whether the namespace has got another provider while this one was asked.  Gives the grant back
 * then: others do not see it.
 */
static bool
was_moved(HloomAcquisition *acquisition)
{
	const HloomKey *name = &acquisition->call.name;
	const char *now = hloom_options_provider(name->ns, name->ns_len);

	if (strcmp(now, acquisition->provider->name) == 0)
		return false;
	clean_up(acquisition);
	acquisition->provider = hloom_provider_require(now);
	return true;
}

/*
 * Until when the attempt waits for access to the store; 0 for as long as it can use.
 */
static TimestampTz
patience_ends(const HloomAttempts *run, TimestampTz now)
{
	int64		bound = run->max_wait;
	int64		lock_timeout = (int64) LockTimeout * 1000;

	if (lock_timeout > 0 && (bound == HLOOM_NO_BOUND || bound > lock_timeout))
		bound = lock_timeout;
	return bound > 0 ? hloom_time_add(now, bound - run->waited) : 0;
}

/*
 * Whether the loop may go on when this attempt is refused.
 */
static bool
may_go_on(const HloomAttempts *run)
{
	return run->made - run->extra <= run->retry->retries &&
		(run->max_wait == HLOOM_NO_BOUND || run->waited < run->max_wait);
}

/*
 * One attempt.  When it was granted by a provider that the namespace has left meanwhile, the new
 * one is asked in the same attempt and within the same bound.
 */
static HloomReply
attempt(HloomAttempts *run)
{
	Acquiring  *acquiring = (Acquiring *) run->state;
	HloomAcquisition *acquisition = acquiring->acquisition;
	HloomCall  *call = &acquisition->call;
	HloomReply	reply;

	call->wait_until = 0;
	call->waits = may_go_on(run);
	do
	{
		CHECK_FOR_INTERRUPTS();
		if (hloom_provider_is_own(acquisition->provider))
			hloom_handle_prepare(call);
		else if (call->scope != HLOOM_SCOPE_LEASE)
			hloom_error_scope(acquisition->provider->name);
		call->requested_at = acquisition->asked_at = GetCurrentTimestamp();
		if (acquisition->began_at == 0)
			acquisition->began_at = call->requested_at;
		call->deadline = hloom_time_add(call->requested_at, call->lease);
		if (call->wait_until == 0)
			call->wait_until = patience_ends(run, call->requested_at);
		memset(&acquisition->grant, 0, sizeof(acquisition->grant));
		reply = hloom_calls_try_acquire(acquisition->provider, call, &acquisition->grant,
										&acquiring->cause);
		if (reply == HLOOM_YES && hloom_provider_is_own(acquisition->provider))
		{
			HloomTrackedId id = grant_id(acquisition);

			hloom_handle_hold(&id, call, &acquisition->grant);
			RESUME_INTERRUPTS();
		}
	} while (reply == HLOOM_YES && unlikely(hloom_options_are_stale()) && was_moved(acquisition));

	/* One of ours has done so itself, in time. */
	if (reply == HLOOM_NO && call->waits && !hloom_provider_is_own(acquisition->provider))
		hloom_waitlist_refused(&call->name, acquisition->grant.expires_at > call->requested_at ?
							   acquisition->grant.expires_at : DT_NOEND);
	return reply;
}

static HloomCourse
course_of(const HloomAcquisition *acquisition, const char *cause)
{
	HloomCourse course = {
		.name = &acquisition->call.name,
		.waited = acquisition->waited,
		.attempts = acquisition->attempts,
		.cause = cause
	};

	return course;
}

/*
 * The acquisition ends so.
 */
static void
count(HloomAcquisition *acquisition, HloomTiming outcome)
{
	const HloomKey *name = &acquisition->call.name;

	acquisition->outcome = outcome;
	acquisition->ended = true;
	hloom_stats_time(name->ns, name->ns_len, outcome, acquisition->waited);
}

/*
 * The acquisition ends without an answer of the provider.
 */
static void
fail(HloomAcquisition *acquisition, HloomReply reply, bool late, const char *cause)
{
	HloomCourse course = course_of(acquisition,
								   late ? "the grant came after the lease had run out" : cause);

	count(acquisition, HLOOM_TIMING_UNAVAILABLE);
	hloom_error_reply(reply, &course);
}

/*
 * Ends statements when the lease is lost, and keeps its transaction from committing.  If this fails
 * the statement does, and the lease is given back.
 */
static void
cancel_on_loss(const HloomAcquisition *acquisition)
{
	const HloomCall *call = &acquisition->call;
	HloomTrackedId id = grant_id(acquisition);

	hloom_loss_watch(call, &id);
	if (call->scope == HLOOM_SCOPE_TRANSACTION)
		hloom_guard_add(acquisition->provider, call, &acquisition->grant, true);
}

/*
 * Whether the transaction has a lease of its own on the key already: then this call is given that
 * one, its end becomes the later one of both, its on_lost the stricter, and it is renewed if either
 * was to be.  Not inside an action, which has its key for itself.  Raises LL010 when that lease is
 * lost.
 */
static bool
join(HloomAcquisition *acquisition)
{
	HloomCall  *call = &acquisition->call;
	const pg_uuid_t *owner = hloom_handle_joined(&call->name);
	HloomGrant *grant = &acquisition->grant;
	const char *cause;
	HloomReply	reply;

	if (likely(owner == NULL) || hloom_nesting_holds(&call->name))
		return false;
	call->owner = *owner;
	call->requested_at = GetCurrentTimestamp();
	acquisition->began_at = acquisition->asked_at = call->requested_at;
	call->deadline = hloom_time_add(call->requested_at, call->lease);
	acquisition->attempts = 1;
	reply = hloom_calls_is_held(acquisition->provider, call, grant, &cause);
	if (reply == HLOOM_YES && grant->expires_at < call->deadline)
		reply = hloom_calls_extend(acquisition->provider, call, grant, &cause);
	else if (reply == HLOOM_YES)
	{
		call->lease = grant->lease;
		call->requested_at = grant->expires_at - grant->lease;
	}
	if (reply == HLOOM_NO)
		hloom_error_lost(&call->name, HLOOM_LOST_JOIN, false);
	if (reply != HLOOM_YES)
		fail(acquisition, reply, false, cause);
	if (call->cancel)
		cancel_on_loss(acquisition);
	if (call->auto_extend)
	{
		HloomTrackedId id = grant_id(acquisition);

		hloom_tracked_auto_extend(&id, call->max_hold);
	}
	count(acquisition, HLOOM_TIMING_ACQUIRED);
	return true;
}

/*
 * Runs attempts that may have to wait.  Whatever ends them, the waiters' list is left.
 */
static HloomReply
run_waiting(HloomAttempts *run)
{
	volatile HloomReply reply = HLOOM_NO;

	hloom_waitlist_prepare();
	PG_TRY();
	{
		reply = hloom_attempts_run(run);
	}
	PG_FINALLY();
	{
		hloom_waitlist_leave();
	}
	PG_END_TRY();
	return reply;
}

/*
 * Takes the lease, as hloom_acquire(), which has looked whether it may.
 */
static bool
take(HloomAcquisition *acquisition)
{
	Acquiring	acquiring = {.acquisition = acquisition};
	HloomAttempts run = {
		.clock = &system_clock,
		.retry = &acquisition->retry,
		.lease = acquisition->call.lease,
		.max_wait = acquisition->max_wait,
		.attempt = attempt,
		.state = &acquiring
	};
	HloomReply	reply;

	if (acquisition->call.scope == HLOOM_SCOPE_TRANSACTION && join(acquisition))
		return true;
	if (acquisition->retry.retries > 0 && acquisition->max_wait != 0)
		reply = run_waiting(&run);
	else
		reply = hloom_attempts_run(&run);
	acquisition->attempts = run.made;
	acquisition->waited = run.waited;
	if (likely(reply == HLOOM_YES))
	{
		if (unlikely(acquiring.waiting))
			hloom_waiting_granted(&acquiring.wait);
		if (acquisition->call.cancel)
			cancel_on_loss(acquisition);
		count(acquisition, HLOOM_TIMING_ACQUIRED);
		return true;
	}
	hloom_handle_abandon();
	if (run.late)
		clean_up(acquisition);
	CHECK_FOR_INTERRUPTS();
	if (reply != HLOOM_NO)
		fail(acquisition, reply, run.late, acquiring.cause);
	count(acquisition, HLOOM_TIMING_NOT_ACQUIRED);
	if (run.had_enough)
	{
		HloomCourse course = course_of(acquisition, NULL);

		hloom_error_busy(&course, &acquisition->grant, true);
	}
	return false;
}

/*
 * Tells how the acquisition went: of one that was cut short, its key.
 */
static void
tell(const HloomAcquisition *acquisition)
{
	HloomActivity activity = {
		.kind = HLOOM_ACTIVITY_ACQUIRE,
		.name = &acquisition->call.name,
		.started_at = acquisition->began_at,
		.duration = acquisition->waited,
		.waited = acquisition->waited,
		.held = HLOOM_NOT_TOLD
	};

	if (likely(acquisition->ended))
		activity.acquired = acquisition->outcome == HLOOM_TIMING_ACQUIRED ?
			HLOOM_ACQUIRED_YES : HLOOM_ACQUIRED_NO;
	else
	{
		TimestampTz now = GetCurrentTimestamp();

		if (activity.started_at == 0)
			activity.started_at = now;
		activity.duration = Max(now - activity.started_at, 0);
	}
	if (!acquisition->ended || acquisition->outcome == HLOOM_TIMING_UNAVAILABLE)
		activity.waited = HLOOM_NOT_TOLD;
	hloom_activity_add(&activity);
}

/*
 * Takes the lease and tells of it, whatever comes.
 */
static bool
take_and_tell(HloomAcquisition *acquisition)
{
	bool		granted;

	PG_TRY();
	{
		granted = take(acquisition);
	}
	PG_CATCH();
	{
		tell(acquisition);
		PG_RE_THROW();
	}
	PG_END_TRY();
	tell(acquisition);
	return granted;
}

/*
 * Takes the lease.  Returns true when it is granted; grant and call then tell it, and its local
 * end is call.requested_at + call.lease.  Returns false when the key stayed busy; grant then tells
 * of the holder.  Raises LL001 for a key locked by an action that runs, LL002 to LL004, 55P03 for
 * lock_timeout, 40P01, 55006 while this transaction changes the provider, and what interrupts
 * raise; nothing is held then.
 */
bool
hloom_acquire(HloomAcquisition *acquisition)
{
	acquisition->provider = hloom_provider_require(acquisition->options.provider);
	hloom_moving_check(&acquisition->call.name, acquisition->provider->name);
	if (acquisition->options.detect_reentrancy && hloom_nesting_holds(&acquisition->call.name))
		hloom_error_reentrancy(&acquisition->call.name);
	return hloom_activity_ring ? take_and_tell(acquisition) : take(acquisition);
}
