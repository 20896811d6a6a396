-- Namespaces and keys: what is refused, what is a key, and that two keys differ when their bytes
-- do.
-- (In UTF-8; other encodings are in encodings.sql.)
SHOW server_encoding;
CREATE SCHEMA keys;
SET search_path = keys, public;

-- Whether a key is taken, or the SQLSTATE; looking at it must judge it the same.
CREATE FUNCTION try(k text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	taken bool;
BEGIN
	taken := EXISTS (SELECT FROM hloom_try_acquire('keys', k));
	PERFORM hloom_is_held('keys', k, hl.owner(1));
	RETURN CASE WHEN taken THEN 'taken' ELSE 'busy' END;
EXCEPTION WHEN OTHERS THEN
	IF hl.state(format('SELECT hloom_is_held(''keys'', %L, hl.owner(1))', k)) <> SQLSTATE
		OR hl.state(format('SELECT hloom_release(''keys'', %L, hl.owner(1))', k)) <> SQLSTATE
		OR hl.state(format('SELECT hloom_extend(''keys'', %L, hl.owner(1))', k)) <> SQLSTATE THEN
		RETURN 'differs';
	END IF;
	RETURN SQLSTATE;
END $$;

-- item 12: NULL and empty.
SELECT try(NULL) AS null, try('') AS empty;
SELECT hl.error($$SELECT * FROM hloom_try_acquire('keys', '')$$);

-- item 11: length is counted in characters.
SELECT try(repeat('k', 512)) AS ascii_512, try(repeat('k', 513)) AS ascii_513,
	try(repeat(U&'\+01F511', 512)) AS four_bytes_512,
		try(repeat(U&'\+01F511', 513)) AS four_bytes_513,
	try(repeat('k', 511) || U&'\+01F511') AS mixed_512,
		try(repeat('k', 512) || U&'\+01F511') AS mixed_513;
SELECT hl.error($$SELECT * FROM hloom_try_acquire('keys', repeat('k', 513))$$);
SELECT count(*), max(length(key)), max(octet_length(key)) FROM hloom_leases
	WHERE namespace = 'keys';
SELECT bool_and(key IN (repeat('k', 512), repeat(U&'\+01F511', 512),
	repeat('k', 511) || U&'\+01F511'))
	AS unchanged FROM hloom_leases WHERE namespace = 'keys';
-- A long key is not another one with the same beginning.
SELECT try(repeat('k', 511)) AS shorter, try(repeat('k', 511) || 'l') AS last_differs,
	try(repeat('k', 512)) AS same;
-- Not a megabyte either.
SELECT try(repeat('k', 1048576)) AS huge;

-- The setting moves the limit.
SET hloom_lock.max_key_length = 10;
SELECT try('0123456789') AS ten, try('0123456789a') AS eleven,
	try(repeat(U&'\00E9', 10)) AS ten_wide,
	try(repeat(U&'\00E9', 11)) AS eleven_wide;
SELECT hl.error($$SELECT * FROM hloom_try_acquire('keys', '0123456789a')$$);
SET hloom_lock.max_key_length = 1024;
SELECT try(repeat('x', 1024)) AS ascii_1024, try(repeat(U&'\+01F511', 1024)) AS four_bytes_1024,
	try(repeat('x', 1025)) AS ascii_1025, try(repeat(U&'\+01F511', 1025)) AS four_bytes_1025;
-- The longest row there can be: longest namespace, key, note and application name.
SET application_name = '123456789012345678901234567890123456789012345678901234567890123';
SELECT h.key = repeat(U&'\+01F511', 1024) AS taken
FROM hloom_try_acquire(repeat('n', 63), repeat(U&'\+01F511', 1024), note => repeat('n', 256)) AS h;
SELECT octet_length(namespace), octet_length(key), octet_length(note),
	octet_length(application_name)
FROM hloom_leases WHERE namespace = repeat('n', 63);
RESET application_name;
SELECT hl.state('SET hloom_lock.max_key_length = 0') AS zero,
	hl.state('SET hloom_lock.max_key_length = 1025') AS over;
RESET hloom_lock.max_key_length;
TRUNCATE hloom_leases;

-- White space and control characters, one by one, at the beginning, within and at the end.
CREATE VIEW forbidden AS
SELECT c FROM generate_series(x'01'::int, x'20'::int) AS c
UNION ALL SELECT c FROM generate_series(x'7F'::int, x'A0'::int) AS c
UNION ALL SELECT c FROM generate_series(x'2000'::int, x'200A'::int) AS c
UNION ALL SELECT unnest(ARRAY[x'1680', x'2028', x'2029', x'202F', x'205F',
	x'3000']::bit(16)[]::int[]);
SELECT count(*) AS characters,
	count(*) FILTER (WHERE try(chr(c)) = '22023') AS alone,
	count(*) FILTER (WHERE try(chr(c) || 'a') = '22023') AS first,
	count(*) FILTER (WHERE try('a' || chr(c) || 'b') = '22023') AS within,
	count(*) FILTER (WHERE try('ab' || chr(c)) = '22023') AS last,
	count(*) FILTER (WHERE try(U&'\00E9' || chr(c) || 'a') = '22023') AS after_wide
FROM forbidden;
SELECT count(*) FROM hloom_leases WHERE namespace = 'keys';

-- Every other character of the plane is one.  (D800-DFFF are no characters.)
SELECT count(*) AS characters, count(*) FILTER (WHERE try(chr(c)) <> 'taken') AS refused,
	string_agg(to_hex(c), ' ' ORDER BY c) FILTER (WHERE try('x' || chr(c)) <> 'taken') AS which
FROM generate_series(1, 13000) AS c WHERE c NOT IN (SELECT f.c FROM forbidden AS f);
TRUNCATE hloom_leases;
SELECT try(U&'a\200Bb') AS zero_width_space, try(U&'a\FEFFb') AS byte_order_mark,
	try(U&'a\200Cb') AS non_joiner,
	try(U&'a\2060b') AS word_joiner, try(U&'a\00ADb') AS soft_hyphen,
		try(U&'a\180Eb') AS vowel_separator,
	try(U&'a\+01F511b') AS four_bytes, try(chr(x'10FFFF'::int)) AS last_of_all,
		try(U&'a\303Fb') AS after_3000;

-- The position is counted in characters, from 1.
SELECT hl.error($$SELECT * FROM hloom_try_acquire('keys', ' a')$$);
SELECT hl.error($$SELECT * FROM hloom_try_acquire('keys', E'order\t17')$$);
SELECT hl.error($$SELECT * FROM hloom_try_acquire('keys', U&'\00E9\00E9\00A0')$$);
SELECT hl.error($$SELECT * FROM hloom_try_acquire('keys', U&'\00E9\00E9 x')$$);

-- Anything visible is part of the key as it is.
SELECT try('''') AS quote, try('"') AS double_quote, try('\') AS backslash,
	try('\\') AS two_backslashes,
	try('\n') AS not_a_newline, try('%s%n') AS percent, try('a:b') AS colon, try(':') AS only_colon,
	try('{"a":1}') AS json, try('$$') AS dollars;
SELECT try(''';DROP--') AS injection, try('\') AS backslash_again;
SELECT string_agg(key, ' ' ORDER BY key COLLATE "C") FROM hloom_leases WHERE key ~ '^[ -~]+$';

-- Compared byte by byte: case, composed against decomposed, and look-alikes are different keys.
SELECT try('Order') AS upper, try('order') AS lower, try('ORDER') AS all_upper;
SELECT try(U&'caf\00E9') AS nfc, try(U&'cafe\0301') AS nfd,
	normalize(U&'cafe\0301', NFC) = U&'caf\00E9' AS equal_when_normalized;
SELECT try('A') AS latin, try(U&'\0391') AS greek, try(U&'\0410') AS cyrillic,
	try(U&'\FF21') AS fullwidth;
SELECT try('1') AS one, try('01') AS padded, try('1.0') AS decimal;

-- The same through the other calls: what is held under one name is not under the other.
SELECT owner AS nfc FROM hloom_leases WHERE namespace = 'keys' AND key = U&'caf\00E9' \gset
SELECT hloom_is_held('keys', U&'caf\00E9', :'nfc') AS nfc,
	hloom_is_held('keys', U&'cafe\0301', :'nfc') AS nfd,
	hloom_release('keys', U&'CAF\00E9', :'nfc') AS other_case,
		hloom_release('keys', U&'caf\00E9', :'nfc') AS released;

-- Namespaces: 1 to 63 of a-z, 0-9 and '-'.
SELECT ns, hl.state(format('SELECT * FROM hloom_try_acquire(%L, ''k'')', ns))
FROM unnest(ARRAY['a', '0', '-', 'billing-2', repeat('n', 63)]) AS ns;
SELECT left(ns, 20) AS ns, length(ns),
	hl.state(format('SELECT * FROM hloom_try_acquire(%L, ''k'')', ns)),
	hl.state(format('SELECT hloom_release(%L, ''k'', hl.owner(1))', ns)) AS release,
	hl.state(format('SELECT hloom_extend(%L, ''k'', hl.owner(1))', ns)) AS extend,
	hl.state(format('SELECT hloom_is_held(%L, ''k'', hl.owner(1))', ns)) AS is_held,
	hl.state(format('SELECT hloom_remaining(%L, ''k'', hl.owner(1))', ns)) AS remaining
FROM unnest(ARRAY['', ' ', 'Billing', 'bill_ing', 'bill ing', 'bill.ing', 'billing ', 'b:lock:c',
	U&'caf\00E9',
	repeat('n', 64), repeat(U&'\00E9', 1000)]) AS ns;
SELECT hl.error($$SELECT * FROM hloom_try_acquire('', 'a')$$);
-- Swapped arguments are met by most people once; the message says which comes first.
SELECT hl.error($$SELECT * FROM hloom_try_acquire('Invoice/2024-17', 'billing')$$);
SELECT hl.error($$SELECT hloom_release('invoice:17', 'billing', hl.owner(1))$$);
-- What is shown of a long one ends at a whole character.
SELECT length(hl.error(format('SELECT * FROM hloom_try_acquire(%L, ''a'')',
	repeat(U&'\00E9', 1000))))
	< 300 AS short_message;

TRUNCATE hloom_leases;
SET client_min_messages = warning;
DROP SCHEMA keys CASCADE;
