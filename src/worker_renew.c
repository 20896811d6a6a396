/*
 * worker_renew.c
 *	  Renews leases and warns of them, on behalf of their holders.
 *
 * One batch: the row of each lease is written, then all of them are made durable with one flush and
 * one wait for standbys, then each holder's own idea of its lease's end moves on (tracked_due.c).
 * What fails is tried again as renewal.c says; a lease that cannot be renewed does not keep others
 * from it.  Never is a lease renewed that is past its end: that is judged by the clock under the
 * lock of its bucket, so it does not matter how long this process was stopped before.
 *
 * Leases in shared memory need no table and no flush: each is renewed at once.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "contain.h"
#include "durable.h"
#include "lease_grant.h"
#include "memory_grant.h"
#include "work.h"
#include "worker_renew.h"
#include "worker_report.h"

/* Nothing else is done while standbys are waited for. */
#define LONGEST_WAIT (5 * USECS_PER_SEC)

/* One lease on its way. */
typedef struct Renewing
{
	Relation	rel;
	const HloomTrackedDue *due;
	HloomReply	reply;
	HloomTerms	terms;
	HloomGrantName name;
	bool		named;			/* for a report */
	XLogRecPtr	lsn;
} Renewing;

static void
renew_one(void *arg)
{
	Renewing   *renewing = (Renewing *) arg;

	renewing->reply = hloom_grant_renew(renewing->rel, &renewing->due->id, &renewing->terms,
										&renewing->lsn, &renewing->name);
}

static void
warn_one(void *arg)
{
	Renewing   *renewing = (Renewing *) arg;

	if (hloom_grant_name(renewing->rel, &renewing->due->id, &renewing->name))
		hloom_report_threshold(&renewing->name, renewing->due->lease, renewing->due->end);
}

static void
end_one(void *arg)
{
	Renewing   *renewing = (Renewing *) arg;

	hloom_grant_end(renewing->rel, &renewing->due->id, renewing->due->end);
	hloom_work_note_end(renewing->due->end);
}

static void
name_one(void *arg)
{
	Renewing   *renewing = (Renewing *) arg;

	renewing->named = hloom_grant_name(renewing->rel, &renewing->due->id, &renewing->name);
}

/*
 * Runs a step.  Returns what it raised but for a cancel, or NULL.
 */
static ErrorData *
contain(void (*step) (void *arg), Renewing *renewing)
{
	ErrorData  *error = hloom_contain(step, renewing);

	if (error != NULL && error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		ReThrowError(error);
	return error;
}

/*
 * Reports a failure with the lease's name, if that can be read.
 */
static void
report_failed(Renewing *renewing, const char *cause)
{
	ErrorData  *error;

	renewing->named = false;
	error = contain(name_one, renewing);
	if (error != NULL)
		FreeErrorData(error);
	hloom_report_not_renewed(renewing->named ? &renewing->name : NULL, renewing->due->id.fence,
							 cause);
}

/*
 * Does it, and survives what it raises but for a cancel.
 */
static void
do_contained(void (*step) (void *arg), Renewing *renewing)
{
	ErrorData  *error = contain(step, renewing);

	if (error == NULL)
		return;
	report_failed(renewing, error->message);
	FreeErrorData(error);
	renewing->reply = HLOOM_NO;
}

/*
 * Writes the row of a lease that is due, or warns of it.
 */
static void
do_due(Renewing *renewing)
{
	if (renewing->due->kind != HLOOM_DUE_RENEWAL)
	{
		do_contained(renewing->due->kind == HLOOM_DUE_WARNING ? warn_one : end_one, renewing);
		return;
	}
	do_contained(renew_one, renewing);
	if (renewing->reply == HLOOM_UNAVAILABLE)
		hloom_report_stopped(&renewing->name, &renewing->terms);
	else if (renewing->reply == HLOOM_NO)
		hloom_tracked_due_failed(renewing->due);
}

/*
 * Does what is due of a lease in shared memory.
 */
static void
do_due_in_memory(const HloomTrackedDue *due)
{
	HloomGrantName name;
	HloomTerms	terms;
	HloomReply	reply;

	switch (due->kind)
	{
		case HLOOM_DUE_RENEWAL:
			reply = hloom_memory_renew(&due->id, &terms, &name);
			if (reply == HLOOM_UNAVAILABLE)
				hloom_report_stopped(&name, &terms);
			else if (reply == HLOOM_NO)
				hloom_tracked_due_failed(due);
			break;
		case HLOOM_DUE_WARNING:
			if (hloom_memory_grant_name(&due->id, &name))
				hloom_report_threshold(&name, due->lease, due->end);
			break;
		case HLOOM_DUE_END:
			break;				/* the lease was never longer than its holder knew */
	}
}

/*
 * Waits until what was written is durable, no longer than the first of those leases lasts.
 */
static bool
make_durable(const Renewing *renewing, int count, XLogRecPtr saved)
{
	TimestampTz now = GetCurrentTimestamp();
	TimestampTz deadline = now + LONGEST_WAIT;
	XLogRecPtr	lsn = InvalidXLogRecPtr;
	bool		durable;

	for (int i = 0; i < count; i++)
		if (renewing[i].reply == HLOOM_YES)
		{
			lsn = Max(lsn, renewing[i].lsn);
			deadline = Min(deadline, renewing[i].due->end);
		}
	if (XLogRecPtrIsInvalid(lsn))
	{
		/* A row was ended at most, which need not be durable. */
		if (hloom_durable_begin() != saved)
			hloom_durable_forget(saved, now);
		return true;
	}
	HOLD_INTERRUPTS();
	durable = hloom_durable_wait(lsn, saved, now, deadline);
	RESUME_INTERRUPTS();
	return durable;
}

/*
 * Does what is due of so many leases, at most HLOOM_RENEW_AT_ONCE, in a transaction.  Without a
 * table, because it is locked, all that concerns it is put off.
 */
void
hloom_worker_renew(Relation rel, const HloomTrackedDue *due, int count)
{
	Renewing   *renewing = palloc0(count * sizeof(Renewing));
	int64	   *fences = palloc(count * sizeof(int64));
	XLogRecPtr	saved = hloom_durable_begin();
	int			failed = 0;
	bool		durable;

	for (int i = 0; i < count; i++)
	{
		/* What was written by then is renewed once more. */
		CHECK_FOR_INTERRUPTS();
		renewing[i].rel = rel;
		renewing[i].due = &due[i];
		renewing[i].reply = HLOOM_NO;
		if (hloom_tracked_is_in_memory(&due[i].id))
			do_due_in_memory(&due[i]);
		else if (rel != NULL)
			do_due(&renewing[i]);
		else
		{
			hloom_tracked_due_failed(&due[i]);
			if (due[i].kind == HLOOM_DUE_RENEWAL)
				fences[failed++] = due[i].id.fence;
		}
	}
	if (failed > 0)
		hloom_report_table_locked(fences, failed);
	durable = make_durable(renewing, count, saved);
	for (int i = 0; i < count; i++)
	{
		if (renewing[i].reply != HLOOM_YES)
			continue;
		if (durable)
			(void) hloom_tracked_renewal_done(&due[i].id, &renewing[i].terms);
		else
		{
			hloom_tracked_due_failed(&due[i]);
			report_failed(&renewing[i], "no standby has confirmed it");
		}
	}
	pfree(fences);
	pfree(renewing);
	CHECK_FOR_INTERRUPTS();
}
