/*
 * lease_grant.h
 *	  One grant of an open lease table, named by hash and fence.
 */
#ifndef HLOOM_LEASE_GRANT_H
#define HLOOM_LEASE_GRANT_H

#include "access/xlogdefs.h"
#include "hloom.h"
#include "utils/relcache.h"
#include "tracked.h"

typedef struct HloomGrantName
{
	char	   *ns;
	char	   *key;
} HloomGrantName;

extern bool hloom_grant_remove(Relation rel, const HloomTrackedId *id, HloomGrantName *name);
extern HloomReply hloom_grant_commit_begin(Relation rel, const HloomTrackedId *id,
										   TimestampTz *end);
extern bool hloom_grant_name(Relation rel, const HloomTrackedId *id, HloomGrantName *name);
extern HloomReply hloom_grant_renew(Relation rel, const HloomTrackedId *id, HloomTerms *terms,
									XLogRecPtr *lsn, HloomGrantName *name);
extern void hloom_grant_end(Relation rel, const HloomTrackedId *id, TimestampTz end);

#endif							/* HLOOM_LEASE_GRANT_H */
