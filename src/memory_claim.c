/*
 * memory_claim.c
 *	  The claim of one key in shared memory: granted, renewed or refused.
 *
 * lease_claim.c does so for the lease table.  A refused caller that will wait is listed before the
 * partition is unlocked, so that whoever frees the key later sees it.
 *
 * The fence is the partition's counter, which starts from the clock with the server's memory.
 *
 * memory_table.c tells the lock protocol.  Knows no transaction and no provider.
 */
#include "postgres.h"

#include "miscadmin.h"

#include "compat.h"
#include "lease_bucket.h"
#include "lease_form.h"
#include "lease_time.h"
#include "lease_walk.h"
#include "memory_store.h"
#include "waitlist.h"

static bool
is_committing(const HloomMemoryLook *look)
{
	HloomTrackedId id;

	if (likely(!look->marked))
		return false;
	id = hloom_memory_id(look->entry);
	return hloom_tracked_is_committing(&id, NULL);
}

/*
 * Refuses a claim, and unlocks.  Returns false when the lease in the way has been given back since
 * the look: that needs no lock of the partition, and may have come before the caller was listed.
 */
static bool
refuse_held(HloomMemoryLook *look, HloomGrant *grant)
{
	TimestampTz end = look->entry->row->expires_at;
	bool		still_held = true;

	hloom_walk_tell_holder(look->entry->row, look->mine, grant);
	if (look->call->waits)
	{
		/* When a commit that keeps it beyond its end will be over is not known. */
		hloom_waitlist_refused(&look->call->name, end > look->now ? end : DT_NOEND);
		hloom_memory_judge(look);
		still_held = look->live;
	}
	hloom_memory_unlock(look);
	return still_held;
}

/*
 * Refuses a claim of a free key that is kept for somebody else, and unlocks then.
 */
static bool
refuse_reserved(const HloomMemoryLook *look, HloomGrant *grant)
{
	const HloomKey *name = &look->call->name;

	if (likely(!hloom_waitlist_any(name->hash)) ||
		!hloom_waitlist_is_reserved(name->hash, look->now, &grant->reserved_for))
		return false;
	if (look->call->waits)
		hloom_waitlist_refused(name, DT_NOEND);
	hloom_memory_unlock(look);
	return true;
}

/*
 * Notes in the tracked lease, if there is to be one, whom it follows from now on.  The entry has
 * the grant's fence.  Returns false when it was to be renewed and has been given back this moment.
 */
static bool
note_scope(const HloomMemoryLook *look, const HloomRow *row)
{
	const HloomCall *call = look->call;
	HloomTrackedId id = hloom_memory_id(look->entry);

	if (row->scope != HLOOM_SCOPE_LEASE)
	{
		HloomTerms	terms = hloom_walk_terms(row, look->now,
											 call->auto_extend ? call->max_hold : 0);

		return hloom_tracked_hold(&id, &terms);
	}
	return !look->live || look->entry->row->scope == HLOOM_SCOPE_LEASE ||
		hloom_tracked_let_go(&id);
}

/*
 * The owner claims what it holds: same fence, new end, and the texts of this call if they fit.
 */
static bool
renew(HloomMemoryLook *look, HloomRow *row)
{
	const HloomRow *held = look->entry->row;

	row->fence = held->fence;
	row->granted_at = held->granted_at;
	if (!note_scope(look, row))
		return false;
	if (hloom_memory_fit(look->entry, hloom_row_size(row)))
		hloom_memory_write(look->entry, row, hloom_row_size(row));
	else
	{
		row->note_len = held->note_len;
		row->app_len = held->app_len;
		row->addr_len = held->addr_len;
		hloom_memory_write(look->entry, row, offsetof(HloomRow, texts));
	}
	return true;
}

/*
 * Grants the key, which nobody holds.  Returns false when there is no room.
 */
static bool
grant_new(HloomMemoryLook *look, HloomRow *row)
{
	const HloomKey *name = &look->call->name;
	HloomMemoryPartition *partition = hloom_memory_partition(name->hash);

	if (look->entry != NULL)
	{
		(void) hloom_memory_bury(look);
		if (!hloom_memory_fit(look->entry, hloom_row_size(row)))
		{
			hloom_memory_remove(look->entry);
			return false;
		}
	}
	else
	{
		look->entry = hloom_memory_add(name, hloom_row_size(row));
		if (look->entry == NULL)
			return false;
	}
	partition->fence = partition->fence == 0 ? hloom_bucket_clock_fence(look->now) :
		partition->fence + 1;
	row->fence = partition->fence;
	row->granted_at = look->now;
	hloom_memory_write(look->entry, row, hloom_row_size(row));
	(void) note_scope(look, row);
	return true;
}

/*
 * A claim has succeeded, and the partition is still locked: the caller waits no more, and who waits
 * for the owner's lease is told when it ends sooner.
 */
static void
note_claim(const HloomMemoryLook *look, const HloomRow *row, TimestampTz old_end)
{
	if (likely(!hloom_waitlist_any(look->call->name.hash)))
		return;
	hloom_waitlist_granted(row->expires_at);
	if (unlikely(row->expires_at < old_end))
		hloom_waitlist_note_end(look->call->name.hash, row->expires_at);
}

/*
 * Claims the key for the call's owner.  HLOOM_NO: another owner holds it, a commit depends on the
 * lease or the key is kept for a waiter, and grant tells of that one.  HLOOM_UNAVAILABLE: there is
 * no room.  HLOOM_FAILURE: some namespace has got or is getting another provider, and heard is not
 * the count of that.  HLOOM_YES: grant is filled, and the caller holds interrupts once more than
 * before.
 */
HloomReply
hloom_memory_claim(const HloomCall *call, uint64 heard, HloomGrant *grant)
{
	HloomRowSpace space;
	HloomRow   *row = &space.row;
	HloomMemoryLook look;
	TimestampTz old_end;
	bool		renewal;
	bool		done;

	hloom_form_row(row, call);
	for (;;)
	{
		hloom_memory_look(call, LW_EXCLUSIVE, &look);
		if (unlikely(pg_atomic_read_u64(hloom_memory_moves) != heard))
		{
			hloom_memory_unlock(&look);
			return HLOOM_FAILURE;
		}
		if (look.live && (!look.mine || is_committing(&look)))
		{
			if (refuse_held(&look, grant))
				return HLOOM_NO;
			memset(grant, 0, sizeof(*grant));
			continue;
		}
		if (!look.live && refuse_reserved(&look, grant))
			return HLOOM_NO;

		HOLD_INTERRUPTS();
		renewal = look.live;
		old_end = renewal ? look.entry->row->expires_at : 0;
		row->expires_at = hloom_time_add(look.now, call->lease);
		done = renewal ? renew(&look, row) : grant_new(&look, row);
		if (likely(done))
			break;
		hloom_memory_unlock(&look);
		RESUME_INTERRUPTS();
		if (!renewal)
			return HLOOM_UNAVAILABLE;

		/* Its session has ended since the look. */
		CHECK_FOR_INTERRUPTS();
	}
	note_claim(&look, row, old_end);
	hloom_memory_unlock(&look);
	grant->renewed = renewal;
	hloom_memory_tell(row, grant);
	return HLOOM_YES;
}
