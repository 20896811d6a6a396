/*
 * moving.c
 *	  Namespaces that this transaction gives another provider.
 *
 * Until it commits everybody else asks the one before.  A lease that this transaction took at the
 * new one would not keep them out, and after ROLLBACK nobody would look there; so it takes none.
 *
 * What is noted goes with its subtransaction, as the change does.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"

#include "moving.h"

typedef struct Moving
{
	struct Moving *next;
	SubTransactionId subid;
	char	   *before;			/* the provider it had */
	char	   *ns;
	int			ns_len;
} Moving;

/* In TopTransactionContext. */
static Moving *first = NULL;
int			hloom_moving_count = 0;

static void
end_transaction(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	first = NULL;
	hloom_moving_count = 0;
}

/*
 * The newest come first, so those of a subtransaction do.
 */
static void
end_subtransaction(SubXactEvent event, SubTransactionId subid, SubTransactionId parent, void *arg)
{
	for (Moving *at = first; at != NULL && at->subid == subid; at = at->next)
	{
		if (event == SUBXACT_EVENT_COMMIT_SUB)
			at->subid = parent;
		else if (event == SUBXACT_EVENT_ABORT_SUB)
		{
			first = at->next;
			hloom_moving_count--;
		}
	}
}

/*
 * The namespace, which had that provider, is about to get another one.  Raises when memory is out.
 */
void
hloom_moving_note(const char *ns, int ns_len, const char *before)
{
	static bool registered = false;
	MemoryContext context = MemoryContextSwitchTo(TopTransactionContext);
	Moving	   *moving = palloc(sizeof(Moving));

	if (!registered)
	{
		RegisterXactCallback(end_transaction, NULL);
		RegisterSubXactCallback(end_subtransaction, NULL);
		registered = true;
	}
	moving->subid = GetCurrentSubTransactionId();
	moving->before = pstrdup(before);
	moving->ns = pnstrdup(ns, ns_len);
	moving->ns_len = ns_len;
	moving->next = first;
	first = moving;
	hloom_moving_count++;
	MemoryContextSwitchTo(context);
}

/*
 * hloom_moving_check(), when something is noted.
 */
void
hloom_moving_refuse(const HloomKey *name, const char *provider)
{
	const Moving *oldest = NULL;

	for (const Moving *at = first; at != NULL; at = at->next)
		if (at->ns_len == name->ns_len && memcmp(at->ns, name->ns, name->ns_len) == 0)
			oldest = at;
	if (oldest == NULL || strcmp(oldest->before, provider) == 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("cannot take a lease in a transaction that changes the provider of lock"
					" namespace \"%s\"", oldest->ns),
			 errdetail("Until it commits, others ask provider \"%s\".", oldest->before),
			 errhint("Commit the transaction first.")));
}
