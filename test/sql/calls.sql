-- The calls that are built: taking, extending, giving back, looking; every form of each.
\pset null '(null)'
CREATE SCHEMA calls;
SET search_path = calls, public;

-- One row when taken, no row when another owner holds it.
SELECT namespace, key, owner = hl.owner(1) AS owner, fence > 0 AS fence, lease,
	lease_end - clock_timestamp() BETWEEN '20 s' AND '30 s' AS lease_end, is_coordinated
FROM hloom_try_acquire('calls', 'a', owner => hl.owner(1));
SELECT count(*) FROM hloom_try_acquire('calls', 'a', owner => hl.owner(2));

-- No field is NULL, or "h IS NOT NULL" would lie; an owner nobody named is random, version 4.
SELECT h IS NOT NULL AS all_set, h.owner::text ~
	'^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab]' AS uuid4
FROM hloom_try_acquire('calls', 'random') AS h;
SELECT count(DISTINCT h.owner) FROM generate_series(1, 100) AS n,
	LATERAL hloom_try_acquire('calls', 'random:' || n) AS h;

-- Contention in the ways a client asks.
SELECT EXISTS (SELECT FROM hloom_try_acquire('calls', 'a')) AS exists;
DO $$
DECLARE
	h hloom_handle;
BEGIN
	h := hloom_try_acquire('calls', 'a');
	RAISE NOTICE 'busy, assigned: % %', h, h IS NULL;
	SELECT * INTO h FROM hloom_try_acquire('calls', 'a');
	RAISE NOTICE 'busy, selected: % %', FOUND, h IS NULL;
	PERFORM hloom_try_acquire('calls', 'a');
	RAISE NOTICE 'busy, performed: %', FOUND;
	SELECT * INTO h FROM hloom_try_acquire('calls', 'free');
	RAISE NOTICE 'free, selected: % %', FOUND, h IS NOT NULL;
	h := hloom_try_acquire('calls', 'free:2');
	RAISE NOTICE 'free, assigned: % %', h.key, h IS NOT NULL;
	RAISE NOTICE 'released: % %', hloom_release(h), hloom_release(h);
END $$;

-- In the target list too it is a set: no row, rather than a row of NULLs that reads as held.
SELECT hloom_try_acquire('calls', 'a');
SELECT (hloom_try_acquire('calls', 'a')).*;
-- (f()).* takes it once, not once per column: the others get what the first one took.
SELECT key, owner = hl.owner(1) AS owner, fence = max(fence) OVER () AS fence
FROM (SELECT (hloom_try_acquire('calls', 'star', owner => hl.owner(1))).*) AS h;
SELECT count(*) FROM hloom_leases WHERE namespace = 'calls' AND key = 'star';
-- Without an owner of the caller's own each column is a call of its own, and only one call can win:
-- no row is made up of several tries.
SELECT count(*) <= 1 AS at_most_one FROM (SELECT (hloom_try_acquire('calls', 'star:2')).*) AS h
WHERE h IS NOT NULL;

-- Taken for each row of a query.
SELECT string_agg(h.key, ' ' ORDER BY h.key)
FROM (VALUES ('row:1'), ('a'), ('row:2'), ('row:1')) AS v(k),
	LATERAL hloom_try_acquire('calls', k) AS h;
-- Prepared, also with a generic plan.
SET plan_cache_mode = force_generic_plan;
PREPARE take(text, uuid) AS SELECT count(*) FROM hloom_try_acquire('calls', $1, owner => $2);
EXECUTE take('prepared', hl.owner(1));
EXECUTE take('prepared', hl.owner(2));
EXECUTE take('prepared', hl.owner(1));
DEALLOCATE take;
RESET plan_cache_mode;

-- The owner again: the same fence, a new end.
SELECT fence AS fence1, lease_end AS end1
FROM hloom_try_acquire('calls', 'again', owner => hl.owner(1)) \gset
SELECT fence = :fence1 AS same_fence, lease_end > :'end1' AS new_end, lease
FROM hloom_try_acquire('calls', 'again', '1 min', owner => hl.owner(1));
SELECT fence = :fence1 AS same_fence, lease_end < :'end1' AS earlier_end, lease
FROM hloom_try_acquire('calls', 'again', '10 s', owner => hl.owner(1));
SELECT count(*), bool_and(lease = '10 s') AS shortened FROM hloom_leases
WHERE namespace = 'calls' AND key = 'again';

