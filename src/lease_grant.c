/*
 * lease_grant.c
 *	  One grant of an open lease table, named by hash and fence: its removal, its renewal by the
 *	  server, and a last look at it before a commit that depends on it.
 *
 * Unlike in lease_store.c nobody's key and owner are compared: hash and fence name one grant, and
 * whoever knows them has been told by the backend that got it.  The bucket is locked, and with it
 * whoever judges the row is kept out.
 *
 * Knows no table lookup and no transaction.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/bufmgr.h"

#include "compat.h"
#include "lease_bucket.h"
#include "lease_delta.h"
#include "lease_grant.h"
#include "lease_purge.h"
#include "waitlist.h"

/* A grant's row, in its locked bucket. */
typedef struct Found
{
	HloomBucket bucket;
	Buffer		buf;			/* locked, too */
	OffsetNumber off;
	HloomRow   *row;			/* NULL when it is not there */
	TimestampTz ended;			/* when what is left of it says that it ended, or 0 */
} Found;

static void
find_in_page(Found *found, const HloomTrackedId *id)
{
	Page		page = BufferGetPage(found->buf);
	OffsetNumber max = PageGetMaxOffsetNumber(page);

	hloom_bucket_check_items(&found->bucket, found->buf);
	for (OffsetNumber off = FirstOffsetNumber; off <= max; off++)
	{
		HloomRow   *row = hloom_page_row(page, off);

		if (row->hash != id->hash || row->fence != id->fence)
			continue;
		if (row->flags & HLOOM_ROW_FREE)
		{
			found->ended = row->expires_at;
			continue;
		}
		found->off = off;
		found->row = row;
		return;
	}
}

/*
 * Locks the grant's bucket and looks for its row.  Ends with unlock().
 */
static void
find_locked(Found *found, Relation rel, const HloomTrackedId *id, int mode)
{
	memset(found, 0, sizeof(Found));
	hloom_bucket_lock_hash(rel, id->hash, mode, &found->bucket);
	found->buf = found->bucket.primary;
	for (;;)
	{
		find_in_page(found, id);
		if (found->row != NULL)
			return;
		found->buf = hloom_bucket_next(&found->bucket, found->buf, mode);
		if (!BufferIsValid(found->buf))
			return;
	}
}

static void
unlock(Found *found)
{
	if (BufferIsValid(found->buf))
		hloom_bucket_unlock_block(&found->bucket, found->buf);
	hloom_bucket_unlock(&found->bucket);
}

static void
take_name(HloomGrantName *name, const HloomRow *row)
{
	name->ns = pnstrdup(row->texts, row->ns_len);
	name->key = pnstrdup(row->texts + row->ns_len, row->key_len);
}

/*
 * Frees the row of a grant that was given back, whether it has ended or not, unless a commit still
 * depends on it; one given back too late is counted as lost.  Returns whether it did, and then its
 * names, palloc'd.
 */
bool
hloom_grant_remove(Relation rel, const HloomTrackedId *id, HloomGrantName *name)
{
	Found		found;
	bool		removes;

	find_locked(&found, rel, id, BUFFER_LOCK_EXCLUSIVE);
	removes = found.row != NULL && hloom_tracked_is_given_back(id) &&
		!hloom_tracked_is_committing(id, NULL);
	if (removes)
	{
		HloomRow	head = *found.row;
		HloomJudge	judge;
		HloomDelta	delta;
		bool		lost;

		hloom_bucket_judge(&found.bucket, &judge);
		lost = hloom_row_is_lost(&head, &judge);
		take_name(name, found.row);
		head.flags |= HLOOM_ROW_FREE;
		delta.buffers = 0;
		hloom_delta_set(&delta, found.buf, found.row, &head, offsetof(HloomRow, texts));
		hloom_delta_finish(rel, &delta);
		if (lost)
			hloom_purge_count_lost(found.row, HLOOM_LOSS_EXPIRED);
	}
	unlock(&found);
	return removes;
}

/*
 * A commit is about to depend on the grant: HLOOM_YES when it is held at this moment, and from now
 * on until hloom_tracked_commit_end() its row counts.  HLOOM_NO when it is lost; *end is then its
 * end, or 0 when its row is gone.  HLOOM_UNAVAILABLE when there is no room to take note of it.
 */
