# A lease with on_lost => 'cancel' that is lost ends the statement that runs, within a second of its
# end, or within about a second of being taken away; and nobody else's.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomTest;
use Test::More;

my $me = '11111111-1111-4111-8111-111111111111';
my $node = make_node('loss');
my $holder = session($node, 'holder');
my $other = session($node, 'other');
my $mine = "'loss', 'k', '$me'";

# lease($lease [, $on_lost [, $scope]]): the SQL that takes it and gives its end
sub lease
{
	my ($lease, $on_lost, $scope) = @_;
	$on_lost ||= 'cancel';
	$scope ||= 'session';
	return "SELECT lease_end FROM hloom_try_acquire('loss', 'k', '$lease', scope => '$scope',"
	  . " on_lost => '$on_lost', owner => '$me')";
}

# late($end): seconds since then
sub late
{
	my ($end) = @_;
	return ask($other, "SELECT extract(epoch FROM clock_timestamp() - '$end')");
}

sub the_end { return ask($other, 'SELECT expires_at FROM hloom_leases'); }

# ends_in_time($what, $statement [, $before]): of the holder's statement, at the end of a lease
sub ends_in_time
{
	my ($what, $statement, $before) = @_;
	my $end = ask($holder, lease('700 ms'));
	ask_error($holder, $_) for @{ $before || [] };
	my ($state, $message) = ask_error($holder, $statement);
	my $late = late($end);
	is($state, 'LL010', "$what: LL010") or diag($message);
	like($message, qr/lease on key "k" of namespace "loss" is lost: it has ended/, "$what: why");
	unlike($message, qr/$me/, "$what: and not whose");
	cmp_ok($late, '>', 0, "$what: not before the end");
	cmp_ok($late, '<', 1, "$what: in time");
	return;
}

ask($other, 'CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)');
ends_in_time('sleep', 'SELECT pg_sleep(60)');
ends_in_time('computation',
	'SELECT count(*) FROM generate_series(1, 1000000000) AS a, generate_series(1, 1000) AS b');
ends_in_time('WHEN OTHERS', 'DO $$ BEGIN LOOP BEGIN PERFORM pg_sleep(60);'
	  . ' EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; END $$');
ends_in_time('after errors', 'SELECT pg_sleep(60)', [ 'SELECT 1 / 0', 'nonsense', 'SELECT 1 / 0' ]);
ends_in_time('in a transaction block', 'SELECT pg_sleep(60)', ['BEGIN']);
ask($holder, 'ROLLBACK');
ends_in_time('prepared', 'EXECUTE sleeping(60)', ['PREPARE sleeping AS SELECT pg_sleep($1)']);
ends_in_time('cursor', 'FETCH ALL FROM c', [ 'BEGIN', 'DECLARE c CURSOR FOR SELECT pg_sleep(60)' ]);
ask($holder, 'ROLLBACK');
ends_in_time('program', q{COPY t FROM PROGRAM 'sleep 60'});
ask($other, 'BEGIN');
ask($other, 'SELECT id FROM t FOR UPDATE');
ends_in_time('row lock', 'UPDATE t SET id = 2');
ask($other, 'ROLLBACK');
# A wait for another key holds nothing then.
ask($other, "SELECT fence FROM hloom_acquire('loss', 'busy', '10 min')");
ends_in_time('wait for a lease',
	"SELECT fence FROM hloom_acquire('loss', 'busy', max_wait => '60 s',"
	  . " retry => hloom_retry_interval(100000, '20 ms'))");
is(ask($other, "SELECT count(*) FROM hloom_leases WHERE key = 'busy'"), 1, 'nothing else is held');
ask($other, "SELECT hloom_release('loss', 'busy', owner) FROM hloom_leases WHERE key = 'busy'");

# A cancel of somebody else, and statement_timeout, are what they always are.
ask($holder, lease('10 min'));
ask($holder, "SET statement_timeout = '100 ms'");
my ($state, $message) = ask_error($holder, 'SELECT pg_sleep(60)');
is($state, '57014', 'statement_timeout');
like($message, qr/statement timeout/, 'in its own words');
ask($holder, 'RESET statement_timeout');

