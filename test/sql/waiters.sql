-- hloom_waiters and hloom_blocking_pids() as one session sees them, which waits for nothing.  Those
-- who wait are in test/t/072_waiters.pl.
CREATE SCHEMA waiters;
SET search_path = waiters, public;
TRUNCATE hloom_leases;
CREATE ROLE regress_hloom_ordinary;
CREATE ROLE regress_hloom_watcher;
GRANT pg_monitor TO regress_hloom_watcher;
GRANT USAGE ON SCHEMA hl TO PUBLIC;

-- Nobody waits.
SELECT * FROM hloom_waiters;
SELECT * FROM hloom_waiters();
SELECT hloom_blocking_pids(pg_backend_pid());
SELECT pid, hloom_blocking_pids(pid) FROM unnest(ARRAY[0, -1, 1, 2147483647]) AS pid;
SELECT hloom_blocking_pids(NULL) IS NULL AS nothing;
SELECT hloom_blocking_pids(pid => pg_backend_pid()) || 1 AS array, pg_typeof(hloom_blocking_pids(0));

-- A lease is in nobody's way while nobody waits, nor is a wait that is over, however it ended.
SELECT key FROM hloom_try_acquire('waiters', 'k', owner => hl.owner(1));
SELECT key, state, waiters FROM hloom_locks;
SELECT count(*) FROM hloom_try_acquire('waiters', 'k', owner => hl.owner(2));
SELECT count(*) FROM hloom_try_acquire('waiters', 'k', max_wait => '20 ms',
	retry => hloom_retry_interval(10, '5 ms'), owner => hl.owner(2));
SELECT hl.state($$SELECT hloom_acquire('waiters', 'k', retry => hloom_retry_interval(1, '5 ms'))$$);
SELECT * FROM hloom_waiters;
SELECT key, state, waiters FROM hloom_locks;
SELECT hloom_blocking_pids(pg_backend_pid());

-- Everybody may look; nobody can change what is seen.
SET ROLE regress_hloom_ordinary;
SELECT * FROM hloom_waiters;
SELECT hloom_blocking_pids(pg_backend_pid());
SELECT hl.state('DELETE FROM hloom_waiters') AS delete,
	hl.state($$UPDATE hloom_waiters SET position = 1$$) AS update;
SET ROLE regress_hloom_watcher;
SELECT * FROM hloom_waiters;
SELECT hloom_blocking_pids(pg_backend_pid());
RESET ROLE;
SELECT hl.error('DELETE FROM hloom_waiters');
BEGIN READ ONLY;
SELECT * FROM hloom_waiters;
SELECT hloom_blocking_pids(pg_backend_pid());
COMMIT;

TRUNCATE hloom_leases;
REVOKE USAGE ON SCHEMA hl FROM PUBLIC;
SET client_min_messages = warning;
DROP SCHEMA waiters CASCADE;
DROP ROLE regress_hloom_ordinary;
DROP ROLE regress_hloom_watcher;
