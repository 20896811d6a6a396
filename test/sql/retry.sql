-- Retry policies: made, judged, and what they come to.
CREATE SCHEMA retry;
SET search_path = retry, public;

-- What is wrong with a policy written by hand: the list, or nothing.
CREATE FUNCTION faults(policy hloom_retry_policy) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	detail text;
BEGIN
	PERFORM hloom_retry_describe(policy);
	RETURN '';
EXCEPTION WHEN invalid_parameter_value THEN
	GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
	RETURN detail;
END $$;

-- item 1: the default policy.
SELECT hloom_retry_describe(p), hloom_retry_max_total_delay(p), p,
	(SELECT array_agg(hloom_retry_delay(p, n)) FROM generate_series(1, 10) AS n) AS delays
FROM hloom_retry_with_jitter(hloom_retry_linear(10, '50 ms'), '50 ms') AS p;

-- item 2: delays are told without jitter, which is added when they are waited.
SELECT hloom_retry_delay(hloom_retry_with_jitter(hloom_retry_linear(10, '50 ms'), '50 ms'), 2);

-- item 3: the shapes, as values and in words.
CREATE TABLE policies (n serial, p hloom_retry_policy);
INSERT INTO policies (p) VALUES
	(hloom_retry_immediate(2)),
	(hloom_retry_interval(3, '7 ms')),
	(hloom_retry_linear(3, '7 ms')),
	(hloom_retry_exponential(3, '10 ms', '30 ms')),
	(hloom_retry_exponential(4, '1 ms', '1 day', 1.5)),
	(hloom_retry_exponential(retries => 1, min => '1 s', max => '1 s', factor => NULL)),
	(hloom_retry_immediate(0)),
	(hloom_retry_interval(1000000, '0')),
	(hloom_retry_exponential(5, '0', '0', 1)),
	(hloom_retry_interval(1, '1 day 1 s'));
SELECT p, hloom_retry_describe(p), hloom_retry_max_total_delay(p) AS total,
	hloom_retry_delay(p, 1) AS d1, hloom_retry_delay(p, 2) AS d2, hloom_retry_delay(p, 3) AS d3
FROM policies ORDER BY n;
-- A NULL factor and the default are the same policy; days are hours.
SELECT hloom_retry_exponential(1, '1 s', '9 s', NULL) = hloom_retry_exponential(1, '1 s', '9 s')
	AS same_factor, hloom_retry_interval(1, '1 day') = hloom_retry_interval(1, '24 h') AS same_day;

-- item 4: what is out of range, by the function's own names and all at once.
SELECT hl.error($$SELECT hloom_retry_immediate(-1)$$);
SELECT hl.error($$SELECT hloom_retry_immediate(1000001)$$);
SELECT hl.error($$SELECT hloom_retry_interval(1, '-1 us')$$);
SELECT hl.error($$SELECT hloom_retry_linear(1, '-1 s')$$);
SELECT hl.error($$SELECT hloom_retry_linear(-1, '1 month')$$);
SELECT hl.error($$SELECT hloom_retry_exponential(1, '2 s', '1 s')$$);
SELECT hl.error($$SELECT hloom_retry_exponential(-1, '-1 s', '1 month', 0.5)$$);
SELECT hl.error($$SELECT hloom_retry_with_jitter(hloom_retry_immediate(1), '-1 us')$$);
SELECT hl.error($$SELECT hloom_retry_with_jitter(hloom_retry_immediate(1), '1 year')$$);
SELECT hl.error($$SELECT hloom_retry_delay(hloom_retry_immediate(1), 0)$$);
SELECT hl.error($$SELECT hloom_retry_delay(hloom_retry_immediate(1), -2147483648)$$);

-- item 5: nothing overflows.
SELECT n, hloom_retry_delay(hloom_retry_exponential(5, '1 ms', '30 s'), n) AS exponential,
	hloom_retry_delay(hloom_retry_exponential(5, '1 us', '1 day', 1e308), n) AS steep
FROM unnest(ARRAY[1, 2, 15, 16, 64, 1024, 1025, 2147483647]) AS n;
CREATE TEMP TABLE longest AS
	SELECT make_interval(days => 106751991, hours => 4) + interval '54.775807 s' AS span;
SELECT p, hloom_retry_describe(p), hloom_retry_delay(p, 1) AS d1, hloom_retry_delay(p, 2147483647)
	AS last, hloom_retry_max_total_delay(p) AS total
FROM longest, unnest(ARRAY[
	hloom_retry_interval(1000000, span),
	hloom_retry_linear(1000000, span),
	hloom_retry_exponential(1000000, span, span, 1e308),
	hloom_retry_exponential(1000000, '1 us', span),
	hloom_retry_with_jitter(hloom_retry_immediate(1000000), span),
	hloom_retry_with_jitter(hloom_retry_interval(1, span), '1 us')]) AS p;
