/*
 * calls.c
 *	  Calls of a provider, contained where it may raise, and the clean-up after an attempt.
 *
 * One of our own is called as it is: whatever it answers, it has left nothing behind.  Any other is
 * called in a subtransaction of its own, so that its error becomes a failure reply and the
 * transaction can still make the clean-up release.  Which attempts get one: those that may have
 * been granted without anybody knowing, that is all that failed but for "nothing can have reached
 * the store" (LL002), and grants that came too late.
 *
 * Such a call that has not come back at its deadline is cancelled, and has timed out.
 *
 * commit_begin is bounded alike, but has no subtransaction: it is called where none can begin, and
 * what fails there ends the transaction in any case.
 *
 * Knows no SQL and no retries.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "calls.h"
#include "compat.h"
#include "contain.h"
#include "errors.h"
#include "events.h"
#include "lease_time.h"
#include "provider.h"
#include "stats.h"

/* A clean-up release takes no longer, in microseconds. */
#define CLEAN_UP_TIME (5 * USECS_PER_SEC)

typedef enum Operation
{
	TRY_ACQUIRE,
	RELEASE,
	EXTEND,
	IS_HELD,
	HOLDER,
	FORCE_RELEASE,
	COMMIT_BEGIN
} Operation;

/* A call, and what came of it. */
typedef struct Attempt
{
	Operation	operation;
	const HloomProvider *provider;
	const HloomCall *call;
	HloomGrant *grant;
	HloomReply	reply;
	int64		fence;			/* COMMIT_BEGIN */
} Attempt;

static void
make_call(void *arg)
{
	Attempt    *attempt = (Attempt *) arg;
	const HloomProvider *provider = attempt->provider;

	switch (attempt->operation)
	{
		case TRY_ACQUIRE:
			attempt->reply = provider->try_acquire(attempt->call, attempt->grant);
			break;
		case RELEASE:
			attempt->reply = provider->release(attempt->call);
			break;
		case EXTEND:
			attempt->reply = provider->extend(attempt->call, attempt->grant);
			break;
		case IS_HELD:
			attempt->reply = provider->is_held(attempt->call, attempt->grant);
			break;
		case HOLDER:
			attempt->reply = provider->holder(attempt->call, attempt->grant);
			break;
		case FORCE_RELEASE:
			attempt->reply = provider->force_release(attempt->call, attempt->grant);
			break;
		case COMMIT_BEGIN:
			attempt->reply = provider->commit_begin(attempt->call, attempt->fence,
													attempt->grant);
			break;
	}
}

/*
 * Returns the failure reply that an error of a provider means.
 */
HloomReply
hloom_calls_reply_of(const ErrorData *error)
{
	if (error->sqlerrcode == HLOOM_ERRCODE_UNAVAILABLE)
		return HLOOM_UNAVAILABLE;
	if (error->sqlerrcode == HLOOM_ERRCODE_TIMEOUT)
		return HLOOM_TIMEOUT;
	return HLOOM_FAILURE;
}

/*
 * Makes a call, in a subtransaction but for commit_begin, and cancels it at its deadline.  An error
 * becomes a reply and its message the cause.  Another cancel is returned, and the reply then
 * HLOOM_FAILURE.
 */
static ErrorData *
contained(Attempt *attempt, const char **cause)
{
	TimestampTz deadline = attempt->call->deadline;
	bool		expired;
	ErrorData  *error = attempt->operation == COMMIT_BEGIN ?
	hloom_contain_bounded(make_call, attempt, deadline, &expired) :
	hloom_contain_until(make_call, attempt, deadline, &expired);

	*cause = NULL;
	if (error == NULL)
		return NULL;
	if (expired)
	{
		attempt->reply = HLOOM_TIMEOUT;
		*cause = "the call did not come back before its deadline";
		return NULL;
	}
	attempt->reply = hloom_calls_reply_of(error);
	*cause = error->message;
	return error->sqlerrcode == ERRCODE_QUERY_CANCELED ? error : NULL;
}

static HloomReply
checked(Attempt *attempt, const char **cause)
{
	ErrorData  *cancelled;

	*cause = NULL;
	if (likely(hloom_provider_is_own(attempt->provider)))
	{
		make_call(attempt);
		return attempt->reply;
	}
	cancelled = contained(attempt, cause);
	if (attempt->operation == TRY_ACQUIRE &&
		(attempt->reply == HLOOM_TIMEOUT || attempt->reply == HLOOM_FAILURE))
		(void) hloom_calls_clean_up(attempt->provider, attempt->call);
	if (cancelled)
		ReThrowError(cancelled);
	return attempt->reply;
}

