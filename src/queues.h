/*
 * queues.h
 *	  The waits of this database by key, as copies, and who holds these keys.
 */
#ifndef HLOOM_QUEUES_H
#define HLOOM_QUEUES_H

#include "nodes/pg_list.h"

#include "waitlist.h"

/* Those who wait for one key. */
typedef struct HloomQueue
{
	uint64		hash;
	HloomWaiter **waiters;		/* oldest first */
	int			count;			/* at least one */
	bool		held;			/* the key's lease was seen; for the looker's own use */
} HloomQueue;

typedef struct HloomQueues
{
	HloomQueue *queues;			/* ascending by hash */
	int			count;
	bool		sees_all;		/* the current user may see every namespace */
	List	   *silent;			/* providers that did not tell a holder and are asked no more */
} HloomQueues;

extern void hloom_queues_copy(HloomQueues *queues);
extern HloomQueue *hloom_queues_of_key(const HloomQueues *queues, const HloomKey *name);
extern HloomQueue *hloom_queues_of_pid(const HloomQueues *queues, int pid, int *position);
extern HloomKey hloom_queues_name(const HloomQueue *queue);
extern bool hloom_queues_may_see(const HloomQueues *queues, const HloomKey *name);
extern bool hloom_queues_holder(HloomQueues *queues, const HloomQueue *queue, HloomGrant *grant);

#endif							/* HLOOM_QUEUES_H */
