/*
 * losses.c
 *	  Leases that were lost: counted, and kept in shared memory until they are reported.
 *
 * A lease is lost when its row dies unreleased, and whoever makes the row die tells it here, with
 * the row's bucket locked: so each is counted once.  The count is exact.  The report, which the
 * worker of the database makes later, is not: when nobody reports in time the oldest losses are
 * dropped, and only their number is known.
 *
 * The queue is one piece of memory without gaps: entries are added at its end, and when some are
 * taken out or dropped the others move up.  So what waits for one database, which may have no
 * worker for days, takes nothing from another but its bytes.
 *
 * Locking.  An LWLock guards all of it.  It is taken after the locks of buckets, held for no more
 * than a move of the whole queue, and nothing is taken under it.
 *
 * Knows no row and no page.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "losses.h"
#include "shmem.h"
#include "stats.h"
#include "work.h"

/* When the queue is full so much is made free at once, or each further loss would move it all. */
#define ROOM_AT_ONCE (HLOOM_LOSSES_SIZE / 8)

typedef struct HloomLossEntry
{
	Oid			database;
	uint16		size;			/* of the whole entry, aligned */
	uint16		key_len;
	int64		fence;
	TimestampTz expired_at;
	uint8		ns_len;
	uint8		reason;			/* HloomLossReason */
	char		texts[FLEXIBLE_ARRAY_MEMBER];	/* namespace, key */
} HloomLossEntry;

#define MAX_ENTRY \
	MAXALIGN(offsetof(HloomLossEntry, texts) + HLOOM_MAX_NAMESPACE + HLOOM_MAX_KEY_CHARS * 4)

StaticAssertDecl(MAX_ENTRY <= HLOOM_LOSSES_TEXT, "every loss can be taken out");
StaticAssertDecl(MAX_ENTRY <= ROOM_AT_ONCE, "every loss fits the room made for it");

typedef struct HloomLossQueue
{
	LWLock	   *lock;			/* constant; guards all that follows */
	int			used;			/* bytes */
	int64		dropped;		/* losses, since it was last told */
	char		bytes[HLOOM_LOSSES_SIZE];
} HloomLossQueue;

StaticAssertDecl(offsetof(HloomLossQueue, bytes) == MAXALIGN(offsetof(HloomLossQueue, bytes)),
				 "entries are aligned");

/* This process's address of it, set when it attaches to shared memory. */
static HloomLossQueue *queue = NULL;

/*
 * Returns the bytes of shared memory needed.
 */
Size
hloom_losses_size(void)
{
	return MAXALIGN(sizeof(HloomLossQueue));
}

/*
 * Attaches to the memory, and makes it when it was not found.  Called with AddinShmemInitLock
 * held, after the tranche was requested.
 */
void
hloom_losses_start(void *memory, bool found)
{
	queue = (HloomLossQueue *) memory;
	if (found)
		return;
	queue->lock = &GetNamedLWLockTranche(HLOOM_EXTENSION)[HLOOM_LWLOCK_LOSSES].lock;
	queue->used = 0;
	queue->dropped = 0;
}

static HloomLossEntry *
entry_at(int at)
{
	return (HloomLossEntry *) (queue->bytes + at);
}

/*
 * Makes room by dropping the oldest.
 */
static void
drop_oldest(void)
{
	int			at = 0;

	while (at < ROOM_AT_ONCE)
	{
		at += entry_at(at)->size;
		queue->dropped++;
	}
	queue->used -= at;
	memmove(queue->bytes, queue->bytes + at, queue->used);
}

/*
 * A lease of a database, of checked names, is lost: counts it, and queues it for the report.
 * Buckets may be locked.  Raises nothing, allocates nothing.  Without the library preloaded nothing
 * is counted.
 */
