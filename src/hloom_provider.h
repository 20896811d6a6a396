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
 * the SQLSTATEs LL002 (nothing reached the store), LL003 (timed out, outcome not known) or LL004;
 * any other is reported as LL004.  try_acquire must be durable, as synchronous_commit says, when it
 * returns HLOOM_YES.
 *
 * try_acquire, release, extend, is_held, holder and force_release are called in a subtransaction,
 * so they may raise; commit_begin may, too, which ends the transaction.  At their deadline they are
 * cancelled as by statement_timeout, and count as timed out: so a provider lets interrupts in
 * (CHECK_FOR_INTERRUPTS, latches) in whatever it waits for, or bounds its waits itself.  A wait
 * that does neither cannot be ended by anybody, nor is commit_end, which must not wait.  count,
 * list and check have bounds of their own.
 *
 * A try_acquire that may have been granted without anybody knowing - any failure but "nothing
 * reached the store", or a grant later than its lease - is followed by one release with its owner.
 * The scope is always HLOOM_SCOPE_LEASE.  Lost leases are counted when an action finds that it
 * lost its own, or hloom_force_release() makes it so; waiters try again as their policy says.
 *
 * A provider registers itself with hloom_provider_register(), from _PG_init, before or after
 * hloom_lock is loaded.
 */
#ifndef HLOOM_PROVIDER_H
#define HLOOM_PROVIDER_H

#include "datatype/timestamp.h"
#include "fmgr.h"
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

/* What one call asks for.  Fields from wait_until on are for try_acquire alone. */
typedef struct HloomCall
{
	HloomKey	name;
	pg_uuid_t	owner;
	int64		lease;			/* microseconds, > 0; try_acquire and extend */
	int64		max_lease;		/* no lease is granted longer; extend */
	TimestampTz requested_at;	/* clock before the call */
	TimestampTz deadline;		/* the reply is worthless after this instant */
	TimestampTz wait_until;		/* try_acquire: wait no longer for access to the store, then NO */
	HloomScope	scope;
	bool		cancel;			/* the holder's statement is cancelled when the lease is lost */
	bool		waits;			/* the caller will wait if this call is refused */
	bool		auto_extend;	/* renew it while the backend lives, */
	int64		max_hold;		/* until it is so old, microseconds */
	const char *note;			/* NULL or note_len bytes */
	uint16		note_len;
} HloomCall;

/*
 * What a YES of try_acquire, extend or is_held tells.  A NO of try_acquire tells of the holder as
 * much as is known: the end of its lease, its role and its process; the fields are zero before
 * the call.
 */
typedef struct HloomGrant
{
	int64		fence;
	TimestampTz expires_at;		/* the store's own end: never before requested_at + lease */
	int64		lease;			/* microseconds last granted */
	bool		renewed;		/* try_acquire: the owner had it already, with this fence */
	bool		capped;			/* extend: the lease last granted was above max_lease */
	bool		committing;		/* force_release: a commit depends on it, of holder_pid */
	bool		follows;		/* it is given back when holder_pid or its transaction ends */
	int			reserved_for;	/* try_acquire: the key is free, but kept for this process */
	Oid			holder_role;
	int			holder_pid;
} HloomGrant;

/* A lease held now, as list tells it.  Texts are not terminated and last for the visit. */
typedef struct HloomLease
{
	HloomKey	name;			/* without its hash */
	int64		fence;
	TimestampTz granted_at;
	TimestampTz expires_at;
	HloomScope	scope;
	bool		committing;		/* a commit depends on it, of holder_pid */
	Oid			holder_role;
	int			holder_pid;		/* 0: the process that took it is gone */
	const char *application;	/* not NULL */
	const char *note;
	uint16		application_len;
	uint16		note_len;		/* 0: none */
} HloomLease;

typedef void (*HloomVisit) (const HloomLease *lease, void *arg);

typedef struct HloomProvider
{
	uint32		abi;			/* HLOOM_PROVIDER_ABI; these two fields stay where they are */
	struct HloomProvider *next; /* set by hloom_provider_register() */

	const char *name;			/* 1 to 63 of a-z, 0-9 and '-' */

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

	/*
	 * YES: somebody holds the key now, and grant tells fence, end and holder, with holder_pid 0
	 * unless that is a process of this server.  Writes nothing.  May be NULL: not known.
	 */
	HloomReply	(*holder) (const HloomCall *call, HloomGrant *grant);

	/*
	 * YES: somebody held it and does no more, and grant tells fence and holder for the log, as
	 * far as they are known.  NO: nobody did, or a commit depends on it.  The call has no owner.
	 * May be NULL: cannot be done.
	 */
	HloomReply	(*force_release) (const HloomCall *call, HloomGrant *grant);

	/*
	 * A transaction that depends on the grant with this fence is about to commit.  YES: the owner
	 * holds it now, and until commit_end the key is granted to nobody and the lease neither
	 * expires nor is taken away.  NO: lost; grant tells its end, or 0.  No commit_end follows a
	 * call that raised or was cancelled, so that one leaves nothing begun.  Several commits, or
	 * one several times, may depend on a grant.  Both may be NULL: then no commit can depend on a
	 * lease.
	 */
	HloomReply	(*commit_begin) (const HloomCall *call, int64 fence, HloomGrant *grant);

	/*
	 * The outcome is there, committed or rolled back: once for each YES of commit_begin.  Must
	 * not raise, nor wait for anybody.
	 */
	void		(*commit_end) (const HloomCall *call, int64 fence);

	/*
	 * How many leases of a namespace are held in this database now; until the end of the
	 * transaction no more are granted, but to who has heard of its outcome.  May be NULL: not
	 * known.  Used before the namespace gets another provider, which fails when this raises or
	 * takes longer than hloom_lock.default_lease.
	 */
	int64		(*count) (const char *ns, uint16 ns_len);

	/*
	 * Visits each lease held in this database now, in any order.  May be NULL: not known. False:
	 * the store did not answer; so it is taken when this takes longer than
	 * hloom_lock.default_lease.  May raise.  Called in no subtransaction.
	 */
	bool		(*list) (HloomVisit visit, void *arg);

	/*
	 * Whether the store answers; text tells about it in some words.  What it raises counts as no,
	 * and so does a look that takes five seconds, which ends it.  May be NULL: nothing to probe.
	 */
	bool		(*check) (char *text, Size size);
} HloomProvider;

#define HLOOM_PROVIDER_RENDEZVOUS "hloom_lock.providers"

/*
 * Makes a provider known to this process under its name.  The struct must live as long as the
 * process.  A name that is taken, or another abi, is reported when a namespace uses the provider.
 */
static inline void
hloom_provider_register(HloomProvider *provider)
{
	HloomProvider **first =
	(HloomProvider **) find_rendezvous_variable(HLOOM_PROVIDER_RENDEZVOUS);

	provider->next = *first;
	*first = provider;
}

#endif							/* HLOOM_PROVIDER_H */
