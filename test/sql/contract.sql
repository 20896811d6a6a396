-- Transactions and the leases of each provider, above all commits that depend on one: the same steps
-- with each, written once.  The rest of what they promise is in test/pgtap/contract.sql.
CREATE SCHEMA contract;
SET search_path = contract, public;
CREATE EXTENSION hloom_test SCHEMA contract;
\set VERBOSITY terse
CREATE TABLE written (provider text, n int);
CREATE VIEW commits AS SELECT operation, split_part(key, ':', 3) AS key, result
	FROM hloom_test_calls() WHERE operation LIKE 'commit%';
CREATE FUNCTION take(ns text, key text) RETURNS boolean LANGUAGE sql AS $$
	SELECT count(*) = 1 FROM hloom_try_acquire(ns, key, '1 min', max_wait => '0',
		owner => hl.owner(1))
$$;
CREATE FUNCTION outlast(ns text, key text) RETURNS boolean LANGUAGE plpgsql
SET statement_timeout = '60s' AS $$
BEGIN
	WHILE hloom_is_held(ns, key, hl.owner(1)) LOOP
		PERFORM pg_sleep(0.001);
	END LOOP;
	RETURN true;
END $$;
CREATE TABLE provider AS SELECT unnest(ARRAY['table', 'memory', 'test']) AS name;
CREATE TABLE step (id serial, statement text);
SELECT p.name, provider FROM provider p,
	LATERAL hloom_configure('contract-' || p.name, provider => p.name);

-- {ns} is the provider's namespace, {p} the provider.
\copy step (statement) FROM stdin
SELECT 'COMMIT of a held lease' AS "{p}", take('{ns}', 'a'), take('{ns}', 'b')
BEGIN
SELECT hloom_guard('{ns}', 'a', hl.owner(1))
INSERT INTO written VALUES ('{p}', 1)
COMMIT
TABLE commits
SELECT 'ROLLBACK' AS "{p}"
BEGIN
SELECT hloom_guard('{ns}', 'a', hl.owner(1))
INSERT INTO written VALUES ('{p}', -1)
ROLLBACK
TABLE commits
SELECT 'taken away before COMMIT' AS "{p}"
BEGIN
SELECT hloom_guard('{ns}', 'a', hl.owner(1))
INSERT INTO written VALUES ('{p}', -2)
SELECT hloom_force_release('{ns}', 'a', 'test')
COMMIT
TABLE commits
SELECT 'released and taken again' AS "{p}", take('{ns}', 'a')
BEGIN
SELECT hloom_guard('{ns}', 'a', hl.owner(1))
INSERT INTO written VALUES ('{p}', -3)
SELECT hloom_release('{ns}', 'a', hl.owner(1)), take('{ns}', 'a')
COMMIT
TABLE commits
SELECT 'ended before COMMIT' AS "{p}"
BEGIN
SELECT hloom_guard('{ns}', 'a', hl.owner(1))
INSERT INTO written VALUES ('{p}', -4)
SELECT hloom_extend('{ns}', 'a', hl.owner(1), '10 ms'), outlast('{ns}', 'a')
COMMIT
TABLE commits
SELECT 'the second guard fails' AS "{p}", take('{ns}', 'a')
BEGIN
SELECT hloom_guard('{ns}', 'b', hl.owner(1)), hloom_guard('{ns}', 'a', hl.owner(1))
INSERT INTO written VALUES ('{p}', -5)
SELECT hloom_force_release('{ns}', 'a', 'test')
COMMIT
TABLE commits
SELECT 'the first can be taken away again, so its commit has ended' AS "{p}", hloom_force_release('{ns}', 'b', 'test')
SELECT 'two guards, one of them twice' AS "{p}", take('{ns}', 'a'), take('{ns}', 'b')
BEGIN
SELECT hloom_guard('{ns}', 'a', hl.owner(1)), hloom_guard('{ns}', 'b', hl.owner(1)), hloom_guard('{ns}', 'a', hl.owner(1))
INSERT INTO written VALUES ('{p}', 2)
COMMIT
TABLE commits
SELECT 'a guard of a subtransaction that is rolled back' AS "{p}"
BEGIN
SAVEPOINT s
SELECT hloom_guard('{ns}', 'a', hl.owner(1)), hloom_release('{ns}', 'a', hl.owner(1))
ROLLBACK TO s
INSERT INTO written VALUES ('{p}', 3)
COMMIT
TABLE commits
SELECT 'and of one that is kept' AS "{p}", take('{ns}', 'a')
BEGIN
SAVEPOINT s
SELECT hloom_guard('{ns}', 'a', hl.owner(1))
RELEASE s
INSERT INTO written VALUES ('{p}', 4)
COMMIT
TABLE commits
SELECT 'PREPARE TRANSACTION' AS "{p}"
BEGIN
SELECT hloom_guard('{ns}', 'a', hl.owner(1))
PREPARE TRANSACTION 'contract'
TABLE commits
SELECT 'an action under a lease' AS "{p}", hloom_execute_with_lock('{ns}', 'x', 'INSERT INTO written VALUES (''{p}'', 5)')
SELECT 'is free after it' AS "{p}", take('{ns}', 'x'), hloom_release('{ns}', 'x', hl.owner(1))
SELECT hloom_execute_with_lock('{ns}', 'x', 'INSERT INTO written VALUES (''{p}'', 1 / 0)')
SELECT 'and after its error' AS "{p}", take('{ns}', 'x'), hloom_release('{ns}', 'x', hl.owner(1))
SELECT 'afterwards' AS "{p}", hloom_release('{ns}', 'a', hl.owner(1)), hloom_release('{ns}', 'b', hl.owner(1))
\.
SELECT replace(replace(statement, '{ns}', 'contract-' || name), '{p}', name)
FROM provider, step ORDER BY name, id \gexec
SELECT n, string_agg(provider, ', ' ORDER BY provider) AS providers FROM written GROUP BY n ORDER BY n;
SELECT count(*) FROM hloom_locks WHERE namespace LIKE 'contract-%';