-- item 88: release is true, then false; item 66: false for another owner, whose call changes nothing.
SELECT hloom_release('calls', 'again', hl.owner(2)) AS other;
SELECT hloom_is_held('calls', 'again', hl.owner(1)) AS still_held;
SELECT hloom_release('calls', 'again', hl.owner(1)) AS released,
	hloom_release('calls', 'again', hl.owner(1)) AS again,
	hloom_release('calls', 'never:taken', hl.owner(1)) AS never;
SELECT count(*) FROM hloom_leases WHERE namespace = 'calls' AND key = 'again';

-- The fence grows over release, whoever takes it.
SELECT fence > :fence1 AS grown, fence AS fence2
FROM hloom_try_acquire('calls', 'again', owner => hl.owner(1)) \gset
SELECT :'grown' AS grown, hloom_release('calls', 'again', hl.owner(1)) AS released;
SELECT fence > :fence2 AS grown FROM hloom_try_acquire('calls', 'again', owner => hl.owner(2));

-- Extend: longer, shorter, and as long as last granted.
SELECT expires_at AS end0 FROM hloom_leases WHERE namespace = 'calls' AND key = 'a' \gset
SELECT hloom_extend('calls', 'a', hl.owner(1), '2 min') AS longer;
SELECT expires_at > :'end0' AS later, expires_at AS end1, lease FROM hloom_leases
WHERE namespace = 'calls' AND key = 'a' \gset
SELECT :'later' AS later, :'lease' AS lease;
SELECT hloom_extend('calls', 'a', hl.owner(1), '50 s') AS shorter;
SELECT expires_at < :'end1' AS earlier, expires_at - clock_timestamp() BETWEEN '40 s'
	AND '50 s' AS about,
	lease FROM hloom_leases WHERE namespace = 'calls' AND key = 'a';
SELECT expires_at AS end1 FROM hloom_leases WHERE namespace = 'calls' AND key = 'a' \gset
SELECT hloom_extend('calls', 'a', hl.owner(1)) AS as_before;
SELECT expires_at > :'end1' AS later, lease FROM hloom_leases
	WHERE namespace = 'calls' AND key = 'a';
SELECT hloom_extend('calls', 'a', hl.owner(2), '1 min') AS other,
	hloom_extend('calls', 'never:taken', hl.owner(1), '1 min') AS never,
	hloom_extend('calls', 'again', hl.owner(1), '1 min') AS released;

-- Looking.
SELECT hloom_is_held('calls', 'a', hl.owner(1)) AS mine,
	hloom_is_held('calls', 'a', hl.owner(2)) AS other,
	hloom_is_held('calls', 'never:taken', hl.owner(1)) AS never;
SELECT hloom_remaining('calls', 'a', hl.owner(1)) BETWEEN '40 s' AND '50 s' AS mine,
	hloom_remaining('calls', 'a', hl.owner(2)) AS other,
	hloom_remaining('calls', 'never:taken', hl.owner(1)) AS never;

-- The text forms.
SELECT hloom_is_held('calls', 'a', hl.owner(1)::text) AS held,
	hloom_remaining('calls', 'a', hl.owner(1)::text) > '1 s' AS remaining,
	hloom_extend('calls', 'a', hl.owner(1)::text) AS extended,
	hloom_extend('calls', 'a', hl.owner(1)::text, '20 s') AS shortened,
	hloom_release('calls', 'a', hl.owner(2)::text) AS other,
	hloom_release('calls', 'a', hl.owner(1)::text) AS released,
	hloom_release('calls', 'a', hl.owner(1)::text) AS again;
-- An untyped literal finds its form as well, and a uuid is taken as core takes it.
SELECT count(*) FROM hloom_try_acquire('calls', 'text',
	owner => '00000000-0000-4000-8000-00000000000A');
SELECT hloom_is_held('calls', 'text', '00000000-0000-4000-8000-00000000000a') AS lower,
	hloom_is_held('calls', 'text', '{00000000-0000-4000-8000-00000000000A}') AS braces,
	hloom_release('calls', 'text', '0000000000004000800000000000000a') AS bare;
