/*
 * queues.c
 *	  The waits of this database by key, as copies, and who holds these keys.
 *
 * For those who look.  The copies are made first, one partition of the lists after the other; what
 * a looker learns of leases afterwards is newer.  So a wait may be told that has just ended with
 * the key, whose holder is then the waiter itself.
 *
 * Nothing is locked between two calls, and no waiter is kept waiting by whoever looks.  A key is
 * identified by its hash, as in the lists.
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "storage/procarray.h"
#include "utils/acl.h"
#include "utils/inval.h"
#include "utils/timestamp.h"

#include "calls.h"
#include "compat.h"
#include "lease_key.h"
#include "lease_time.h"
#include "options.h"
#include "provider.h"
#include "queues.h"

/* So long an answer about a holder is waited for, in microseconds. */
#define HOLDER_WAIT USECS_PER_SEC

/*
 * Orders by key, and the waits for one key as they were copied, which is their order.
 */
static int
compare_waiters(const void *a, const void *b)
{
	const HloomWaiter *left = *(HloomWaiter *const *) a;
	const HloomWaiter *right = *(HloomWaiter *const *) b;

	if (left->hash != right->hash)
		return left->hash < right->hash ? -1 : 1;
	return left < right ? -1 : left > right;
}

static int
compare_hash(const void *key, const void *queue)
{
	uint64		left = *(const uint64 *) key;
	uint64		right = ((const HloomQueue *) queue)->hash;

	return left < right ? -1 : left > right;
}

/*
 * Copies the waits of this database, palloc'd in the current context, and finds out whether the
 * current user may see all.  There are none where the library is not preloaded.  Raises when memory
 * is out.
 */
void
hloom_queues_copy(HloomQueues *queues)
{
	int			count = 0;
	HloomWaiter *copies = hloom_shared ? hloom_waitlist_copy(&count) : NULL;
	HloomWaiter **sorted;

	memset(queues, 0, sizeof(*queues));
	queues->sees_all = has_privs_of_role(GetUserId(), ROLE_PG_MONITOR);
	if (likely(count == 0))
		return;
	sorted = palloc(count * sizeof(HloomWaiter *));
	for (int i = 0; i < count; i++)
		sorted[i] = &copies[i];
	qsort(sorted, count, sizeof(HloomWaiter *), compare_waiters);

	queues->queues = palloc0(count * sizeof(HloomQueue));
	for (int i = 0; i < count; i++)
	{
		if (i == 0 || sorted[i]->hash != sorted[i - 1]->hash)
		{
			HloomQueue *queue = &queues->queues[queues->count++];

			queue->hash = sorted[i]->hash;
			queue->waiters = &sorted[i];
		}
		queues->queues[queues->count - 1].count++;
	}
}

/*
 * Returns those who wait for the key, whose hash need not be known, or NULL.
 */
HloomQueue *
hloom_queues_of_key(const HloomQueues *queues, const HloomKey *name)
{
	uint64		hash;

	if (likely(queues->count == 0))
		return NULL;
	hash = hloom_key_hash(name->ns, name->ns_len, name->key, name->key_len);
	return bsearch(&hash, queues->queues, queues->count, sizeof(HloomQueue), compare_hash);
}

/*
 * Returns the queue the process is in, and its place there from 0 on, or NULL.
 */
HloomQueue *
hloom_queues_of_pid(const HloomQueues *queues, int pid, int *position)
{
	for (int i = 0; i < queues->count; i++)
		for (int at = 0; at < queues->queues[i].count; at++)
			if (queues->queues[i].waiters[at]->pid == pid)
			{
				*position = at;
				return &queues->queues[i];
			}
	return NULL;
}

/*
 * Returns the key waited for, with its hash.  The texts are those of the copies.
 */
HloomKey
hloom_queues_name(const HloomQueue *queue)
{
	return hloom_waitlist_name(queue->waiters[0]);
}

/*
 * Whether the current user may see who waits for a key, and who holds it: that of a namespace it
 * may use.  Raises 55000 without the extension.
 */
bool
hloom_queues_may_see(const HloomQueues *queues, const HloomKey *name)
{
	return queues->sees_all || hloom_options_may_use(name->ns, name->ns_len);
}

/*
 * Returns the namespace's provider if it can tell who holds a key, and has not failed to.
 */
static const HloomProvider *
provider_to_ask(const HloomQueues *queues, const HloomKey *name)
{
	const char *wanted = hloom_options_provider(name->ns, name->ns_len);
	const HloomProvider *at = hloom_provider_next(NULL);

	while (at != NULL && strcmp(at->name, wanted) != 0)
		at = hloom_provider_next(at);
	if (at == NULL || at->holder == NULL || list_member_ptr(queues->silent, at))
		return NULL;
	return at;
}

/*
 * Whether somebody holds the key now, as far as is known: then grant tells until when, the role and
 * the process, 0 when that one is gone.  Otherwise grant is zero.  Takes a second at most for all
 * keys of a provider that does not answer.  Raises what interrupts and a broken store raise.
 */
bool
hloom_queues_holder(HloomQueues *queues, const HloomQueue *queue, HloomGrant *grant)
{
	HloomCall	call = {.name = hloom_queues_name(queue)};
	const HloomProvider *provider;
	const char *cause;
	HloomReply	reply;

	memset(grant, 0, sizeof(*grant));
	AcceptInvalidationMessages();
	provider = provider_to_ask(queues, &call.name);
	if (provider == NULL)
		return false;
	call.requested_at = GetCurrentTimestamp();
	call.deadline = hloom_time_add(call.requested_at, HOLDER_WAIT);
	reply = hloom_calls_holder(provider, &call, grant, &cause);
	if (reply == HLOOM_YES)
	{
		if (grant->holder_pid != 0 && BackendPidGetProc(grant->holder_pid) == NULL)
			grant->holder_pid = 0;
		return true;
	}
	memset(grant, 0, sizeof(*grant));
	if (reply != HLOOM_NO)
		queues->silent = lappend(queues->silent, unconstify(HloomProvider *, provider));
	return false;
}
