-- What the lock promises of every provider, asked of each by the same checks.  Each theme is a
-- function that takes the provider's name; what only the test provider can be told to do is last.
CREATE EXTENSION hloom_test;
LOAD 'hloom_test';
CREATE TEMP TABLE provider AS SELECT unnest(ARRAY['table', 'memory', 'test']) AS name;

-- No lease can be taken in the transaction that changes the provider.
DO $$ BEGIN
	PERFORM hloom_configure(ns, provider => name)
	FROM provider, unnest(ARRAY['contract-' || name, 'contract-other-' || name]) AS ns;
END $$;

BEGIN;
SELECT no_plan();
CREATE TEMP TABLE ran (provider text, held boolean);

-- Somebody, told apart by a number.
CREATE FUNCTION who(n int) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$
	SELECT ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid
$$;
-- One attempt: the fence, or NULL when it is refused.
CREATE FUNCTION take(ns text, key text, n int, lease interval DEFAULT '1 min') RETURNS bigint
LANGUAGE sql AS $$
	SELECT fence FROM hloom_try_acquire(ns, key, lease, max_wait => '0', owner => who(n))
$$;
CREATE FUNCTION held(ns text, key text, n int) RETURNS boolean LANGUAGE sql AS $$
	SELECT hloom_is_held(ns, key, who(n))
$$;
-- The error a statement must raise.
CREATE FUNCTION failure(statement text, OUT state text, OUT message text, OUT detail jsonb)
LANGUAGE plpgsql AS $$
DECLARE
	line text;
BEGIN
	EXECUTE statement;
	state := 'none';
EXCEPTION WHEN OTHERS THEN
	GET STACKED DIAGNOSTICS line = PG_EXCEPTION_DETAIL;
	state := SQLSTATE;
	message := SQLERRM;
	detail := CASE WHEN line LIKE '{%' THEN line::jsonb END;
