-- A lease can be taken away from its holder, by who is allowed to.
SELECT hloom_force_release('force', 'k', 'nobody holds it');
SELECT fence AS fence1 FROM hloom_try_acquire('force', 'k', owner => hl.owner(1)) \gset
SELECT hloom_force_release('force', 'k', 'test');
SELECT hloom_is_held('force', 'k', hl.owner(1)), hloom_release('force', 'k', hl.owner(1)),
	hloom_extend('force', 'k', hl.owner(1)), hloom_force_release('force', 'k', 'again');
SELECT fence > :fence1 AS higher FROM hloom_try_acquire('force', 'k', owner => hl.owner(2));
SELECT hloom_force_release('force', 'k', 'test');
SELECT outcome, value FROM hloom_metrics
	WHERE namespace = 'force' AND name LIKE '%lost%' AND value > 0;
-- Who holds one that follows something is told.
SELECT scope, (SELECT count(*) FROM hloom_try_acquire('force', scope, scope => scope)) AS taken,
	hloom_force_release('force', scope, 'test'), (SELECT count(*) FROM hloom_try_acquire('force', scope))
FROM unnest(ARRAY['session', 'transaction', 'lease']) AS scope;
-- Arguments
SELECT hl.error($$SELECT hloom_force_release('force', 'k', NULL)$$);
SELECT hl.error($$SELECT hloom_force_release('force', NULL, 'test')$$);
SELECT hl.error($$SELECT hloom_force_release('Force', 'k', 'test')$$);
BEGIN READ ONLY;
SELECT hl.error($$SELECT hloom_force_release('force', 'k', 'test')$$);
COMMIT;
CREATE ROLE hloom_regress_force;
SET ROLE hloom_regress_force;
SELECT hloom_force_release('force', 'k', 'test');
RESET ROLE;
GRANT EXECUTE ON FUNCTION hloom_force_release(text, text, text) TO hloom_regress_force;
SET ROLE hloom_regress_force;
SELECT hloom_force_release('force', 'k', 'test');
RESET ROLE;
REVOKE EXECUTE ON FUNCTION hloom_force_release(text, text, text) FROM hloom_regress_force;
DROP ROLE hloom_regress_force;
SELECT hloom_release_session() AS left;
TRUNCATE hloom_leases;
