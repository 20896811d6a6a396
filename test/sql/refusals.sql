-- The table of leases is read by SELECT and changed by the functions.  What else one may try is
-- refused by name or does no harm.
\set VERBOSITY terse
-- (hl.error shows the DETAIL and HINT of each kind of refusal once.)
CREATE SCHEMA refusals;
SET search_path = refusals, public;
SELECT count(*) FROM generate_series(1, 50) AS n,
	LATERAL hloom_try_acquire('refusals', 'k:' || n, '4 min', owner => hl.owner(n));

-- Changing rows.
SELECT hl.error($$INSERT INTO hloom_leases SELECT * FROM hloom_leases LIMIT 1$$);
INSERT INTO hloom_leases SELECT * FROM hloom_leases LIMIT 1;
INSERT INTO hloom_leases SELECT * FROM hloom_leases LIMIT 1 ON CONFLICT DO NOTHING;
UPDATE hloom_leases SET note = 'mine';
SELECT hl.state($$UPDATE hloom_leases SET note = 'mine'$$) AS all_rows,
	hl.state($$UPDATE hloom_leases SET expires_at = 'infinity' WHERE key = 'k:1'$$) AS one_row;
DELETE FROM hloom_leases;
DELETE FROM hloom_leases WHERE key = 'k:1' RETURNING key;
WITH gone AS (DELETE FROM hloom_leases RETURNING key) SELECT count(*) FROM gone;
SELECT hl.state($$MERGE INTO hloom_leases AS l USING (VALUES ('k:1')) AS v(k) ON l.key = v.k
		WHEN MATCHED THEN UPDATE SET note = 'mine'$$) AS merge_update,
	hl.state($$MERGE INTO hloom_leases AS l USING (VALUES ('k:1')) AS v(k) ON l.key = v.k
		WHEN MATCHED THEN DELETE$$) AS merge_delete;
MERGE INTO hloom_leases AS l USING (SELECT * FROM hloom_leases LIMIT 1) AS v ON false
	WHEN NOT MATCHED THEN INSERT (namespace, key, owner_tag, fence, mode, granted_at, expires_at,
		lease, holder_role,
		holder_pid, application_name, scope, auto_extend) VALUES ('n', 'k', '', 1, '', now(), now(),
			'0', 10, 1, '', '', false);
COPY hloom_leases (namespace, key, owner_tag, fence, mode, granted_at, expires_at, lease,
	holder_role, holder_pid,
	application_name, scope, auto_extend) FROM STDIN (FORMAT csv);
n,k,tag,1,exclusive,2020-01-01,2030-01-01,1 s,pg_monitor,1,psql,lease,f
\.
-- One that finds no row has nothing to refuse.
DELETE FROM hloom_leases WHERE key = 'no such key';
UPDATE hloom_leases SET note = 'x' WHERE false;
COPY hloom_leases FROM STDIN;
\.

-- Locking rows.
SELECT key FROM hloom_leases WHERE key = 'k:1' FOR UPDATE;
SELECT key FROM hloom_leases FOR NO KEY UPDATE SKIP LOCKED;
SELECT key FROM hloom_leases FOR SHARE NOWAIT;
SELECT key FROM hloom_leases FOR KEY SHARE;
BEGIN;
DECLARE c CURSOR FOR SELECT key FROM hloom_leases FOR UPDATE;
FETCH c;
ROLLBACK;
-- A cursor's row cannot be changed either.
BEGIN;
DECLARE c CURSOR FOR SELECT key FROM hloom_leases;
FETCH c \gset
SELECT hl.state('DELETE FROM hloom_leases WHERE CURRENT OF c') AS delete,
	hl.state($$UPDATE hloom_leases SET note = 'x' WHERE CURRENT OF c$$) AS update;
ROLLBACK;

