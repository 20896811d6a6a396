/*
 * loss.c
 *	  Ends the running statement when a lease with on_lost "cancel" is lost.
 *
 * A timeout of core's looks at the ends of such leases in shared memory (tracked.c), at the nearest
 * end and at least once a second, while a statement of the client runs.  It does what the handler
 * of statement_timeout does.  The cancel becomes LL010 only where the statement ends (statement.c),
 * so no exception block in between can trap it for good: what traps a cancel is cancelled again.
 *
 * Core disables all timeouts after an error that ends a statement; so the timeout is armed by each
 * statement that begins while there is something to watch.  Between statements nothing runs that
 * could be ended: the next one is refused.
 *
 * The handler does nothing while interrupts are held, and comes back soon: a wait for standbys, a
 * commit's or a grant's, would take the cancel for itself.
 *
 * A lease that follows the transaction stays lost until that ends.  One that follows the session is
 * reported once.
 */
#include "postgres.h"

#include <signal.h>
#include <unistd.h>

#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "errors.h"
#include "events.h"
#include "lease_key.h"
#include "loss.h"

#define FIRST_ROOM 8

/* How often the handler looks at least, and how soon again when it may not act. */
#define LOOK_EVERY USECS_PER_SEC
#define LOOK_SOON 10000

typedef struct Watch
{
	HloomTrackedId id;
	HloomWatched *watched;
	uint64		ticket;
	HloomScope	scope;
	HloomKey	name;
	char	   *texts;			/* of the name */
} Watch;

/* Changed with "changing" set, so that the handler leaves them alone. */
static Watch *watches = NULL;
static int	count = 0;
static int	room = 0;
static volatile sig_atomic_t changing = false;

static TimeoutId timeout = 0;
static bool armed = false;

/* A lost lease that was cleaned up before its statement could be told why it was cancelled. */
static HloomKey cleaned_up = {0};
static bool cleaned_up_ended = false;

/* A statement of the client is running. */
static volatile sig_atomic_t running = false;

/* The handler has cancelled it. */
static volatile sig_atomic_t cancelled = false;

/*
 * Returns the end of a watched lease; DT_NOEND when it is not this backend's any more.
 */
static TimestampTz
end_of(const Watch *watch)
{
	TimestampTz end = (TimestampTz) pg_atomic_read_u64(&watch->watched->end);

	pg_read_barrier();
	if (pg_atomic_read_u64(&watch->watched->ticket) != watch->ticket)
		return DT_NOEND;
	return end;
}

/*
 * Returns a watched lease that is lost, or NULL; then *nearest is the nearest end of all.
 */
static const Watch *
find_lost(TimestampTz now, TimestampTz *nearest)
{
	*nearest = DT_NOEND;
	for (int i = 0; i < count; i++)
	{
		TimestampTz end = end_of(&watches[i]);

		if (end <= now)
			return &watches[i];
		*nearest = Min(*nearest, end);
	}
	return NULL;
}

/*
 * Timeout handler.  Core holds interrupts once while it runs.
 */
static void
look(void)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz next = now + LOOK_EVERY;
	TimestampTz nearest;

	if (!running)
		return;
	if (changing)
		next = now + LOOK_SOON;
	else if (find_lost(now, &nearest) == NULL)
		next = Min(next, nearest);
	else if (InterruptHoldoffCount > 1 || CritSectionCount > 0)
		next = now + LOOK_SOON;
	else
	{
		cancelled = true;
#ifdef HAVE_SETSID
		/* Children, too, such as the program of a COPY. */
		kill(-MyProcPid, SIGINT);
#endif
		kill(MyProcPid, SIGINT);
	}
	enable_timeout_at(timeout, next);
}

static void
arm(void)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz nearest;

	if (timeout == 0)
		timeout = RegisterTimeout(USER_TIMEOUT, look);
	if (find_lost(now, &nearest) != NULL)
		nearest = now;
	armed = true;
	enable_timeout_at(timeout, Min(nearest, now + LOOK_EVERY));
}

static void
disarm(void)
{
	running = false;
	if (armed)
		disable_timeout(timeout, false);
	armed = false;
}

static void
make_room(void)
{
	int			wanted = Max(FIRST_ROOM, 2 * room);

	if (count < room)
		return;
	changing = true;
	if (watches == NULL)
		watches = MemoryContextAlloc(TopMemoryContext, wanted * sizeof(Watch));
	else
		watches = repalloc_huge(watches, wanted * sizeof(Watch));
	room = wanted;
	changing = false;
}

static int
find(const HloomTrackedId *id)
{
	for (int i = 0; i < count; i++)
		if (memcmp(&watches[i].id, id, sizeof(HloomTrackedId)) == 0)
			return i;
	return -1;
}

/*
 * Ends the running statement, and refuses those to come, when the lease this backend has got is
 * lost.  Raises when memory is out.
 */
void
hloom_loss_watch(const HloomCall *call, const HloomTrackedId *id)
{
	static uint32 tickets = 0;
	Watch		watch = {.id = *id,.scope = call->scope};

	if (find(id) >= 0)
		return;
	make_room();
	watch.name = hloom_key_copy(&call->name, TopMemoryContext);
	watch.texts = unconstify(char *, watch.name.ns);
	watch.ticket = (uint64) MyProcPid << 32 | ++tickets;
	watch.watched = hloom_tracked_watch(id, watch.ticket);
	if (watch.watched == NULL)
	{
		pfree(watch.texts);
		return;
	}
	changing = true;
	watches[count++] = watch;
	changing = false;
	if (running)
		arm();
}

