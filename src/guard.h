/*
 * guard.h
 *	  The leases without which this transaction must not commit.
 */
#ifndef HLOOM_GUARD_H
#define HLOOM_GUARD_H

#include "hloom.h"

extern void hloom_guard_register(void);
extern void hloom_guard_add(const HloomProvider *provider, const HloomCall *call,
							const HloomGrant *grant, bool automatic);
extern void hloom_guard_forget(uint32 hash, int64 fence);

#endif							/* HLOOM_GUARD_H */
