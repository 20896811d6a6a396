/*
 * errors.c
 *	  The errors several layers raise, with their details.
 *
 * DETAIL is one line of JSON, for people and for tools: namespace, key, waited_ms, attempts.
 * The owner token is in no message.  This file knows no provider and no store.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "utils/json.h"
#include "utils/timestamp.h"

#include "compat.h"
#include "errors.h"

/*
 * Returns the DETAIL line of a call, palloc'd.  waited_ms counts from the request; attempts are
 * provider calls made.
 */
char *
hloom_error_detail(const HloomCall *call, int attempts)
{
	StringInfoData buf;
	int64		waited = GetCurrentTimestamp() - call->requested_at;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "{\"namespace\": ");
	escape_json(&buf, pnstrdup(call->name.ns, call->name.ns_len));
	appendStringInfoString(&buf, ", \"key\": ");
	escape_json(&buf, pnstrdup(call->name.key, call->name.key_len));
	appendStringInfo(&buf, ", \"waited_ms\": " INT64_FORMAT ", \"attempts\": %d}",
					 Max(waited, 0) / 1000, attempts);
	return buf.data;
}

/*
 * Raises the error of a failure reply: LL002, LL003 or LL004.
 */
void
hloom_error_reply(HloomReply reply, const HloomCall *call)
{
	switch (reply)
	{
		case HLOOM_UNAVAILABLE:
			ereport(ERROR,
					(errcode(HLOOM_ERRCODE_UNAVAILABLE),
					 errmsg("lock provider is not available"),
					 errdetail_internal("%s", hloom_error_detail(call, 1))));
			break;
		case HLOOM_TIMEOUT:
			ereport(ERROR,
					(errcode(HLOOM_ERRCODE_TIMEOUT),
					 errmsg("lock provider did not answer in time"),
					 errdetail_internal("%s", hloom_error_detail(call, 1)),
					 errhint("See pg_locks for a lock on the lease table; a lease must be longer"
							 " than the wait for table and disk.")));
			break;
		default:
			ereport(ERROR,
					(errcode(HLOOM_ERRCODE_PROVIDER),
					 errmsg("lock provider failed"),
					 errdetail_internal("%s", hloom_error_detail(call, 1))));
	}
	pg_unreachable();
}

/*
 * Raises 0A000 for a part of the interface that this version does not have yet.
 */
void
hloom_error_not_built(const char *what)
{
	ereport(ERROR,
			(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
			 errmsg("%s is not supported by this version of hloom_lock", what)));
	pg_unreachable();
}
