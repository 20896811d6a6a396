-- A namespace, or everything, without locks: calls succeed at once and nothing is locked.
CREATE SCHEMA disabled;
SET search_path = disabled, public;
CREATE FUNCTION pg_temp.show(h hloom_handle) RETURNS TABLE (key text, fence bigint, lease interval,
	lease_end text, is_coordinated bool, has_owner bool) LANGUAGE sql AS $$
	SELECT h.key, h.fence, h.lease, (h.lease_end AT TIME ZONE 'UTC')::text, h.is_coordinated,
		h.owner IS NOT NULL
$$;

SELECT hloom_is_coordinated('disabled');
SELECT enabled FROM hloom_configure('disabled', enabled => false);
-- item 100: the first call in a session warns.  item 101: the handle says that it is none.
SELECT hloom_is_coordinated('disabled'), hloom_is_coordinated('disabled-not');
SELECT s.* FROM hloom_try_acquire('disabled', 'a') AS h, pg_temp.show(h) AS s;
SELECT s.* FROM hloom_acquire('disabled', 'a', '1 min') AS h, pg_temp.show(h) AS s;
-- Two at once, each with a token of its own, or the caller's; no field is NULL.
SELECT count(*), count(DISTINCT owner), bool_and(h IS NOT NULL) FROM (
	SELECT h, (h).owner FROM hloom_try_acquire('disabled', 'a') AS h UNION ALL
	SELECT h, (h).owner FROM hloom_try_acquire('disabled', 'a') AS h) AS t;
SELECT owner = hl.owner(7) AS mine FROM hloom_try_acquire('disabled', 'a', owner => hl.owner(7));
-- It is held for ever, by anybody.
SELECT hloom_is_held('disabled', 'a', hl.owner(1)) AS held,
	hloom_extend('disabled', 'a', hl.owner(1)) AS extended,
	hloom_remaining('disabled', 'a', hl.owner(1)) > '1000 years' AS remaining,
	hloom_release('disabled', 'a', hl.owner(1)) AS released,
	hloom_is_held('disabled', 'a', hl.owner(1)) AS held_on;
-- Nothing is written, and the provider is not asked: not even one that there is not.
SELECT count(*) FROM hloom_leases WHERE namespace = 'disabled';
UPDATE hloom_namespaces SET provider = 'nobody' WHERE namespace = 'disabled';
SELECT count(*) FROM hloom_try_acquire('disabled', 'a');
-- item 100: the action runs.
SELECT hloom_execute_with_lock('disabled', 'a', 'SELECT generate_series(1, 3)') AS rows;
SELECT * FROM hloom_query_with_lock('disabled', 'a', 'SELECT $1::int + 1', '{41}') AS t(n int);
SELECT hl.error($$SELECT hloom_execute_with_lock('disabled', 'a', 'SELECT 1 / 0')$$);
-- No key is locked in it: it may be nested.
SELECT hloom_execute_with_lock('disabled', 'a',
	$$SELECT hloom_execute_with_lock('disabled', 'a', 'SELECT 1')$$) AS nested;
SELECT part, value, decided_by FROM hloom_describe('disabled') WHERE part IN ('provider', 'enabled');

-- item 102: what is wrong with a call is wrong all the same.
SELECT call, hl.state('SELECT * FROM ' || call) FROM unnest(ARRAY[
	$$hloom_try_acquire('disabled', 'a b')$$, $$hloom_try_acquire('disabled', '')$$,
	$$hloom_try_acquire('disabled', NULL)$$, $$hloom_try_acquire('disabled', repeat('k', 513))$$,
	$$hloom_acquire('disabled', 'a', '-1 s')$$, $$hloom_release('disabled', 'a', NULL::uuid)$$,
	$$hloom_extend('disabled', 'a', hl.owner(1), '0')$$,
	$$hloom_execute_with_lock('disabled', 'a b', 'SELECT 1')$$,
	$$hloom_execute_with_lock('disabled', 'a', '')$$,
	$$hloom_execute_with_lock('disabled', 'a', 'SELECT $1')$$]) AS call;
CREATE ROLE regress_hloom_disabled;
CREATE ROLE regress_hloom_disabled_user;
GRANT USAGE ON SCHEMA hl TO regress_hloom_disabled_user;
SELECT role FROM hloom_configure('disabled', role => 'regress_hloom_disabled', reset => '{provider}');
SET ROLE regress_hloom_disabled_user;
SELECT hl.state($$SELECT * FROM hloom_try_acquire('disabled', 'a')$$),
	hl.state($$SELECT hloom_is_coordinated('disabled')$$);
RESET ROLE;

-- Switched on again, a placeholder stays what it was, and others take the lock for real.
DO $$
DECLARE
	h hloom_handle;
	real hloom_handle;
BEGIN
	h := hloom_try_acquire('disabled', 'a');
	PERFORM hloom_configure('disabled', enabled => true);
	real := hloom_try_acquire('disabled', 'a');
	RAISE NOTICE 'placeholder: held %, extended %, released %, held %', hloom_is_held(h),
		hloom_extend(h, '1 min'), hloom_release(h), hloom_is_held(h);
	RAISE NOTICE 'real: coordinated %, held %', real.is_coordinated, hloom_is_held(real);
	RAISE NOTICE 'by its token the placeholder is nobody: %',
		hloom_is_held(h.namespace, h.key, h.owner);
	RAISE NOTICE 'released %', hloom_release(real);
END $$;
SELECT hloom_unconfigure('disabled');

-- Everything at once, by the setting of a superuser; a namespace may decide otherwise.
SET hloom_lock.enabled = off;
SELECT hloom_is_coordinated('disabled') AS by_setting;
SELECT is_coordinated FROM hloom_try_acquire('disabled', 'a');
SELECT enabled FROM hloom_configure('disabled', enabled => true);
SELECT is_coordinated FROM hloom_try_acquire('disabled', 'a', owner => hl.owner(1));
SELECT hloom_release('disabled', 'a', hl.owner(1));
SELECT hloom_unconfigure('disabled');
SET ROLE regress_hloom_disabled_user;
SELECT hl.state('SET hloom_lock.enabled = on');
RESET ROLE;
RESET hloom_lock.enabled;

REVOKE USAGE ON SCHEMA hl FROM regress_hloom_disabled_user;
DROP ROLE regress_hloom_disabled;
DROP ROLE regress_hloom_disabled_user;
SELECT count(*) FROM hloom_leases WHERE namespace LIKE 'disabled%';
DROP SCHEMA disabled;