-- The provider fails at the commit: that is its error, and nothing is written.
\set VERBOSITY sqlstate
TRUNCATE written;
SELECT take('contract-test', 'a');
BEGIN;
SELECT hloom_guard('contract-test', 'a', hl.owner(1));
INSERT INTO written VALUES ('test', 1);
SELECT hloom_test_fail('other');
COMMIT;
TABLE commits;
-- One of another kind is LL004.
BEGIN;
SELECT hloom_guard('contract-test', 'a', hl.owner(1));
INSERT INTO written VALUES ('test', 1);
SELECT hloom_test_fail('foreign');
COMMIT;
TABLE commits;
BEGIN;
SELECT hloom_guard('contract-test', 'a', hl.owner(1));
INSERT INTO written VALUES ('test', 2);
SELECT hloom_test_fail('reply-timeout');
COMMIT;
TABLE commits;
-- Nor does the transaction depend on a provider that fails to tell of the lease.
BEGIN;
SELECT hloom_test_fail('reply-unavailable');
SELECT hloom_guard('contract-test', 'a', hl.owner(1));
COMMIT;
TABLE commits;
-- One transaction, two providers: the commit that has begun at one ends when the other's lease is
-- lost, and the other way round.
SELECT take('contract-table', 'a');
BEGIN;
SELECT hloom_guard('contract-test', 'a', hl.owner(1)), hloom_guard('contract-table', 'a', hl.owner(1));
INSERT INTO written VALUES ('both', 1);
SELECT hloom_force_release('contract-table', 'a', 'test');
COMMIT;
TABLE commits;
SELECT take('contract-table', 'a');
BEGIN;
SELECT hloom_guard('contract-table', 'a', hl.owner(1)), hloom_guard('contract-test', 'a', hl.owner(1));
INSERT INTO written VALUES ('both', 2);
SELECT hloom_test_free('contract-test:lock:a');
COMMIT;
TABLE commits;
SELECT hloom_force_release('contract-table', 'a', 'test');
TABLE written;
\set VERBOSITY default

SELECT hloom_unconfigure('contract-' || name) FROM provider ORDER BY name;
SET client_min_messages = warning;
DROP SCHEMA contract CASCADE;
