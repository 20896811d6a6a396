-- Options per namespace: one validator, the row over the settings, who may change and who may use.
CREATE SCHEMA namespaces;
SET search_path = namespaces, public;
TRUNCATE hloom_leases;
CREATE ROLE regress_hloom_admin;
CREATE ROLE regress_hloom_member;
CREATE ROLE regress_hloom_outside;
CREATE ROLE regress_hloom_team;
GRANT regress_hloom_team TO regress_hloom_member;
GRANT USAGE ON SCHEMA hl TO PUBLIC;
-- Of a namespace, what its row decides.
CREATE VIEW decided AS
SELECT n.namespace, d.part, d.value FROM hloom_namespaces n, hloom_describe(n.namespace) d
WHERE d.decided_by = 'hloom_namespaces' AND d.part <> 'namespace' AND d.value <> '(any)';

-- item 108: nothing configured: each line names what decides it, and the longest wait is 3.25 s.
SELECT * FROM hloom_describe('defaults');
SELECT hloom_is_coordinated('defaults');

-- item 7: a namespace without options is no violation.
SELECT * FROM hloom_configure('empty');
SELECT part, decided_by FROM hloom_describe('empty') WHERE decided_by = 'hloom_namespaces';

-- Every option.  NULL keeps what there is, reset returns to the setting.
SELECT * FROM hloom_configure('all', enabled => true, provider => 'table', default_lease => '20 s',
	max_lease => '2 min', max_hold => '1 h', retry => hloom_retry_interval(3, '40 ms'),
	auto_extend => false, detect_reentrancy => false, max_key_length => 100,
	role => 'regress_hloom_team');
SELECT * FROM hloom_describe('all');
SELECT * FROM hloom_configure('all', max_hold => '2 h');
SELECT * FROM hloom_configure('all', reset => '{enabled,provider,max_hold,retry,role,role}');
SELECT part, value FROM decided WHERE namespace = 'all';
SELECT * FROM hloom_configure('all', max_lease => '1 min',
	reset => '{auto_extend,detect_reentrancy,max_key_length,default_lease}');
SELECT * FROM hloom_configure('all', reset => '{max_lease}');
-- A policy with nothing in it is none.
SELECT retry IS NULL AS none FROM hloom_configure('all',
	retry => ROW(NULL, NULL, NULL, NULL, NULL, NULL)::hloom_retry_policy);
SELECT hloom_unconfigure('all') AS there_was, hloom_unconfigure('all') AS again;

-- items 100 and 101: a disabled namespace has no provider, and is not coordinated.
SELECT enabled FROM hloom_configure('off', enabled => false);
SELECT hloom_is_coordinated('off'), hloom_is_coordinated('empty');
SELECT * FROM hloom_describe('off') WHERE part IN ('provider', 'enabled');
SET hloom_lock.enabled = off;
SELECT hloom_is_coordinated('defaults');
SELECT * FROM hloom_describe('defaults') WHERE part IN ('provider', 'enabled');
SELECT hloom_is_coordinated('on') FROM hloom_configure('on', enabled => true);
RESET hloom_lock.enabled;

-- item 7: every violation in one error, each naming its option; nothing is written.
SELECT hl.error($$SELECT hloom_configure('Bad Name', provider => 'a_b', default_lease => '0',
	max_lease => '1 month', max_hold => '-1 s', retry => ROW('linear', -1, '1 s', NULL, NULL,
	'-1 s')::hloom_retry_policy, auto_extend => true, max_key_length => 1025,
	role => 'regress_hloom_nobody', reset => '{shape,max_hold,NULL}')$$);
-- item 9: a provider that is not there.
SELECT hl.error($$SELECT hloom_configure('bad', provider => 'elsewhere')$$);
SELECT hl.error($$SELECT hloom_configure('bad', provider => 'elsewhere', max_key_length => 0,
	role => 'regress_hloom_nobody')$$);
