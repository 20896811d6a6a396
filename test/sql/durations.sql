-- Durations: a positive, finite number of microseconds, counted by the clock and by nothing else.
CREATE SCHEMA durations;
SET search_path = durations, public;

-- What a lease of this length comes to: the lease granted, or the error.
CREATE FUNCTION try(lease interval) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	h hloom_handle;
BEGIN
	h := hloom_try_acquire('durations', 'try', lease, owner => hl.owner(1));
	IF NOT hloom_release(h) THEN
		RETURN 'not held';
	END IF;
	RETURN h.lease;
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE || ': ' || SQLERRM;
END $$;

SELECT lease, try(lease) FROM unnest(ARRAY['500 ms', '1 s', '30 s', '1 min 30 s',
	'4 min 59.999999 s', '5 min']::interval[])
	AS lease;
SELECT lease, try(lease) FROM unnest(ARRAY['0', '-1 us', '-1 s', '-1 day', '1 h -1 day',
	'-1 day 24 h']::interval[]) AS lease;
SELECT hl.error($$SELECT * FROM hloom_try_acquire('durations', 'a', '0')$$);
-- Months have no length, however the rest makes up for them.
SELECT lease, try(lease) FROM unnest(ARRAY['1 month', '1 year', '-1 month', '-1 month 1 year',
	'1 month -30 days',
	'-1 month 100 days']::interval[]) AS lease;
SELECT hl.error($$SELECT * FROM hloom_try_acquire('durations', 'a', '1 month')$$);
SELECT hl.error($$SELECT hloom_extend('durations', 'a', hl.owner(1), '1 month')$$);
SELECT hl.state($$SELECT hloom_extend('durations', 'a', hl.owner(1), '0')$$) AS zero,
	hl.state($$SELECT hloom_extend('durations', 'a', hl.owner(1), '-1 s')$$) AS negative;
-- '300000 years' is months to PostgreSQL; the longest interval without months overflows.
SELECT try('300000 years') AS years;
SELECT try(make_interval(days => 2147483647, secs => 9223372036854)) AS longest;
SELECT try(make_interval(days => -2147483648)) AS most_negative;
-- Infinite to 17 and later and an error before that; 1e30 seconds are negative in 15 and an error
-- later.  Either way 22-something, and nothing is held.
SELECT lease, hl.state(format($$SELECT * FROM hloom_try_acquire('durations', 'a', %s)$$, lease))
	IN ('22007', '22008', '22023') AS refused
FROM unnest(ARRAY[$$'infinity'$$, $$'-infinity'$$, 'make_interval(secs => 1e30)',
	'make_interval(secs => -1e30)', $$make_interval(secs => 'NaN')$$]) AS lease;
SELECT count(*) FROM hloom_leases WHERE namespace = 'durations';

-- So short that it is over before it is granted: not held, and said so.
SELECT left(try('1 us'), 5) AS one_microsecond;
SELECT regexp_replace(hl.error($$SELECT * FROM hloom_try_acquire('durations', 'short', '1 us')$$),
	'waited_ms": \d+', 'waited_ms": N') AS error;
SELECT count(*) FROM hloom_leases WHERE namespace = 'durations';
SELECT key FROM hloom_try_acquire('durations', 'short', owner => hl.owner(2));

-- Above max_lease: cut to it, with a notice, and the handle tells.
SELECT lease, lease_end - clock_timestamp() BETWEEN '4 min' AND '5 min' AS lease_end
FROM hloom_try_acquire('durations', 'capped', '1 h', owner => hl.owner(1));
SELECT lease, expires_at - granted_at <= '5 min 1 s' AS expires_at FROM hloom_leases
WHERE namespace = 'durations' AND key = 'capped';
SELECT hloom_extend('durations', 'capped', hl.owner(1), '5 min 0.000001 s') AS extended;
SELECT hloom_extend('durations', 'capped', hl.owner(1), '1 day') AS extended;
SELECT lease, hloom_remaining('durations', 'capped', hl.owner(1)) BETWEEN '4 min'
	AND '5 min' AS remaining
