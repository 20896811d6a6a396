/*
 * sql_args.c
 *	  Arguments of the SQL functions: checked, and put into a provider call.
 *
 * A NULL namespace, key or owner is an error, every other NULL means "not given".
 */
#include "postgres.h"

#include <ctype.h>

#include "access/parallel.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "tcop/utility.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "compat.h"
#include "errors.h"
#include "lease_key.h"
#include "lease_time.h"
#include "options.h"
#include "retry_row.h"
#include "shmem.h"
#include "sql_args.h"

/* Random bytes are drawn for several owner tokens at once: one draw costs as much as 16. */
#define TOKENS_PER_DRAW 16

/*
 * Raises unless the function can do its work here: 25006, 25000 or 55000.
 */
void
hloom_args_require(const char *function, bool changes)
{
	if (changes)
		PreventCommandIfReadOnly(function);
	PreventCommandDuringRecovery(function);
	if (changes)
		PreventCommandIfParallelMode(function);
	hloom_shmem_require();
}

static bool
is_given(FunctionCallInfo fcinfo, int at)
{
	return at != HLOOM_ARGS_ABSENT && !PG_ARGISNULL(at);
}

static text *
text_arg(FunctionCallInfo fcinfo, int at, const char *argument)
{
	if (PG_ARGISNULL(at))
		hloom_error_null(argument);
	return PG_GETARG_TEXT_PP(at);
}

static void
take_name(HloomKey *name, HloomOptions *options, const text *ns, const text *key)
{
	name->ns = VARDATA_ANY(ns);
	hloom_key_check_namespace(name->ns, VARSIZE_ANY_EXHDR(ns), true);
	name->ns_len = VARSIZE_ANY_EXHDR(ns);
	hloom_options_of(options, name->ns, name->ns_len);
	hloom_options_check_role(options, name->ns, name->ns_len);
	hloom_key_check(name, key, options->max_key_length);
}

/*
 * Takes namespace and key, the first two arguments, and what applies to the namespace.  Raises
 * 22004, 22023, 42501 and 42704.
 */
void
hloom_args_name(HloomKey *name, HloomOptions *options, FunctionCallInfo fcinfo)
{
	text	   *ns = text_arg(fcinfo, 0, "namespace");

	take_name(name, options, ns, text_arg(fcinfo, 1, "key"));
}

/*
 * Takes namespace, key and owner from a handle.  Returns false when there is nothing in it.  One
 * that was not coordinated stays so when the lock is switched on.
 */
static bool
take_handle(HloomCall *call, HloomOptions *options, FunctionCallInfo fcinfo)
{
	HeapTupleHeader handle;
	Datum		value[HLOOM_HANDLE_FIELDS];
	bool		null[HLOOM_HANDLE_FIELDS];
	int			nulls = 0;

	if (PG_ARGISNULL(0))
		return false;
	handle = PG_GETARG_HEAPTUPLEHEADER(0);
	for (int i = 0; i < HLOOM_HANDLE_FIELDS; i++)
	{
		value[i] = GetAttributeByNum(handle, i + 1, &null[i]);
		nulls += null[i];
	}
	if (nulls == HLOOM_HANDLE_FIELDS)
		return false;
	if (null[0] || null[1] || null[2])
		hloom_error_null(null[0] ? "namespace" : null[1] ? "key" : "owner");
	take_name(&call->name, options, DatumGetTextPP(value[0]), DatumGetTextPP(value[1]));
	call->owner = *DatumGetUUIDP(value[2]);
	if (!null[HLOOM_HANDLE_FIELDS - 1] && !DatumGetBool(value[HLOOM_HANDLE_FIELDS - 1]))
		options->enabled = false;
	return true;
}

/*
 * Reads an owner token from text, in the forms type uuid takes.  Not by its input function: that
 * one would show a mistyped secret in its message.
 */