-- By place.
SELECT ctid FROM hloom_leases LIMIT 1 \gset
SELECT key FROM hloom_leases WHERE ctid = :'ctid';
SELECT count(*) FROM hloom_leases WHERE ctid > '(0,0)';
SELECT currtid2('hloom_leases', :'ctid');

-- Sampling.
SELECT count(*) FROM hloom_leases TABLESAMPLE SYSTEM (50);
SELECT count(*) FROM hloom_leases TABLESAMPLE BERNOULLI (50) REPEATABLE (1);

-- Indexes and what is made of them.
CREATE INDEX ON hloom_leases (key);
CREATE UNIQUE INDEX ON hloom_leases (namespace, key);
-- Refused before an invalid index is left behind, which would be in the way of TRUNCATE.
CREATE INDEX CONCURRENTLY refused_idx ON hloom_leases (key);
SELECT count(*) FROM pg_index WHERE indrelid = 'hloom_leases'::regclass;
CREATE INDEX ON hloom_leases USING hash (key);
CREATE INDEX ON hloom_leases USING brin (key);
ALTER TABLE hloom_leases ADD EXCLUDE USING btree (key WITH =);
CLUSTER hloom_leases;
CLUSTER hloom_leases USING no_such_index;
CREATE TABLE referring (key text REFERENCES hloom_leases (key));
-- (Which part of it is refused depends on the version.)
SELECT hl.state('ALTER TABLE hloom_leases ADD PRIMARY KEY (namespace, key)') AS primary_key,
	hl.state('ALTER TABLE hloom_leases ADD UNIQUE (namespace, key)') AS unique;
SELECT count(*) FROM pg_index WHERE indrelid = 'hloom_leases'::regclass;

-- Changing the table.
SELECT hl.error($$ALTER TABLE hloom_leases ADD COLUMN extra int$$);
ALTER TABLE hloom_leases ADD COLUMN extra int DEFAULT 1;
ALTER TABLE hloom_leases ADD COLUMN extra text GENERATED ALWAYS AS (key) STORED;
SELECT hl.error($$ALTER TABLE hloom_leases SET ACCESS METHOD heap$$);
SELECT hl.error($$ALTER TABLE hloom_leases SET UNLOGGED$$);
ALTER TABLE hloom_leases SET LOGGED;
ALTER TABLE hloom_leases ALTER COLUMN note TYPE varchar(10);
ALTER TABLE hloom_leases ALTER COLUMN fence TYPE numeric;
ALTER TABLE hloom_leases ALTER COLUMN note SET NOT NULL;
ALTER TABLE hloom_leases ALTER COLUMN key DROP NOT NULL;
ALTER TABLE hloom_leases ALTER COLUMN note SET DEFAULT 'x';
ALTER TABLE hloom_leases ALTER COLUMN note DROP DEFAULT;
ALTER TABLE hloom_leases RENAME COLUMN note TO remark;
-- A constraint is looked at when rows come in, and none ever does.
ALTER TABLE hloom_leases ADD CONSTRAINT short_key CHECK (length(key) < 3) NOT VALID;
SELECT count(*) FROM hloom_try_acquire('refusals', 'longer-than-three', owner => hl.owner(1));
SELECT hloom_release('refusals', 'longer-than-three', hl.owner(1)) AS released;
ALTER TABLE hloom_leases VALIDATE CONSTRAINT short_key;
ALTER TABLE hloom_leases DROP CONSTRAINT short_key;
ALTER TABLE hloom_leases SET (fillfactor = 50);
ALTER TABLE hloom_leases RESET (fillfactor);
SELECT amname, relpersistence, relnatts FROM pg_class c JOIN pg_am ON pg_am.oid = relam
	WHERE relname = 'hloom_leases';
SELECT count(*), bool_and(hloom_is_held('refusals', key, owner)) FROM hloom_leases
	WHERE namespace = 'refusals';

-- Triggers and rules hang on statements that are refused anyway.
CREATE FUNCTION trace() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'trigger: %',
	TG_OP; RETURN NEW; END $$;
