/*
 * provider.h
 *	  The providers there are, by name.
 */
#ifndef HLOOM_PROVIDER_LIST_H
#define HLOOM_PROVIDER_LIST_H

#include "hloom.h"
#include "lease_time.h"
#include "tracked.h"

/* An attempt waits at least so long for access to the lease table, in microseconds. */
#define HLOOM_PROVIDER_LEAST_WAIT 10000

extern const HloomProvider hloom_provider_table;
extern const HloomProvider hloom_provider_memory;

extern const HloomProvider *hloom_provider_find(const char *name);
extern const HloomProvider *hloom_provider_require(const char *name);
extern const HloomProvider *hloom_provider_next(const HloomProvider *after);

/*
 * Whether the provider is one of ours.  Those keep what hloom_provider.h does not ask for: a
 * try_acquire that does not return YES leaves nothing held, one that does returns with interrupts
 * held once more than before, so that nothing comes between it and its record; no call raises but
 * for a store that is broken or full; scopes and waiters are theirs to see to, and each lost lease
 * is counted by them.
 */
static inline bool
hloom_provider_is_own(const HloomProvider *provider)
{
	return provider == &hloom_provider_table || provider == &hloom_provider_memory;
}

/*
 * Returns the name in tracked.c of a grant of one of our providers; of another it is no name.
 */
static inline HloomTrackedId
hloom_provider_grant_id(const HloomProvider *provider, const HloomCall *call, int64 fence)
{
	return hloom_tracked_id((uint32) call->name.hash, provider == &hloom_provider_memory ?
							fence | HLOOM_TRACKED_IN_MEMORY : fence);
}

/*
 * Returns until when an attempt at one of our providers waits for access to the lease table, and
 * for standbys: the end of the caller's patience if that comes before the end of the lease, but not
 * at once.
 */
static inline TimestampTz
hloom_provider_attempt_end(const HloomCall *call)
{
	TimestampTz least = hloom_time_add(call->requested_at, HLOOM_PROVIDER_LEAST_WAIT);

	return call->wait_until == 0 ? call->deadline :
		Min(call->deadline, Max(call->wait_until, least));
}

#endif							/* HLOOM_PROVIDER_LIST_H */