void
hloom_losses_add(Oid database, const char *ns, int ns_len, const char *key, int key_len,
				 int64 fence, TimestampTz expired_at, HloomLossReason reason)
{
	int			size = MAXALIGN(offsetof(HloomLossEntry, texts) + ns_len + key_len);
	HloomLossEntry *entry;

	if (queue == NULL)
		return;
	hloom_stats_add_at(hloom_stats_place(database, ns, ns_len), HLOOM_STAT_LOST, 1);

	LWLockAcquire(queue->lock, LW_EXCLUSIVE);
	if (queue->used + size > HLOOM_LOSSES_SIZE)
		drop_oldest();
	entry = entry_at(queue->used);
	queue->used += size;
	entry->database = database;
	entry->size = size;
	entry->key_len = key_len;
	entry->fence = fence;
	entry->expired_at = expired_at;
	entry->ns_len = ns_len;
	entry->reason = reason;
	memcpy(entry->texts, ns, ns_len);
	memcpy(entry->texts + ns_len, key, key_len);
	LWLockRelease(queue->lock);

	/* A worker of another database looks of itself when one of its leases ends. */
	if (likely(database == MyDatabaseId))
		hloom_work_ask(GetCurrentTimestamp() + HLOOM_REAP_INTERVAL);
}

/*
 * Whether this database's losses take more than half of what the other databases leave, so that
 * they should be reported before there are more.
 */
bool
hloom_losses_are_many(void)
{
	int			ours = 0;
	int			used;

	LWLockAcquire(queue->lock, LW_SHARED);
	used = queue->used;
	for (int at = 0; at < used; at += entry_at(at)->size)
		if (entry_at(at)->database == MyDatabaseId)
			ours += entry_at(at)->size;
	LWLockRelease(queue->lock);
	return ours > (HLOOM_LOSSES_SIZE - (used - ours)) / 2;
}

/*
 * Copies a loss.  Returns false when there is no room for it.
 */
static bool
copy_out(HloomLosses *losses, const HloomLossEntry *entry)
{
	HloomLoss  *loss = &losses->loss[losses->count];
	char	   *text = losses->text +losses->text_used;
	int			length = entry->ns_len + entry->key_len;

	if (losses->count == HLOOM_LOSSES_AT_ONCE || losses->text_used + length > HLOOM_LOSSES_TEXT)
		return false;
	memcpy(text, entry->texts, length);
	losses->text_used += length;
	losses->count++;
	loss->ns = text;
	loss->key = text +entry->ns_len;

	loss->ns_len = entry->ns_len;
	loss->key_len = entry->key_len;
	loss->fence = entry->fence;
	loss->expired_at = entry->expired_at;
	loss->reason = (HloomLossReason) entry->reason;
	return true;
}

/*
 * Takes out losses of this database, oldest first, as many as go at once: whoever wants all calls
 * again until NULL is returned.  They are then the caller's to report, palloc'd in one piece.
 * Returns NULL when there are none and no report was dropped.
 */
HloomLosses *
hloom_losses_take(void)
{
	HloomLosses *losses = palloc(sizeof(HloomLosses));
	bool		full = false;
	int			kept = 0;
	int			size;

	losses->count = 0;
	losses->text_used = 0;
	LWLockAcquire(queue->lock, LW_EXCLUSIVE);
	losses->dropped = queue->dropped;
	queue->dropped = 0;
	for (int at = 0; at < queue->used; at += size)
	{
		HloomLossEntry *entry = entry_at(at);

		size = entry->size;
		if (entry->database == MyDatabaseId && !full)
		{
			full = !copy_out(losses, entry);
			if (!full)
				continue;
		}
		if (kept != at)
			memmove(queue->bytes + kept, entry, size);
		kept += size;
	}
	queue->used = kept;
	LWLockRelease(queue->lock);

	if (losses->count > 0 || losses->dropped > 0)
		return losses;
	pfree(losses);
	return NULL;
}

/*
 * Whether there is anything to report, in any database.  Looks without the lock: whoever adds a
 * loss asks for another look.
 */
bool
hloom_losses_are_any(void)
{
	return queue->used > 0 || queue->dropped > 0;
}