-- What is no token is not repeated in the message either: it may be most of one.
SELECT hl.error($$SELECT hloom_release('calls', 'a', 'nobody'::text)$$);
SELECT hl.error($$SELECT hloom_extend('calls', 'a', ''::text)$$);
SELECT hl.state($$SELECT hloom_is_held('calls', 'a', 'nobody'::text)$$),
	hl.state($$SELECT hloom_remaining('calls', 'a', 'nobody'::text)$$),
	hl.state($$SELECT count(*) FROM hloom_try_acquire('calls', 'a', owner => 'nobody')$$);

-- The handle forms, for PL/pgSQL.
DO $$
DECLARE
	h hloom_handle;
	other hloom_handle;
BEGIN
	h := hloom_try_acquire('calls', 'handle');
	other := h;
	other.owner := hl.owner(7);
	RAISE NOTICE 'held % %, remaining % %', hloom_is_held(h), hloom_is_held(other),
		hloom_remaining(h) > '1 s', hloom_remaining(other);
	RAISE NOTICE 'extended % % %', hloom_extend(h), hloom_extend(h, '1 min'), hloom_extend(other);
	RAISE NOTICE 'remaining %', hloom_remaining(h) > '50 s';
	-- Which lease is meant is told by namespace, key and owner; the other fields are for the
	-- reader.
	h.fence := 0;
	h.lease_end := NULL;
	RAISE NOTICE 'released % % %', hloom_release(other), hloom_release(h), hloom_release(h);
END $$;

-- A NULL handle and one of NULLs is the handle of a lease one did not get.
SELECT hloom_release(NULL::hloom_handle) AS release, hloom_extend(NULL::hloom_handle) AS extend,
	hloom_is_held(NULL::hloom_handle) AS is_held, hloom_remaining(NULL::hloom_handle) AS remaining;
SELECT hloom_release(h) AS release, hloom_extend(h, '1 min') AS extend, hloom_is_held(h) AS is_held,
	hloom_remaining(h) AS remaining
FROM (SELECT ROW(NULL, NULL, NULL, NULL, NULL, NULL, NULL)::hloom_handle AS h) AS none;
-- One with some NULLs is a mistake.
SELECT hl.error($$SELECT hloom_release(ROW(NULL, 'a', hl.owner(1), 1, '1 s', now(),
	true)::hloom_handle)$$);
SELECT hl.error($$SELECT hloom_extend(ROW('calls', NULL, hl.owner(1), 1, '1 s', now(),
	true)::hloom_handle)$$);
SELECT hl.error($$SELECT hloom_is_held(ROW('calls', 'a', NULL, 1, '1 s', now(),
	true)::hloom_handle)$$);
SELECT hl.error($$SELECT hloom_remaining(ROW('calls', NULL, NULL, 1, '1 s', now(),
	true)::hloom_handle)$$);
SELECT hl.error($$SELECT hloom_release(ROW(NULL, NULL, NULL, 1, '1 s', now(),
	true)::hloom_handle)$$);

-- A NULL namespace, key or owner is an error in every form: nothing is ever not locked silently.
SELECT hl.error($$SELECT * FROM hloom_try_acquire(NULL, 'a')$$);
SELECT hl.error($$SELECT * FROM hloom_try_acquire('calls', NULL)$$);
SELECT hl.error($$SELECT hloom_release('calls', 'a', NULL::uuid)$$);
SELECT call, hl.state('SELECT ' || call)
FROM unnest(ARRAY['hloom_release', 'hloom_extend', 'hloom_is_held', 'hloom_remaining']) AS f,
	unnest(ARRAY['uuid', 'text']) AS form,
	LATERAL (VALUES (f || '(NULL, ''a'', hl.owner(1)::' || form || ')'),
		(f || '(''calls'', NULL, hl.owner(1)::' || form || ')'),
		(f || '(''calls'', ''a'', NULL::' || form || ')')) AS v(call);
-- Every other NULL means "not given".
SELECT key, lease, is_coordinated
FROM hloom_try_acquire('calls', 'nulls', NULL, NULL, NULL, NULL, NULL, NULL, hl.owner(1), NULL);
SELECT hloom_extend('calls', 'nulls', hl.owner(1), NULL) AS extended;

-- The setting that says how long.
SET hloom_lock.default_lease = '90s';
SELECT lease FROM hloom_try_acquire('calls', 'default');
SELECT hl.state($$SET hloom_lock.default_lease = '0'$$),
	hl.state($$SET hloom_lock.default_lease = '-1'$$);
RESET hloom_lock.default_lease;

