-- The extension in another schema, dropped and created again.
\set VERBOSITY terse
SELECT current_database() AS db \gset
CREATE DATABASE hloom_extension;
\c hloom_extension
CREATE SCHEMA locks;
CREATE EXTENSION hloom_lock SCHEMA locks;
-- Its functions find the table without a search path.
SET search_path = pg_catalog;
SELECT key, fence AS fence1 FROM locks.hloom_try_acquire('extension', 'a',
	owner => '00000000-0000-4000-8000-000000000001') \gset
SELECT count(*) FROM locks.hloom_try_acquire('extension', 'a');
SELECT namespace, key FROM locks.hloom_leases;
SELECT locks.hloom_is_held('extension', 'a', '00000000-0000-4000-8000-000000000001') AS held;
-- A table of that name elsewhere is another table.
CREATE TABLE public.hloom_leases (a int);
SELECT locks.hloom_extend('extension', 'a', '00000000-0000-4000-8000-000000000001') AS extended;
SET search_path = public;
SELECT locks.hloom_release('extension', 'a', '00000000-0000-4000-8000-000000000001') AS released;
DROP TABLE public.hloom_leases;
ALTER EXTENSION hloom_lock SET SCHEMA public;
VACUUM FULL locks.hloom_leases;
TRUNCATE locks.hloom_leases;

-- Its parts cannot be dropped one by one.
DROP TABLE locks.hloom_leases;
DROP ACCESS METHOD hloom_lease;
DROP FUNCTION locks.hloom_release(text, text, uuid);

-- Dropped, nothing of it is left; created again, fences go on growing, in this session and others.
SELECT fence > :fence1 AS grown, fence AS fence2
	FROM locks.hloom_try_acquire('extension', 'a') \gset
SELECT :'grown' AS grown;
DROP EXTENSION hloom_lock;
SELECT count(*) FROM pg_class WHERE relname LIKE 'hloom%';
SELECT count(*) FROM pg_proc WHERE proname LIKE 'hloom%';
SELECT count(*) FROM pg_type WHERE typname LIKE '%hloom%';
SELECT count(*) FROM pg_am WHERE amname LIKE 'hloom%';
CREATE EXTENSION hloom_lock SCHEMA public;
SELECT count(*) FROM public.hloom_leases;
SELECT fence > :fence2 AS grown, fence AS fence3
FROM public.hloom_try_acquire('extension', 'a', owner => '00000000-0000-4000-8000-000000000001')
	\gset
SELECT :'grown' AS grown;
-- Undone, dropping did not happen.
BEGIN;
DROP EXTENSION hloom_lock;
ROLLBACK;
SELECT hloom_is_held('extension', 'a', '00000000-0000-4000-8000-000000000001') AS held;
-- While a session has used it, another may drop it and create it.
\c hloom_extension
SET search_path = public;
DROP EXTENSION hloom_lock;
CREATE EXTENSION hloom_lock;
SELECT fence > :fence3 AS grown FROM hloom_try_acquire('extension', 'a');

-- item 104: functions of a session that does not find the extension's table any more say so.
CREATE FUNCTION orphan(text, text, uuid) RETURNS bool LANGUAGE c AS 'hloom_lock',
	'hloom_sql_release';
DROP EXTENSION hloom_lock;
SELECT orphan('extension', 'a', '00000000-0000-4000-8000-000000000001');
DROP FUNCTION orphan;

-- What depends on it goes with CASCADE only.
CREATE EXTENSION hloom_lock;
CREATE VIEW held AS SELECT key FROM hloom_leases;
DROP EXTENSION hloom_lock;
SET client_min_messages = warning;
DROP EXTENSION hloom_lock CASCADE;
RESET client_min_messages;

-- CREATE DATABASE … TEMPLATE copies an extension that works.
CREATE EXTENSION hloom_lock;
SELECT key FROM hloom_try_acquire('extension', 'template', '4 min',
	owner => '00000000-0000-4000-8000-000000000001');
\c :db
CREATE DATABASE hloom_extension_copy TEMPLATE hloom_extension;
\c hloom_extension_copy
SELECT namespace, key FROM hloom_leases;
SELECT count(*) FROM hloom_try_acquire('extension', 'template',
	owner => '00000000-0000-4000-8000-000000000002');
SELECT count(*) FROM hloom_try_acquire('extension', 'other',
	owner => '00000000-0000-4000-8000-000000000002');
SELECT hloom_release('extension', 'template', '00000000-0000-4000-8000-000000000001') AS released;
-- The two databases' locks are not the same.
\c hloom_extension
SELECT namespace, key FROM hloom_leases;
\c :db
DROP DATABASE hloom_extension_copy;
DROP DATABASE hloom_extension;

-- Another table under the lease table's name is an error, not a search without end.
CREATE DATABASE regress_hloom_renamed;
\c regress_hloom_renamed
CREATE EXTENSION hloom_lock;
SET statement_timeout = '20s';
ALTER TABLE hloom_leases RENAME TO hloom_leases_away;
SELECT * FROM hloom_try_acquire('e', 'k');
CREATE TABLE hloom_leases (i int);
SELECT * FROM hloom_try_acquire('e', 'k');
DROP TABLE hloom_leases;
ALTER TABLE hloom_leases_away RENAME TO hloom_leases;
SELECT key, is_coordinated FROM hloom_try_acquire('e', 'k');
\c :db
DROP DATABASE regress_hloom_renamed;
