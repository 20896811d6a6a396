-- hloom_key_from_sensitive(): a key that does not tell its source, the same in every encoding and
-- every language.
CREATE SCHEMA sensitive;
SET search_path = sensitive, public;

-- item 14: vectors, keyed and not.
SELECT hloom_key_from_sensitive('1234') = '03ac674216f3e15c761ee1a5e255f067' AS plain,
	hloom_key_from_sensitive('refresh-token-value') = 'e65009f6e0ae9fc204adcb73a208f63c' AS token,
	hloom_key_from_sensitive('') = 'e3b0c44298fc1c149afbf4c8996fb924' AS empty,
	hloom_key_from_sensitive('1234', 'catalog-service-pepper')
		= '4206b0e68f2edc74108d084419373455' AS keyed;
-- RFC 4231, test cases 2, 6 and 7; the last two have keys longer than a block.
SELECT hloom_key_from_sensitive('what do ya want for nothing?', 'Jefe')
		= '5bdcc146bf60754e6a042426089575c7' AS case2,
	hloom_key_from_sensitive('Test Using Larger Than Block-Size Key - Hash Key First',
		decode(repeat('aa', 131), 'hex')) = '60e431591ee0b67f0d8a26aacbf5b77f' AS case6,
	hloom_key_from_sensitive('This is a test using a larger than block-size key and a larger t'
		|| 'han block-size data. The key needs to be hashed before being used by the HMAC algor'
		|| 'ithm.', decode(repeat('aa', 131), 'hex')) = '9b09ffa71b942fcb27635fbcd5b0e944' AS case7;
-- Against SHA-256 of core, also of values that are stored compressed.
CREATE TABLE v AS SELECT n, repeat(chr(97 + n % 26), n) AS value
FROM unnest(ARRAY[0, 1, 15, 55, 56, 63, 64, 65, 2047, 2048, 2049, 8192, 100000]) AS n;
SELECT count(*) AS values, count(*) FILTER (WHERE hloom_key_from_sensitive(value)
	= left(encode(sha256(value::bytea), 'hex'), 32)) AS equal,
	count(*) FILTER (WHERE hloom_key_from_sensitive(value, value::bytea || '\x00')
		= hloom_key_from_sensitive(value || '', (value || '')::bytea || '\x00')) AS keyed
FROM v;
SELECT hloom_key_from_sensitive(repeat('x', 5000000))
	= left(encode(sha256(repeat('x', 5000000)::bytea), 'hex'), 32) AS long;

-- item 13: always 32 lower-case hex digits, one value to one key, different ones to different keys.
SELECT count(*) AS values, count(DISTINCT key) AS keys, bool_and(key ~ '^[0-9a-f]{32}$') AS shape,
	bool_and(key = hloom_key_from_sensitive('value ' || i)) AS same
FROM generate_series(1, 1000) AS i,
	LATERAL (SELECT hloom_key_from_sensitive('value ' || i)) AS k(key);
SELECT count(DISTINCT key) AS keys
FROM (VALUES (hloom_key_from_sensitive('a')), (hloom_key_from_sensitive('a', 'k')),
	(hloom_key_from_sensitive('a', 'l')), (hloom_key_from_sensitive('b', 'k')),
	(hloom_key_from_sensitive('', 'k')), (hloom_key_from_sensitive(''))) AS k(key);
-- Every byte of the secret counts; only that HMAC fills it up with NULs.
SELECT count(DISTINCT hloom_key_from_sensitive('a', secret)) AS keys
FROM unnest(ARRAY['\x61', '\x6100', '\x610001', '\x0061', '\xff']::bytea[]) AS secret;

-- It is a valid key, so what must not be seen can be locked.
SELECT count(*) FROM hloom_try_acquire('sensitive', hloom_key_from_sensitive('two words', 'k'));
SELECT key = hloom_key_from_sensitive('two words', 'k') AS key, length(key)
FROM hloom_leases WHERE namespace = 'sensitive';

-- item 15: a missing secret does not give the hash that needs none.
SELECT hl.error($$SELECT hloom_key_from_sensitive('credential', NULL)$$);
SELECT hl.error($$SELECT hloom_key_from_sensitive('credential', '')$$);
SELECT hl.error($$SELECT hloom_key_from_sensitive(NULL)$$);
SELECT hl.error($$SELECT hloom_key_from_sensitive(NULL, 'secret')$$);
SELECT hl.error($$SELECT hloom_key_from_sensitive(NULL, NULL)$$);

