# An owner whose lease has ended calls again while a successor holds the key: the successor's
# lease is never touched.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HloomTest;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

my $KEYS = 4;
my $per_key = int(rounds(2000) / $KEYS) || 1;

my $node = make_node('stale', settings => { synchronous_commit => 'off' });
$node->safe_psql('postgres', <<'SQL');
CREATE UNLOGGED TABLE stale (key text, call text, fence int8, since timestamptz,
	until timestamptz, ending timestamptz, result bool);
CREATE UNLOGGED TABLE successor (key text, fence int8, since timestamptz, until timestamptz,
	held bool, same bool, extended bool, released bool);

-- Waits without giving the processor away, as a busy owner does.
CREATE FUNCTION spin(microseconds float8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	until timestamptz := clock_timestamp() + microseconds * interval '1 us';
BEGIN
	WHILE clock_timestamp() < until LOOP END LOOP;
END $$;

-- Takes a lease of 2 ms and comes back with its owner up to 5 ms later.  A lease that short may
-- have run out before it can be reported (LL003); then nothing was granted.
CREATE FUNCTION stale_round(k text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	h hloom_handle;
	r stale;
BEGIN
	LOOP
		BEGIN
			SELECT * INTO h FROM hloom_try_acquire('stale', k, lease => '2 ms');
			EXIT WHEN FOUND;
		EXCEPTION WHEN SQLSTATE 'LL003' THEN
			NULL;
		END;
		PERFORM pg_sleep(0.0002);
	END LOOP;
	PERFORM pg_sleep(random() * 0.005);
	r.key := k;
	r.fence := h.fence;
	r.ending := h.lease_end;
	r.call := (ARRAY['release', 'extend', 'shorten'])[1 + floor(random() * 3)];
	r.since := clock_timestamp();
	r.result := CASE r.call
		WHEN 'release' THEN hloom_release('stale', k, h.owner)
		WHEN 'extend' THEN hloom_extend('stale', k, h.owner, '1 ms')
		ELSE hloom_extend('stale', k, h.owner, '1 us') END;
	r.until := clock_timestamp();
	INSERT INTO stale SELECT r.*;
END $$;

-- Takes a long lease as soon as it can, holds it for up to 4 ms and looks whether it still is as
-- it was: who owns it, until when.  Every other time it is extended first.
CREATE FUNCTION successor_round(k text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	h hloom_handle;
	taken hloom_leases;
	r successor;
BEGIN
	LOOP
		SELECT * INTO h FROM hloom_try_acquire('stale', k, lease => '50 min');
		EXIT WHEN FOUND;
	END LOOP;
	r.since := clock_timestamp();
	r.key := k;
	r.fence := h.fence;
	r.extended := true;
	IF random() < 0.5 THEN
		r.extended := hloom_extend('stale', k, h.owner, '40 min');
	END IF;
	PERFORM spin(random() * 2000);
	PERFORM pg_sleep(random() * 0.002);
	r.held := hloom_is_held('stale', k, h.owner)
		AND hloom_remaining('stale', k, h.owner) > '39 min';
	SELECT count(*) = 1 AND bool_and(owner = h.owner AND fence = h.fence) INTO r.same
		FROM hloom_leases WHERE key = k;
	r.until := clock_timestamp();
	r.released := hloom_release('stale', k, h.owner);
	INSERT INTO successor SELECT r.*;
	-- Lets the other one have the key, too.
	PERFORM pg_sleep(0.0005);
END $$;
SQL

# start_clients($what, $count): pgbench calling <what>_round, one client for each key
sub start_clients
{
	my ($what, @how_long) = @_;
	my $script = $node->basedir . "/$what.sql";
	append_to_file($script, "SELECT ${what}_round('key' || :client_id);\n");
	my $run = { err => '' };
	$run->{handle} = IPC::Run::start(
		[
			'pgbench', '-n', '-M', 'prepared', '-c', $KEYS, @how_long, '-f', $script,
			$node->connstr('postgres')
		],
		'>', \$run->{out}, '2>', \$run->{err},
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default * 2));
	return $run;
}

my $successors = start_clients('successor', '-T', '3600');
my $stales = start_clients('stale', '-t', $per_key);
$stales->{handle}->finish;
is($stales->{handle}->result(0), 0, 'stale owners made their rounds') or diag($stales->{err});
$successors->{handle}->kill_kill(grace => 5);

my $rounds = $node->safe_psql('postgres', 'SELECT count(*) FROM stale');
is($rounds, $KEYS * $per_key, "$rounds rounds");

# A call hit the window when it began and ended while a successor held the key for certain.
my $hits = $node->safe_psql('postgres', <<'SQL');
SELECT count(*), count(*) FILTER (WHERE call = 'release'),
	count(*) FILTER (WHERE call <> 'release'),
	count(*) FILTER (WHERE result), count(*) FILTER (WHERE h.fence <= s.fence)
FROM stale s JOIN successor h ON h.key = s.key AND s.since > h.since AND s.until < h.until
SQL
my ($hit, $releases, $extends, $true, $older) = split /\|/, $hits;
note("$hit of $rounds calls came while a successor held: $releases releases, $extends extends");
cmp_ok($releases, '>', $rounds / 20,
	"$releases stale releases came while a successor held the key");
cmp_ok($extends, '>', $rounds / 10, "$extends stale extends came while a successor held the key");
is($true, 0, 'none of them was told true');
is($older, 0, 'the successor\'s fence is the higher one each time');

my $touched = $node->safe_psql('postgres',
	'SELECT count(*) FROM successor WHERE NOT (held AND same AND extended AND released)');
is($touched, 0, 'no successor found its lease changed');
is( $node->safe_psql('postgres',
		'SELECT count(*) FROM stale WHERE result AND since > ending + interval \'1 s\''),
	0,
	'no call long after the end was told true');
is( $node->safe_psql('postgres',
		'SELECT count(*) FROM successor a JOIN successor b'
		  . ' ON a.key = b.key AND a.fence < b.fence AND a.since > b.since'),
	0,
	'fences grow with time');
is( $node->safe_psql('postgres',
		'SELECT count(*) FROM (SELECT key, fence FROM stale UNION ALL'
		  . ' SELECT key, fence FROM successor) f GROUP BY key, fence HAVING count(*) > 1'),
	'',
	'no fence was given twice');

done_testing();