END $$;
-- Returns when the lease is over.
CREATE FUNCTION outlast(ns text, key text, n int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	enough timestamptz := clock_timestamp() + '60 s';
BEGIN
	WHILE held(ns, key, n) AND clock_timestamp() < enough LOOP
		PERFORM pg_sleep(0.001);
	END LOOP;
END $$;

CREATE FUNCTION contract_acquire(p text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	ns text := 'contract-' || p;
	first hloom_handle;
	again hloom_handle;
	remaining interval;
	long text := repeat('k', 511);
	wide text := repeat('é€𝄞', 170);
BEGIN
	SELECT * INTO first FROM hloom_try_acquire(ns, 'a', '10 s', owner => who(1));
	RETURN NEXT ok(first.fence > 0, p || ': a free key is granted');
	RETURN NEXT is(first.owner, who(1), p || ': to its owner');
	RETURN NEXT is(first.lease, '10 s'::interval, p || ': with its lease');

	remaining := hloom_remaining(ns, 'a', who(1));
	RETURN NEXT is(take(ns, 'a', 2), NULL, p || ': a held key is refused to another owner');
	RETURN NEXT ok(held(ns, 'a', 1), p || ': whose call takes nothing from the holder');
	RETURN NEXT cmp_ok(hloom_remaining(ns, 'a', who(1)), '<=', remaining,
		p || ': and does not move the end');

	SELECT * INTO again FROM hloom_try_acquire(ns, 'a', '1 min', owner => who(1));
	RETURN NEXT is(again.fence, first.fence, p || ': the same owner gets the same fence again');
	RETURN NEXT cmp_ok(hloom_remaining(ns, 'a', who(1)), '>', '30 s'::interval,
		p || ': and a renewed lease');
	SELECT * INTO again FROM hloom_try_acquire(ns, 'a', '5 s', owner => who(1));
	RETURN NEXT cmp_ok(hloom_remaining(ns, 'a', who(1)), '<=', '5 s'::interval,
		p || ': which may be shorter');

	PERFORM hloom_release(ns, 'a', who(1));
	RETURN NEXT cmp_ok(take(ns, 'a', 2), '>', first.fence, p || ': a new grant has a greater fence');
	PERFORM hloom_release(ns, 'a', who(2));
	RETURN NEXT cmp_ok(take(ns, 'a', 2), '>', first.fence + 1,
		p || ': also one to the owner who has released it');

	RETURN NEXT ok(take(ns, 'b', 1) > 0, p || ': another key is another lock');
	RETURN NEXT ok(take('contract-other-' || p, 'a', 3) > 0, p || ': as in another namespace');
	RETURN NEXT ok(take(ns, 'A', 3) > 0, p || ': a key''s case matters');
	RETURN NEXT ok(take(ns, 'a:', 3) > 0, p || ': the start of a key is not the key');
	RETURN NEXT ok(held(ns, 'a', 2) AND held(ns, 'b', 1), p || ': all held at once');
	PERFORM hloom_release(ns, key, who(n)) FROM (VALUES ('a', 2), ('b', 1), ('A', 3), ('a:', 3))
		AS v(key, n);
	PERFORM hloom_release('contract-other-' || p, 'a', who(3));

	RETURN NEXT ok(take(ns, long || '1', 1) > 0 AND take(ns, long || '2', 2) > 0,
		p || ': keys of 512 characters differ in the last one');
	RETURN NEXT is(take(ns, long || '1', 2), NULL, p || ': and are refused like others');
	RETURN NEXT ok(take(ns, wide || 'é', 1) > 0 AND take(ns, wide || '€', 2) > 0,
		p || ': so do keys of wide characters');
	RETURN NEXT is(take(ns, wide || '€', 1), NULL, p || ': which are refused like others');
	RETURN NEXT ok(hloom_release(ns, long || '1', who(1)) AND hloom_release(ns, long || '2', who(2))
		AND hloom_release(ns, wide || 'é', who(1)) AND hloom_release(ns, wide || '€', who(2)),
		p || ': all of them are given back');
END $$;

CREATE FUNCTION contract_release(p text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	ns text := 'contract-' || p;
BEGIN
	RETURN NEXT is(hloom_release(ns, 'absent', who(1)), false,
		p || ': release of an absent key is false');
	PERFORM take(ns, 'a', 1);
	RETURN NEXT is(hloom_release(ns, 'a', who(2)), false, p || ': by another owner is false');
	RETURN NEXT ok(held(ns, 'a', 1), p || ': and takes nothing away');
	RETURN NEXT is(hloom_release(ns, 'a', who(1)), true, p || ': by its owner is true');
	RETURN NEXT is(held(ns, 'a', 1), false, p || ': and it is not held any more');
	RETURN NEXT is(hloom_release(ns, 'a', who(1)), false, p || ': a second time is false');
	RETURN NEXT ok(take(ns, 'a', 2) > 0, p || ': a released key is free');
	RETURN NEXT is(hloom_release(ns, 'a', who(1)), false,
		p || ': whoever had it before does not release it');
	RETURN NEXT ok(hloom_release(ns, 'a', who(2)), p || ': its owner still can');
END $$;

CREATE FUNCTION contract_extend(p text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	ns text := 'contract-' || p;
	fence bigint := take(ns, 'a', 1, '10 s');
BEGIN
	RETURN NEXT is(hloom_extend(ns, 'a', who(1), '2 min'), true, p || ': extend by the owner is true');
	RETURN NEXT cmp_ok(hloom_remaining(ns, 'a', who(1)), '>', '1 min'::interval,
		p || ': and moves the end');
	RETURN NEXT ok(hloom_extend(ns, 'a', who(1), '20 s'), p || ': also to an earlier one');
	RETURN NEXT cmp_ok(hloom_remaining(ns, 'a', who(1)), '<=', '20 s'::interval,
		p || ': which then is the end');
	RETURN NEXT ok(hloom_extend(ns, 'a', who(1), '1 min') AND hloom_extend(ns, 'a', who(1)),
		p || ': without a lease is true');
	RETURN NEXT ok(hloom_remaining(ns, 'a', who(1)) BETWEEN '30 s' AND '1 min',
		p || ': and means the lease last granted');
	RETURN NEXT ok(hloom_extend(ns, 'a', who(1), '4 min'), p || ': a lease is not added');
	RETURN NEXT cmp_ok(hloom_remaining(ns, 'a', who(1)), '<=', '4 min'::interval,
		p || ': to what remained');
	RETURN NEXT is(hloom_extend(ns, 'a', who(2), '1 s'), false, p || ': by another owner is false');
	RETURN NEXT cmp_ok(hloom_remaining(ns, 'a', who(1)), '>', '3 min'::interval,
		p || ': and moves nothing');
	RETURN NEXT is(take(ns, 'a', 1), fence, p || ': the fence stays');
	RETURN NEXT is(hloom_extend(ns, 'absent', who(1), '1 min'), false,
		p || ': of an absent key is false');
	RETURN NEXT is(held(ns, 'absent', 1), false, p || ': and grants nothing');
	PERFORM hloom_release(ns, 'a', who(1));
	RETURN NEXT is(hloom_extend(ns, 'a', who(1), '1 min'), false, p || ': after a release is false');
	RETURN NEXT ok(take(ns, 'a', 2) > 0, p || ': and the key stays free');
	PERFORM hloom_release(ns, 'a', who(2));
END $$;

CREATE FUNCTION contract_expiry(p text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	ns text := 'contract-' || p;
	enough timestamptz := clock_timestamp() + '60 s';
	early int := 0;
	first hloom_handle;
	fence bigint;
BEGIN
	-- A key is taken at its end and never before it, by whoever asks again and again.
	FOR ms IN 1..50 BY 7 LOOP
		SELECT * INTO first
		FROM hloom_try_acquire(ns, 'e' || ms, make_interval(secs => ms / 1000.0), owner => who(1));
		LOOP
			fence := take(ns, 'e' || ms, 2);
			EXIT WHEN fence IS NOT NULL OR clock_timestamp() > enough;
		END LOOP;
		early := early + (clock_timestamp() < first.lease_end)::int;
		CONTINUE WHEN fence > first.fence;
		RETURN NEXT fail(p || ': a lease of ' || ms || ' ms ends');
	END LOOP;
	RETURN NEXT is(early, 0, p || ': expired leases are taken over, at their end and not before');
	RETURN NEXT is((SELECT count(*) FROM generate_series(1, 50, 7) AS ms
		WHERE hloom_release(ns, 'e' || ms, who(1))), 0::bigint,
		p || ': a stale owner does not evict the new one');
	RETURN NEXT is((SELECT count(*) FROM generate_series(1, 50, 7) AS ms
		WHERE hloom_release(ns, 'e' || ms, who(2))), 8::bigint, p || ': who holds the key');

	fence := take(ns, 'a', 1, '20 ms');
	PERFORM outlast(ns, 'a', 1);
	RETURN NEXT is(held(ns, 'a', 1), false, p || ': a lease is not held after its end');
	RETURN NEXT is(hloom_remaining(ns, 'a', who(1)), NULL, p || ': nothing of it remains');
	RETURN NEXT is(hloom_extend(ns, 'a', who(1), '1 min'), false, p || ': it is not extended');
	RETURN NEXT is(held(ns, 'a', 1), false, p || ': nor revived by trying');
	RETURN NEXT is(hloom_release(ns, 'a', who(1)), false, p || ': nor released');
	RETURN NEXT cmp_ok(take(ns, 'a', 1), '>', fence,
		p || ': its owner of before gets a new grant, with a greater fence');
	PERFORM hloom_extend(ns, 'a', who(1), '10 ms'), outlast(ns, 'a', 1);
	RETURN NEXT ok(take(ns, 'a', 2) > 0, p || ': an end that was brought forward is one');
	PERFORM hloom_release(ns, 'a', who(2));
	-- Not in the way of a change of the provider, which asks how many there are.
	PERFORM take(ns, 'a', 1, '10 ms'), outlast(ns, 'a', 1);
	RETURN NEXT lives_ok(format('SELECT hloom_configure(%L, provider => %L),
		hloom_configure(%L, provider => %L)', ns, CASE p WHEN 'table' THEN 'test' ELSE 'table' END,
		ns, p), p || ': ended leases are not counted');
	PERFORM take(ns, 'a', 1);
	RETURN NEXT throws_ok(format('SELECT hloom_configure(%L, provider => %L)', ns,
		CASE p WHEN 'table' THEN 'test' ELSE 'table' END), '55006', NULL, p || ': one that is held is');
	PERFORM hloom_release(ns, 'a', who(1));
END $$;

CREATE FUNCTION contract_looking(p text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	ns text := 'contract-' || p;
	granted bigint := take(ns, 'a', 1, '1 min');
BEGIN
	RETURN NEXT is(held(ns, 'a', 1), true, p || ': the owner holds it');
	RETURN NEXT is(held(ns, 'a', 2), false, p || ': another does not');
	RETURN NEXT is(held(ns, 'absent', 1), false, p || ': nobody holds an absent key');
	RETURN NEXT ok(hloom_remaining(ns, 'a', who(1)) BETWEEN '1 s' AND '1 min',
		p || ': what remains of a lease is at most the lease');
	RETURN NEXT is(hloom_remaining(ns, 'a', who(2)), NULL, p || ': to another nothing remains');
	RETURN NEXT is(hloom_remaining(ns, 'absent', who(1)), NULL, p || ': nor of an absent key');
	RETURN NEXT is((SELECT concat_ws(' ', key, fence, state, holder, holder_pid) FROM hloom_locks
		WHERE namespace = ns), concat_ws(' ', 'a', granted, 'held', current_user, pg_backend_pid()),
		p || ': hloom_locks shows it, with its fence and holder');
	RETURN NEXT ok((SELECT remaining BETWEEN '1 s' AND '1 min' AND held_for >= '0'
		FROM hloom_locks WHERE namespace = ns), p || ': its age and what remains');
	PERFORM hloom_release(ns, 'a', who(1));
	RETURN NEXT is_empty(format('SELECT FROM hloom_locks WHERE namespace = %L', ns),
		p || ': and not after its release');
	PERFORM take(ns, 'a', 1, '10 ms'), outlast(ns, 'a', 1);
	RETURN NEXT is_empty(format('SELECT FROM hloom_locks WHERE namespace = %L', ns),
		p || ': nor after its end');
	RETURN NEXT ok((SELECT healthy AND provider = p AND detail <> '' AND latency >= '0'
		FROM hloom_health(ns)), p || ': hloom_health finds the provider well');
END $$;

CREATE FUNCTION contract_busy(p text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	ns text := 'contract-' || p;
	fence bigint := take(ns, 'a', 1, '1 min');
	f record;
BEGIN
	f := failure(format($f$SELECT * FROM hloom_acquire(%L, 'a', max_wait => '0', owner => who(2))$f$,
		ns));
	RETURN NEXT is(f.state, '55P03', p || ': a busy key is lock_not_available');
	RETURN NEXT is(f.detail ->> 'key', 'a', p || ': its DETAIL has the key');
	RETURN NEXT is(f.detail ->> 'namespace', ns, p || ': the namespace');
	RETURN NEXT is(f.detail ->> 'attempts', '1', p || ': one attempt with max_wait 0');
	RETURN NEXT ok((f.detail ->> 'waited_ms')::float >= 0, p || ': the time waited');
	RETURN NEXT ok((f.detail ->> 'holder_until')::timestamptz > now(),
		p || ': and until when it is held');
	RETURN NEXT ok(f::text !~ '00000000-0000-4000', p || ': and nobody''s owner token');
	f := failure(format($f$SELECT * FROM hloom_acquire(%L, 'a', owner => who(2),
		retry => hloom_retry_immediate(3))$f$, ns));
	RETURN NEXT is(f.state || ' ' || (f.detail ->> 'attempts'), '55P03 4',
		p || ': three retries make four attempts');
	RETURN NEXT is_empty(format($f$SELECT FROM hloom_try_acquire(%L, 'a', owner => who(2),
		retry => hloom_retry_immediate(2))$f$, ns), p || ': hloom_try_acquire gives no row');
	RETURN NEXT is_empty(format($f$SELECT FROM hloom_try_acquire(%L, 'a', owner => who(2),
		max_wait => '20 ms', retry => hloom_retry_interval(1000, '5 ms'))$f$, ns),
		p || ': nor does it when max_wait is over');
	RETURN NEXT is(take(ns, 'a', 1), fence, p || ': and the holder keeps its grant');
	PERFORM hloom_release(ns, 'a', who(1));
END $$;

-- Of a scope that every provider has; what is given back at the end of the transaction is in the
-- regress test.
CREATE FUNCTION contract_execute(p text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	ns text := 'contract-' || p;
	f record;
BEGIN
	RETURN NEXT is(hloom_execute_with_lock(ns, 'x',
		format('INSERT INTO ran SELECT %L, held(%L, ''x'', 1)', p, ns),
		scope => 'lease', owner => who(1)), 1::bigint, p || ': an action runs');
	RETURN NEXT results_eq(format('SELECT held FROM ran WHERE provider = %L', p), 'VALUES (true)',
		p || ': under its lease');
	RETURN NEXT is(held(ns, 'x', 1), false, p || ': which is given back after it');
	f := failure(format($f$SELECT hloom_execute_with_lock(%L, 'x', 'SELECT 1 / 0', scope => 'lease',
		owner => who(1))$f$, ns));
	RETURN NEXT is(f.state || ' ' || f.message, '22012 division by zero',
		p || ': an action''s error is its own');
	RETURN NEXT is(held(ns, 'x', 1), false, p || ': and the lease is given back');
	RETURN NEXT ok(take(ns, 'x', 2) > 0, p || ': the key is free');
	f := failure(format($f$SELECT hloom_execute_with_lock(%L, 'x',
		'INSERT INTO ran VALUES (NULL, NULL)', max_wait => '0', scope => 'lease',
		owner => who(1))$f$, ns));
	RETURN NEXT is(f.state, '55P03', p || ': busy, it is lock_not_available');
	RETURN NEXT is_empty('SELECT FROM ran WHERE provider IS NULL', p || ': and nothing ran');
	PERFORM hloom_release(ns, 'x', who(2));
END $$;

CREATE FUNCTION contract_force(p text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	ns text := 'contract-' || p;
	fence bigint := take(ns, 'a', 1);
BEGIN
	RETURN NEXT is(hloom_force_release(ns, 'a', 'test'), true, p || ': a held lease is taken away');
	RETURN NEXT is(held(ns, 'a', 1), false, p || ': its holder does not hold it any more');
	RETURN NEXT is(hloom_extend(ns, 'a', who(1), '1 min'), false, p || ': nor extends it');
	RETURN NEXT is(hloom_release(ns, 'a', who(1)), false, p || ': nor releases it');
	RETURN NEXT is(hloom_force_release(ns, 'a', 'test'), false, p || ': there is no second one');
	RETURN NEXT is(hloom_force_release(ns, 'absent', 'test'), false, p || ': nor of an absent key');
	RETURN NEXT cmp_ok(take(ns, 'a', 2), '>', fence, p || ': the next grant has a greater fence');
	PERFORM hloom_release(ns, 'a', who(2));
END $$;

-- The commits themselves are in the regress test of this name.
CREATE FUNCTION contract_guard(p text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	ns text := 'contract-' || p;
BEGIN
	RETURN NEXT throws_ok(format('SELECT hloom_guard(%L, ''g'', who(1))', ns), 'LL010', NULL,
		p || ': no guard without a lease');
	PERFORM take(ns, 'g', 1);
	RETURN NEXT is(hloom_guard(ns, 'g', who(1)), true, p || ': a held lease can be a guard');
	RETURN NEXT throws_ok(format('SELECT hloom_guard(%L, ''g'', who(2))', ns), 'LL010', NULL,
		p || ': another owner''s cannot');
	PERFORM hloom_release(ns, 'g', who(1));
	RETURN NEXT throws_ok(format('SELECT hloom_guard(%L, ''g'', who(1))', ns), 'LL010', NULL,
		p || ': nor can a released one');
END $$;

CREATE FUNCTION lost_so_far(ns text) RETURNS float8 LANGUAGE sql AS $$
	SELECT value FROM hloom_metrics WHERE namespace = ns AND name = 'hostloom_lock_lost'
$$;
-- Which attempts are followed by a clean-up release, and what is held then.
CREATE FUNCTION outcome(kind text, applies boolean, OUT state text, OUT attempts bigint,
	OUT releases bigint, OUT left_over bigint) LANGUAGE plpgsql AS $$
DECLARE
	lease text := CASE kind WHEN 'late' THEN '30 ms' ELSE '1 min' END;
BEGIN
	PERFORM hloom_test_calls();
	IF kind = 'refused' THEN
		PERFORM hloom_test_hold('contract-test:lock:o');
	ELSIF kind = 'late' THEN
		PERFORM hloom_test_delay('50 ms', deaf => true);
	ELSIF kind <> 'granted' THEN
		PERFORM hloom_test_fail(kind, 1, applies, true);
	END IF;
	SELECT f.state INTO state FROM failure(format($f$SELECT * FROM hloom_acquire('contract-test', 'o',
		%L, retry => hloom_retry_immediate(%s))$f$, lease, CASE kind WHEN 'refused' THEN 0 ELSE 5 END)) f;
	PERFORM hloom_test_fail('none'), hloom_test_delay('0');
	SELECT count(*) FILTER (WHERE operation = 'acquire'),
		count(*) FILTER (WHERE operation = 'release')
	INTO attempts, releases FROM hloom_test_calls();
	left_over := hloom_test_held();
	PERFORM hloom_test_free('contract-test:lock:o');
END $$;
CREATE FUNCTION contract_outcomes() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
	e record;
	lost float8;
BEGIN
	FOR e IN VALUES ('granted', false, 'none', 0, 1), ('refused', false, '55P03', 0, 1),
		('late', false, 'LL003', 1, 0),
		('unavailable', false, 'LL002', 0, 0), ('unavailable', true, 'LL002', 0, 1),
		('timeout', false, 'LL003', 1, 0), ('timeout', true, 'LL003', 1, 0),
		('other', false, 'LL004', 1, 0), ('other', true, 'LL004', 1, 0),
		('foreign', false, 'LL004', 1, 0), ('foreign', true, 'LL004', 1, 0),
		('reply-unavailable', false, 'LL002', 0, 0), ('reply-unavailable', true, 'LL002', 0, 1),
		('reply-timeout', false, 'LL003', 1, 0), ('reply-timeout', true, 'LL003', 1, 0),
		('reply-other', false, 'LL004', 1, 0), ('reply-other', true, 'LL004', 1, 0)
	LOOP
		RETURN NEXT results_eq(format('SELECT * FROM outcome(%L, %L)', e.column1, e.column2),
			format('VALUES (%L, 1::bigint, %s::bigint, %s::bigint)', e.column3, e.column4, e.column5),
			format('test: %s%s: %s, %s clean-up releases, %s left', e.column1,
				CASE WHEN e.column2 THEN ' after it took effect' ELSE '' END, e.column3, e.column4,
				e.column5));
	END LOOP;
	RETURN NEXT ok(take('contract-test', 'o', 1) > 0, 'test: healed, the next call succeeds');
	PERFORM hloom_test_fail('other');
	RETURN NEXT results_eq($f$SELECT healthy FROM hloom_health('contract-test')$f$, 'VALUES (false)',
		'test: hloom_health tells that it fails');

	SET LOCAL client_min_messages = error;
	PERFORM hloom_test_fail('none'), hloom_extend('contract-test', 'o', who(1), '4 min');
	PERFORM hloom_test_fail('other');
	RETURN NEXT is(hloom_extend('contract-test', 'o', who(1), '1 s'), false,
		'test: an extend that fails is false');
	RETURN NEXT cmp_ok(hloom_remaining('contract-test', 'o', who(1)), '>', '3 min'::interval,
		'test: and leaves the end');
	lost := lost_so_far('contract-test');
	PERFORM hloom_test_fail('other');
	RETURN NEXT is(hloom_release('contract-test', 'o', who(1)), NULL,
		'test: a release that fails is NULL');
	RETURN NEXT is(lost_so_far('contract-test'), lost, 'test: and no loss');
	RETURN NEXT ok(hloom_release('contract-test', 'o', who(1)), 'test: healed, it is released');
END $$;

SELECT t FROM provider, LATERAL contract_acquire(name) AS t;
SELECT t FROM provider, LATERAL contract_release(name) AS t;
SELECT t FROM provider, LATERAL contract_extend(name) AS t;
SELECT t FROM provider, LATERAL contract_expiry(name) AS t;
SELECT t FROM provider, LATERAL contract_looking(name) AS t;
SELECT t FROM provider, LATERAL contract_busy(name) AS t;
SELECT t FROM provider, LATERAL contract_execute(name) AS t;
SELECT t FROM provider, LATERAL contract_force(name) AS t;
SELECT t FROM provider, LATERAL contract_guard(name) AS t;
SELECT contract_outcomes();

SELECT * FROM finish();
ROLLBACK;
DO $$ BEGIN
	PERFORM hloom_unconfigure(ns)
	FROM provider, unnest(ARRAY['contract-' || name, 'contract-other-' || name]) AS ns;
END $$;
DROP EXTENSION hloom_test;
