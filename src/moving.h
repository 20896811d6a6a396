/*
 * moving.h
 *	  Namespaces that this transaction gives another provider.
 */
#ifndef HLOOM_MOVING_H
#define HLOOM_MOVING_H

#include "hloom.h"

extern int	hloom_moving_count;

extern void hloom_moving_note(const char *ns, int ns_len, const char *before);
extern void hloom_moving_refuse(const HloomKey *name, const char *provider);

/*
 * Raises 55006 for a namespace that this transaction has given this provider, which it did not have
 * before.
 */
static inline void
hloom_moving_check(const HloomKey *name, const char *provider)
{
	if (unlikely(hloom_moving_count > 0))
		hloom_moving_refuse(name, provider);
}

#endif							/* HLOOM_MOVING_H */
