-- What there is not is an error: nothing is accepted and ignored.
CREATE SCHEMA options;
SET search_path = options, public;

-- Values that a lease bound to no session cannot have.
SELECT hl.error($$SELECT * FROM hloom_try_acquire('options', 'a', auto_extend => true)$$);
SELECT hl.error($$SELECT * FROM hloom_try_acquire('options', 'a', on_lost => 'cancel')$$);
SELECT hl.state($$SELECT * FROM hloom_try_acquire('options', 'a', scope => 'lease',
	on_lost => 'cancel')$$);

-- Words that are none, in any spelling but the one.
SELECT hl.error($$SELECT * FROM hloom_try_acquire('options', 'a', scope => 'forever')$$);
SELECT hl.error($$SELECT * FROM hloom_try_acquire('options', 'a', on_lost => 'panic')$$);
SELECT option, hl.state(format($$SELECT * FROM hloom_try_acquire('options', 'a', %s)$$, option))
FROM unnest(ARRAY['scope => ''''', 'scope => ''Lease''', 'scope => '' lease''',
	'scope => ''leases''',
	'on_lost => ''''', 'on_lost => ''Observe''', 'on_lost => ''canceled''']) AS option;

-- None of these took anything.
SELECT count(*) FROM hloom_leases WHERE namespace = 'options';

-- The values that there are.
SELECT key FROM hloom_try_acquire('options', 'a', scope => 'lease', on_lost => 'observe',
	auto_extend => false);
-- No time to wait is one attempt, and so is less than that.
SELECT max_wait, (SELECT count(*) FROM hloom_try_acquire('options', 'a',
	max_wait => max_wait)) AS busy,
	(SELECT count(*) FROM hloom_try_acquire('options', 'wait:' || n, max_wait => max_wait)) AS free
FROM unnest(ARRAY['0', '-1 us', '-1 day', '-1 month']::interval[]) WITH ORDINALITY AS w(max_wait,
	n);

TRUNCATE hloom_leases;
DROP SCHEMA options;
