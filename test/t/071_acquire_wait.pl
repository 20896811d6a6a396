# CALL hloom_acquire_wait while it waits: it has no snapshot, no xid and no lock, so that VACUUM
# and CREATE INDEX CONCURRENTLY go on; hloom_acquire, which has a snapshot, is the control.  It gets
# what is released, and whatever else ends its wait leaves nothing held and nobody in the list of
# waiters.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = make_node('acquire_wait');
my $holder = session($node, 'holder');
my $me = '11111111-1111-4111-8111-111111111111';
my $them = '22222222-2222-4222-8222-222222222222';
my $mine = "'wait', 'k', '$me'";

# A policy that sleeps so long that only something else ends the wait
my $sleeper = q{retry => hloom_retry_interval(10, '1 hour')};
my $call = "CALL hloom_acquire_wait('wait', 'k', owner => '$them', $sleeper)";
my $function = "SELECT owner, fence FROM hloom_acquire('wait', 'k', owner => '$them', $sleeper)";

$node->safe_psql(
	'postgres', q{CREATE TABLE t (id int) WITH (autovacuum_enabled = off);
INSERT INTO t SELECT generate_series(1, 1000)});

# start_waiter($sql, $application): a script that sleeps in its wait for the key; (run, pid)
sub start_waiter
{
	my ($sql, $application) = @_;
	my $run = start_sql($node, $sql, $application);
	wait_for_event($node, $application, 'Extension');
	return (
		$run,
		$node->safe_psql('postgres',
			"SELECT pid FROM pg_stat_activity WHERE application_name = '$application'"));
}

sub hold { return ask($holder, take('wait', 'k', "owner => '$me'")) }

# hand_over($run): the holder releases, and the waiter ends; what it printed
sub hand_over
{
	my ($run) = @_;
	ask($holder, "SELECT hloom_release($mine)");
	my ($out, $err, $rc) = finish_sql($run);
	diag($err) if $err ne '';
	return $out;
}

sub give_back { return ask($holder, "SELECT hloom_release('wait', 'k', '$them')") }

# kept(): how many of the rows that die now VACUUM has to keep for a snapshot
sub kept
{
	$node->safe_psql('postgres', 'UPDATE t SET id = id');
	my ($out, $err);
	$node->psql('postgres', 'VACUUM (VERBOSE) t', stderr => \$err);
	return $err =~ /(\d+) are dead but not yet removable/ ? $1 : "? $err";
}

for my $level ('read committed', 'repeatable read', 'serializable')
{
	my $set = "SET default_transaction_isolation = '$level';";
	hold();
	my ($run, $pid) = start_waiter("$set $call", "call $level");
	is( $node->safe_psql(
			'postgres',
			"SELECT state, backend_xmin, backend_xid FROM pg_stat_activity WHERE pid = $pid"),
		'active||',
		"$level: no xmin and no xid while it waits");
	is( $node->safe_psql(
			'postgres', "SELECT locktype, mode FROM pg_locks WHERE pid = $pid"),
		'virtualxid|ExclusiveLock',
		'no lock but that of its own virtual transaction');

	# Of other sessions' snapshots there is one for a moment now and then.
	wait_until('VACUUM keeps no row', sub { kept() eq '0' });
	pass('VACUUM removes what died since');
	$node->safe_psql('postgres', 'CREATE INDEX CONCURRENTLY i ON t (id)');
	$node->safe_psql('postgres', 'DROP INDEX i');
	pass('CREATE INDEX CONCURRENTLY comes to its end');
	like(hand_over($run), qr/^$them\|\d+\|/, 'the call gets what is released');
	is(give_back(), 't', 'and holds it');

	hold();
	($run, $pid) = start_waiter("$set $function", "function $level");
	is( $node->safe_psql(
			'postgres', "SELECT backend_xmin IS NULL FROM pg_stat_activity WHERE pid = $pid"),
		'f',
		'control: hloom_acquire has an xmin');
	is(kept(), 1000, 'control: VACUUM keeps what died since');
	my $create = start_sql($node, 'CREATE INDEX CONCURRENTLY i ON t (id)', "index $level");
	wait_for_event($node, "index $level", 'virtualxid');
	pass('control: CREATE INDEX CONCURRENTLY waits');
	hand_over($run);
	finish_sql($create);
	$node->safe_psql('postgres', 'DROP INDEX i');
	give_back();
}

