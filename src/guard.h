/*
 * guard.h
 *	  The leases without which this transaction must not commit.
 */
#ifndef HLOOM_GUARD_H
#define HLOOM_GUARD_H

#include "hloom.h"
#include "tracked.h"

extern void hloom_guard_register(void);
extern void hloom_guard_add(const HloomProvider *provider, const HloomCall *call,
							const HloomGrant *grant, bool automatic);
extern void hloom_guard_forget(const HloomTrackedId *id);

#endif							/* HLOOM_GUARD_H */
