-- hloom_locks and hloom_health(): who sees which leases, and what is told about a store.
CREATE SCHEMA looking;
SET search_path = looking, public;
TRUNCATE hloom_leases;
CREATE ROLE regress_hloom_ordinary;
CREATE ROLE regress_hloom_team;
CREATE ROLE regress_hloom_member;
CREATE ROLE regress_hloom_noinherit NOINHERIT;
CREATE ROLE regress_hloom_watcher;
GRANT regress_hloom_team TO regress_hloom_member, regress_hloom_noinherit;
GRANT pg_monitor TO regress_hloom_watcher;
GRANT USAGE ON SCHEMA hl TO PUBLIC;

-- One row for each lease, nothing without one.
SELECT * FROM hloom_locks;
SET application_name = 'billing service';
SELECT count(*) FROM hloom_try_acquire('looking', 'invoice:1', '2 min', owner => hl.owner(1),
	note => 'night run');
RESET application_name;
SELECT count(*) FROM hloom_try_acquire('looking', 'invoice:2', '2 min', owner => hl.owner(2));
SELECT l.namespace, l.key, l.holder = current_user AS holder, l.application, l.state, l.freed_by,
	l.fence = t.fence AS fence, l.holder_pid = pg_backend_pid() AS pid, l.note
FROM hloom_locks AS l JOIN hloom_leases AS t USING (namespace, key) ORDER BY key;
-- The two durations are those of the lease.
SELECT key, held_for + remaining = t.expires_at - t.granted_at AS whole,
	held_for >= '0' AND remaining <= '2 min' AND remaining > '0' AS bounds
FROM hloom_locks JOIN hloom_leases AS t USING (namespace, key) ORDER BY key;
-- No owner token, in no column.
SELECT count(*) FROM hloom_locks AS l WHERE l::text LIKE '%' || hl.owner(1) || '%'
	OR row_to_json(l)::text LIKE '%0000-4000-8000%';
SELECT hloom_release('looking', 'invoice:2', hl.owner(2)) AS released;
SELECT key FROM hloom_locks;

-- The process that took the lease is told as long as it runs.
SELECT pg_backend_pid() AS gone \gset
\c -
SET search_path = looking, public;
DO $$
BEGIN
	WHILE EXISTS (SELECT FROM hloom_locks WHERE holder_pid IS NOT NULL) LOOP
		PERFORM pg_sleep(0.005);
	END LOOP;
END $$;
SELECT key, holder_pid FROM hloom_locks;
SELECT holder_pid = :gone AS pid FROM hloom_leases;

-- Everybody sees the leases of the namespaces that everybody may use; of the others only members
-- of the role do, and of all only pg_monitor and superusers.
SELECT namespace, role FROM hloom_configure('looking-team', role => 'regress_hloom_team');
SELECT namespace, role FROM hloom_configure('looking-free', max_lease => '2 min');
SELECT count(*) FROM unnest(ARRAY['looking-team', 'looking-free']) AS ns,
	hloom_try_acquire(ns, 'k', '1 min', owner => hl.owner(3));
CREATE VIEW seen AS
SELECT (SELECT string_agg(namespace || '/' || key, ' ' ORDER BY namespace, key)
	FROM public.hloom_locks);
GRANT USAGE ON SCHEMA looking TO PUBLIC;
GRANT SELECT ON seen TO PUBLIC;
SELECT * FROM seen;
SET ROLE regress_hloom_ordinary;
SELECT * FROM seen;
SELECT namespace, key FROM hloom_locks WHERE namespace = 'looking-team';
SELECT namespace, key FROM hloom_locks() WHERE namespace = 'looking-team';
SELECT hl.state('SELECT * FROM hloom_leases') AS table, hl.state('SELECT * FROM hloom_namespaces')
	AS namespaces;
SET ROLE regress_hloom_team;
SELECT * FROM seen;
SET ROLE regress_hloom_member;
SELECT * FROM seen;
-- Who would have to SET ROLE first may not use the namespace, and sees nothing of it.
SET ROLE regress_hloom_noinherit;
SELECT * FROM seen;
SET ROLE regress_hloom_watcher;
SELECT * FROM seen;
-- A function in the query that is not the view's is given no row that its caller may not see.
RESET ROLE;
CREATE FUNCTION peek(text) RETURNS bool COST 0.0001 LANGUAGE plpgsql AS $$
BEGIN
	RAISE NOTICE 'peeked at %', $1;
	RETURN true;