-- A million retries are added up at once, also when no two delays are the same.
SELECT hloom_retry_max_total_delay(hloom_retry_linear(1000000, '1 us')) AS linear,
	hloom_retry_max_total_delay(hloom_retry_exponential(1000000, '1 s', '1 h', 1 + 1e-6))
		BETWEEN '477 h 17 min' AND '477 h 19 min' AS exponential;
SELECT hl.error($$SELECT hloom_retry_interval(1,
	make_interval(days => 106751991, hours => 4) + interval '54.775808 s')$$);
SELECT hl.error($$SELECT hloom_retry_interval(1,
	make_interval(days => 2147483647, secs => 9223372036854))$$);
SELECT factor, hl.error(format($$SELECT hloom_retry_exponential(1, '1 s', '2 s', %L)$$, factor))
FROM unnest(ARRAY['NaN', 'Infinity', '-Infinity', '0', '-1', '0.9999999999999999']) AS factor;
SELECT factor, hl.state(format($$SELECT hloom_retry_exponential(1, '1 s', '2 s', %L)$$, factor))
FROM unnest(ARRAY['1', '1.0000000000000002', '1e308', '1.7976931348623157e308']) AS factor;
-- Infinite to 17 and later, no interval before that.
SELECT span, hl.error(format('SELECT hloom_retry_interval(1, %L)', span)) IN
	(format('22007: invalid input syntax for type interval: "%s"', span),
		E'22023: invalid retry policy\nDETAIL: delay must be finite.') AS refused
FROM unnest(ARRAY['infinity', '-infinity']) AS span;

-- item 6: with_jitter makes another policy and leaves the one it was given.
SELECT p, hloom_retry_with_jitter(p, '20 ms') AS more,
	hloom_retry_with_jitter(hloom_retry_with_jitter(p, '20 ms'), '5 ms') AS replaced,
	hloom_retry_with_jitter(hloom_retry_with_jitter(p, '20 ms'), '0') = p AS taken_away, p
FROM hloom_retry_linear(2, '50 ms') AS p;
SELECT hloom_retry_describe(hloom_retry_with_jitter(p, '20 ms')),
	hloom_retry_max_total_delay(hloom_retry_with_jitter(p, '20 ms')) AS total
FROM policies ORDER BY n LIMIT 5;
DO $$
DECLARE
	before hloom_retry_policy := hloom_retry_interval(1, '1 s');
	after hloom_retry_policy := hloom_retry_with_jitter(before, '2 s');
BEGIN
	RAISE NOTICE '% %', before, after;
END $$;

-- NULL is an error where something is needed, and names it.
SELECT call, hl.error(call) FROM unnest(ARRAY[
	$$SELECT hloom_retry_immediate(NULL)$$,
	$$SELECT hloom_retry_interval(NULL, '1 s')$$,
	$$SELECT hloom_retry_interval(1, NULL)$$,
	$$SELECT hloom_retry_linear(NULL, '1 s')$$,
	$$SELECT hloom_retry_linear(1, NULL)$$,
	$$SELECT hloom_retry_exponential(NULL, '1 s', '2 s')$$,
	$$SELECT hloom_retry_exponential(1, NULL, '2 s')$$,
	$$SELECT hloom_retry_exponential(1, '1 s', NULL)$$,
	$$SELECT hloom_retry_with_jitter(NULL, '1 s')$$,
	$$SELECT hloom_retry_with_jitter(hloom_retry_immediate(1), NULL)$$,
	$$SELECT hloom_retry_delay(NULL, 1)$$,
	$$SELECT hloom_retry_delay(hloom_retry_immediate(1), NULL)$$,
	$$SELECT hloom_retry_max_total_delay(NULL)$$,
	$$SELECT hloom_retry_describe(NULL)$$,
	-- With nothing in it it is no policy.
	$$SELECT hloom_retry_describe(ROW(NULL, NULL, NULL, NULL, NULL, NULL)::hloom_retry_policy)$$])
	AS call;

-- By hand.  What is left out is none, or the default.
SELECT p, hloom_retry_describe(p), hloom_retry_max_total_delay(p) AS total FROM unnest(ARRAY[
	('immediate', 1, NULL, NULL, NULL, NULL),
	('immediate', 1, '0', '0 days', 0, '0'),
	('interval', 2, '1 s', NULL, NULL, NULL),
	('interval', 2, '-23 h 1 day', '0', '-0', '1 ms'),
	('linear', 2, '1 s', NULL, NULL, NULL),
	('exponential', 2, '1 s', '3 s', NULL, NULL),
	('exponential', 2, '1 s', '1 s', 1, NULL)]::hloom_retry_policy[]) AS p;