SELECT hl.error($$SELECT hloom_configure('bad', role => repeat('r', 64))$$);
SELECT hl.error($$SELECT hloom_configure('bad', role => '', provider => '')$$);
SELECT hl.error($$SELECT hloom_configure(repeat('x', 64))$$);
SELECT hl.error($$SELECT hloom_configure('bad', reset => '{namespace}')$$);
SELECT hl.error($$SELECT hloom_configure('bad', default_lease => '106751991 days')$$);
SELECT hl.error($$SELECT hloom_configure('bad', default_lease => '200000000 days')$$);
-- A role that is not there has its own SQLSTATE.
SELECT hl.error($$SELECT hloom_configure('bad', role => 'regress_hloom_nobody')$$);
-- A NULL namespace and a bad one.
SELECT hl.error($$SELECT hloom_configure(NULL)$$);
SELECT hl.error($$SELECT hloom_unconfigure('A')$$);
SELECT call, hl.state(call) FROM unnest(ARRAY[
	$$SELECT hloom_unconfigure(NULL)$$, $$SELECT hloom_is_coordinated(NULL)$$,
	$$SELECT * FROM hloom_describe(NULL)$$, $$SELECT hloom_is_coordinated('A')$$,
	$$SELECT * FROM hloom_describe('')$$]) AS call;
SELECT count(*) FROM hloom_namespaces WHERE namespace !~ '^(empty|off|on)$';

-- item 8: the longest lease is not below the default one, equal is accepted: both given, one of
-- them already there, one of them a setting.
SELECT hl.error($$SELECT hloom_configure('lease', default_lease => '20 s', max_lease => '10 s')$$);
SELECT default_lease, max_lease FROM hloom_configure('lease', default_lease => '10 s',
	max_lease => '10 s');
SELECT hl.error($$SELECT hloom_configure('lease', max_lease => '9999 ms')$$);
SELECT hl.error($$SELECT hloom_configure('lease', reset => '{default_lease}')$$);
SELECT max_lease FROM hloom_configure('lease', max_lease => '30 s', reset => '{default_lease}');
SELECT hl.error($$SELECT hloom_configure('lease', max_lease => '29999 ms')$$);
SELECT default_lease FROM hloom_configure('lease', default_lease => '5 min',
	reset => '{max_lease}');
SELECT hl.error($$SELECT hloom_configure('lease', default_lease => '300001 ms')$$);
-- Two settings are not the namespace's business.
SET hloom_lock.max_lease = '1 s';
SELECT max_hold FROM hloom_configure('hold', max_hold => '1 s');
RESET hloom_lock.max_lease;

-- Read-only.
BEGIN READ ONLY;
SELECT hl.error($$SELECT hloom_configure('empty', enabled => true)$$);
SELECT hl.error($$SELECT hloom_unconfigure('empty')$$);
SELECT hloom_is_coordinated('empty');
COMMIT;

-- strict_namespaces: what has no row is refused, an empty row is one.
SET hloom_lock.strict_namespaces = on;
SELECT hl.error($$SELECT hloom_is_coordinated('defaults')$$);
SELECT hl.state($$SELECT * FROM hloom_describe('defaults')$$);
SELECT hloom_is_coordinated('empty');
SELECT hl.state($$SELECT hloom_unconfigure('defaults')$$);
RESET hloom_lock.strict_namespaces;

-- A change is seen by the next command of its transaction and undone with it.
BEGIN;
SELECT max_key_length FROM hloom_configure('undone', max_key_length => 10);
SELECT value FROM hloom_describe('undone') WHERE part = 'max_key_length';
SAVEPOINT a;
SELECT max_key_length FROM hloom_configure('undone', max_key_length => 20);
SELECT value FROM hloom_describe('undone') WHERE part = 'max_key_length';
SAVEPOINT b;
SELECT hloom_unconfigure('undone');
SELECT value FROM hloom_describe('undone') WHERE part = 'max_key_length';
ROLLBACK TO b;
SELECT value FROM hloom_describe('undone') WHERE part = 'max_key_length';
ROLLBACK TO a;
SELECT value FROM hloom_describe('undone') WHERE part = 'max_key_length';
ROLLBACK;
SELECT value, decided_by FROM hloom_describe('undone') WHERE part = 'max_key_length';
-- The same in a function's block.
DO $$
DECLARE
	seen text;
BEGIN
	BEGIN
		PERFORM hloom_configure('undone', max_key_length => 10);
		SELECT value INTO seen FROM hloom_describe('undone') WHERE part = 'max_key_length';
		RAISE EXCEPTION 'undo';
	EXCEPTION WHEN raise_exception THEN NULL;
	END;
	SELECT seen || ', then ' || value INTO seen FROM hloom_describe('undone')
	WHERE part = 'max_key_length';
	RAISE NOTICE '%', seen;