FROM hloom_leases WHERE namespace = 'durations' AND key = 'capped';
SELECT try('1000000 days');
SET hloom_lock.max_lease = '2 s';
SELECT lease FROM hloom_try_acquire('durations', 'capped', '1 min', owner => hl.owner(1));
SELECT lease FROM hloom_try_acquire('durations', 'capped', '2 s', owner => hl.owner(1));
-- The default is capped as well.
SELECT lease FROM hloom_try_acquire('durations', 'capped:default');
RESET hloom_lock.max_lease;
-- A limit raised lets longer ones through; a day is 24 hours.
SET hloom_lock.max_lease = '20d';
SELECT lease, lease = '48 h' AS two_days FROM hloom_try_acquire('durations', 'days', '2 days');
-- Extending without a length repeats the lease, within the limit of now.
SELECT lease FROM hloom_try_acquire('durations', 'repeat', '1 h', owner => hl.owner(1));
RESET hloom_lock.max_lease;
SELECT hloom_extend('durations', 'repeat', hl.owner(1)) AS extended;
SELECT lease <= '5 min' AS within_limit,
	expires_at - clock_timestamp() <= '5 min' AS ends_within_limit
FROM hloom_leases WHERE namespace = 'durations' AND key = 'repeat';

-- lease_end is the request plus the lease by the clock, whatever the time zone makes of a day:
-- the night of each of these days has 23 or 25 hours somewhere.
SET hloom_lock.max_lease = '20d';
CREATE FUNCTION off_by(zone text, lease interval, OUT off bool, OUT changes bool)
	LANGUAGE plpgsql AS $$
DECLARE
	before timestamptz;
	h hloom_handle;
	after timestamptz;
	length float8 := extract(epoch FROM lease);
BEGIN
	PERFORM set_config('timezone', zone, true);
	before := clock_timestamp();
	h := hloom_try_acquire('durations', 'zone:' || zone, lease, owner => hl.owner(1));
	after := clock_timestamp();
	off := extract(epoch FROM h.lease_end) NOT BETWEEN extract(epoch FROM before) + length
		AND extract(epoch FROM after) + length;
	-- What a lease in days of the zone's calendar would have come to.
	changes := extract(epoch FROM (before + lease) - before) <> length;
END $$;
SELECT count(*) AS tried, count(*) FILTER (WHERE off) AS off
FROM unnest(ARRAY['UTC', 'Europe/Berlin', 'America/New_York', 'Australia/Lord_Howe',
	'Asia/Kolkata']) AS zone,
	generate_series(1, 19) AS d, off_by(zone, make_interval(days => d));
-- Real zones change on a few days of the year; these change tomorrow, whatever day it is.
CREATE FUNCTION day_of_year(ahead interval) RETURNS text LANGUAGE sql AS $$
	SELECT 'J' || least(365, extract(doy FROM now() AT TIME ZONE 'UTC' + ahead))
$$;
SELECT * FROM off_by('<A>0<B>-1,' || day_of_year('1 day') || '/3,' || day_of_year('200 days') ||
	'/3', '3 days');
SELECT * FROM off_by('<A>0<B>-1,' || day_of_year('200 days') || '/3,' || day_of_year('1 day') ||
	'/3', '3 days');
-- A handle reads the same whatever the zone it is read in.
SELECT lease_end AS end1 FROM hloom_try_acquire('durations', 'zone', '1 h', owner => hl.owner(1))
	\gset
SET timezone = 'Asia/Kathmandu';
SELECT expires_at - :'end1' BETWEEN '0' AND '1 min' AS same FROM hloom_leases
WHERE namespace = 'durations' AND key = 'zone';
RESET timezone;
RESET hloom_lock.max_lease;

-- In a transaction that has been open for longer than the lease the clock counts, not now().
BEGIN;
DO $$ BEGIN
	WHILE clock_timestamp() < now() + interval '300 ms' LOOP
		PERFORM pg_sleep(0.01);
	END LOOP;
END $$;
SELECT h.lease_end > now() + interval '10.3 s' AS by_the_clock,
	clock_timestamp() < h.lease_end AS ahead
FROM hloom_try_acquire('durations', 'old', '10 s', owner => hl.owner(1)) AS h;
SELECT granted_at >= now() + interval '300 ms' AS granted_by_the_clock,
	expires_at > now() + interval '10.3 s' AS expires
FROM hloom_leases WHERE namespace = 'durations' AND key = 'old';
SELECT hloom_extend('durations', 'old', hl.owner(1), '200 ms') AS extended;
-- Not born expired, though now() + lease is past.
SELECT expires_at > now() + interval '500 ms' AS by_the_clock FROM hloom_leases
WHERE namespace = 'durations' AND key = 'old'
UNION ALL SELECT true WHERE NOT hloom_is_held('durations', 'old', hl.owner(1));
COMMIT;

TRUNCATE hloom_leases;
SET client_min_messages = warning;
DROP SCHEMA durations CASCADE;
