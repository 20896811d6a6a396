# Sessions take, release and let go of leases while others reap, vacuum, rewrite the table and take
# leases away: at the end each grant was released in time or is counted as lost, once.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomTest;
use Test::More;

my $WORKERS = 4;
my $rounds = rounds(400);

my $node = make_node('losses', settings => { max_connections => 30 });
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE tally (granted int8, released int8);

-- Short keys and long ones, few enough that workers meet and many enough that buckets split.
CREATE FUNCTION work(rounds int, seed float8) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	granted int8 := 0;
	released int8 := 0;
	lock_key text;
	me uuid;
	followed text;
BEGIN
	PERFORM setseed(seed);
	FOR i IN 1 .. rounds LOOP
		lock_key := repeat('k', (random() * 300)::int) || (random() * 3000)::int;
		followed := (ARRAY['lease', 'session'])[1 + (random() * 0.7)::int];
		SELECT owner INTO me
			FROM hloom_try_acquire('losses', lock_key, '10 min', scope => followed);
		CONTINUE WHEN me IS NULL;
		granted := granted + 1;
		CASE (random() * 3)::int
			WHEN 0 THEN
				released := released + hloom_release('losses', lock_key, me)::int;
			WHEN 1 THEN
				-- Waits for the end of the lease, so that the session cannot give it back in time.
				PERFORM hloom_extend('losses', lock_key, me, '1 ms');
				WHILE hloom_is_held('losses', lock_key, me) LOOP
					PERFORM pg_sleep(0.001);
				END LOOP;
			ELSE
				NULL;
		END CASE;
	END LOOP;
	released := released + hloom_release_session();
	INSERT INTO tally VALUES (granted, released);
END $$;
SQL

my @runs = map { start_sql($node, "SELECT work($rounds, 0.$_);", "worker$_") } 1 .. $WORKERS;
my $busy = q{SELECT count(*) FROM pg_stat_activity WHERE application_name ~ '^worker'};
my @others = map { session($node, "other$_") } 1 .. 2;
my $passes = 0;
do
{
	ask($others[0], 'SELECT hloom_reap()');
	ask($others[1], 'VACUUM ' . ($passes % 5 == 4 ? 'FULL ' : '') . 'hloom_leases');
	ask($others[1], "SELECT count(hloom_force_release('losses', key, 'test'))"
		  . " FROM (SELECT key FROM hloom_leases WHERE namespace = 'losses' LIMIT 5) AS l");
	$passes++;
} while (ask($others[0], $busy) > 0);
for my $run (@runs)
{
	my (undef, $err, $rc) = finish_sql($run);
	is($rc, 0, 'a worker ends well') or diag($err);
}
note("$passes passes meanwhile");

# What is left ends now.
ask($others[0], q{SELECT count(hloom_extend(namespace, key, owner, '1 ms')) FROM hloom_leases});
wait_for_sql($node, 'SELECT count(*) = 0 FROM hloom_leases');
ask($others[0], 'SELECT hloom_reap()') for 1 .. 2;
my $lost = q{SELECT sum(value)::int8 FROM hloom_metrics
	WHERE namespace = 'losses' AND name = 'hostloom_lock_lost'};
my ($granted, $released) =
  split /\|/, ask($others[0], 'SELECT sum(granted), sum(released) FROM tally');
note("$granted leases, $released of them given back");
cmp_ok($released, '>', 0, 'some were given back');
is(ask($others[0], $lost), $granted - $released, 'all others are lost, and counted once');

$_->quit for @others;
$node->stop;
done_testing();
