/*
 * lease_tuple.c
 *	  Rows of the lease table as tuples of hloom_leases.
 *
 * Decides who sees an owner token: a superuser, the table's owner and the role that took the
 * lease, as pg_stat_statements decides about query texts; everybody else sees NULL.  Knows no page
 * and no lock.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "common/cryptohash.h"
#include "common/sha2.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/inet.h"
#include "utils/uuid.h"

#include "compat.h"
#include "lease_time.h"
#include "lease_tuple.h"

enum
{
	COL_NAMESPACE,
	COL_KEY,
	COL_OWNER,
	COL_OWNER_TAG,
	COL_FENCE,
	COL_MODE,
	COL_GRANTED_AT,
	COL_EXPIRES_AT,
	COL_LEASE,
	COL_HOLDER_ROLE,
	COL_HOLDER_PID,
	COL_APPLICATION_NAME,
	COL_CLIENT_ADDR,
	COL_SCOPE,
	COL_AUTO_EXTEND,
	COL_NOTE,
	COLUMNS
};

static const Oid column_types[COLUMNS] = {
	[COL_NAMESPACE] = TEXTOID,
	[COL_KEY] = TEXTOID,
	[COL_OWNER] = UUIDOID,
	[COL_OWNER_TAG] = TEXTOID,
	[COL_FENCE] = INT8OID,
	[COL_MODE] = TEXTOID,
	[COL_GRANTED_AT] = TIMESTAMPTZOID,
	[COL_EXPIRES_AT] = TIMESTAMPTZOID,
	[COL_LEASE] = INTERVALOID,
	[COL_HOLDER_ROLE] = REGROLEOID,
	[COL_HOLDER_PID] = INT4OID,
	[COL_APPLICATION_NAME] = TEXTOID,
	[COL_CLIENT_ADDR] = INETOID,
	[COL_SCOPE] = TEXTOID,
	[COL_AUTO_EXTEND] = BOOLOID,
	[COL_NOTE] = TEXTOID
};

/* Bytes of the digest shown in owner_tag. */
#define TAG_BYTES 4

/*
 * Raises 55000 when the table's columns are not those this library fills; dropped and added ones
 * are harmless.
 */
void
hloom_tuple_check_columns(Relation rel)
{
	TupleDesc	desc = RelationGetDescr(rel);

	for (int i = 0; i < COLUMNS; i++)
	{
		if (i < desc->natts && (TupleDescAttr(desc, i)->attisdropped ||
								TupleDescAttr(desc, i)->atttypid == column_types[i]))
			continue;
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("columns of \"%s\" do not fit the installed library",
						RelationGetRelationName(rel)),
				 errhint("Use ALTER EXTENSION hloom_lock UPDATE.")));
	}
}

/*
 * Returns the first digits of the SHA-256 of the owner token's text, by which people can tell
 * owners apart who must not know them.
 */
static Datum
owner_tag(const pg_uuid_t *owner)
{
	char	   *token = DatumGetCString(DirectFunctionCall1(uuid_out, UUIDPGetDatum(owner)));
	pg_cryptohash_ctx *ctx = pg_cryptohash_create(PG_SHA256);
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	char		hex[2 * TAG_BYTES + 1];

	if (ctx == NULL || pg_cryptohash_init(ctx) < 0 ||
		pg_cryptohash_update(ctx, (uint8 *) token, strlen(token)) < 0 ||
		pg_cryptohash_final(ctx, digest, sizeof(digest)) < 0)
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not compute SHA-256 of an owner token")));
	pg_cryptohash_free(ctx);
	hex_encode((char *) digest, TAG_BYTES, hex);
	return PointerGetDatum(cstring_to_text_with_len(hex, 2 * TAG_BYTES));
}

static Datum
client_inet(const char *addr)
{
	inet	   *out = (inet *) palloc0(sizeof(inet));
	bool		v4 = addr[0] == 4;

	ip_family(out) = v4 ? PGSQL_AF_INET : PGSQL_AF_INET6;
	ip_bits(out) = v4 ? 32 : 128;
	memcpy(ip_addr(out), addr + 1, v4 ? 4 : 16);
	SET_INET_VARSIZE(out);
	return InetPGetDatum(out);
}

