# Waits for a busy key: ended by the holder's release, and by everything that ends a statement, with
# the usual SQLSTATE.  Whatever ends a wait leaves the holder alone and nothing held.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HloomTest;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

my $node = make_node('waiting', settings => { max_connections => 60 });
my $holder = session($node, 'holder');
my $me = '11111111-1111-4111-8111-111111111111';
my $them = '22222222-2222-4222-8222-222222222222';
my $mine = "'wait', 'k', '$me'";

# A policy under which only something else than itself ends the wait
my $patient = q{retry => hloom_retry_interval(1000000, '20 ms')};
# ... and one that sleeps so long that what ends it must end the sleep
my $sleeper = q{retry => hloom_retry_interval(10, '1 hour')};

# who(): the owners of the leases there are
sub who
{
	return $node->safe_psql('postgres',
		q{SELECT coalesce(string_agg(owner::text, ' '), '') FROM hloom_leases});
}

# wait_for_waiter($application): until it sleeps between two attempts
sub wait_for_waiter
{
	my ($application) = @_;
	wait_for_event($node, $application, 'Extension');
	return $node->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE application_name = '$application'");
}

# Handed over: what waits gets the key after the release, and not before.
# What pg_stat_activity shows
my $event = $node->pg_version >= 17 ? 'HloomLease' : 'Extension';
for my $function ('hloom_acquire', 'hloom_try_acquire')
{
	my $handed = 0;
	for my $round (1 .. rounds(5))
	{
		my $fence = ask($holder, take('wait', 'k', "owner => '$me'") =~ s/owner, //r);
		my $waiter = start_sql(
			$node,
			"SELECT fence > $fence, owner = '$them' FROM $function('wait', 'k', $patient,"
			  . " owner => '$them')",
			"waiter-$round");
		wait_for_event($node, "waiter-$round", $event);
		my $held = ask($holder, "SELECT hloom_is_held($mine)");
		ask($holder, "SELECT hloom_release($mine)");
		my ($out, $err, $rc) = finish_sql($waiter);
		$handed++ if $held eq 't' && $out eq 't|t' && $rc == 0;
		diag($err) if $err ne '';
		ask($holder, "SELECT hloom_release('wait', 'k', '$them')");
	}
	is($handed, rounds(5), "$function: the waiter gets what the holder gives back");
}

# item 33, item 34: what ends a statement ends its wait.
ask($holder, take('wait', 'k', "owner => '$me'"));
my $wait = "SELECT count(*) FROM hloom_acquire('wait', 'k', $sleeper, owner => '$them')";

my $waiter = start_sql($node, $wait, 'cancelled');
my $pid = wait_for_waiter('cancelled');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
my ($out, $err, $rc) = finish_sql($waiter);
is(state_of($err), '57014', 'cancel: 57014');
is(who(), $me, 'cancel: only the holder is left');

$waiter = start_sql($node, $wait, 'terminated');
$pid = wait_for_waiter('terminated');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
($out, $err, $rc) = finish_sql($waiter);
is(state_of($err), '57P01', 'terminate: 57P01');
is(who(), $me, 'terminate: only the holder is left');

my ($state) = sql_error($node, "SET statement_timeout = '200 ms'; $wait");
is($state, '57014', 'statement_timeout: 57014');
is(who(), $me, 'statement_timeout: only the holder is left');

# It ends the wait of a call that was told to wait no longer than longer, too.
($state) = sql_error($node,
	"SET statement_timeout = '200 ms';"
	  . " SELECT * FROM hloom_try_acquire('wait', 'k', $patient, max_wait => '1 hour')");
is($state, '57014', 'statement_timeout before max_wait: 57014');

# An error that a PL/pgSQL block catches ends it as well, and the transaction goes on.
is( $node->safe_psql(
		'postgres', qq{SET statement_timeout = '200 ms';
DO \$\$ BEGIN PERFORM hloom_acquire('wait', 'k', $sleeper);
EXCEPTION WHEN query_canceled THEN RAISE INFO 'caught'; END \$\$;
SELECT 'goes on'}),
	'goes on',
	'statement_timeout, caught');
is(who(), $me, 'statement_timeout, caught: only the holder is left');

# A client that is gone is noticed, though it sent no request to end and no
# client_connection_check_interval is set.
is($node->safe_psql('postgres', 'SHOW client_connection_check_interval'),
	'0', 'core does not look at the client');
for my $policy ($patient, $sleeper)
{
	my $gone = start_sql($node, $wait =~ s/\Q$sleeper\E/$policy/r, 'gone');
	$pid = wait_for_waiter('gone');
	$gone->{handle}->kill_kill(grace => 0);
	wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
	pass('a vanished client ends the wait');
}
is(who(), $me, 'a vanished client: only the holder is left');
wait_until('the log tells of the client',
	sub { slurp_file($node->logfile) =~ /FATAL:  connection to client lost/ });

# item 103: a shutdown waits for nobody, and nobody who waits is left with a lease.
$waiter = start_sql($node, $wait, 'shutdown');
wait_for_waiter('shutdown');
$holder->quit;
$node->stop('fast');
($out, $err, $rc) = finish_sql($waiter);
is(state_of($err), '57P01', 'fast shutdown: 57P01');
$node->start;
is(who(), $me, 'fast shutdown: only the holder is left');

# item 46: a grant that is slower than its own lease is given back.
SKIP:
{
	skip 'no test module', 3 if !need_test_module($node);
	my $late = start_sql(
		$node,
		q{SELECT hloom_test_set('granted', 'stop');}
		  . q{SELECT * FROM hloom_acquire('wait', 'late', '300 ms')},
		'late');
	wait_for_sql($node,
		q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'late'});
	$pid = $node->safe_psql('postgres',
		q{SELECT pid FROM pg_stat_activity WHERE application_name = 'late'});
	wait_until('the backend stops',
		sub { slurp_file("/proc/$pid/stat") =~ /^\d+ \(.*\) T / });
	my $after = $node->safe_psql('postgres', q{SELECT clock_timestamp() + '400 ms'});
	wait_for_sql($node, "SELECT clock_timestamp() > '$after'");
	kill 'CONT', $pid;
	($out, $err, $rc) = finish_sql($late);
	is(state_of($err), 'LL003', 'a late grant: LL003');
	like($err, qr/"attempts": 1/, 'a late grant: is not tried again');
	is( $node->safe_psql(
			'postgres', q{SELECT count(*) FROM hloom_try_acquire('wait', 'late')}),
		'1',
		'a late grant: the key is free');
}

# item 31: 32 contenders, 4 rounds each: never two inside, no lease left.
$node->safe_psql(
	'postgres', q{TRUNCATE hloom_leases;
CREATE TABLE inside (client int);
CREATE TABLE visits (client int, others bigint)});
my $script = $node->basedir . '/contend.sql';
append_to_file($script, q{
SELECT owner FROM hloom_acquire('wait', 'contended', '10 min',
	retry => hloom_retry_interval(1000000, '5 ms')) \gset
INSERT INTO inside VALUES (:client_id);
INSERT INTO visits SELECT :client_id, count(*) FROM inside WHERE client <> :client_id;
DELETE FROM inside WHERE client = :client_id;
SELECT hloom_release('wait', 'contended', ':owner'::uuid);
});
my $visits = rounds(4);
$node->command_ok(
	[ 'pgbench', '-n', '-c', '32', '-j', '2', '-t', $visits, '-f', $script, 'postgres' ],
	'32 contenders');
is( $node->safe_psql(
		'postgres', 'SELECT count(*), count(DISTINCT client), sum(others) FROM visits'),
	32 * $visits . '|32|0',
	'each was inside, and each alone');
is(who(), '', 'no lease is left');

$node->stop;
done_testing();
