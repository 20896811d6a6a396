-- What a call answers, and warns of, while the table is locked by somebody else: by this session,
-- for a second one, since a warning cannot be caught and its DETAIL tells how long the call waited.
SELECT current_database() AS db \gset
\setenv PGDATABASE :db
-- The one is a bound of the call, the other ends a call that has none.
\setenv PGOPTIONS '-c lock_timeout=100ms -c statement_timeout=20s'
SELECT key FROM hloom_try_acquire('warnings', 'a', '4 min', owner => hl.owner(1));
BEGIN;
LOCK TABLE hloom_leases IN ACCESS EXCLUSIVE MODE;
-- Not known whether it was given back.
\! psql -X -q -v VERBOSITY=terse -P null=NULL -c "SELECT hloom_release('warnings', 'a', hl.owner(1))"
-- Not extended; that is not a loss.
\! psql -X -q -v VERBOSITY=terse -c "SELECT hloom_extend('warnings', 'a', hl.owner(1), '1 min')"
\! psql -X -q -v VERBOSITY=sqlstate -c "SELECT hloom_extend('warnings', 'a', hl.owner(1), '1 min')"
-- Nothing to warn of where there is an error.
\! psql -X -q -v VERBOSITY=terse -c "SELECT hloom_is_held('warnings', 'a', hl.owner(1))"
COMMIT;
SELECT hloom_is_held('warnings', 'a', hl.owner(1)) AS held, lease FROM hloom_leases WHERE key = 'a';
TRUNCATE hloom_leases;