-- It depends on nothing but its arguments: an index keeps it, a read-only transaction has it, a
-- parallel query runs it in its workers.
CREATE UNIQUE INDEX ON v (hloom_key_from_sensitive(value));
BEGIN READ ONLY;
SELECT hloom_key_from_sensitive('1234');
COMMIT;
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
ALTER TABLE v SET (parallel_workers = 2);
EXPLAIN (COSTS OFF) SELECT count(hloom_key_from_sensitive(value)) FROM v;
SELECT count(DISTINCT hloom_key_from_sensitive(value)) FROM v;
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;

-- Characters, in this database's UTF-8 and in other encodings: the hash is over UTF-8.
SHOW server_encoding;
SELECT hloom_key_from_sensitive(convert_from('\x61e962', 'LATIN1')) AS e_acute,
	hloom_key_from_sensitive(convert_from('\xa4a2', 'EUC_JP')) AS hiragana \gset
SELECT :'e_acute' = left(encode(sha256('\x61c3a962'), 'hex'), 32) AS e_acute,
	:'hiragana' = left(encode(sha256('\xe38182'), 'hex'), 32) AS hiragana;
SELECT hloom_key_from_sensitive(repeat(convert_from('\xe9', 'LATIN1'), 10000), 'k') AS long \gset

TRUNCATE hloom_leases;
SET client_min_messages = warning;
DROP SCHEMA sensitive CASCADE;
RESET client_min_messages;

SELECT current_database() AS db \gset
CREATE DATABASE regress_hloom_latin1 ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0;
\c regress_hloom_latin1
CREATE EXTENSION hloom_lock;
SHOW server_encoding;
SELECT hloom_key_from_sensitive(convert_from('\x61e962', 'LATIN1')) = :'e_acute' AS e_acute,
	hloom_key_from_sensitive(repeat(convert_from('\xe9', 'LATIN1'), 10000), 'k') = :'long' AS long,
	hloom_key_from_sensitive('1234', 'catalog-service-pepper')
		= '4206b0e68f2edc74108d084419373455' AS keyed,
	hloom_key_from_sensitive('') = 'e3b0c44298fc1c149afbf4c8996fb924' AS empty;

\c :db
CREATE DATABASE regress_hloom_euc_jp ENCODING 'EUC_JP' LOCALE 'C' TEMPLATE template0;
\c regress_hloom_euc_jp
CREATE EXTENSION hloom_lock;
SHOW server_encoding;
-- Pieces that end within a character, whatever their length.
SELECT hloom_key_from_sensitive(convert_from('\xa4a2', 'EUC_JP')) = :'hiragana' AS hiragana,
	(SELECT count(*) FILTER (WHERE hloom_key_from_sensitive(value)
			= left(encode(sha256(convert_to(value, 'UTF8')), 'hex'), 32))
		FROM generate_series(0, 3) AS n,
			LATERAL (SELECT repeat('a', n) || repeat(convert_from('\xa4a28ea18fb0a1', 'EUC_JP'), 5000))
				AS v(value)) AS pieces;
-- The error shows no byte of the value, as that of core would.
DO $$
BEGIN
	PERFORM hloom_key_from_sensitive('credential' || convert_from('\xa9a1', 'EUC_JP'), 'pepper');
EXCEPTION WHEN OTHERS THEN
	RAISE WARNING '%: %', SQLSTATE, SQLERRM;
END $$;

\c :db
CREATE DATABASE regress_hloom_sql_ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0;
\c regress_hloom_sql_ascii
CREATE EXTENSION hloom_lock;
SHOW server_encoding;
-- Bytes are taken for UTF-8 where they are UTF-8.
SELECT hloom_key_from_sensitive(convert_from('\x61c3a962', 'SQL_ASCII')) = :'e_acute' AS e_acute,
	hloom_key_from_sensitive('1234') = '03ac674216f3e15c761ee1a5e255f067' AS plain;
SELECT hloom_key_from_sensitive(convert_from('\x61e962', 'SQL_ASCII'));

\c :db
DROP DATABASE regress_hloom_latin1;
DROP DATABASE regress_hloom_euc_jp;
DROP DATABASE regress_hloom_sql_ascii;
