# A namespace gets another provider: no lease is left behind at the old one, neither one that is
# held then nor one that is asked for at that moment.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = make_node('moved');
if (!need_test_module($node))
{
	plan skip_all => 'no test module';
}
my $admin = session($node, 'admin');
my $load = q{LOAD 'hloom_test'};
ask($admin, $load);

# held by somebody else: refused, and nothing is kept locked after that
my $owner = ask($admin, q{SELECT owner FROM hloom_acquire('moved', 'k')});
my ($state, $message) = ask_error($admin, q{SELECT hloom_configure('moved', provider => 'test')});
is($state, '55006', 'a namespace with leases keeps its provider');
unlike($message, qr/\Q$owner\E/, 'the error does not tell the owner token');
is(ask($admin, take('moved', 'other')) =~ /\d+$/ ? 1 : 0, 1, 'its calls go on');
ask($admin, 'TRUNCATE hloom_leases');

my ($moved, $stayed) = (0, 0);
for my $round (1 .. rounds(10))
{
	# Committed: who asked before, and waited for the change, is granted by the new provider.
	ask($admin, q{BEGIN; SELECT hloom_configure('moved', provider => 'test')});
	my $caller = start_sql(
		$node,
		"$load; SELECT count(*) FROM hloom_acquire('moved', 'k', '1 min');"
		  . 'SELECT hloom_test_held()',
		"caller-$round");
	wait_for_event($node, "caller-$round", 'Extension');
	my $commit = $round % 2;
	ask($admin, $commit ? 'COMMIT' : 'ROLLBACK');
	my ($out, $err, $rc) = finish_sql($caller);
	my $rows = ask($admin, 'SELECT count(*) FROM hloom_leases');
	$moved++ if $commit && $rc == 0 && $out eq "1\n1" && $rows == 0;
	$stayed++ if !$commit && $rc == 0 && $out eq "1\n0" && $rows == 1;
	diag("$out|$rows|$err") if $err ne '';
	ask($admin, q{TRUNCATE hloom_leases; SELECT hloom_unconfigure('moved')});
}
is($moved, int((rounds(10) + 1) / 2), 'committed: granted by the new provider only');
is($stayed, int(rounds(10) / 2), 'rolled back: granted by the old one');

# The time a call waited for the change is part of its max_wait: at the new provider, where the key
# is busy, it does not begin anew.
ask($admin, q{BEGIN; SELECT hloom_configure('moved', provider => 'test')});
my $bounded = start_sql(
	$node, "$load;"
	  . q{SELECT hloom_test_hold('moved:lock:k', '10 min');}
	  . q{CREATE TEMP TABLE clock AS SELECT clock_timestamp() AS at;}
	  . q{DO $$
DECLARE
	detail jsonb;
	line text;
BEGIN
	PERFORM hloom_acquire('moved', 'k', '1 min', max_wait => '5 s',
		retry => hloom_retry_interval(1000, '50 ms'));
EXCEPTION WHEN lock_not_available THEN
	GET STACKED DIAGNOSTICS line = PG_EXCEPTION_DETAIL;
	detail := line;
	RAISE INFO 'unaccounted: %', (SELECT clock_timestamp() - at > '2 s'
		+ make_interval(secs => (detail->>'waited_ms')::int / 1000.0) FROM clock);
END $$},
	'bounded');
wait_for_event($node, 'bounded', 'Extension');
my $until = $node->safe_psql('postgres', q{SELECT clock_timestamp() + '3 s'});
wait_for_sql($node, "SELECT clock_timestamp() > '$until'");
ask($admin, 'COMMIT');
my (undef, $told) = finish_sql($bounded);
like($told, qr/unaccounted: f/, 'max_wait goes on through a change of the provider');
ask($admin, q{SELECT hloom_unconfigure('moved')});

# Other namespaces wait for the end of that transaction, too, and no longer than they would.
ask($admin, q{BEGIN; SELECT hloom_configure('moved', provider => 'test')});
($state) = sql_error($node, take('else', 'k', q{lease => '300 ms'}));
is($state, 'LL003', 'a change that is not committed keeps grants waiting, within their bounds');
is( $node->safe_psql('postgres', q{SELECT count(*) FROM hloom_leases}),
	'0', 'reading goes on');
ask($admin, 'ROLLBACK');

$admin->quit;
$node->stop;
done_testing();
