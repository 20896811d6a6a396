/*
 * memory_grant.h
 *	  One grant in shared memory, named by hash and fence, and all of a database.
 */
#ifndef HLOOM_MEMORY_GRANT_H
#define HLOOM_MEMORY_GRANT_H

#include "lease_grant.h"
#include "memory_store.h"

/* How far a pass over all leases of the database has come. */
typedef struct HloomMemoryReap
{
	int			partition;		/* the next to look at */
	TimestampTz next;			/* no lease it has seen ends before; DT_NOEND when it saw none */
	int64		reaped;			/* leases, each of them lost */
} HloomMemoryReap;

extern bool hloom_memory_grant_remove(const HloomTrackedId *id, HloomGrantName *name);
extern HloomReply hloom_memory_commit_begin(const HloomTrackedId *id, TimestampTz *end);
extern bool hloom_memory_grant_name(const HloomTrackedId *id, HloomGrantName *name);
extern HloomReply hloom_memory_renew(const HloomTrackedId *id, HloomTerms *terms,
									 HloomGrantName *name);
extern int64 hloom_memory_reclaim(void);
extern void hloom_memory_reap_begin(HloomMemoryReap *reap);
extern bool hloom_memory_reap_some(HloomMemoryReap *reap);
extern void hloom_memory_forget_all(void);
extern int64 hloom_memory_count(const char *ns, uint16 ns_len);
extern char *hloom_memory_copy(int partition, Size *used);

#endif							/* HLOOM_MEMORY_GRANT_H */