# while_it_runs($lease, $action): what the holder's statement ends with; how long after the action
sub while_it_runs
{
	my ($lease, $action, $seconds) = @_;
	$seconds ||= 60;
	$node->safe_psql('postgres', 'TRUNCATE hloom_leases');
	my $run = start_sql($node, lease($lease) . ";\nSELECT pg_sleep($seconds);\nSELECT 'ran on';",
		'runner');
	wait_for_event($node, 'runner', 'PgSleep');
	$action->();
	my $now = ask($other, 'SELECT clock_timestamp()');
	my $end = the_end();
	my ($out, $err, $rc) = finish_sql($run);
	return (state_of($err), $err, $out, late($now), $end eq '' ? undef : late($end));
}

# Extended from elsewhere it ends at the new end, at a nearer one at once.
my ($out, $since, $late);
($state, $message, $out, $since, $late) =
  while_it_runs('3 s', sub { ask($other, "SELECT hloom_extend($mine, '5 s')") });
is($state, 'LL010', 'extended from elsewhere');
cmp_ok($late, '>', 0, 'not before the new end');
cmp_ok($late, '<', 1, 'in time');
($state, $message, $out, $since) =
  while_it_runs('10 min', sub { ask($other, "SELECT hloom_extend($mine, '1 ms')") });
is($state, 'LL010', 'cut short from elsewhere');
cmp_ok($since, '<', 3, 'noticed at the next look');
# Taken away
($state, $message, $out, $since) =
  while_it_runs('10 min', sub { ask($other, "SELECT hloom_release($mine)") });
is($state, 'LL010', 'released from elsewhere');
like($message, qr/it was given back or taken away/, 'and the message tells');
cmp_ok($since, '<', 3, 'noticed at the next look');
($state, $message, $out, $since) =
  while_it_runs('10 min', sub { ask($other, 'TRUNCATE hloom_leases') });
is($state, 'LL010', 'truncated');
cmp_ok($since, '<', 3, 'noticed at the next look');
($state, $message, $out, $since) =
  while_it_runs('10 min', sub { ask($other, "SELECT hloom_force_release('loss', 'k', 'test')") });
is($state, 'LL010', 'taken away by force');
cmp_ok($since, '<', 3, 'noticed at the next look');
# A TRUNCATE that is rolled back takes nothing away, nor does VACUUM FULL.
($state, $message, $out) = while_it_runs('10 min',
	sub { ask($other, 'BEGIN'); ask($other, 'TRUNCATE hloom_leases'); ask($other, 'ROLLBACK') }, 3);
is("$state|" . ($out =~ /ran on/ ? 1 : 0), '|1', 'TRUNCATE and ROLLBACK: it runs on');
($state, $message, $out) =
  while_it_runs('10 min', sub { ask($other, 'VACUUM FULL hloom_leases') }, 3);
is("$state|" . ($out =~ /ran on/ ? 1 : 0), '|1', 'VACUUM FULL: it runs on');
# The same owner has renewed it in another session: whose it is now is cancelled, and nobody else.
($state, $message, $out) = while_it_runs('10 min', sub { ask($other, lease('1 s', 'observe')) }, 3);
is("$state|" . ($out =~ /ran on/ ? 1 : 0), '|1', 'renewed elsewhere: it runs on');

# With observe a statement runs on.
$node->safe_psql('postgres', 'TRUNCATE hloom_leases');
ask_error($holder, 'SELECT 1');
ask($holder, lease('100 ms', 'observe'));
is(ask($holder, "SELECT count(pg_sleep(0.5)), hloom_is_held($mine)"), '1|f', 'observe: it runs on');

# Nothing watches in a session whose lease is gone.
ask($holder, lease('300 ms'));
ask($holder, "SELECT hloom_release($mine)");
is(ask($holder, 'SELECT count(pg_sleep(0.6))'), '1', 'released: the next statement runs on');

$_->quit for $holder, $other;
done_testing();