END $$;
-- By hand: INSERT, UPDATE, DELETE, MERGE, TRUNCATE and its ROLLBACK.
INSERT INTO hloom_namespaces (namespace, max_key_length) VALUES ('hand', 1), ('hand-2', 2);
SELECT namespace, value FROM decided WHERE namespace ~ '^hand';
UPDATE hloom_namespaces SET max_key_length = max_key_length + 10 WHERE namespace ~ '^hand';
SELECT namespace, value FROM decided WHERE namespace ~ '^hand';
DELETE FROM hloom_namespaces WHERE namespace = 'hand-2';
SELECT value FROM hloom_describe('hand-2') WHERE part = 'max_key_length';
MERGE INTO hloom_namespaces n USING (VALUES ('hand')) AS v(namespace) ON n.namespace = v.namespace
	WHEN MATCHED THEN UPDATE SET max_key_length = 12;
SELECT namespace, value FROM decided WHERE namespace ~ '^hand';
COPY hloom_namespaces (namespace, max_key_length) FROM stdin;
hand-3	3
\.
SELECT namespace, value FROM decided WHERE namespace ~ '^hand';
BEGIN;
TRUNCATE hloom_namespaces;
SELECT value FROM hloom_describe('hand') WHERE part = 'max_key_length';
ROLLBACK;
SELECT value FROM hloom_describe('hand') WHERE part = 'max_key_length';
-- No table of the name, or another one, is an error, until that is undone.
BEGIN;
ALTER TABLE hloom_namespaces RENAME TO elsewhere;
SELECT hl.error($$SELECT hloom_is_coordinated('hand')$$);
CREATE TABLE public.hloom_namespaces (namespace text PRIMARY KEY);
SELECT hl.error($$SELECT hloom_is_coordinated('hand')$$);
ROLLBACK;
SELECT value FROM hloom_describe('hand') WHERE part = 'max_key_length';

-- The trigger judges the same way, also where others do not fire, but only the row itself: a dump
-- comes to servers with other settings, roles and providers.
SELECT hl.error($$INSERT INTO hloom_namespaces (namespace, default_lease, max_lease, max_hold,
	auto_extend) VALUES ('hand-4', '20 s', '10 s', '0', true)$$);
SELECT hl.error($$UPDATE hloom_namespaces SET max_key_length = 2000 WHERE namespace = 'hand'$$);
SELECT hl.error($$INSERT INTO hloom_namespaces VALUES ('Hand')$$);
SELECT hl.state($$INSERT INTO hloom_namespaces VALUES (NULL)$$);
SELECT hl.error($$INSERT INTO hloom_namespaces (namespace, retry)
	VALUES ('hand-4', ROW('often', 1, NULL, NULL, NULL, NULL))$$);
SET session_replication_role = replica;
SELECT hl.state($$INSERT INTO hloom_namespaces VALUES ('Hand')$$);
UPDATE hloom_namespaces SET max_key_length = 13 WHERE namespace = 'hand';
SELECT value FROM hloom_describe('hand') WHERE part = 'max_key_length';
RESET session_replication_role;
INSERT INTO hloom_namespaces (namespace, provider, max_lease, role)
VALUES ('hand-4', 'elsewhere', '1 s', 'regress_hloom_nobody');
SELECT hl.error($$SELECT hloom_is_coordinated('hand-4')$$);
-- hloom_configure judges what it is given, so that such a row can be mended step by step.
SELECT hl.error($$SELECT hloom_configure('hand-4', max_key_length => 5)$$);
SELECT * FROM hloom_configure('hand-4', max_key_length => 5, reset => '{max_lease}');
SELECT * FROM hloom_configure('hand-4', provider => 'table', reset => '{role}');

