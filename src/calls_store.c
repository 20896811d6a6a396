/*
 * calls_store.c
 *	  Calls of a provider about all its leases: how many, which, and whether it answers.
 *
 * One of our own is called as it is, and bounds its waits itself.  Any other is cancelled when it
 * has not come back in time.  An error of count or list ends the statement, so they have no
 * subtransaction, in which what list visits would not last.  An error of check, also of our own, is
 * an answer.
 *
 * Knows no SQL.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/json.h"
#include "utils/timestamp.h"

#include "calls.h"
#include "calls_store.h"
#include "compat.h"
#include "contain.h"
#include "errors.h"
#include "guc.h"
#include "lease_time.h"
#include "provider.h"

/* A check takes no longer, in microseconds. */
#define CHECK_TIME (5 * USECS_PER_SEC)

/* A call, and what came of it. */
typedef struct StoreCall
{
	const HloomProvider *provider;
	const char *ns;				/* count */
	uint16		ns_len;
	int64		count;
	HloomVisit	visit;			/* list */
	void	   *arg;
	char	   *told;			/* check */
	Size		size;
	bool		good;			/* list, check */
} StoreCall;

static void
make_count(void *arg)
{
	StoreCall  *call = (StoreCall *) arg;

	call->count = call->provider->count(call->ns, call->ns_len);
}

static void
make_list(void *arg)
{
	StoreCall  *call = (StoreCall *) arg;

	call->good = call->provider->list(call->visit, call->arg);
}

static void
make_check(void *arg)
{
	StoreCall  *call = (StoreCall *) arg;

	call->good = call->provider->check(call->told, call->size);
}

static char *
failure_detail(const char *provider, const char *cause)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "{\"provider\": ");
	escape_json(&buf, provider);
	appendStringInfoString(&buf, ", \"cause\": ");
	escape_json(&buf, cause);
	appendStringInfoChar(&buf, '}');
	return buf.data;
}

/*
 * Raises LL002, LL003 or LL004.  cause is the provider's own words, or NULL.
 */
static void
raise_failure(const char *provider, HloomReply reply, const char *cause)
{
	ereport(ERROR,
			(errcode(reply == HLOOM_UNAVAILABLE ? HLOOM_ERRCODE_UNAVAILABLE :
					 reply == HLOOM_TIMEOUT ? HLOOM_ERRCODE_TIMEOUT : HLOOM_ERRCODE_PROVIDER),
			 errmsg(reply == HLOOM_UNAVAILABLE ? "lock provider \"%s\" is not available" :
					reply == HLOOM_TIMEOUT ? "lock provider \"%s\" did not answer in time" :
					"lock provider \"%s\" failed", provider),
			 cause ? errdetail_internal("%s", failure_detail(provider, cause)) : 0,
			 errhint("hloom_health() tells who is in the way.")));
}

/*
 * Makes a call that takes no longer than hloom_lock.default_lease.  Raises what it raises, as one
 * of our SQLSTATEs, or a cancel.
 */
static void
make_bounded(void (*make) (void *arg), StoreCall *call)
{
	TimestampTz deadline = hloom_time_add(GetCurrentTimestamp(),
										  (int64) hloom_default_lease * 1000);
	ErrorData  *error;
	bool		expired;

	if (hloom_provider_is_own(call->provider))
	{
		make(call);
		return;
	}
	error = hloom_contain_bounded(make, call, deadline, &expired);
	if (error == NULL)
		return;
	if (expired)
		raise_failure(call->provider->name, HLOOM_TIMEOUT, NULL);
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		ReThrowError(error);
	raise_failure(call->provider->name, hloom_calls_reply_of(error), error->message);
}

/*
 * Returns how many leases of a namespace are held.  The provider has count.  Raises LL002, LL003,
 * LL004 and 57014, and what one of ours raises.
 */
int64
hloom_calls_count(const HloomProvider *provider, const char *ns, uint16 ns_len)
{
	StoreCall	call = {.provider = provider,.ns = ns,.ns_len = ns_len};

	make_bounded(make_count, &call);
	return call.count;
}

/*
 * Visits each lease.  The provider has list.  Raises as above, LL003 also when the store of one of
 * ours does not answer; then some may have been visited.
 */
void
hloom_calls_list(const HloomProvider *provider, HloomVisit visit, void *arg)
{
	StoreCall	call = {.provider = provider,.visit = visit,.arg = arg};

	make_bounded(make_list, &call);
	if (!call.good)
		raise_failure(provider->name, HLOOM_TIMEOUT, NULL);
}

/*
 * Lets the provider check its store.  The provider has check.  Returns whether it is good; told
 * becomes what it tells.  What is raised makes it bad and is what is told, but for a cancel, which
 * is passed on.
 */
bool
hloom_calls_check(const HloomProvider *provider, char *told, Size size)
{
	StoreCall	call = {.provider = provider,.told = told,.size = size};
	TimestampTz deadline = DT_NOEND;
	ErrorData  *error;
	bool		expired;

	if (!hloom_provider_is_own(provider))
		deadline = hloom_time_add(GetCurrentTimestamp(), CHECK_TIME);
	error = hloom_contain_until(make_check, &call, deadline, &expired);
	if (error == NULL)
		return call.good;
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED && !expired)
		ReThrowError(error);
	if (expired)
		snprintf(told, size, "no answer within %d seconds", (int) (CHECK_TIME / USECS_PER_SEC));
	else
		strlcpy(told, error->message, size);
	return false;
}
