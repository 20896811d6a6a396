-- Keys in databases of other encodings.  A key is judged by its characters where the encoding says
-- what they are: always but in SQL_ASCII, where only bytes below 0x80 are.
-- Keys are written as bytes, and shown as bytes, so that no conversion of the client's is in the
-- way.
SELECT current_database() AS db \gset
\set VERBOSITY terse

CREATE DATABASE hloom_latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0;
\c hloom_latin1
SET client_encoding = 'SQL_ASCII';
CREATE EXTENSION hloom_lock;
-- Whether a key of these bytes is taken, or the SQLSTATE.
CREATE FUNCTION try(key bytea) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE WHEN EXISTS (SELECT
		FROM hloom_try_acquire('encodings', convert_from(key, getdatabaseencoding())))
		THEN 'taken' ELSE 'busy' END;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
SHOW server_encoding;
-- Each byte is a code point; 0x7F to 0xA0 are control characters and NO-BREAK SPACE, 0x85 is NEXT
-- LINE.
SELECT try('\x61a062') AS nbsp, try('\x618562') AS nel, try('\x61e962') AS e_acute,
	try('\xff') AS last, try('\xa1') AS after_nbsp;
SELECT string_agg(to_hex(b), ' ' ORDER BY b) AS refused
FROM generate_series(128, 255) AS b WHERE try('\x61'::bytea || set_byte('\x00', 0, b)) = '22023';
SELECT count(*) FILTER (WHERE try('\xe9'::bytea || set_byte('\x00', 0, b)) =
	'22023') AS refused_after_wide
FROM generate_series(1, 127) AS b;
SELECT try(decode(repeat('e9', 512), 'hex')) AS wide_512,
	try(decode(repeat('e9', 513), 'hex')) AS wide_513;
-- Kept byte by byte; what UTF-8 would decompose is one byte here.
SELECT encode(convert_to(key, getdatabaseencoding()), 'hex') AS key FROM hloom_leases
	WHERE key = convert_from('\x61e962', 'LATIN1');
SELECT try('\x61e962') AS busy, try('\x61c962') AS upper;
SELECT * FROM hloom_try_acquire('encodings', convert_from('\x61e9a0', 'LATIN1'));
SELECT count(*) FROM hloom_try_acquire('encodings', 'note',
	note => convert_from('\xa085e9', 'LATIN1'));
SELECT encode(convert_to(note, getdatabaseencoding()), 'hex') AS note FROM hloom_leases
	WHERE key = 'note';

\c :db
CREATE DATABASE hloom_sql_ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0;
\c hloom_sql_ascii
CREATE EXTENSION hloom_lock;
SHOW server_encoding;
CREATE FUNCTION try(key bytea) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE WHEN EXISTS (SELECT
		FROM hloom_try_acquire('encodings', convert_from(key, getdatabaseencoding())))
		THEN 'taken' ELSE 'busy' END;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
-- Nobody says what bytes above 0x7F mean, not even whether they make a character.
SELECT try('\x61a062') AS a0, try('\x618562') AS "85", try('\xe38080') AS utf8_ideographic_space,
	try('\xff') AS ff, try('\xe9') AS half;
SELECT count(*) FILTER (WHERE try('\x62'::bytea || set_byte('\x00', 0, b)) = 'taken') AS taken
	FROM generate_series(128, 255) AS b;
SELECT string_agg(to_hex(b), ' ' ORDER BY b) AS refused
FROM generate_series(1, 127) AS b WHERE try('\x63'::bytea || set_byte('\x00', 0, b)) = '22023';
SELECT count(*) FILTER (WHERE try('\xe9'::bytea || set_byte('\x00', 0, b)) =
	'22023') AS refused_after_wide
FROM generate_series(1, 127) AS b;
-- A character is a byte.
SELECT try(decode(repeat('e9', 512), 'hex')) AS bytes_512,
	try(decode(repeat('e9', 513), 'hex')) AS bytes_513;
SELECT encode(convert_to(key, getdatabaseencoding()), 'hex') AS key FROM hloom_leases
	WHERE encode(convert_to(key, getdatabaseencoding()), 'hex') IN ('61a062', 'ff') ORDER BY 1;

\c :db
CREATE DATABASE hloom_euc_jp ENCODING 'EUC_JP' LOCALE 'C' TEMPLATE template0;
\c hloom_euc_jp
SET client_encoding = 'SQL_ASCII';
CREATE EXTENSION hloom_lock;
SHOW server_encoding;
CREATE FUNCTION try(key bytea) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	RETURN CASE WHEN EXISTS (SELECT
		FROM hloom_try_acquire('encodings', convert_from(key, getdatabaseencoding())))
		THEN 'taken' ELSE 'busy' END;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
-- A1A1 is IDEOGRAPHIC SPACE, A4A2 HIRAGANA LETTER A, 8EB1 a half-width KATAKANA.
SELECT try('\xa1a1') AS ideographic_space, try('\x61a1a162') AS within,
	try('\xa4a2a1a1') AS after_wide, try('\xa4a2') AS hiragana,
	try('\x8eb1') AS katakana, try('\xa4a220') AS space_after_wide, try('\xa1a2') AS comma,
	try('\xa9a1') AS not_in_unicode;
SELECT * FROM hloom_try_acquire('encodings', convert_from('\xa4a2a4a2a1a1', 'EUC_JP'));
-- Characters are counted, not bytes.
SELECT try(decode(repeat('a4a2', 512), 'hex')) AS wide_512,
	try(decode(repeat('a4a2', 513), 'hex')) AS wide_513,
	try(decode(repeat('61', 511) || 'a4a2', 'hex')) AS mixed_512,
		try(decode(repeat('61', 512) || 'a4a2', 'hex')) AS mixed_513;
SELECT encode(convert_to(key, 'EUC_JP'), 'hex') AS key, length(key) FROM hloom_leases
	WHERE length(key) = 1 ORDER BY 1;
SELECT max(length(key)), max(octet_length(key)) FROM hloom_leases;

\c :db
DROP DATABASE hloom_latin1;
DROP DATABASE hloom_sql_ascii;
DROP DATABASE hloom_euc_jp;