-- The note.
SELECT count(*) FROM hloom_try_acquire('calls', 'note', owner => hl.owner(1),
	note => 'nightly run, see the runbook');
SELECT note FROM hloom_leases WHERE namespace = 'calls' AND key = 'note';
SELECT count(*) FROM hloom_try_acquire('calls', 'note:256', note => repeat('n', 256));
SELECT octet_length(note) FROM hloom_leases WHERE namespace = 'calls' AND key = 'note:256';
SELECT hl.error($$SELECT * FROM hloom_try_acquire('calls', 'note:257', note => repeat('n', 257))$$);
SELECT hl.state($$SELECT * FROM hloom_try_acquire('calls', 'note:257',
	note => repeat(U&'\+01F511', 65))$$);
SELECT count(*) FROM hloom_leases WHERE key = 'note:257';
SELECT note FROM hloom_leases WHERE namespace = 'calls' AND key = 'default';
-- A note is not a key: it may have white space, or be empty.
SELECT count(*) FROM hloom_try_acquire('calls', 'note:any', owner => hl.owner(1),
	note => E' a\tb\n');
SELECT note = E' a\tb\n' AS kept FROM hloom_leases WHERE namespace = 'calls' AND key = 'note:any';

-- What the table tells about the holder.
SET application_name = 'calls test';
SELECT count(*) FROM hloom_try_acquire('calls', 'holder', '20 s', owner => hl.owner(1));
SELECT namespace, key, owner = hl.owner(1) AS owner, fence > 0 AS fence, mode,
	clock_timestamp() - granted_at BETWEEN '0' AND '20 s' AS granted_at,
	expires_at - granted_at AS granted, lease, holder_role = current_user::regrole AS holder_role,
	holder_pid = pg_backend_pid() AS holder_pid, application_name,
	client_addr IS NOT DISTINCT FROM inet_client_addr() AS client_addr, scope, auto_extend, note
FROM hloom_leases WHERE namespace = 'calls' AND key = 'holder';
-- It stays as it was when taken.
SET application_name = 'another';
SELECT hloom_extend('calls', 'holder', hl.owner(1)) AS extended;
SELECT application_name FROM hloom_leases WHERE namespace = 'calls' AND key = 'holder';
RESET application_name;

-- After its end a lease is nobody's, also while nobody took the key.
SELECT fence AS fence1
FROM hloom_try_acquire('calls', 'short', '200 ms', owner => hl.owner(1)) \gset
SELECT hl.wait_until_free('calls', 'short');
SELECT hloom_is_held('calls', 'short', hl.owner(1)) AS held,
	hloom_remaining('calls', 'short', hl.owner(1)) AS remaining,
	hloom_extend('calls', 'short', hl.owner(1), '1 min') AS extended,
	hloom_release('calls', 'short', hl.owner(1)) AS released,
	(SELECT count(*) FROM hloom_leases WHERE namespace = 'calls' AND key = 'short') AS shown;
-- Its old owner gets a new fence, too: somebody may have been there in between.
SELECT fence > :fence1 AS grown, fence AS fence2
FROM hloom_try_acquire('calls', 'short', '200 ms', owner => hl.owner(1)) \gset
SELECT hl.wait_until_free('calls', 'short');
SELECT :'grown' AS grown, fence > :fence2 AS grown_again
FROM hloom_try_acquire('calls', 'short', owner => hl.owner(2));
-- The stale owner does not touch the new one.
SELECT hloom_extend('calls', 'short', hl.owner(1), '1 min') AS extended,
	hloom_release('calls', 'short', hl.owner(1)) AS released,
	hloom_is_held('calls', 'short', hl.owner(2)) AS successor_holds;

-- Namespaces do not meet, and "a" with "b:c" is not "a:b" with "c".
SELECT count(*) FROM hloom_try_acquire('calls-x', 'same', owner => hl.owner(1));
SELECT count(*) FROM hloom_try_acquire('calls-y', 'same', owner => hl.owner(2));
SELECT count(*) FROM hloom_try_acquire('calls', 'x:lock:y', owner => hl.owner(1));
SELECT count(*) FROM hloom_try_acquire('calls', 'y', owner => hl.owner(2));

-- The settings that are not there are refused, so that a mistyped one is noticed.
SET hloom_lock.default_leese = '90s';

TRUNCATE hloom_leases;
DROP SCHEMA calls;
