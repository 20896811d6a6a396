-- VACUUM, ANALYZE, TRUNCATE, sizes: what one does to a table, and that no lease minds.
\set VERBOSITY terse
CREATE SCHEMA maintenance;
SET search_path = maintenance, public;
TRUNCATE hloom_leases;
SELECT count(*) FROM generate_series(1, 500) AS n,
	LATERAL hloom_try_acquire('maintenance', 'k:' || n, '4 min', owner => hl.owner(n));
SELECT fence AS fence1 FROM hloom_leases WHERE key = 'k:1' \gset
SELECT max(fence) AS highest FROM hloom_leases \gset

-- What the planner learns.  There is no xid in the table, so it never needs freezing.
VACUUM hloom_leases;
SELECT relpages > 0 AS pages, reltuples, relfrozenxid, relminmxid FROM pg_class
	WHERE oid = 'hloom_leases'::regclass;
VACUUM (FREEZE, ANALYZE) hloom_leases;
VACUUM (DISABLE_PAGE_SKIPPING, INDEX_CLEANUP ON, TRUNCATE ON) hloom_leases;
VACUUM (PARALLEL 2) hloom_leases;
ANALYZE hloom_leases;
ANALYZE hloom_leases (key, note);
SELECT reltuples, relfrozenxid, relminmxid FROM pg_class WHERE oid = 'hloom_leases'::regclass;
SELECT attname, n_distinct, null_frac FROM pg_stats
WHERE tablename = 'hloom_leases' AND attname IN ('namespace', 'key', 'mode', 'note')
	ORDER BY attname;
SELECT age(relfrozenxid) > 2000000000 AS never_due FROM pg_class
	WHERE oid = 'hloom_leases'::regclass;
CREATE FUNCTION estimate(statement text) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
	plan json;
BEGIN
	EXECUTE 'EXPLAIN (FORMAT json) ' || statement INTO plan;
	RETURN plan->0->'Plan'->>'Plan Rows';
END $$;
SELECT estimate('SELECT * FROM hloom_leases') AS rows,
	estimate($$SELECT * FROM hloom_leases WHERE key = 'k:1'$$) AS one;
SELECT count(*), bool_and(hloom_is_held(namespace, key, owner)) AS held FROM hloom_leases;

-- Rewriting keeps the leases and their fences; the table gets as small as it can.
SELECT relfilenode AS file FROM pg_class WHERE oid = 'hloom_leases'::regclass \gset
VACUUM FULL hloom_leases;
SELECT relfilenode <> :file AS new_file, reltuples, relfrozenxid, relminmxid FROM pg_class
	WHERE oid = 'hloom_leases'::regclass;
SELECT count(*), bool_and(hloom_is_held(namespace, key, owner)) AS held,
	bool_or(key = 'k:1' AND fence = :fence1) AS same_fence
FROM hloom_leases;
SELECT hloom_release('maintenance', key, owner) AS released FROM hloom_leases WHERE key = 'k:1';
SELECT fence > :fence1 AS grown FROM hloom_try_acquire('maintenance', 'k:1', owner => hl.owner(1));

-- Sizes.
SELECT pg_relation_size('hloom_leases') AS size \gset
SELECT :size > 0 AS some, pg_table_size('hloom_leases') = :size AS table,
	pg_total_relation_size('hloom_leases') = :size AS total,
	pg_indexes_size('hloom_leases') AS indexes, pg_relation_size('hloom_leases', 'fsm') AS fsm,
	pg_relation_size('hloom_leases', 'vm') AS vm, pg_relation_size('hloom_leases', 'init') AS init,
	:size % current_setting('block_size')::int AS rest;
SELECT pg_database_size(current_database()) > :size AS database,
	pg_relation_filepath('hloom_leases') IS NOT NULL AS path;