END $$;
SET ROLE regress_hloom_ordinary;
SELECT key FROM hloom_locks WHERE peek(namespace || '/' || key) AND namespace = 'looking-free';

-- What changes, changes at once: the role of a namespace, membership, a role that is gone.
RESET ROLE;
SELECT namespace FROM hloom_configure('looking-free', role => 'regress_hloom_team');
SET ROLE regress_hloom_ordinary;
SELECT * FROM seen;
RESET ROLE;
GRANT regress_hloom_team TO regress_hloom_ordinary;
SET ROLE regress_hloom_ordinary;
SELECT * FROM seen;
RESET ROLE;
SET client_min_messages = warning;
DROP ROLE regress_hloom_team;
RESET client_min_messages;
SET ROLE regress_hloom_ordinary;
SELECT * FROM seen;
SET ROLE regress_hloom_watcher;
SELECT * FROM seen;
RESET ROLE;
SELECT hloom_unconfigure('looking-team') AS team, hloom_unconfigure('looking-free') AS free;
SET ROLE regress_hloom_ordinary;
SELECT * FROM seen;
-- Nobody can use a namespace whose row is not valid, nor does it spoil the view.
RESET ROLE;
ALTER TABLE hloom_namespaces DISABLE TRIGGER USER;
INSERT INTO hloom_namespaces (namespace, max_lease) VALUES ('looking-free', '-1 s');
ALTER TABLE hloom_namespaces ENABLE ALWAYS TRIGGER hloom_namespaces_row;
ALTER TABLE hloom_namespaces ENABLE ALWAYS TRIGGER hloom_namespaces_truncate;
SET ROLE regress_hloom_ordinary;
SELECT * FROM seen;
RESET ROLE;
DELETE FROM hloom_namespaces WHERE namespace = 'looking-free';
SET ROLE regress_hloom_ordinary;
SELECT * FROM seen;

-- A holder that is dropped has no name any more.
SELECT count(*) FROM hloom_try_acquire('looking', 'orphan', '1 min');
RESET ROLE;
SELECT key, holder FROM hloom_locks WHERE key = 'orphan';
DROP ROLE regress_hloom_ordinary;
SELECT key, holder FROM hloom_locks WHERE key = 'orphan';
SELECT hl.error('DELETE FROM hloom_locks');

-- Health.
SELECT provider, healthy, detail, latency BETWEEN '0' AND '1 min' AS latency FROM hloom_health();
SELECT provider, healthy FROM hloom_health('looking');
SELECT provider, healthy FROM hloom_health(namespace => NULL);
SELECT hl.error($$SELECT * FROM hloom_health('Looking')$$);
SELECT hl.error($$SELECT * FROM hloom_health('')$$);
-- One's own locks are in nobody's way.
BEGIN;
LOCK TABLE hloom_leases;
SELECT provider, healthy FROM hloom_health();
COMMIT;
BEGIN READ ONLY;
SELECT provider, healthy FROM hloom_health();
COMMIT;
-- It leaves no lock behind.
BEGIN;
SELECT provider, healthy FROM hloom_health();
SELECT count(*) FROM hloom_locks;
SELECT count(*) FROM pg_locks WHERE relation = 'hloom_leases'::regclass AND pid = pg_backend_pid();
COMMIT;
-- Who may ask.
SET ROLE regress_hloom_member;
SELECT hl.state('SELECT * FROM hloom_health()');
SET ROLE regress_hloom_watcher;
SELECT provider, healthy FROM hloom_health();
RESET ROLE;
-- What is broken is told, not raised.
SET client_min_messages = error;
ALTER TABLE hloom_leases RENAME TO hloom_leases_away;
CREATE TABLE public.hloom_leases (i int);
\c -
SELECT provider, healthy, detail FROM hloom_health();
DROP TABLE public.hloom_leases;
ALTER TABLE hloom_leases_away RENAME TO hloom_leases;
SELECT provider, healthy FROM hloom_health();

TRUNCATE hloom_leases;
REVOKE USAGE ON SCHEMA hl FROM PUBLIC;
SET client_min_messages = warning;
DROP SCHEMA looking CASCADE;
DROP ROLE regress_hloom_member;
DROP ROLE regress_hloom_noinherit;
DROP ROLE regress_hloom_watcher;
