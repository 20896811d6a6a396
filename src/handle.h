/*
 * handle.h
 *	  The leases this backend took and still answers for.
 */
#ifndef HLOOM_HANDLE_H
#define HLOOM_HANDLE_H

#include "hloom.h"
#include "tracked.h"

extern void hloom_handle_prepare(const HloomCall *call);
extern void hloom_handle_abandon(void);
extern void hloom_handle_hold(const HloomTrackedId *id, const HloomCall *call,
							  const HloomGrant *grant);
extern void hloom_handle_forget(const HloomCall *call);
extern const pg_uuid_t *hloom_handle_joined(const HloomKey *name);
extern int64 hloom_handle_release_session(void);

#endif							/* HLOOM_HANDLE_H */