-- item 9: options that are not valid are never used.  Rows made with the triggers disabled are errors for their own namespaces only.
ALTER TABLE hloom_namespaces DISABLE TRIGGER USER;
INSERT INTO hloom_namespaces (namespace, default_lease, max_lease, max_hold, max_key_length)
VALUES ('broken', '20 s', '10 s', '-1 s', 0);
INSERT INTO hloom_namespaces (namespace, retry)
VALUES ('ahead', ROW('often', 1, NULL, NULL, NULL, NULL));
INSERT INTO hloom_namespaces (namespace) VALUES ('Broken'), (repeat('x', 100)), ('');
ALTER TABLE hloom_namespaces ENABLE ALWAYS TRIGGER hloom_namespaces_row;
ALTER TABLE hloom_namespaces ENABLE ALWAYS TRIGGER hloom_namespaces_truncate;
SELECT hl.error($$SELECT hloom_is_coordinated('broken')$$);
SELECT hl.state($$SELECT * FROM hloom_describe('broken')$$);
SELECT hl.error($$SELECT hloom_is_coordinated('ahead')$$);
SELECT hloom_is_coordinated('hand'), hloom_is_coordinated('defaults');
-- They can be mended and removed.
SELECT hl.error($$SELECT hloom_configure('broken', max_lease => '1 min')$$);
SELECT max_lease, max_hold FROM hloom_configure('broken', max_lease => '1 min',
	max_key_length => 10, reset => '{max_hold}');
SELECT hloom_is_coordinated('broken');
SELECT hloom_unconfigure('ahead');
DELETE FROM hloom_namespaces WHERE namespace !~ '^[a-z0-9-]{1,63}$';

-- Roles: by name, resolved at the call; for members only, and told nothing more.
SELECT role FROM hloom_configure('team', role => 'regress_hloom_team', max_key_length => 9);
SELECT hloom_is_coordinated('team');
SET ROLE regress_hloom_member;
SELECT hloom_is_coordinated('team');
SELECT value FROM hloom_describe('team') WHERE part = 'role';
SET ROLE regress_hloom_outside;
SELECT hl.error($$SELECT hloom_is_coordinated('team')$$);
SELECT hl.error($$SELECT * FROM hloom_describe('team')$$);
SELECT hloom_is_coordinated('defaults');
-- Membership counts as it is.
RESET ROLE;
GRANT regress_hloom_team TO regress_hloom_outside;
SET ROLE regress_hloom_outside;
SELECT hloom_is_coordinated('team');
RESET ROLE;
REVOKE regress_hloom_team FROM regress_hloom_outside;
SET ROLE regress_hloom_outside;
SELECT hl.state($$SELECT hloom_is_coordinated('team')$$);
-- The role of the moment counts, so a SECURITY DEFINER function can open the door.
RESET ROLE;
CREATE FUNCTION door() RETURNS bool LANGUAGE sql SECURITY DEFINER
AS $$SELECT public.hloom_is_coordinated('team')$$;
ALTER FUNCTION door() OWNER TO regress_hloom_member;
GRANT USAGE ON SCHEMA namespaces TO PUBLIC;
SET ROLE regress_hloom_outside;
SELECT door(), hl.state($$SELECT hloom_is_coordinated('team')$$) AS not_through_it;
RESET ROLE;
DROP FUNCTION door();
-- Dropped, it is an error for superusers, too; created again, it counts again.
DROP ROLE regress_hloom_team;
SELECT hl.error($$SELECT hloom_is_coordinated('team')$$);
SET ROLE regress_hloom_member;
SELECT hl.state($$SELECT * FROM hloom_describe('team')$$);
RESET ROLE;
SELECT max_key_length, role FROM hloom_configure('team', max_key_length => 8);
CREATE ROLE regress_hloom_team;
SET ROLE regress_hloom_member;
SELECT hl.state($$SELECT hloom_is_coordinated('team')$$);
RESET ROLE;
SELECT hloom_is_coordinated('team');

-- Who may configure: nobody, unless told so; and that needs no right on the table.
SET ROLE regress_hloom_admin;
SELECT hl.error($$SELECT hloom_configure('admin')$$);
SELECT hl.error($$SELECT hloom_unconfigure('empty')$$);
SELECT hl.error($$SELECT * FROM hloom_namespaces$$);
SELECT hl.state($$INSERT INTO hloom_namespaces VALUES ('admin')$$) AS insert,
	hl.state($$UPDATE hloom_namespaces SET enabled = false$$) AS update,
	hl.state($$DELETE FROM hloom_namespaces$$) AS delete,
	hl.state($$TRUNCATE hloom_namespaces$$) AS truncate,
	hl.state($$CREATE TEMP TABLE t (a int); CREATE TRIGGER t BEFORE INSERT ON t FOR EACH ROW
		EXECUTE FUNCTION hloom_namespaces_changed()$$) AS trigger;
