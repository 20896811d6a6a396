-- Reading the table in every way there is: it is the state of now, once each lease.
CREATE SCHEMA reading;
SET search_path = reading, public;
TRUNCATE hloom_leases;
SELECT count(*) FROM generate_series(1, 3000) AS n,
	LATERAL hloom_try_acquire('reading', 'k:' || n, '4 min', owner => hl.owner(n),
		note => 'n' || n % 3);

SELECT count(*), count(DISTINCT key), count(DISTINCT ctid), count(DISTINCT (namespace, key, fence))
	FROM hloom_leases;
SELECT note, count(*), min(fence) > 0 AS fence FROM hloom_leases GROUP BY note ORDER BY note;
SELECT key FROM hloom_leases ORDER BY length(key), key LIMIT 3;
-- Every row is the one that was taken.
SELECT count(*) FROM hloom_leases AS l JOIN generate_series(1, 3000) AS n ON l.key = 'k:' || n
WHERE l.namespace = 'reading' AND l.owner = hl.owner(n) AND l.note = 'n' || n % 3
	AND l.lease = '4 min';
-- With itself, in each kind of join, and below others.
SELECT count(*) FROM hloom_leases AS a JOIN hloom_leases AS b USING (namespace, key, fence);
SET enable_hashjoin = off;
SELECT count(*) FROM hloom_leases AS a JOIN hloom_leases AS b USING (namespace, key, fence);
SET enable_mergejoin = off;
SET enable_material = off;
SELECT count(*) FROM (VALUES ('k:1'), ('k:2'), ('none')) AS v(key) JOIN hloom_leases AS l
	USING (key);
RESET enable_hashjoin;
RESET enable_mergejoin;
RESET enable_material;
SELECT key, (SELECT count(*) FROM hloom_leases AS i WHERE i.note = o.note) AS same_note
FROM hloom_leases AS o WHERE key IN ('k:1', 'k:2') ORDER BY key;
SELECT count(*) FROM hloom_leases AS o
	WHERE EXISTS (SELECT FROM hloom_leases AS i WHERE i.key = o.key || '0');
SELECT EXISTS (SELECT FROM hloom_leases WHERE key = 'k:3000') AS there,
	EXISTS (SELECT FROM hloom_leases WHERE key = 'k:3001') AS not_there;
WITH RECURSIVE chain(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM chain WHERE n < 5)
SELECT count(*) FROM chain JOIN hloom_leases ON key = 'k:' || n;
SELECT key, row_number() OVER (PARTITION BY note ORDER BY length(key), key) FROM hloom_leases
WHERE key ~ '^k:[1-6]$' ORDER BY key;

-- System columns and whole rows.
SELECT tableoid::regclass, xmin, xmax, cmin, cmax, ctid IS NOT NULL AS ctid FROM hloom_leases
	WHERE key = 'k:1';
SELECT (l).key, l IS NOT NULL AS no_nulls, l = l AS same, pg_typeof(l) FROM hloom_leases AS l
	WHERE key = 'k:1';
SELECT l.note, row_to_json(l)->>'key' AS key FROM hloom_leases AS l WHERE key = 'k:7';

-- COPY TO, views and functions.
COPY (SELECT key, note FROM hloom_leases WHERE key ~ '^k:[12]$' ORDER BY key) TO STDOUT;
CREATE VIEW mine AS SELECT key, note FROM hloom_leases WHERE holder_pid = pg_backend_pid();
SELECT count(*) FROM mine;
CREATE MATERIALIZED VIEW kept AS SELECT * FROM hloom_leases;
REFRESH MATERIALIZED VIEW kept;
SELECT count(*) FROM kept;

-- Cursors: what is fetched forward is what comes back.
BEGIN;
CREATE TEMP TABLE seen (direction text, n int GENERATED ALWAYS AS IDENTITY, key text) ON COMMIT
	DROP;
DECLARE c SCROLL CURSOR FOR SELECT key FROM hloom_leases;
DO $$
DECLARE
	c refcursor := 'c';
	k text;
BEGIN
	LOOP
		FETCH NEXT FROM c INTO k;
		EXIT WHEN NOT FOUND;
		INSERT INTO seen (direction, key) VALUES ('forward', k);
	END LOOP;
	LOOP
		FETCH PRIOR FROM c INTO k;
		EXIT WHEN NOT FOUND;
		INSERT INTO seen (direction, key) VALUES ('backward', k);
	END LOOP;
