/*
 * activities.c
 *	  Activities: what acquisitions and locked actions were like, one by one, for whoever traces.
 *
 * An activity is written when it ends, into a ring in shared memory, over the oldest one.  Those
 * that go on are known to their process alone, which makes what begins inside one its child.
 *
 * Protocol.  There is no lock, and nobody waits.  Each writer draws a ticket, which is a slot of
 * the ring and a turn of it.  The slot's state is 2 * ticket + 1 while that ticket's record is
 * written and 2 * ticket + 2 when it is complete; 0: never written.  A writer takes the slot by
 * compare-and-exchange; where one of a turn before still writes, because it was put to sleep, or
 * one of a later turn has been faster, its own record is dropped.  So a slot has one writer at a
 * time, and its state only grows.  A reader copies the record between two looks at the state, and
 * passes over the slot if it was not complete, and the same, at both.  No process ends while it
 * writes, but by a crash, which makes the memory anew.
 *
 * Whatever writes here raises nothing and allocates nothing, so it may be called anywhere, after an
 * error, too.  Knows no lease.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "port/atomics.h"

#include "activities.h"
#include "guc.h"

/* A slot that changes so often while it is read is passed over. */
#define READ_ATTEMPTS 10

typedef struct HloomActivitySlot
{
	pg_atomic_uint64 state;
	HloomActivityRecord record;
} HloomActivitySlot;

typedef struct HloomActivityRing
{
	pg_atomic_uint64 next;		/* ticket */
	uint64		size;			/* constant; slots, not 0 */
	HloomActivitySlot slots[FLEXIBLE_ARRAY_MEMBER];
} HloomActivityRing;

/* This process's address of it, set when it attaches to shared memory. */
HloomActivityRing *hloom_activity_ring = NULL;

/* The innermost activity of this process that goes on and can have others inside. */
static const HloomActivityFrame *current = NULL;

/*
 * Returns the bytes of shared memory needed.
 */
Size
hloom_activities_size(void)
{
	if (hloom_activity_history == 0)
		return 0;
	return MAXALIGN(add_size(offsetof(HloomActivityRing, slots),
							 mul_size(hloom_activity_history, sizeof(HloomActivitySlot))));
}

/*
 * Attaches to the memory, and makes it when it was not found.  Called with AddinShmemInitLock
 * held.
 */
void
hloom_activities_start(void *memory, bool found)
{
	HloomActivityRing *ring = (HloomActivityRing *) memory;

	hloom_activity_ring = NULL;
	if (hloom_activity_history == 0)
		return;
	hloom_activity_ring = ring;
	if (found)
		return;
	pg_atomic_init_u64(&ring->next, 0);
	ring->size = hloom_activity_history;
	for (uint64 i = 0; i < ring->size; i++)
		pg_atomic_init_u64(&ring->slots[i].state, 0);
}

/*
 * Begins a span in the activity that goes on, else in the client's span, else in none.
 */
static void
begin_span(HloomSpan *span)
{
	hloom_trace_begin(span, unlikely(current != NULL) ? &current->span : &hloom_client_span);
}

/*
 * Begins an activity that others can be part of: those of this process, until it is left.  It must
 * be left, whatever happens, before what the frame lives on is.
 */
void
hloom_activity_enter(HloomActivityFrame *frame)
{
	begin_span(&frame->span);
	frame->outer = current;
	current = frame;
}

static void
fill(HloomActivityRecord *record, const HloomActivity *activity)
{
	const HloomKey *name = activity->name;

	record->started_at = activity->started_at;
	record->duration = activity->duration;
	record->waited = activity->waited;
	record->held = activity->held;
	record->database = MyDatabaseId;
	record->role = GetUserId();
	record->pid = MyProcPid;
	record->kind = activity->kind;
	record->acquired = activity->acquired;
	record->ns_len = name->ns_len;
	record->key_cut = name->key_len > HLOOM_ACTIVITY_KEY;
	record->key_len = unlikely(record->key_cut) ?
		pg_mbcliplen(name->key, name->key_len, HLOOM_ACTIVITY_KEY) : name->key_len;
	memcpy(record->ns, name->ns, name->ns_len);
	memcpy(record->key, name->key, record->key_len);
}

/*
 * Writes an activity down, of a span, or of a new one when that is NULL.
 */
static void
write_down(const HloomActivity *activity, const HloomSpan *span)
{
	HloomActivityRing *ring = hloom_activity_ring;
	uint64		ticket = pg_atomic_fetch_add_u64(&ring->next, 1);
	HloomActivitySlot *slot = &ring->slots[ticket % ring->size];
	uint64		state = pg_atomic_read_u64(&slot->state);

	if (state % 2 != 0 || state > 2 * ticket ||
		!pg_atomic_compare_exchange_u64(&slot->state, &state, 2 * ticket + 1))
		return;
	if (span != NULL)
		slot->record.span = *span;
	else
		begin_span(&slot->record.span);
	fill(&slot->record, activity);
	pg_write_barrier();
	pg_atomic_write_u64(&slot->state, 2 * ticket + 2);
}

/*
 * The innermost activity that others can be part of is over.
 */
void
hloom_activity_leave(const HloomActivityFrame *frame, const HloomActivity *activity)
{
	Assert(current == frame);
	current = frame->outer;
	write_down(activity, &frame->span);
}

/*
 * An activity that no other can be part of is over.  Activities are kept.
 */
void
hloom_activity_add(const HloomActivity *activity)
{
	write_down(activity, NULL);
}

/*
 * Copies a slot's record.  Returns false when there is none, or none that is complete.
 */
static bool
copy_slot(HloomActivitySlot *slot, HloomActivityRecord *record)
{
	for (int i = 0; i < READ_ATTEMPTS; i++)
	{
		uint64		state = pg_atomic_read_u64(&slot->state);

		if (state == 0)
			return false;
		if (state % 2 != 0)
			continue;
		pg_read_barrier();
		memcpy(record, &slot->record, sizeof(*record));
		pg_read_barrier();
		if (pg_atomic_read_u64(&slot->state) == state)
			return true;
	}
	return false;
}

/*
 * Visits this database's activities, the newest first but for those that end meanwhile.  The record
 * is the visitor's for the time of its call.  Raises 57014 and what the visitor raises.
 */
void
hloom_activities_visit(HloomActivityVisit visit, void *arg)
{
	HloomActivityRing *ring = hloom_activity_ring;
	HloomActivityRecord record;
	uint64		next;

	if (ring == NULL)
		return;
	next = pg_atomic_read_u64(&ring->next);
	for (uint64 back = 1; back <= Min(next, ring->size); back++)
	{
		CHECK_FOR_INTERRUPTS();
		if (copy_slot(&ring->slots[(next - back) % ring->size], &record) &&
			record.database == MyDatabaseId)
			visit(&record, arg);
	}
}