/*
 * Whether somebody is to be told when the lease is lost.
 */
bool
hloom_loss_watches(const HloomTrackedId *id)
{
	return find(id) >= 0;
}

/*
 * The lease is not this backend's any more, or its loss is of no interest.  Does not raise.
 */
void
hloom_loss_unwatch(const HloomTrackedId *id)
{
	int			at = find(id);
	Watch		watch;
	TimestampTz end;

	if (at < 0)
		return;
	changing = true;
	watch = watches[at];
	watches[at] = watches[--count];
	changing = false;
	end = end_of(&watch);
	if (cancelled && cleaned_up.ns == NULL && end <= GetCurrentTimestamp())
	{
		cleaned_up = watch.name;
		cleaned_up_ended = end != 0;
		return;
	}
	pfree(watch.texts);
}

static void
forget_cleaned_up(void)
{
	if (likely(cleaned_up.ns == NULL))
		return;
	pfree(unconstify(char *, cleaned_up.ns));
	cleaned_up.ns = NULL;
}

/*
 * Takes a lease that is lost.  One that follows the session is not watched any more.
 */
static bool
take_lost(HloomKey *name, bool *ended)
{
	TimestampTz nearest;
	const Watch *lost;
	HloomTrackedId id;

	if (cleaned_up.ns != NULL)
	{
		*name = hloom_key_copy(&cleaned_up, CurrentMemoryContext);
		*ended = cleaned_up_ended;
		forget_cleaned_up();
		return true;
	}
	lost = find_lost(GetCurrentTimestamp(), &nearest);
	if (lost == NULL)
		return false;
	id = lost->id;
	*ended = end_of(lost) != 0;
	*name = hloom_key_copy(&lost->name, CurrentMemoryContext);
	if (lost->scope == HLOOM_SCOPE_SESSION)
		hloom_loss_unwatch(&id);
	return true;
}

/*
 * A statement of the client begins; exempt: it must not be kept from running.  Raises LL010 when a
 * lease is lost already.
 */
void
hloom_loss_begin(bool exempt)
{
	HloomKey	name;
	bool		ended;

	cancelled = false;
	forget_cleaned_up();
	if (count > 0 && !exempt && take_lost(&name, &ended))
		hloom_error_lost(&name, HLOOM_LOST_STATEMENT, ended);
	running = !exempt;
	if (count > 0 && !exempt)
		arm();
}

/*
 * It has ended well.  Raises LL010 when a lease was lost meanwhile.
 */
void
hloom_loss_end(bool exempt)
{
	HloomKey	name;
	bool		ended;

	disarm();
	if (likely(count == 0 && !cancelled))
		return;

	/* The cancel was meant for this statement, not for its COMMIT. */
	if (cancelled)
		QueryCancelPending = false;
	if (!exempt && take_lost(&name, &ended))
		hloom_error_lost(&name, HLOOM_LOST_STATEMENT, ended);
}

/*
 * LockCancellationCallbackFailed: what the statement does about a cancel, in an exception block,
 * has raised, and that is what the client gets.  The lease stays one to be told of.
 */
static void
report_masked(const ErrorData *error)
{
	TimestampTz nearest;
	const Watch *lost = find_lost(GetCurrentTimestamp(), &nearest);
	const HloomKey *name = cleaned_up.ns != NULL ? &cleaned_up : lost != NULL ? &lost->name : NULL;
	HloomEvent	event;

	if (name == NULL || !hloom_event_begin_for(&event, HLOOM_EVENT_CALLBACK_FAILED, name))
		return;
	hloom_event_add(&event, "sqlstate", unpack_sql_state(error->sqlerrcode));
	hloom_event_add(&event, "cause", error->message);

	/* A report lets interrupts in, but the error that is on its way must stay the one it is. */
	HOLD_INTERRUPTS();
	hloom_event_write(&event, "the statement that lost its lease on key \"%s\" was cancelled and"
					  " ended with another error", pnstrdup(name->key, name->key_len));
	RESUME_INTERRUPTS();
}

/*
 * It has ended with an error, and we are in the handler of that.  Raises LL010 in its place if it
 * is the cancel that was sent here, or what became of the program of a COPY by it.
 */
void
hloom_loss_failed(void)
{
	ErrorData  *error;
	HloomKey	name;
	bool		ended;
	bool		unseen;

	disarm();
	if (!cancelled)
		return;

	/* A cancel that was not seen yet has not caused this error, and comes too late. */
	unseen = QueryCancelPending;
	QueryCancelPending = false;
	MemoryContextSwitchTo(TopTransactionContext ? TopTransactionContext : TopMemoryContext);
	error = CopyErrorData();
	if (error->sqlerrcode != ERRCODE_QUERY_CANCELED &&
		error->sqlerrcode != ERRCODE_EXTERNAL_ROUTINE_EXCEPTION)
	{
		if (!unseen)
			report_masked(error);
		FreeErrorData(error);
		return;
	}
	if (!take_lost(&name, &ended))
		return;
	FlushErrorState();
	hloom_error_make_lost(error, &name, ended);
	ReThrowError(error);
}