HloomReply
hloom_grant_commit_begin(Relation rel, const HloomTrackedId *id, TimestampTz *end)
{
	HloomReply	reply = HLOOM_NO;
	HloomJudge	judge;
	Found		found;

	find_locked(&found, rel, id, BUFFER_LOCK_SHARE);
	hloom_bucket_judge(&found.bucket, &judge);
	*end = found.row != NULL ? found.row->expires_at : 0;
	if (found.row == NULL && found.ended <= judge.now)
		*end = found.ended;
	if (found.row != NULL && *end > judge.now && hloom_row_live(found.row, &judge))
		reply = hloom_tracked_commit_begin(id, *end);
	unlock(&found);
	return reply;
}

/*
 * Copies the grant's names, palloc'd.  Returns false when its row is gone or does not count.
 */
bool
hloom_grant_name(Relation rel, const HloomTrackedId *id, HloomGrantName *name)
{
	HloomJudge	judge;
	Found		found;
	bool		counts;

	find_locked(&found, rel, id, BUFFER_LOCK_SHARE);
	hloom_bucket_judge(&found.bucket, &judge);
	counts = found.row != NULL && hloom_row_live(found.row, &judge);
	if (counts)
		take_name(name, found.row);
	unlock(&found);
	return counts;
}

/*
 * Writes the row's new end.
 */
static XLogRecPtr
renew_row(Found *found, Relation rel, const HloomTerms *terms)
{
	HloomRow	head = *found->row;
	HloomDelta	delta;

	head.expires_at = terms->end;
	head.flags |= HLOOM_ROW_AUTO_EXTEND;
	delta.buffers = 0;
	hloom_delta_set(&delta, found->buf, found->row, &head, offsetof(HloomRow, texts));
	return hloom_delta_finish(rel, &delta);
}

/*
 * Renews a lease that is held now and that the server is to renew.  HLOOM_YES: its row is written,
 * up to *lsn, and terms tell what the lease lasts by once that is durable; the caller then calls
 * hloom_tracked_renewal_done().  HLOOM_NO: it cannot be renewed now, because it is lost or given
 * back or a commit depends on it.  HLOOM_UNAVAILABLE: it is as old as it may get; name and terms
 * tell of it.
 */
HloomReply
hloom_grant_renew(Relation rel, const HloomTrackedId *id, HloomTerms *terms, XLogRecPtr *lsn,
				  HloomGrantName *name)
{
	HloomReply	reply = HLOOM_NO;
	HloomJudge	judge;
	Found		found;
	bool		gone;

	find_locked(&found, rel, id, BUFFER_LOCK_EXCLUSIVE);
	hloom_bucket_judge(&found.bucket, &judge);
	gone = found.row == NULL;
	if (!gone && found.row->expires_at > judge.now && hloom_row_live(found.row, &judge) &&
		!hloom_tracked_is_committing(id, NULL))
	{
		reply = hloom_tracked_renewal_begin(id, judge.now, terms);
		if (reply == HLOOM_YES)
			*lsn = renew_row(&found, rel, terms);
		else if (reply == HLOOM_UNAVAILABLE)
			take_name(name, found.row);
	}
	unlock(&found);

	/* The table was dropped, and made again: nobody else tells the holder. */
	if (gone)
		(void) hloom_tracked_drop(id, false);
	return reply;
}

/*
 * A lease was lost at this end, to which its renewal did not become durable in time: its row, which
 * lasts longer, ends there, too.
 */
void
hloom_grant_end(Relation rel, const HloomTrackedId *id, TimestampTz end)
{
	Found		found;

	find_locked(&found, rel, id, BUFFER_LOCK_EXCLUSIVE);
	if (found.row != NULL && found.row->expires_at > end && hloom_tracked_ends_at(id, end))
	{
		HloomTail  *tail = hloom_page_tail(BufferGetPage(found.buf));
		TimestampTz earliest = Min(tail->earliest, end);
		HloomDelta	delta;

		delta.buffers = 0;
		hloom_delta_set(&delta, found.buf, &found.row->expires_at, &end, sizeof(end));
		hloom_delta_set(&delta, found.buf, &tail->earliest, &earliest, sizeof(earliest));
		hloom_delta_finish(rel, &delta);
		if (hloom_waitlist_any(id->hash))
			hloom_waitlist_note_end(hloom_row_key_hash(found.row), end);
	}
	unlock(&found);
}
