/*
 * sql_sensitive.c
 *	  SQL: hloom_key_from_sensitive(), a lock key that does not tell what it was made from.
 *
 * The first 16 bytes of SHA-256 or HMAC-SHA-256 over the value in UTF-8, so that clients of other
 * encodings and other languages come to the same key.  Needs no shared memory and reads nothing.
 * What an error would show of value or secret ends in the server's log, so it shows nothing; the
 * conversion is done here by pieces, since core's whole-string one shows the bytes it stumbles
 * over.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "common/cryptohash.h"
#include "common/hmac.h"
#include "common/sha2.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "compat.h"
#include "errors.h"

PG_FUNCTION_INFO_V1(hloom_sql_key_from_sensitive);
PG_FUNCTION_INFO_V1(hloom_sql_key_from_sensitive_keyed);

#define KEY_BYTES 16

/* Bytes of the value hashed at a time, before their conversion. */
#define PIECE 2048

/* One of the two, created and not yet final. */
typedef struct HloomDigest
{
	pg_cryptohash_ctx *plain;
	pg_hmac_ctx *keyed;
} HloomDigest;

static void
hash_failed(const HloomDigest *hash)
{
	ereport(ERROR,
			(errcode(ERRCODE_INTERNAL_ERROR),
			 errmsg("could not compute %s: %s", hash->keyed ? "HMAC-SHA-256" : "SHA-256",
					hash->keyed ? pg_hmac_error(hash->keyed) : pg_cryptohash_error(hash->plain))));
}

static void
hash_begin(HloomDigest *hash, const bytea *secret)
{
	int			result;

	if (secret)
	{
		hash->keyed = pg_hmac_create(PG_SHA256);
		result = hash->keyed ? pg_hmac_init(hash->keyed, (const uint8 *) VARDATA_ANY(secret),
											VARSIZE_ANY_EXHDR(secret)) : -1;
	}
	else
	{
		hash->plain = pg_cryptohash_create(PG_SHA256);
		result = hash->plain ? pg_cryptohash_init(hash->plain) : -1;
	}
	if (result < 0)
		hash_failed(hash);
}

static void
hash_add(const HloomDigest *hash, const void *data, Size len)
{
	int			result = hash->keyed ? pg_hmac_update(hash->keyed, data, len) :
	pg_cryptohash_update(hash->plain, data, len);

	if (result < 0)
		hash_failed(hash);
}

static void
hash_end(const HloomDigest *hash, uint8 *digest)
{
	int			result = hash->keyed ?
	pg_hmac_final(hash->keyed, digest, PG_SHA256_DIGEST_LENGTH) :
	pg_cryptohash_final(hash->plain, digest, PG_SHA256_DIGEST_LENGTH);

	if (result < 0)
		hash_failed(hash);
}

/*
 * Hashes a value of another encoding, piece by piece through the buffer.  A character cut at the
 * end of a piece is left for the next one.
 */
static void
add_converted(const HloomDigest *hash, const char *at, int left, unsigned char *buffer, int size)
{
	int			encoding = GetDatabaseEncoding();
	Oid			conversion = FindDefaultConversionProc(encoding, PG_UTF8);

	if (!OidIsValid(conversion))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("default conversion function for encoding \"%s\" to \"%s\" does not exist",
						pg_encoding_to_char(encoding), pg_encoding_to_char(PG_UTF8))));
	while (left > 0)
	{
		int			taken;

		CHECK_FOR_INTERRUPTS();
		taken = pg_do_encoding_conversion_buf(conversion, encoding, PG_UTF8,
											  (unsigned char *) unconstify(char *, at), left,
											  buffer, size, true);
		if (taken <= 0)
			ereport(ERROR,
					(errcode(ERRCODE_UNTRANSLATABLE_CHARACTER),
					 errmsg("value has a character that has no equivalent in encoding \"UTF8\"")));
		hash_add(hash, buffer, strlen((char *) buffer));
		at += taken;
		left -= taken;
	}
}

static void
add_value(const HloomDigest *hash, const text *value, unsigned char *buffer, int size)
{
	const char *at = VARDATA_ANY(value);
	int			left = VARSIZE_ANY_EXHDR(value);

	if (GetDatabaseEncoding() == PG_SQL_ASCII && !pg_verify_mbstr(PG_UTF8, at, left, true))
		ereport(ERROR,
				(errcode(ERRCODE_CHARACTER_NOT_IN_REPERTOIRE),
				 errmsg("value is not valid in encoding \"UTF8\"")));
	if (GetDatabaseEncoding() == PG_UTF8 || GetDatabaseEncoding() == PG_SQL_ASCII)
		hash_add(hash, at, left);
	else
		add_converted(hash, at, left, buffer, size);
}

/*
 * Wipes an argument where reading it made a copy.
 */
static void
wipe_copy(void *copy, Datum argument)
{
	if (copy != DatumGetPointer(argument))
		explicit_bzero(copy, VARSIZE_ANY(copy));
}

static Datum
key_from(FunctionCallInfo fcinfo, bool keyed)
{
	HloomDigest *hash = (HloomDigest *) palloc0(sizeof(HloomDigest));
	bytea	   *secret = keyed ? PG_GETARG_BYTEA_PP(1) : NULL;
	text	   *value;
	unsigned char buffer[PIECE * MAX_CONVERSION_GROWTH + 1];
	uint8		digest[PG_SHA256_DIGEST_LENGTH];
	char		hex[2 * KEY_BYTES + 1];

	if (secret && VARSIZE_ANY_EXHDR(secret) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("secret must not be empty")));
	value = PG_GETARG_TEXT_PP(0);
	PG_TRY();
	{
		hash_begin(hash, secret);
		add_value(hash, value, buffer, sizeof(buffer));
		hash_end(hash, digest);
		hex_encode((const char *) digest, KEY_BYTES, hex);
	}
	PG_FINALLY();
	{
		pg_cryptohash_free(hash->plain);
		pg_hmac_free(hash->keyed);
		explicit_bzero(buffer, sizeof(buffer));
		explicit_bzero(digest, sizeof(digest));
		wipe_copy(value, PG_GETARG_DATUM(0));
		if (secret)
			wipe_copy(secret, PG_GETARG_DATUM(1));
	}
	PG_END_TRY();
	PG_RETURN_TEXT_P(cstring_to_text_with_len(hex, 2 * KEY_BYTES));
}

/*
 * SQL: hloom_key_from_sensitive(value).  32 hex digits.  Raises 22004, 22021 and 22P05.
 */
Datum
hloom_sql_key_from_sensitive(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0))
		hloom_error_null("value");
	return key_from(fcinfo, false);
}

/*
 * SQL: hloom_key_from_sensitive(value, secret).  A NULL secret is an error and not the hash
 * without one, which anybody could compute.  Raises 22023, too.
 */
Datum
hloom_sql_key_from_sensitive_keyed(PG_FUNCTION_ARGS)
{
	if (PG_ARGISNULL(0))
		hloom_error_null("value");
	if (PG_ARGISNULL(1))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("secret must not be null"),
				 errhint("Use hloom_key_from_sensitive(value) for a hash that needs no secret.")));
	return key_from(fcinfo, true);
}
