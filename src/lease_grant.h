/*
 * lease_grant.h
 *	  One grant of an open lease table, named by hash and fence.
 */
#ifndef HLOOM_LEASE_GRANT_H
#define HLOOM_LEASE_GRANT_H

#include "hloom.h"
#include "utils/relcache.h"
#include "tracked.h"

extern char *hloom_grant_remove(Relation rel, const HloomTrackedId *id);
extern HloomReply hloom_grant_commit_begin(Relation rel, const HloomTrackedId *id,
										   TimestampTz *end);

#endif							/* HLOOM_LEASE_GRANT_H */