END $$;
SELECT count(*) AS forward, array_agg(key ORDER BY n) =
	(SELECT array_agg(key ORDER BY n DESC) FROM seen
		WHERE direction = 'backward') AS backward_is_reversed
FROM seen WHERE direction = 'forward';
-- Turning round within a page and at its edge.
MOVE ABSOLUTE 100 IN c;
FETCH RELATIVE 0 FROM c \gset at100_
FETCH FORWARD 50 FROM c \g /dev/null
MOVE BACKWARD 50 IN c;
FETCH RELATIVE 0 FROM c \gset back_
FETCH ABSOLUTE 100 FROM c \gset again_
FETCH ABSOLUTE -1 FROM c \gset last_
FETCH FIRST FROM c \gset first_
SELECT :'at100_key' = key AS at100, :'back_key' = key AS back, :'again_key' = key AS again FROM seen
	WHERE direction = 'forward' AND n = 100;
SELECT :'first_key' = (array_agg(key ORDER BY n))[1] AS first,
	:'last_key' = (array_agg(key ORDER BY n DESC))[1] AS last
FROM seen WHERE direction = 'forward';
MOVE FORWARD ALL IN c;
FETCH NEXT FROM c;
MOVE BACKWARD ALL IN c;
FETCH PRIOR FROM c;
COMMIT;
-- A cursor reads what is there when it gets there, in whatever isolation level.
BEGIN ISOLATION LEVEL REPEATABLE READ;
DECLARE c CURSOR WITH HOLD FOR SELECT key FROM hloom_leases;
COMMIT;
MOVE FORWARD ALL IN c;
CLOSE c;

-- In parallel, the leader taking part or not.
SET parallel_setup_cost = 0;
SET parallel_tuple_cost = 0;
SET min_parallel_table_scan_size = 0;
SET max_parallel_workers_per_gather = 2;
CREATE FUNCTION plan_of(statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	line text;
	plan text := '';
BEGIN
	FOR line IN EXECUTE 'EXPLAIN (COSTS OFF) ' || statement LOOP
		plan := plan || line || E'\n';
	END LOOP;
	RETURN plan;
END $$;
SELECT plan_of('SELECT count(*) FROM hloom_leases') ~
	'Parallel Seq Scan on hloom_leases' AS parallel;
SELECT count(*), count(DISTINCT key) FROM (SELECT key FROM hloom_leases OFFSET 0) AS k;
SET parallel_leader_participation = off;
SELECT count(*), count(DISTINCT key) FROM (SELECT key FROM hloom_leases OFFSET 0) AS k;
SELECT sum(substr(key, 3)::int) FROM hloom_leases;
-- A call is made by the leader.
SELECT plan_of($$SELECT count(*) FROM hloom_leases WHERE hloom_is_held(namespace, key, owner)$$) ~
	'Parallel' AS parallel;
SELECT count(*) FROM hloom_leases WHERE hloom_is_held(namespace, key, owner);
RESET parallel_setup_cost;
RESET parallel_tuple_cost;
RESET min_parallel_table_scan_size;
RESET max_parallel_workers_per_gather;
RESET parallel_leader_participation;

-- Giving back while reading: each is met once, and none is left.
SELECT count(*), bool_and(hloom_release(namespace, key, owner)) FROM hloom_leases;
SELECT count(*) FROM hloom_leases;
-- Taking while reading comes to an end.
SELECT key FROM hloom_try_acquire('reading', 'seed', owner => hl.owner(1));
SELECT count(*) BETWEEN 1 AND 20 AS ends FROM hloom_leases AS l,
	LATERAL hloom_try_acquire('reading', l.key || 'x', note => 'while reading') AS h
		WHERE length(l.key) < 20;

-- Released and expired ones are not shown.
TRUNCATE hloom_leases;
SELECT key FROM hloom_try_acquire('reading', 'gone', owner => hl.owner(1));
SELECT key FROM hloom_try_acquire('reading', 'over', '200 ms', owner => hl.owner(1));
SELECT key FROM hloom_try_acquire('reading', 'live', owner => hl.owner(1));
SELECT hloom_release('reading', 'gone', hl.owner(1));
SELECT hl.wait_until_free('reading', 'over');
SELECT key FROM hloom_leases;
COPY hloom_leases (namespace, key, owner, mode, lease, scope, note) TO STDOUT;

TRUNCATE hloom_leases;
SET client_min_messages = warning;
DROP SCHEMA reading CASCADE;