-- Growing and shrinking.
SELECT count(*) FROM generate_series(1, 8000) AS n,
	LATERAL hloom_try_acquire('maintenance', 'more:' || n, owner => hl.owner(n));
SELECT pg_relation_size('hloom_leases') > :size AS grown;
SELECT count(*) FILTER (WHERE hloom_release(namespace, key, owner)) FROM hloom_leases
	WHERE key LIKE 'more:%';
VACUUM hloom_leases;
SELECT reltuples FROM pg_class WHERE oid = 'hloom_leases'::regclass;
VACUUM FULL hloom_leases;
SELECT pg_relation_size('hloom_leases') = :size AS as_small_as_before;
-- Released places are used again: taking and giving back does not grow the file.
DO $$
BEGIN
	FOR i IN 1..3000 LOOP
		PERFORM hloom_try_acquire('maintenance', 'churn:' || i % 100, owner => hl.owner(1));
		PERFORM hloom_release('maintenance', 'churn:' || i % 100, hl.owner(1));
	END LOOP;
END $$;
SELECT pg_relation_size('hloom_leases') <= :size AS not_grown;

-- TRUNCATE: no lease is left, and no fence goes back.
TRUNCATE hloom_leases;
SELECT count(*) FROM hloom_leases;
SELECT hloom_is_held('maintenance', 'k:2', hl.owner(2)) AS held,
	hloom_extend('maintenance', 'k:2', hl.owner(2)) AS extended,
	hloom_release('maintenance', 'k:2', hl.owner(2)) AS released;
SELECT fence > :highest AS grown, fence AS fence2
	FROM hloom_try_acquire('maintenance', 'k:1', owner => hl.owner(9)) \gset
SELECT :'grown' AS grown;
SELECT relfrozenxid, relminmxid FROM pg_class WHERE oid = 'hloom_leases'::regclass;
TRUNCATE hloom_leases RESTART IDENTITY CASCADE;
SELECT fence > :fence2 AS grown FROM hloom_try_acquire('maintenance', 'k:1', owner => hl.owner(9));
-- Undone, it did not happen.
BEGIN;
TRUNCATE hloom_leases;
SELECT count(*) FROM hloom_leases;
ROLLBACK;
SELECT count(*), bool_and(hloom_is_held(namespace, key, owner)) AS held FROM hloom_leases;

-- On an empty table.
TRUNCATE hloom_leases;
VACUUM hloom_leases;
ANALYZE hloom_leases;
VACUUM FULL hloom_leases;
SELECT reltuples, relfrozenxid FROM pg_class WHERE oid = 'hloom_leases'::regclass;

-- REINDEX, CHECKPOINT and the functions that look at every table.
REINDEX TABLE hloom_leases;
SELECT count(*) FROM pg_stat_user_tables WHERE relname = 'hloom_leases';
BEGIN;
LOCK TABLE hloom_leases IN ACCESS EXCLUSIVE MODE;
SELECT key FROM hloom_try_acquire('maintenance', 'locked-by-myself', owner => hl.owner(1));
COMMIT;

-- Another tablespace, and back.
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE regress_hloom LOCATION '';
SELECT key, fence AS fence3 FROM hloom_try_acquire('maintenance', 'moved', '4 min',
	owner => hl.owner(1)) \gset
ALTER TABLE hloom_leases SET TABLESPACE regress_hloom;
SELECT key, hloom_is_held('maintenance', key, owner) AS held, fence = :fence3 AS same_fence
	FROM hloom_leases WHERE key = 'moved';
SELECT hloom_release('maintenance', 'moved', hl.owner(1)) AS released;
ALTER TABLE hloom_leases SET TABLESPACE pg_default;
SELECT fence > :fence3 AS grown FROM hloom_try_acquire('maintenance', 'moved',
	owner => hl.owner(1));
DROP TABLESPACE regress_hloom;

TRUNCATE hloom_leases;
SET client_min_messages = warning;
DROP SCHEMA maintenance CASCADE;
