/*
 * losses.c
 *	  Leases that were lost: counted, and kept in shared memory for the report and for whoever asks.
 *
 * A lease is lost when its row dies unreleased, and whoever makes the row die tells it here, with
 * the row's bucket locked: so each is counted once.  The count is exact.  The report, which the
 * worker of the database makes later, is not: when nobody reports in time the oldest losses are
 * dropped, and only their number is known.
 *
 * The queue is one piece of memory without gaps: entries are added at its end, and stay when they
 * have been reported.  When it is full the oldest ones that were go first, then those that were
 * not, and the others move up.  So what waits for one database, which may have no worker for days,
 * takes nothing from another but its bytes.
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
	TimestampTz granted_at;
	TimestampTz expired_at;
	TimestampTz noticed_at;
	Oid			holder_role;
	int			holder_pid;
	uint8		ns_len;
	uint8		reason;			/* HloomLossReason */
	bool		reported;
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
	int			waiting;		/* losses that are not reported */
	int64		dropped;		/* losses that never were, since it was last told */
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
	queue->waiting = 0;
	queue->dropped = 0;
}

static HloomLossEntry *
entry_at(int at)
{
	return (HloomLossEntry *) (queue->bytes + at);
}

/*
 * Drops the oldest losses that were reported, or that were not, until there is room.  Returns the
 * bytes that are free of those wanted; freed are already.
 */
static int
drop_oldest(bool reported, int freed)
{
	int			kept = 0;
	int			size;

	for (int at = 0; at < queue->used; at += size)
	{
		HloomLossEntry *entry = entry_at(at);

		size = entry->size;
		if (freed < ROOM_AT_ONCE && entry->reported == reported)
		{
			freed += size;
			queue->waiting -= reported ? 0 : 1;
			queue->dropped += reported ? 0 : 1;
			continue;
		}
		if (kept != at)
			memmove(queue->bytes + kept, entry, size);
		kept += size;
	}
	queue->used = kept;
	return freed;
}

static void
make_room(void)
{
	int			freed = drop_oldest(true, 0);

	if (freed < ROOM_AT_ONCE)
		(void) drop_oldest(false, freed);
}

static void
fill(HloomLossEntry *entry, const HloomLoss *loss)
{
	entry->key_len = loss->key_len;
	entry->fence = loss->fence;
	entry->granted_at = loss->granted_at;
	entry->expired_at = loss->expired_at;
	entry->holder_role = loss->holder_role;
	entry->holder_pid = loss->holder_pid;
	entry->ns_len = loss->ns_len;
	entry->reason = loss->reason;
	entry->reported = false;
	memcpy(entry->texts, loss->ns, loss->ns_len);
	memcpy(entry->texts + loss->ns_len, loss->key, loss->key_len);
}

/*
 * A lease of a database, of checked names, is lost: counts it, and queues it for the report.
 * Buckets may be locked.  Raises nothing, allocates nothing.  Without the library preloaded nothing
 * is counted.
 */
void
hloom_losses_add(Oid database, const HloomLoss *loss)
{
	int			size = MAXALIGN(offsetof(HloomLossEntry, texts) + loss->ns_len + loss->key_len);
	TimestampTz now;
	HloomLossEntry *entry;

	if (queue == NULL)
		return;
	hloom_stats_add_at(hloom_stats_place(database, loss->ns, loss->ns_len), HLOOM_STAT_LOST, 1);

	now = GetCurrentTimestamp();
	LWLockAcquire(queue->lock, LW_EXCLUSIVE);
	if (queue->used + size > HLOOM_LOSSES_SIZE)
		make_room();
	entry = entry_at(queue->used);
	queue->used += size;
	queue->waiting++;
	entry->database = database;
	entry->size = size;
	entry->noticed_at = now;
	fill(entry, loss);
	LWLockRelease(queue->lock);

	/* A worker of another database looks of itself when one of its leases ends. */
	if (likely(database == MyDatabaseId))
		hloom_work_ask(now + HLOOM_REAP_INTERVAL);
}

/*
 * Returns a reason as it is told.
 */
const char *
hloom_losses_reason(HloomLossReason reason)
{
	return reason == HLOOM_LOSS_TAKEN_AWAY ? "taken away" : "expired";
}