static void
read_token(pg_uuid_t *token, const text *given)
{
	const char *at = VARDATA_ANY(given);
	const char *end = at + VARSIZE_ANY_EXHDR(given);
	bool		braces = at < end && *at == '{';
	bool		good = true;

	at += braces;
	for (int i = 0; good && i < UUID_LEN; i++)
	{
		good = end - at >= 2 && isxdigit((unsigned char) at[0]) && isxdigit((unsigned char) at[1]);
		if (!good)
			break;
		hex_decode(at, 2, (char *) &token->data[i]);
		at += 2;
		if (i % 2 == 1 && i < UUID_LEN - 1 && at < end && *at == '-')
			at++;
	}
	if (good && braces)
		good = at < end && *at++ == '}';
	if (!good || at != end)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
				 errmsg("owner is not a uuid")));
}

/*
 * Takes the lease a caller claims to own, and what applies to its namespace.  Returns false for a
 * NULL or all-NULL handle.  Raises 22004, 22023, 22P02, 42501 and 42704.
 */
bool
hloom_args_lease_of(HloomCall *call, HloomOptions *options, FunctionCallInfo fcinfo,
					HloomArgsForm form)
{
	if (form == HLOOM_ARGS_HANDLE)
		return take_handle(call, options, fcinfo);
	hloom_args_name(&call->name, options, fcinfo);
	if (PG_ARGISNULL(2))
		hloom_error_null("owner");
	if (form == HLOOM_ARGS_UUID)
		call->owner = *PG_GETARG_UUID_P(2);
	else
		read_token(&call->owner, PG_GETARG_TEXT_PP(2));
	return true;
}

/*
 * Makes a random uuid of version 4.
 */
static void
draw_token(pg_uuid_t *token)
{
	static uint8 drawn[TOKENS_PER_DRAW * UUID_LEN];
	static int	used = TOKENS_PER_DRAW;

	if (used == TOKENS_PER_DRAW)
	{
		if (!pg_strong_random(drawn, sizeof(drawn)))
			ereport(ERROR,
					(errcode(ERRCODE_INTERNAL_ERROR),
					 errmsg("could not generate random values")));
		used = 0;
	}
	memcpy(token->data, drawn + used * UUID_LEN, UUID_LEN);
	memset(drawn + used * UUID_LEN, 0, UUID_LEN);
	used++;
	token->data[6] = (token->data[6] & 0x0F) | 0x40;
	token->data[8] = (token->data[8] & 0x3F) | 0x80;
}

/*
 * Takes the caller's owner token, or makes one.
 */
static void
owner_or_new(HloomCall *call, FunctionCallInfo fcinfo, int owner)
{
	if (PG_ARGISNULL(owner))
		draw_token(&call->owner);
	else
		call->owner = *PG_GETARG_UUID_P(owner);
}

/*
 * Returns a lease in microseconds, or "otherwise" when none is given.  Raises 22023.
 */
int64
hloom_args_lease(FunctionCallInfo fcinfo, int lease, int64 otherwise)
{
	if (PG_ARGISNULL(lease))
		return otherwise;
	return hloom_time_from_interval(PG_GETARG_INTERVAL_P(lease), "lease");
}

/*
 * Takes the note, if there is one.  Raises 22023.
 */
static void
take_note(HloomCall *call, FunctionCallInfo fcinfo, int note)
{
	text	   *given;

	if (PG_ARGISNULL(note))
		return;
	given = PG_GETARG_TEXT_PP(note);
	hloom_key_check_note(given);
	call->note = VARDATA_ANY(given);
	call->note_len = VARSIZE_ANY_EXHDR(given);
}

static bool
is_word(const text *given, const char *word)
{
	return VARSIZE_ANY_EXHDR(given) == strlen(word) &&
		memcmp(VARDATA_ANY(given), word, strlen(word)) == 0;
}

/*
 * Whether a loss is to cancel the holder.  Raises 22023 for a word that is none.
 */