# The row tells what is held.  In between the options are read anew.
my $right = 0;
for my $round (1 .. rounds(5))
{
	my (undef, $before) = split /\|/, hold();
	my ($run) = start_waiter(
		"CALL hloom_acquire_wait('wait', 'k', lease => '5 min', scope => 'lease', $sleeper)",
		"round-$round");
	$node->safe_psql('postgres',
		"SELECT hloom_configure('wait', max_hold => '$round min', provider => 'table')");
	my ($owner, $fence, $end) = split /\|/, hand_over($run);
	$right++
	  if ask(
		$holder, "SELECT fence = $fence AND fence > $before AND expires_at >= '$end'
	AND '$end'::timestamptz - now() BETWEEN '1 min' AND '5 min'
	AND hloom_is_held('wait', 'k', '$owner'::uuid) AND hloom_release('wait', 'k', '$owner'::uuid)
FROM hloom_leases WHERE key = 'k' AND owner = '$owner'") eq 't';
}
is($right, rounds(5), 'owner, fence and lease_end are those of the lease, which is held');

# What ends the wait otherwise.  A waiter that is left in the list would have the key kept for it.
sub nothing_left
{
	my ($what) = @_;
	my $held = $node->safe_psql('postgres', 'SELECT owner FROM hloom_leases');
	my $free = ask($holder, "SELECT hloom_release($mine)");
	return is("$held $free " . (hold() ne '' ? 'taken' : 'kept'),
		"$me t taken", "$what: the holder alone has it, and nobody is in the list");
}

hold();
for my $round (1 .. rounds(3))
{
	my ($run, $pid) = start_waiter($call, "cancelled-$round");
	$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
	is(state_of((finish_sql($run))[1]), '57014', 'cancel: 57014');
	nothing_left('cancel');

	($run, $pid) = start_waiter($call, "terminated-$round");
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	is(state_of((finish_sql($run))[1]), '57P01', 'terminate: 57P01');
	nothing_left('terminate');

	is((sql_error($node, "SET statement_timeout = '200 ms'; $call"))[0],
		'57014', 'statement_timeout: 57014');
	nothing_left('statement_timeout');

	is((sql_error($node, "SET lock_timeout = '200 ms'; $call"))[0], '55P03',
		'lock_timeout: 55P03');
	nothing_left('lock_timeout');
}

# With scope session, too.
my ($run, $pid) =
  start_waiter("CALL hloom_acquire_wait('wait', 'k', scope => 'session', $sleeper)", 'session');
$node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)");
is(state_of((finish_sql($run))[1]), '57014', 'cancel with scope session: 57014');
nothing_left('cancel with scope session');

# A session that calls for ever does not grow: granted, busy or refused.
sub memory
{
	return ask($holder, 'SELECT sum(used_bytes) FROM pg_backend_memory_contexts');
}

sub call_once
{
	ask($holder, "CALL hloom_acquire_wait('wait', 'memory', owner => '$them', note => 'again')");
	ask($holder, "SELECT hloom_release('wait', 'memory', '$them')");
	ask_error($holder, "CALL hloom_acquire_wait('wait', 'k', max_wait => '0')");
	ask_error($holder, "CALL hloom_acquire_wait('wait', 'a b')");
	return;
}

call_once() for 1 .. 20;
memory() for 1 .. 2;
my $before = memory();
my $calls = rounds(200);
call_once() for 1 .. $calls;
my $grown = memory() - $before;
cmp_ok($grown, '<', 8192, "$calls calls of each kind: grown by $grown bytes");

$holder->quit;
$node->stop;
done_testing();
