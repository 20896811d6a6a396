/*
 * memory_store.h
 *	  One lease in shared memory: claim, release, extend, look.
 */
#ifndef HLOOM_MEMORY_STORE_H
#define HLOOM_MEMORY_STORE_H

#include "memory_table.h"

/* An entry in its locked partition, and what the row says now. */
typedef struct HloomMemoryLook
{
	const HloomCall *call;
	HloomMemoryEntry *entry;	/* NULL: there is none */
	TimestampTz now;
	bool		marked;			/* some lease of the partition may be given back, or a commit's */
	bool		live;			/* somebody holds the key */
	bool		mine;			/* the call's owner */
} HloomMemoryLook;

/* memory_claim.c */
extern HloomReply hloom_memory_claim(const HloomCall *call, uint64 heard, HloomGrant *grant);

/* memory_store.c */
extern void hloom_memory_look(const HloomCall *call, LWLockMode mode, HloomMemoryLook *look);
extern void hloom_memory_unlock(const HloomMemoryLook *look);
extern void hloom_memory_tell(const HloomRow *row, HloomGrant *grant);
extern void hloom_memory_judge(HloomMemoryLook *look);
extern bool hloom_memory_count_lost(const HloomMemoryLook *look);
extern bool hloom_memory_bury(const HloomMemoryLook *look);
extern bool hloom_memory_release(const HloomCall *call);
extern bool hloom_memory_take_away(const HloomCall *call, HloomGrant *grant);
extern bool hloom_memory_extend(const HloomCall *call, HloomGrant *grant);
extern bool hloom_memory_holder(const HloomCall *call, HloomGrant *grant);
extern bool hloom_memory_is_held(const HloomCall *call, HloomGrant *grant);

#endif							/* HLOOM_MEMORY_STORE_H */
