/*
 * provider.h
 *	  The providers there are, by name.
 */
#ifndef HLOOM_PROVIDER_LIST_H
#define HLOOM_PROVIDER_LIST_H

#include "hloom.h"
#include "tracked.h"

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

#endif							/* HLOOM_PROVIDER_LIST_H */
