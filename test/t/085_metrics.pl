# The text for a scraper says what the clients themselves counted, exactly: acquired, not acquired,
# given back, lost.  A wait is in it with all its time.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomLoad;
use HloomTest;
use Test::More;

my $node = make_node('metrics');
my $look = session($node, 'look');

# scrape($namespace): the samples of a namespace by name and labels but for the namespace
sub scrape
{
	my ($namespace) = @_;
	my %samples;
	for my $line (split /\n/, ask($look, 'SELECT hloom_openmetrics()'))
	{
		my ($name, $labels, $value) = $line =~ /^(\w+)\{(.*)\} (\S+)$/ or next;
		$labels =~ s/,?hostloom_lock_namespace="\Q$namespace\E"// or next;
		$labels =~ s/datname="postgres",?//;
		$samples{"$name $labels"} = $value;
	}
	return \%samples;
}

# counts($namespace): acquired, not acquired, unavailable, given back, lost, held now
sub counts
{
	my $samples = scrape(@_);
	my $acquire = 'hostloom_lock_acquire_duration_seconds_count hostloom_lock_outcome';
	return join ' ', map { $samples->{$_} } "$acquire=\"acquired\"", "$acquire=\"not_acquired\"",
	  "$acquire=\"unavailable\"", 'hostloom_lock_hold_duration_seconds_count ',
	  'hostloom_lock_lost_total ', 'hostloom_lock_active ';
}

# ---- somebody waits for half a minute, beside all that follows ---------------------------------

# The wait ends before a retry that would come too late.

ask($look, take('contended', 'k', "lease => '2 min'"));
my $waiter = start_sql($node,
	q{SELECT count(*) FROM hloom_try_acquire('contended', 'k', max_wait => '30.5 s',
		retry => hloom_retry_interval(1000, '200 ms'))});
wait_until('it waits', sub { ask($look, 'SELECT count(*) FROM hloom_waiters') eq '1' });

# ---- as the clients counted --------------------------------------------------------------------

# Of ten turns one gives its lease back too late and one not at all; two wait for a busy key, and
# one of those fails when it stays busy.
ask($look, q{
SELECT hloom_configure('bench-memory', provider => 'memory');
CREATE TABLE turn (namespace text, acquired bool, released bool);
CREATE FUNCTION turn(ns text, key text, how int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	h record;
	acquired bool := false;
	released bool := false;
BEGIN
	IF how = 1 THEN
		BEGIN
			SELECT * INTO h FROM hloom_acquire(ns, key, max_wait => '2 ms');
			acquired := true;
		EXCEPTION WHEN lock_not_available THEN
			acquired := false;
		END;
	ELSE
		SELECT * INTO h FROM hloom_try_acquire(ns, key,
			CASE WHEN how IN (2, 3) THEN interval '10 ms' ELSE interval '1 min' END,
			max_wait => CASE WHEN how = 4 THEN interval '2 ms' END);
		acquired := FOUND;
	END IF;
	IF acquired AND how <> 2 THEN
		IF how = 3 THEN
			PERFORM pg_sleep(0.02);
		END IF;
		released := hloom_release(ns, key, h.owner);
	END IF;
	INSERT INTO turn VALUES (ns, acquired, released);
END $$;
});
my $turns = rounds(400);
my @namespaces = qw(bench-table bench-memory);
for my $namespace (@namespaces)
{
	my $load = start_load($node, 'postgres', 8, qq{\\set key random(1, 6)
\\set how random(1, 10)
SELECT turn('$namespace', 'k' || :key, :how);
}, '-t', $turns);
	end_load($load, "$namespace: the load ran");
	wait_until("$namespace: all leases have ended", sub {
		ask($look, 'SELECT hloom_reap() >= 0');
		ask($look, "SELECT count(*) FROM hloom_locks WHERE namespace = '$namespace'") eq '0';
	});
	my $own = ask($look, qq{SELECT count(*) FILTER (WHERE acquired),
		count(*) FILTER (WHERE NOT acquired), 0, count(*) FILTER (WHERE released),
		count(*) FILTER (WHERE acquired AND NOT released), 0
		FROM turn WHERE namespace = '$namespace'}) =~ tr/|/ /r;
	# A lease is lost when its entry is removed, which is after it is held no more.
	wait_until("$namespace: the losses are counted", sub {
		ask($look, 'SELECT hloom_reap() >= 0');
		(split / /, counts($namespace))[4] >= (split / /, $own)[4];
	});
	is(counts($namespace), $own, "$namespace: the scrape agrees with the clients");
	my ($acquired, $refused, undef, $held, $lost) = split / /, $own;
	is($acquired + $refused, 8 * $turns, "$namespace: each turn is counted");
	ok($refused > 0 && $held > 0 && $lost > 0, "$namespace: each kind of end came up: $own");
}

# ---- the wait ----------------------------------------------------------------------------------

my ($out, $err) = finish_sql($waiter);
is("$out$err", 0, 'it does not get the key');
my $samples = scrape('contended');
my $wait = 'hostloom_lock_acquire_duration_seconds';
my $outcome = 'hostloom_lock_outcome="not_acquired"';
my $sum = $samples->{"${wait}_sum $outcome"};
ok($sum >= 30 && $sum < 60, "thirty seconds of contention are thirty seconds of wait time: $sum");
is($samples->{"${wait}_count $outcome"}, 1, 'of one acquisition');
is($samples->{"${wait}_bucket $outcome,le=\"10.0\""}, 0, 'in none of the shorter buckets');
is($samples->{'hostloom_lock_waits_total '}, 1, 'which had to wait');

$look->quit;
$node->stop;
done_testing();
