/*
 * worker_reap.c
 *	  A worker's passes over all leases of its database, in search of those that have ended.
 *
 * A pass goes over shared memory (memory_grant.c) and then over the table (lease_reap.c), in steps:
 * each ends when there are many losses to report.  One begins when a lease has ended that somebody
 * noted (work.c), but so often at most as hloom_lock.reap_interval says.  A bucket whose page is
 * damaged is left out.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "guc.h"
#include "lease_reap.h"
#include "memory_grant.h"
#include "work.h"
#include "worker_reap.h"

/* A pass that has met so much damage ends. */
#define MOST_DAMAGE 8

/* A pass, how far it has come, and how much damage it has met. */
static HloomReap pass = {0};
static HloomMemoryReap memory_pass = {0};
static bool passing = false;
static int	damage = 0;

/* None begins before. */
static TimestampTz pass_after = 0;

static TimestampTz
interval_from(TimestampTz at)
{
	return at + (int64) hloom_reap_interval * 1000;
}

/*
 * Whether a pass goes on, or begins now.
 */
bool
hloom_worker_reap_is_due(void)
{
	TimestampTz now = GetCurrentTimestamp();

	if (passing)
		return true;
	if (!hloom_work_is_before(&hloom_work_mine->end, now) || pass_after > now)
		return false;
	pass_after = interval_from(now);
	(void) hloom_work_take_end();
	hloom_reap_begin(&pass);
	hloom_memory_reap_begin(&memory_pass);
	damage = 0;
	passing = true;
	return true;
}

/*
 * Goes on with the pass: removes what has ended, as much as can be kept until it is reported.
 * Without a table, because it is locked, it is looked at by the next pass.  Returns whether the
 * pass is over; *next is the nearest end of a lease then, or 0 when that is not known.
 */
bool
hloom_worker_reap(Relation rel, TimestampTz *next)
{
	if (!hloom_memory_reap_some(&memory_pass))
		return false;
	passing = rel != NULL && !hloom_reap_some(rel, &pass);
	*next = rel != NULL ? Min(pass.next, memory_pass.next) : 0;
	return !passing;
}

/*
 * An error has ended the step: the bucket it was raised in is left out.  No other pass begins
 * before "again".  Returns whether the pass goes on.
 */
bool
hloom_worker_reap_failed(TimestampTz again)
{
	passing = ++damage < MOST_DAMAGE;
	pass.bucket++;
	pass_after = Max(pass_after, again);
	return passing;
}

/*
 * Whether this pass, or the last one, has met no damage.
 */
bool
hloom_worker_reap_is_good(void)
{
	return damage == 0;
}

/*
 * There is nothing to go over any more.
 */
void
hloom_worker_reap_stop(void)
{
	passing = false;
}

/*
 * Returns when the next pass begins at the earliest.  "reloaded": the interval may be shorter now.
 */
TimestampTz
hloom_worker_reap_after(bool reloaded)
{
	if (reloaded)
		pass_after = Min(pass_after, interval_from(GetCurrentTimestamp()));
	return pass_after;
}