/*
 * Asks for a grant.  Of a reply that is no YES nothing is left held, as far as can be known.
 * cause is the provider's message if it raised an error, else NULL.  Raises 57014, and what one of
 * ours raises.
 */
HloomReply
hloom_calls_try_acquire(const HloomProvider *provider, const HloomCall *call, HloomGrant *grant,
						const char **cause)
{
	Attempt		attempt = {TRY_ACQUIRE, provider, call, grant, HLOOM_FAILURE};

	return checked(&attempt, cause);
}

/*
 * Asks for a release.  Cause and errors as above.
 */
HloomReply
hloom_calls_release(const HloomProvider *provider, const HloomCall *call, const char **cause)
{
	Attempt		attempt = {RELEASE, provider, call, NULL, HLOOM_FAILURE};

	return checked(&attempt, cause);
}

/*
 * Asks for a new end.  Cause and errors as above.
 */
HloomReply
hloom_calls_extend(const HloomProvider *provider, const HloomCall *call, HloomGrant *grant,
				   const char **cause)
{
	Attempt		attempt = {EXTEND, provider, call, grant, HLOOM_FAILURE};

	return checked(&attempt, cause);
}

/*
 * Asks whether the owner holds the key.  Cause and errors as above.
 */
HloomReply
hloom_calls_is_held(const HloomProvider *provider, const HloomCall *call, HloomGrant *grant,
					const char **cause)
{
	Attempt		attempt = {IS_HELD, provider, call, grant, HLOOM_FAILURE};

	return checked(&attempt, cause);
}

/*
 * Asks who holds the key.  The provider has holder.  Cause and errors as above.
 */
HloomReply
hloom_calls_holder(const HloomProvider *provider, const HloomCall *call, HloomGrant *grant,
				   const char **cause)
{
	Attempt		attempt = {HOLDER, provider, call, grant, HLOOM_FAILURE};

	return checked(&attempt, cause);
}

/*
 * Takes the lease away from whoever holds it.  The provider has force_release.  Cause and errors as
 * above.
 */
HloomReply
hloom_calls_force_release(const HloomProvider *provider, const HloomCall *call, HloomGrant *grant,
						  const char **cause)
{
	Attempt		attempt = {FORCE_RELEASE, provider, call, grant, HLOOM_FAILURE};

	return checked(&attempt, cause);
}

/*
 * A transaction that depends on the grant with this fence is about to commit.  The provider has
 * commit_begin.  After any other reply than HLOOM_YES the caller raises an error.  Cause and errors
 * as above.
 */
HloomReply
hloom_calls_commit_begin(const HloomProvider *provider, const HloomCall *call, int64 fence,
						 HloomGrant *grant, const char **cause)
{
	Attempt		attempt = {COMMIT_BEGIN, provider, call, grant, HLOOM_FAILURE, fence};

	return checked(&attempt, cause);
}

static void
report_clean_up(const HloomKey *name, const char *outcome, const char *cause)
{
	HloomEvent	event;

	if (!hloom_event_begin_for(&event, HLOOM_EVENT_ORPHAN, name))
		return;
	hloom_event_add(&event, "outcome", outcome);
	if (cause)
		hloom_event_add(&event, "cause", cause);
	hloom_event_write(&event, "clean-up release of key \"%s\": %s",
					  pnstrdup(name->key, name->key_len), outcome);
}

/*
 * The clean-up release after an attempt that nobody will hear of: one release with the attempt's
 * owner, bounded by the lease and by five seconds, counted by its outcome.  Returns false when that
 * is not known.  Of what the provider raises it passes on a cancel only: that one would not come
 * again.
 */
bool
hloom_calls_clean_up(const HloomProvider *provider, const HloomCall *call)
{
	HloomCall	release = *call;
	Attempt		attempt = {RELEASE, provider, &release, NULL, HLOOM_FAILURE};
	const char *cause;
	ErrorData  *cancelled;
	HloomReply	reply;

	release.requested_at = GetCurrentTimestamp();
	release.deadline = hloom_time_add(release.requested_at, Min(call->lease, CLEAN_UP_TIME));
	cancelled = contained(&attempt, &cause);
	reply = attempt.reply;
	hloom_stats_add(call->name.ns, call->name.ns_len,
					reply == HLOOM_YES ? HLOOM_STAT_ORPHAN_RELEASED :
					reply == HLOOM_NO ? HLOOM_STAT_ORPHAN_ABSENT : HLOOM_STAT_ORPHAN_FAILED, 1);
	report_clean_up(&call->name, reply == HLOOM_YES ? "released" :
					reply == HLOOM_NO ? "absent" : "failed", cause);
	if (cancelled)
		ReThrowError(cancelled);
	return reply == HLOOM_YES || reply == HLOOM_NO;
}