CREATE TRIGGER before_statement BEFORE INSERT OR DELETE OR UPDATE ON hloom_leases EXECUTE FUNCTION
	trace();
CREATE TRIGGER after_row AFTER INSERT OR DELETE OR UPDATE ON hloom_leases FOR EACH ROW EXECUTE
	FUNCTION trace();
CREATE TRIGGER on_truncate AFTER TRUNCATE ON hloom_leases EXECUTE FUNCTION trace();
SELECT key FROM hloom_try_acquire('refusals', 'triggered', owner => hl.owner(1));
SELECT hloom_release('refusals', 'triggered', hl.owner(1));
DELETE FROM hloom_leases;
DROP TRIGGER before_statement ON hloom_leases;
DROP TRIGGER after_row ON hloom_leases;
DROP TRIGGER on_truncate ON hloom_leases;

-- The access method keeps this table and no other.
SELECT hl.error($$CREATE TABLE other (a int) USING hloom_lease$$);
CREATE TEMP TABLE other (a int) USING hloom_lease;
CREATE UNLOGGED TABLE other (a int) USING hloom_lease;
CREATE TABLE other USING hloom_lease AS SELECT 1 AS a;
CREATE TABLE other (LIKE hloom_leases) USING hloom_lease;
CREATE TABLE hloom_leases (LIKE public.hloom_leases) USING hloom_lease;
CREATE TABLE child () INHERITS (public.hloom_leases) USING hloom_lease;
CREATE MATERIALIZED VIEW other USING hloom_lease AS SELECT 1 AS a;
SET default_table_access_method = hloom_lease;
CREATE TABLE other (a int);
CREATE TEMP TABLE other (a int);
SELECT 1 AS a INTO other;
RESET default_table_access_method;
CREATE TABLE other (a int);
ALTER TABLE other SET ACCESS METHOD hloom_lease;
DROP TABLE other;
SELECT count(*) FROM pg_class c JOIN pg_am ON pg_am.oid = relam WHERE amname = 'hloom_lease';

-- A copy of it is an ordinary table.
CREATE TABLE copy AS SELECT * FROM hloom_leases WHERE namespace = 'refusals';
SELECT count(*) FROM copy;
DROP TABLE copy;
CREATE TABLE copy (LIKE hloom_leases INCLUDING ALL);
INSERT INTO copy SELECT * FROM hloom_leases WHERE namespace = 'refusals';
SELECT count(*) FROM copy;

-- Every lease is as it was.
SELECT count(*), bool_and(hloom_is_held('refusals', key, owner)) AS held,
	bool_and(note IS NULL) AS unchanged
FROM hloom_leases WHERE namespace = 'refusals';

-- A dropped column takes nothing else with it; done elsewhere, for it cannot be added again.
SELECT current_database() AS db \gset
CREATE DATABASE hloom_dropped;
\c hloom_dropped
CREATE EXTENSION hloom_lock;
SELECT key FROM hloom_try_acquire('refusals', 'a', owner => '00000000-0000-4000-8000-000000000001',
	note => 'n');
ALTER TABLE hloom_leases DROP COLUMN application_name;
ALTER TABLE hloom_leases DROP COLUMN client_addr CASCADE;
SELECT namespace, key, owner, mode, lease, scope, note FROM hloom_leases;
SELECT key FROM hloom_try_acquire('refusals', 'b', owner => '00000000-0000-4000-8000-000000000001');
SELECT hloom_release('refusals', 'a', '00000000-0000-4000-8000-000000000001') AS released;
VACUUM FULL hloom_leases;
ANALYZE hloom_leases;
SELECT count(*) FROM hloom_leases;
\c :db
DROP DATABASE hloom_dropped;

TRUNCATE hloom_leases;
SET client_min_messages = warning;
DROP SCHEMA refusals CASCADE;