static const char *
scope_name(uint8 scope)
{
	switch ((HloomScope) scope)
	{
		case HLOOM_SCOPE_LEASE:
			return "lease";
		case HLOOM_SCOPE_SESSION:
			return "session";
		case HLOOM_SCOPE_TRANSACTION:
			return "transaction";
	}
	return "unknown";
}

static bool
sees_owner(Relation rel, const HloomRow *row)
{
	Oid			role = GetUserId();

	return row->role == role || superuser_arg(role) ||
		hloom_owns_relation(RelationGetRelid(rel), role);
}

static Datum
text_datum(const char *s, int len)
{
	return PointerGetDatum(cstring_to_text_with_len(s, len));
}

static void
fill_texts(const HloomRow *row, Datum *values, bool *nulls)
{
	const char *at = row->texts;

	values[COL_NAMESPACE] = text_datum(at, row->ns_len);
	at += row->ns_len;
	values[COL_KEY] = text_datum(at, row->key_len);
	at += row->key_len;
	values[COL_NOTE] = text_datum(at, row->note_len);
	nulls[COL_NOTE] = row->note_len == 0;
	at += row->note_len;
	values[COL_APPLICATION_NAME] = text_datum(at, row->app_len);
	at += row->app_len;
	nulls[COL_CLIENT_ADDR] = row->addr_len == 0;
	if (row->addr_len > 0)
		values[COL_CLIENT_ADDR] = client_inet(at);
}

/*
 * Returns the row as a tuple of the table, palloc'd, as the current user may see it; with
 * hide_owner, as anybody may.
 */
HeapTuple
hloom_tuple_form(Relation rel, const HloomCopy *copy, bool hide_owner)
{
	TupleDesc	desc = RelationGetDescr(rel);
	const HloomRow *row = copy->row;
	Datum		values[MaxHeapAttributeNumber] = {0};
	bool		nulls[MaxHeapAttributeNumber] = {0};
	HeapTuple	tuple;

	fill_texts(row, values, nulls);
	values[COL_OWNER] = UUIDPGetDatum(&row->owner);
	nulls[COL_OWNER] = hide_owner || !sees_owner(rel, row);
	values[COL_OWNER_TAG] = owner_tag(&row->owner);
	values[COL_FENCE] = Int64GetDatum(row->fence);
	values[COL_MODE] = CStringGetTextDatum("exclusive");
	values[COL_GRANTED_AT] = TimestampTzGetDatum(row->granted_at);
	values[COL_EXPIRES_AT] = TimestampTzGetDatum(row->expires_at);
	values[COL_LEASE] = IntervalPGetDatum(hloom_time_to_interval(row->lease));
	values[COL_HOLDER_ROLE] = ObjectIdGetDatum(row->role);
	values[COL_HOLDER_PID] = Int32GetDatum(row->pid);
	values[COL_SCOPE] = CStringGetTextDatum(scope_name(row->scope));
	values[COL_AUTO_EXTEND] = BoolGetDatum((row->flags & HLOOM_ROW_AUTO_EXTEND) != 0);
	for (int i = 0; i < desc->natts; i++)
		if (i >= COLUMNS || TupleDescAttr(desc, i)->attisdropped)
			nulls[i] = true;

	tuple = heap_form_tuple(desc, values, nulls);
	tuple->t_self = copy->at;
	tuple->t_tableOid = RelationGetRelid(rel);
	tuple->t_data->t_ctid = copy->at;
	HeapTupleHeaderSetXmin(tuple->t_data, FrozenTransactionId);
	HeapTupleHeaderSetXmax(tuple->t_data, InvalidTransactionId);
	HeapTupleHeaderSetCmin(tuple->t_data, FirstCommandId);
	tuple->t_data->t_infomask |= HEAP_XMIN_FROZEN | HEAP_XMAX_INVALID;
	return tuple;
}