/*
 * Whether this database's losses that wait take more than half of what those of the other databases
 * leave, so that they should be reported before there are more.
 */
bool
hloom_losses_are_many(void)
{
	int			ours = 0;
	int			theirs = 0;

	LWLockAcquire(queue->lock, LW_SHARED);
	for (int at = 0; queue->waiting > 0 && at < queue->used; at += entry_at(at)->size)
	{
		const HloomLossEntry *entry = entry_at(at);

		if (!entry->reported)
			*(entry->database == MyDatabaseId ? &ours : &theirs) += entry->size;
	}
	LWLockRelease(queue->lock);
	return ours > (HLOOM_LOSSES_SIZE - theirs) / 2;
}

/*
 * Tells an entry's loss, whose texts are at text then: namespace, key.
 */
static void
tell(const HloomLossEntry *entry, const char *text, HloomLoss *loss)
{
	loss->ns = text;

	loss->ns_len = entry->ns_len;
	loss->key = loss->ns + entry->ns_len;
	loss->key_len = entry->key_len;
	loss->fence = entry->fence;
	loss->granted_at = entry->granted_at;
	loss->expired_at = entry->expired_at;
	loss->noticed_at = entry->noticed_at;
	loss->reason = (HloomLossReason) entry->reason;
	loss->holder_role = entry->holder_role;
	loss->holder_pid = entry->holder_pid;
}

/*
 * Copies a loss.  Returns false when there is no room for it.
 */
static bool
copy_out(HloomLosses *losses, const HloomLossEntry *entry)
{
	char	   *to = losses->text +losses->text_used;
	int			length = entry->ns_len + entry->key_len;

	if (losses->count == HLOOM_LOSSES_AT_ONCE || losses->text_used + length > HLOOM_LOSSES_TEXT)
		return false;
	memcpy(to, entry->texts, length);
	tell(entry, to, &losses->loss[losses->count]);
	losses->text_used += length;
	losses->count++;
	return true;
}

/*
 * Takes losses of this database to report, oldest first, as many as go at once: whoever wants all
 * calls again until NULL is returned.  They are then the caller's to report, palloc'd in one piece.
 * Returns NULL when there are none and no report was dropped.
 */
HloomLosses *
hloom_losses_take(void)
{
	HloomLosses *losses = palloc(sizeof(HloomLosses));

	losses->count = 0;
	losses->text_used = 0;
	LWLockAcquire(queue->lock, LW_EXCLUSIVE);
	losses->dropped = queue->dropped;
	queue->dropped = 0;
	for (int at = 0; queue->waiting > 0 && at < queue->used; at += entry_at(at)->size)
	{
		HloomLossEntry *entry = entry_at(at);

		if (entry->database != MyDatabaseId || entry->reported)
			continue;
		if (!copy_out(losses, entry))
			break;
		entry->reported = true;
		queue->waiting--;
	}
	LWLockRelease(queue->lock);

	if (losses->count > 0 || losses->dropped > 0)
		return losses;
	pfree(losses);
	return NULL;
}

/*
 * Visits the latest losses of this database, oldest first, as many as there is room for.  Reported
 * or not, they stay.  The library is preloaded.  Raises what the visitor raises.
 */
void
hloom_losses_visit(HloomLossVisit visit, void *arg)
{
	char	   *copy = palloc(HLOOM_LOSSES_SIZE);
	const HloomLossEntry *entry;
	int			used = 0;

	LWLockAcquire(queue->lock, LW_SHARED);
	for (int at = 0; at < queue->used; at += entry->size)
	{
		entry = entry_at(at);
		if (entry->database != MyDatabaseId)
			continue;
		memcpy(copy + used, entry, entry->size);
		used += entry->size;
	}
	LWLockRelease(queue->lock);

	for (int at = 0; at < used; at += entry->size)
	{
		HloomLoss	loss;

		entry = (const HloomLossEntry *) (copy + at);
		tell(entry, entry->texts, &loss);
		visit(&loss, arg);
	}
	pfree(copy);
}

/*
 * Whether there is anything to report, in any database.  Looks without the lock: whoever adds a
 * loss asks for another look.
 */
bool
hloom_losses_are_any(void)
{
	return queue->waiting > 0 || queue->dropped > 0;
}
