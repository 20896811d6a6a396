/*
 * acquire_after.c
 *	  What a call makes of its acquisition: an error, or a lease it relies on and ends.
 *
 * Losing the lease does not fail the call, whose work is done: it is warned of.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "acquire.h"
#include "calls.h"
#include "errors.h"
#include "events.h"
#include "handle.h"
#include "lease_time.h"
#include "provider.h"
#include "stats.h"

/*
 * Returns when its owner must stop to rely on a lease that hloom_acquire granted.  In a disabled
 * namespace that is never.
 */
TimestampTz
hloom_acquire_end(const HloomAcquisition *acquisition)
{
	const HloomCall *call = &acquisition->call;

	return acquisition->options.enabled ? hloom_time_add(call->requested_at, call->lease) :
		HLOOM_UNCOORDINATED_END;
}

/*
 * Raises 55P03 for an acquisition that hloom_acquire returned false for.
 */
void
hloom_acquire_raise_busy(const HloomAcquisition *acquisition)
{
	HloomCourse course = {
		.name = &acquisition->call.name,
		.waited = acquisition->waited,
		.attempts = acquisition->attempts
	};

	hloom_error_busy(&course, &acquisition->grant, false);
}

/*
 * Warns of a lost lease.  Our providers count it themselves, when the row goes.
 */
static void
tell_lost(const HloomAcquisition *acquisition)
{
	const HloomKey *name = &acquisition->call.name;
	HloomEvent	event;

	if (!hloom_provider_is_own(acquisition->provider))
		hloom_stats_add(name->ns, name->ns_len, HLOOM_STAT_LOST, 1);
	if (!hloom_event_begin_for(&event, HLOOM_EVENT_LOST, name))
		return;
	hloom_event_add_number(&event, "fence", acquisition->grant.fence);
	hloom_event_add(&event, "reason", "not held when the action ended");
	event.hint = "Another owner may have worked at the same time; use a longer lease.";
	hloom_event_write(&event, "the lease ended before the action did");
}

/*
 * Gives back a lease that hloom_acquire granted.  Warns when it was lost meanwhile or when that is
 * not known; raises what interrupts and a broken store raise.
 */
void
hloom_acquire_give_back(HloomAcquisition *acquisition)
{
	HloomCall  *call = &acquisition->call;
	HloomCourse course = {.name = &call->name,.attempts = 1};
	HloomReply	reply;

	call->requested_at = GetCurrentTimestamp();
	call->deadline = hloom_time_add(call->requested_at, acquisition->options.default_lease);
	reply = hloom_calls_release(acquisition->provider, call, &course.cause);
	if (reply == HLOOM_YES || reply == HLOOM_NO)
		hloom_handle_forget(call);
	if (reply == HLOOM_YES)
		return;
	if (reply != HLOOM_NO)
	{
		course.waited = GetCurrentTimestamp() - call->requested_at;
		hloom_event_unanswered(HLOOM_EVENT_RELEASE_FAILED, &course);
		return;
	}
	tell_lost(acquisition);
}

/*
 * Warns when a lease that hloom_acquire granted was lost meanwhile, or when that is not known.
 */
void
hloom_acquire_check(HloomAcquisition *acquisition)
{
	HloomCall  *call = &acquisition->call;
	HloomCourse course = {.name = &call->name,.attempts = 1};
	HloomGrant	grant = {0};
	HloomReply	reply;

	call->requested_at = GetCurrentTimestamp();
	call->deadline = hloom_time_add(call->requested_at, acquisition->options.default_lease);
	reply = hloom_calls_is_held(acquisition->provider, call, &grant, &course.cause);
	if (reply == HLOOM_YES)
		return;
	if (reply == HLOOM_NO)
	{
		hloom_handle_forget(call);
		tell_lost(acquisition);
		return;
	}
	course.waited = GetCurrentTimestamp() - call->requested_at;
	hloom_event_unanswered(HLOOM_EVENT_CHECK_FAILED, &course);
}
