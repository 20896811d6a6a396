/*
 * lease_key.c
 *	  What a valid namespace, key and note are, and the hash of a key.
 *
 * A namespace is 1 to 63 of a-z, 0-9 and '-'.  A key is 1 to max_key_length characters without
 * Unicode white space or control characters, otherwise opaque and compared byte by byte.  Knows
 * no provider and no store.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "compat.h"
#include "lease_key.h"

/* As much of a refused namespace as a message shows, in bytes. */
#define SHOWN_BYTES 80

/*
 * Whether the code point is white space or a control character in Unicode's sense.  U+200B and
 * U+FEFF are neither.
 */
static bool
is_forbidden(pg_wchar c)
{
	return c <= 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0x1680 ||
		(c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
		c == 0x202F || c == 0x205F || c == 0x3000;
}

static void
refuse_key_character(int position)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("lock key has a white space or control character at position %d", position),
			 errhint("Separate the parts of a key with a visible character, such as \":\".")));
}

static void
refuse_key_length(int longest)
{
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("lock key is too long"),
			 errdetail("A lock key has at most %d characters here (max_key_length).", longest),
			 errhint("Use a hash of the long part as the key.")));
}

/*
 * Judges the characters of a key in UTF-8.
 */
static void
check_utf8(const unsigned char *s, int len, int longest)
{
	int			chars = 0;

	while (len > 0)
	{
		int			width = pg_utf_mblen(s);

		if (width > len)
			refuse_key_character(chars + 1);
		if (is_forbidden(utf8_to_unicode(s)))
			refuse_key_character(chars + 1);
		if (++chars > longest)
			refuse_key_length(longest);
		s += width;
		len -= width;
	}
}

/*
 * Judges a key that has bytes above 0x7F, in the database's encoding.
 */
static void
check_wide_key(const unsigned char *s, int len, int longest)
{
	int			encoding = GetDatabaseEncoding();

	if (encoding == PG_UTF8)
		check_utf8(s, len, longest);
	else if (encoding == PG_LATIN1 || encoding == PG_SQL_ASCII)
	{
		/* LATIN1's bytes are code points; SQL_ASCII says nothing about bytes above 0x7F. */
		for (int i = 0; i < len; i++)
			if (is_forbidden(s[i]) && (s[i] < 0x80 || encoding == PG_LATIN1))
				refuse_key_character(i + 1);
		if (len > longest)
			refuse_key_length(longest);
	}
	else
	{
		char	   *utf8 = pg_server_to_any((const char *) s, len, PG_UTF8);

		check_utf8((unsigned char *) utf8, strlen(utf8), longest);
	}
}

static void
check_key(const unsigned char *s, int len, int longest)
{
	bool		wide = false;

	if (len == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("lock key must not be empty")));
	if (len > longest * MAX_MULTIBYTE_CHAR_LEN)
		refuse_key_length(longest);
	for (int i = 0; i < len; i++)
	{
		if (s[i] >= 0x80)
		{
			wide = true;
			break;
		}
		if (s[i] <= 0x20 || s[i] == 0x7F)
			refuse_key_character(i + 1);
	}
	if (wide)
		check_wide_key(s, len, longest);
	else if (len > longest)
		refuse_key_length(longest);
}

/*
 * Whether the text is a namespace.
 */
bool
hloom_key_is_namespace(const char *s, int len)
{
	bool		good = len >= 1 && len <= HLOOM_MAX_NAMESPACE;

	for (int i = 0; good && i < len; i++)
		good = (s[i] >= 'a' && s[i] <= 'z') || (s[i] >= '0' && s[i] <= '9') || s[i] == '-';
	return good;
}

/*
 * Raises 22023 unless the text is a namespace; with_key: the call takes a key, too.
 */
void
hloom_key_check_namespace(const char *s, int len, bool with_key)
{
	if (likely(hloom_key_is_namespace(s, len)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("invalid lock namespace \"%s\"",
					pnstrdup(s, pg_mbcliplen(s, len, SHOWN_BYTES))),
			 errdetail("A namespace is 1 to %d of the characters a-z, 0-9 and \"-\".",
					   HLOOM_MAX_NAMESPACE),
			 with_key ? errhint("The arguments are (namespace, key), in this order.") : 0));
}

/*
 * Checks a key of at most so many characters and puts it into name, whose namespace is checked.
 * Raises 22023 for a bad one.
 */
void
hloom_key_check(HloomKey *name, const text *key, int longest)
{
	name->key = VARDATA_ANY(key);
	check_key((const unsigned char *) name->key, VARSIZE_ANY_EXHDR(key), longest);
	name->key_len = VARSIZE_ANY_EXHDR(key);

	name->hash = hloom_key_hash(name->ns, name->ns_len, name->key, name->key_len);
}

/*
 * Returns the name with its texts in a chunk of the context, at ns.
 */
HloomKey
hloom_key_copy(const HloomKey *name, MemoryContext context)
{
	HloomKey	copy = *name;
	char	   *texts = MemoryContextAlloc(context, name->ns_len + name->key_len);

	memcpy(texts, name->ns, name->ns_len);
	memcpy(texts + name->ns_len, name->key, name->key_len);
	copy.ns = texts;
	copy.key = texts + name->ns_len;
	return copy;
}

/*
 * Raises 22023 for a note that is too long.
 */
void
hloom_key_check_note(const text *note)
{
	if (VARSIZE_ANY_EXHDR(note) > HLOOM_MAX_NOTE)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("note is too long"),
				 errdetail("A note has at most %d bytes.", HLOOM_MAX_NOTE)));
}
