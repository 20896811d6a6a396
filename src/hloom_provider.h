/*
 * hloom_provider.h
 *	  The contract between the composed lock and whatever keeps the leases.
 *
 * Installed for providers outside this project: it needs postgres.h before it and nothing else
 * of ours.  The composed lock (SQL functions, attempt loop) talks to a provider through this
 * struct only; the lease table is its first implementation.
 *
 * Every call runs in the caller's backend and transaction.  A refusal is a value, never an error.
 * A failure is either a failure reply or an ereport; an error raised by a provider carries one of
 * the SQLSTATEs LL002 (nothing reached the store), LL003 (timed out, outcome not known) or LL004.
 * A call must come back at its deadline at the latest.  try_acquire must be durable, as
 * synchronous_commit says, when it returns HLOOM_YES; a grant it cannot confirm it takes back.
 */
#ifndef HLOOM_PROVIDER_H
#define HLOOM_PROVIDER_H

#include "datatype/timestamp.h"
#include "utils/uuid.h"

/* Raised by one with every change of the structs below. */
#define HLOOM_PROVIDER_ABI 1

/* A lock's name: both texts in the database's encoding, not terminated, checked by the caller. */
typedef struct HloomKey
{
	const char *ns;
	const char *key;
	uint16		ns_len;			/* bytes, 1 .. 63 */
	uint16		key_len;		/* bytes, 1 .. 4096 */
	uint64		hash;			/* of "{namespace}:lock:{key}" */
} HloomKey;

typedef enum HloomReply
{
	HLOOM_NO,					/* refused: held by another owner; or not the owner, or expired */
	HLOOM_YES,
	HLOOM_UNAVAILABLE,			/* failed, and nothing can have reached the store */
	HLOOM_TIMEOUT,				/* failed, and it is not known what the store did */
	HLOOM_FAILURE				/* failed in another way */
} HloomReply;

typedef enum HloomScope
{
	HLOOM_SCOPE_LEASE,
	HLOOM_SCOPE_SESSION,
	HLOOM_SCOPE_TRANSACTION
} HloomScope;

/* What one call asks for.  Fields after deadline are for try_acquire alone. */
typedef struct HloomCall
{
	HloomKey	name;
	pg_uuid_t	owner;
	int64		lease;			/* microseconds, > 0; try_acquire and extend */
	int64		max_lease;		/* no lease is granted longer; extend */
	TimestampTz requested_at;	/* clock before the call */
	TimestampTz deadline;		/* the reply is worthless after this instant */
	HloomScope	scope;
	bool		auto_extend;
	const char *note;			/* NULL or note_len bytes */
	uint16		note_len;
} HloomCall;

/* What a YES of try_acquire, extend or is_held tells. */
typedef struct HloomGrant
{
	int64		fence;
	TimestampTz expires_at;		/* the store's own end: never before requested_at + lease */
	int64		lease;			/* microseconds last granted */
	bool		capped;			/* extend: the lease last granted was above max_lease */
} HloomGrant;

typedef struct HloomProvider
{
	uint32		abi;			/* HLOOM_PROVIDER_ABI */
	const char *name;

	/* Grants when the key is free, expired or this owner's already (then the fence stays). */
	HloomReply	(*try_acquire) (const HloomCall *call, HloomGrant *grant);

	/* YES: was this owner's, now free.  NO: absent, expired or another's. */
	HloomReply	(*release) (const HloomCall *call);

	/*
	 * YES: now ends call->lease after the clock.  lease 0 means the lease last granted, or
	 * max_lease if that is shorter.
	 */
	HloomReply	(*extend) (const HloomCall *call, HloomGrant *grant);

	/* YES: this owner holds it now.  Writes nothing. */
	HloomReply	(*is_held) (const HloomCall *call, HloomGrant *grant);
} HloomProvider;

#endif							/* HLOOM_PROVIDER_H */