RESET ROLE;
GRANT EXECUTE ON FUNCTION hloom_configure, hloom_unconfigure TO regress_hloom_admin;
GRANT ALL ON SCHEMA namespaces TO regress_hloom_admin;
SET ROLE regress_hloom_admin;
SELECT namespace, max_hold FROM hloom_configure('admin', max_hold => '1 h');
SELECT hl.state($$SELECT * FROM hloom_namespaces$$);
-- What is in the way of names does not matter.
CREATE TABLE namespaces.hloom_namespaces (namespace text);
CREATE TEMP TABLE hloom_namespaces (namespace text);
CREATE TEMP TABLE pg_extension (oid oid);
CREATE FUNCTION namespaces.equal(text, text) RETURNS bool LANGUAGE plpgsql
AS $$BEGIN RAISE EXCEPTION 'run as %', current_user; END$$;
CREATE OPERATOR namespaces.= (LEFTARG = text, RIGHTARG = text, FUNCTION = namespaces.equal);
SET search_path = pg_temp, namespaces, pg_catalog, public;
SELECT namespace, max_hold FROM public.hloom_configure('admin', max_hold => '2 h');
SELECT value FROM public.hloom_describe('admin') WHERE part OPERATOR(pg_catalog.=) 'max_hold';
SELECT public.hloom_unconfigure('admin');
RESET ROLE;
SET search_path = namespaces, public;
DROP TABLE pg_temp.hloom_namespaces, pg_temp.pg_extension, namespaces.hloom_namespaces;
DROP OPERATOR namespaces.= (text, text);
DROP FUNCTION namespaces.equal;
-- A watcher may read.
SET ROLE pg_monitor;
SELECT count(*) > 0 AS seen FROM hloom_namespaces;
RESET ROLE;

-- A transaction that gives a namespace another provider takes no lease there: others still ask the
-- one before.
CREATE FUNCTION take(ns text) RETURNS text LANGUAGE sql AS $$
	SELECT hl.state(format('SELECT FROM hloom_acquire(%L, ''k'', owner => %L)', ns, hl.owner(1)))
$$;
BEGIN;
SELECT hl.state($$SELECT hloom_configure('moving', provider => 'memory')$$);
SELECT hl.error($$SELECT hloom_try_acquire('moving', 'k')$$);
SELECT hl.state($$SELECT hloom_execute_with_lock('moving', 'k', 'SELECT 1')$$), take('elsewhere');
-- Back again it is what others see; rolled back, too.
SELECT hl.state($$SELECT hloom_configure('moving', provider => 'table')$$), take('moving'),
	hloom_release('moving', 'k', hl.owner(1));
SAVEPOINT a;
SAVEPOINT b;
SELECT hl.state($$SELECT hloom_configure('moving', provider => 'memory')$$), take('moving');
RELEASE b;
SELECT take('moving');
ROLLBACK TO a;
SELECT take('moving'), hloom_release('moving', 'k', hl.owner(1));
SELECT hl.state($$SELECT hloom_configure('moving', provider => 'memory')$$), take('moving');
COMMIT;
SELECT take('moving'), hloom_release('moving', 'k', hl.owner(1));
BEGIN;
SELECT hloom_unconfigure('moving'), take('moving');
ROLLBACK;
SELECT take('moving'), hloom_release('moving', 'k', hl.owner(1)),
	hloom_release('elsewhere', 'k', hl.owner(1));
SELECT hloom_unconfigure('moving');

-- The trigger is for one table.
CREATE TABLE other (a int);
CREATE TRIGGER other BEFORE INSERT ON other FOR EACH ROW
	EXECUTE FUNCTION hloom_namespaces_changed();
SELECT hl.error($$INSERT INTO other VALUES (1)$$);
-- A trigger of somebody's own may refuse, but not silently.
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RETURN NULL; END$$;
CREATE TRIGGER refuse BEFORE INSERT ON hloom_namespaces FOR EACH ROW EXECUTE FUNCTION refuse();
SELECT hl.error($$SELECT hloom_configure('refused')$$);
DROP TRIGGER refuse ON hloom_namespaces;

TRUNCATE hloom_namespaces;
REVOKE EXECUTE ON FUNCTION hloom_configure, hloom_unconfigure FROM regress_hloom_admin;
SET client_min_messages = warning;
DROP SCHEMA namespaces CASCADE;
RESET client_min_messages;
DROP ROLE regress_hloom_admin, regress_hloom_member, regress_hloom_outside, regress_hloom_team;