SELECT hl.error($$SELECT hloom_retry_describe(ROW('interval', 1, NULL, NULL, NULL, NULL))$$);
-- item 4: every violation of a policy written by hand, in one list.
SELECT p, faults(p) FROM unnest(ARRAY[
	(NULL, 1, NULL, NULL, NULL, NULL),
	('', 1, NULL, NULL, NULL, NULL),
	('Linear', 1, '1 s', NULL, NULL, NULL),
	('linear ', 1, '1 s', NULL, NULL, NULL),
	('immediate', NULL, NULL, NULL, NULL, NULL),
	('immediate', -1, NULL, NULL, NULL, NULL),
	('immediate', 1000001, NULL, NULL, NULL, NULL),
	('immediate', 1, '1 us', NULL, NULL, NULL),
	('immediate', 1, '-1 us', '1 us', 1, '-1 us'),
	('immediate', 1, '1 mon -30 days', NULL, 'NaN', NULL),
	('immediate', 1, NULL, NULL, NULL, '1 month'),
	('interval', 1, NULL, NULL, NULL, NULL),
	('interval', 1, '-1 us', NULL, NULL, NULL),
	('interval', 1, '1 month', NULL, NULL, NULL),
	('interval', 1, '106751992 days', NULL, NULL, NULL),
	('interval', 1, '1 s', '2 s', NULL, NULL),
	('interval', 1, '1 s', NULL, 2, NULL),
	('linear', 1, NULL, NULL, NULL, NULL),
	('linear', 1, '1 s', '2 s', 2, '-1 day'),
	('exponential', 1, NULL, NULL, NULL, NULL),
	('exponential', 1, '1 s', NULL, NULL, NULL),
	('exponential', 1, NULL, '1 s', NULL, NULL),
	('exponential', 1, '1 s', '0.999999 s', NULL, NULL),
	('exponential', 1, '-1 s', '-2 s', 1, NULL),
	('exponential', 1, '1 s', '1 s', 0, NULL),
	('exponential', 1, '1 s', '1 s', 'NaN', NULL),
	('exponential', 1, '1 s', '1 s', 'Infinity', NULL),
	('exponential', 1, '1 s', '1 s', '-Infinity', NULL),
	('quadratic', -1, '-1 s', '-1 month', 0.5, '-1 s'),
	('quadratic', 1, '2 s', '1 s', 2, NULL),
	(NULL, NULL, NULL, NULL, NULL, '1 s'),
	('exponential', -1, '1 month', '-1 s', 'NaN', '1 year')]::hloom_retry_policy[]) AS p;
-- Each function judges the policy it is given.
SELECT call, hl.state(format(call, $$ROW('linear', -1, '1 s', NULL, NULL, '-1 s')$$))
FROM unnest(ARRAY['SELECT hloom_retry_with_jitter(%s, ''0'')', 'SELECT hloom_retry_delay(%s, 1)',
	'SELECT hloom_retry_max_total_delay(%s)', 'SELECT hloom_retry_describe(%s)']) AS call;
-- A value stored apart is read whole.
CREATE TABLE toasted (p hloom_retry_policy);
ALTER TABLE toasted ALTER p SET STORAGE EXTERNAL;
INSERT INTO toasted VALUES (ROW(repeat('linear', 1000), 1, '1 s', NULL, NULL, NULL));
INSERT INTO toasted VALUES (ROW((SELECT string_agg(md5(i::text), '')
	FROM generate_series(1, 300) AS i), 1, '1 s', NULL, NULL, NULL));
SELECT length(faults(p)), left(faults(p), 20) FROM toasted;
-- A domain over the type is the type.
CREATE DOMAIN patient AS hloom_retry_policy CHECK ((VALUE).retries > 5);
SELECT hloom_retry_describe(hloom_retry_linear(6, '1 s')::patient);

-- Immutable: an index may be made of them.  Parallel safe: a worker can do it.
CREATE INDEX ON policies (hloom_retry_describe(p), hloom_retry_max_total_delay(p));
SELECT count(set_config(name, 'on', false)) AS forced FROM pg_settings
WHERE name IN ('force_parallel_mode', 'debug_parallel_query');
EXPLAIN (COSTS off) SELECT hloom_retry_describe(hloom_retry_interval(n, '1 s')) FROM policies;
SELECT hloom_retry_describe(hloom_retry_with_jitter(hloom_retry_interval(n, '1 s'), '1 s')),
	hloom_retry_delay(hloom_retry_linear(n, '1 s'), n),
	hloom_retry_max_total_delay(hloom_retry_exponential(n, '1 s', '5 s')),
	hloom_retry_immediate(n)
FROM policies WHERE n < 4 ORDER BY n;
SELECT hl.error('SELECT hloom_retry_immediate(-n) FROM retry.policies ORDER BY n');
SELECT count(set_config(name, 'off', false)) AS reset FROM pg_settings
WHERE name IN ('force_parallel_mode', 'debug_parallel_query');

-- In a transaction that may change nothing.
BEGIN READ ONLY;
SELECT hloom_retry_describe(hloom_retry_immediate(1));
COMMIT;

-- The type of another version is told apart.
BEGIN;
ALTER TYPE hloom_retry_policy ADD ATTRIBUTE budget interval;
SELECT hl.error('SELECT hloom_retry_immediate(1)');
SELECT hl.error($$SELECT hloom_retry_describe(
	ROW('immediate', 1, NULL, NULL, NULL, NULL, NULL)::hloom_retry_policy)$$);
ROLLBACK;

SET client_min_messages = warning;
DROP SCHEMA retry CASCADE;