static bool
cancels_on_loss(FunctionCallInfo fcinfo, int on_lost)
{
	text	   *given;

	if (!is_given(fcinfo, on_lost))
		return false;
	given = PG_GETARG_TEXT_PP(on_lost);
	if (is_word(given, "cancel"))
		return true;
	if (is_word(given, "observe"))
		return false;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("on_lost \"%s\" is not known", text_to_cstring(given)),
			 errhint("Use \"observe\" or \"cancel\".")));
}

/*
 * Returns the scope, or "otherwise" when none is given.  Raises 22023 for a word that is none.
 */
static HloomScope
scope_arg(FunctionCallInfo fcinfo, int scope, HloomScope otherwise)
{
	text	   *given;

	if (PG_ARGISNULL(scope))
		return otherwise;
	given = PG_GETARG_TEXT_PP(scope);
	if (is_word(given, "lease"))
		return HLOOM_SCOPE_LEASE;
	if (is_word(given, "session"))
		return HLOOM_SCOPE_SESSION;
	if (is_word(given, "transaction"))
		return HLOOM_SCOPE_TRANSACTION;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("scope \"%s\" is not known", text_to_cstring(given)),
			 errhint("Use \"lease\", \"session\" or \"transaction\".")));
}

/*
 * Takes what a lease of scope "lease", which follows nobody, cannot have: renewal by the server,
 * and statements that end when it is lost.  A namespace's auto_extend is no error there.
 */
static void
take_following(HloomCall *call, const HloomOptions *options, FunctionCallInfo fcinfo,
			   const HloomArgsPlaces *places)
{
	bool		says = is_given(fcinfo, places->auto_extend);
	bool		wanted = says && PG_GETARG_BOOL(places->auto_extend);

	call->cancel = cancels_on_loss(fcinfo, places->on_lost);
	if (call->scope == HLOOM_SCOPE_LEASE && (wanted || call->cancel))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s needs scope session or transaction",
						wanted ? "auto_extend" : "on_lost \"cancel\""),
				 errdetail("A lease of scope lease is bound to no session that could be followed."),
				 errhint("Use scope => 'session' or scope => 'transaction'.")));
	call->auto_extend = call->scope != HLOOM_SCOPE_LEASE &&
		(says ? wanted : options->auto_extend);
	call->max_hold = options->max_hold;
}

/*
 * Takes the name and the options of a call that takes a lease.  retries tells whether a call that
 * says nothing about waiting follows the namespace's policy; it makes one attempt otherwise.  scope
 * is that of a call that names none.  Raises 22004, 22023, 42501 and 42704.
 */
void
hloom_args_acquisition(HloomAcquisition *acquisition, FunctionCallInfo fcinfo,
					   const HloomArgsPlaces *places, bool retries, HloomScope scope)
{
	HloomCall  *call = &acquisition->call;
	HloomOptions *options = &acquisition->options;
	int			wait = places->max_wait;
	int			retry = places->retry;

	hloom_args_name(&call->name, options, fcinfo);
	call->scope = scope_arg(fcinfo, places->scope, scope);
	take_following(call, options, fcinfo, places);
	call->lease = hloom_args_lease(fcinfo, places->lease, options->default_lease);
	call->lease = hloom_time_capped_lease(call->lease, options->max_lease);
	owner_or_new(call, fcinfo, places->owner);
	take_note(call, fcinfo, places->note);

	acquisition->max_wait = HLOOM_NO_BOUND;
	if (!PG_ARGISNULL(wait))
		acquisition->max_wait = hloom_time_from_bound(PG_GETARG_INTERVAL_P(wait), "max_wait");
	if (!PG_ARGISNULL(retry) &&
		hloom_retry_require(&acquisition->retry, PG_GETARG_HEAPTUPLEHEADER(retry)))
		return;
	acquisition->retry = options->retry;
	if (PG_ARGISNULL(wait) && !retries)
		acquisition->max_wait = 0;
}
