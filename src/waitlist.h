/*
 * waitlist.h
 *	  Who waits for which key, and who is woken: lists in shared memory.
 */
#ifndef HLOOM_WAITLIST_H
#define HLOOM_WAITLIST_H

#include "lib/ilist.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "utils/timestamp.h"

#include "hloom.h"
#include "shmem.h"

/* So long a key that became free is kept for the waiter that was woken, in microseconds. */
#define HLOOM_RESERVATION INT64CONST(100000)

/* One backend's wait.  Under the lock of its key's partition; copies are anybody's. */
typedef struct HloomWaiter
{
	dlist_node	node;			/* in hloom_shared->waiters, oldest first */
	uint64		ticket;			/* of this wait, given to no other */
	uint64		hash;			/* of the key, all of it */
	Oid			database;
	Oid			role;
	int			pid;
	int			place;			/* where its namespace is counted, see stats.h */
	TimestampTz since;
	TimestampTz gives_up_at;	/* at the latest; DT_NOEND: not known */
	TimestampTz until;			/* of who is next: that lease ends then; DT_NOEND: unknown */
	TimestampTz reserved_until; /* woken, and the key is kept until then; 0: not woken */
	TimestampTz wakes_at;		/* looks by itself then; 0: is awake */
	int64		attempts;		/* that were refused */
	bool		missed;			/* was woken or had its turn, and did nothing */
	bool		victim;			/* ends itself to break a deadlock; never unset */
	uint16		ns_len;
	uint16		key_len;
	char		application[NAMEDATALEN];
	char		texts[HLOOM_MAX_NAMESPACE + HLOOM_MAX_KEY_BYTES];
} HloomWaiter;

/* waitlist_table.c */
extern Size hloom_waitlist_size(void);
extern void hloom_waitlist_start(void *memory, bool found);
extern HloomWaiter *hloom_waitlist_copy(int *count);

/* waitlist.c: for a backend that waits, or may have to. */
extern void hloom_waitlist_prepare(void);
extern void hloom_waitlist_refused(const HloomKey *name, TimestampTz end);
extern void hloom_waitlist_be_patient(TimestampTz gives_up_at);
extern bool hloom_waitlist_look(TimestampTz *again);
extern void hloom_waitlist_granted(TimestampTz end);
extern void hloom_waitlist_leave(void);
extern bool hloom_waitlist_is_in(void);
extern bool hloom_waitlist_be_victim(const HloomWaiter *const *waits, int count);

/*
 * waitlist_wake.c: for whoever gives a key free, or takes it.  Where nobody waits these do nothing,
 * so a hot path asks hloom_waitlist_any() before.
 */
extern int	hloom_waitlist_reserve(uint64 hash);
extern void hloom_waitlist_wake(int waiter);
extern void hloom_waitlist_wake_all(void);
extern void hloom_waitlist_note_end(uint64 hash, TimestampTz end);
extern bool hloom_waitlist_is_reserved(uint64 hash, TimestampTz now, int *pid);

/*
 * Whether somebody waits for a key whose hash ends like this.  Whoever made the key free before
 * this call and reads false has done so before the other one's attempt.
 */
static inline bool
hloom_waitlist_any(uint64 hash)
{
	return pg_atomic_read_u32(&hloom_shared->waiting[hash % HLOOM_PARTITIONS]) != 0;
}

/*
 * A key of this database has become free: wakes who is next for it.  No lock of ours is held but a
 * bucket's, or a partition's of memory_table.c.
 */
static inline void
hloom_waitlist_wake_next(uint64 hash)
{
	if (unlikely(hloom_waitlist_any(hash)))
		hloom_waitlist_wake(hloom_waitlist_reserve(hash));
}

/*
 * Returns the key waited for, with its hash.  The texts are the waiter's.
 */
static inline HloomKey
hloom_waitlist_name(const HloomWaiter *waiter)
{
	HloomKey	name = {
		.ns = waiter->texts,
		.key = waiter->texts + waiter->ns_len,
		.ns_len = waiter->ns_len,
		.key_len = waiter->key_len,
		.hash = waiter->hash
	};

	return name;
}

#endif							/* HLOOM_WAITLIST_H */
