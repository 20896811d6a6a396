# A grant that waits for a synchronous standby that never comes can be cut short, and then nothing
# is held.  Core ends such a wait of a COMMIT with a warning, since a commit cannot be undone; its
# text in the messages shows here that the wait was reached.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomTest;
use Test::More;

my $node = make_node('absent', init => { allows_streaming => 1 });
$node->safe_psql('postgres', 'CREATE TABLE work (id int)');

# set_standbys($names): the checkpointer tells the others, so commit until it waits, or does not
sub set_standbys
{
	my ($names) = @_;
	$node->append_conf('postgresql.conf', settings('synchronous_standby_names' => $names));
	$node->reload;
	wait_until("synchronous_standby_names '$names'", sub { commit_waits() == ($names ne '') });
	return;
}

sub commit_waits
{
	my $run = start_sql($node, "SELECT pg_logical_emit_message(true, '', '')", 'probe');
	my $waits = wait_until(
		'a commit ends or waits',
		sub {
			$run->{handle}->pump_nb;
			return 'no' if !$run->{handle}->pumpable;
			return $node->safe_psql('postgres',
				'SELECT pg_cancel_backend(pid) FROM pg_stat_activity'
				  . " WHERE application_name = 'probe' AND wait_event = 'SyncRep'") eq 't';
		});
	finish_sql($run);
	return $waits eq 'no' ? 0 : 1;
}

sub all_leases
{
	return $node->safe_psql('postgres', 'SELECT namespace, key, fence FROM hloom_leases');
}

# Nothing is held: not in the table, and somebody else gets the key.
sub nothing_held
{
	my ($name) = @_;
	is(all_leases(), '', "$name: nothing held");
	is( $node->safe_psql(
			'postgres',
			"SET synchronous_commit = local;"
			  . "SELECT hloom_release(h) FROM hloom_try_acquire('absent', 'k') h"),
		't',
		"$name: another session gets the key");
	return;
}

# cut($how, $sql): runs a script that waits, ends the wait; returns SQLSTATE, messages and psql's
# status
sub cut
{
	my ($how, $sql) = @_;
	my $timeout = $how eq 'timeout' ? "SET statement_timeout = '1s';" : '';
	my $run = start_sql($node, $timeout . $sql, 'cut');
	if ($how ne 'timeout')
	{
		wait_for_event($node, 'cut', 'SyncRep');
		$node->safe_psql('postgres',
			"SELECT pg_${how}_backend(pid) FROM pg_stat_activity WHERE application_name = 'cut'");
	}
	my ($out, $messages, $status) = finish_sql($run);
	is($out, '', 'no answer but an error');
	return ($messages =~ /(?:ERROR|FATAL):  (\w{5})/ ? $1 : '', $messages, $status);
}

my %expected = (
	timeout => [ '57014', qr/canceling statement due to statement timeout/, 3 ],
	cancel => [ '57014', qr/canceling statement due to user request/, 3 ],
	terminate => [ '57P01', qr/terminating connection due to administrator command/, 2 ]);

set_standbys('nobody');

my $TAKE = "SELECT 'taken' FROM hloom_try_acquire('absent', 'k');";
my %scripts = (
	'autocommit' => $TAKE,
	'open transaction' => "BEGIN; $TAKE",
	'open transaction with an xid' => "BEGIN; INSERT INTO work VALUES (1); $TAKE",
	'remote_apply' => "SET synchronous_commit = remote_apply; $TAKE");

for my $how (sort keys %expected)
{
	for my $script (sort keys %scripts)
	{
		my ($state, $message, $status) = @{ $expected{$how} };
		my @found = cut($how, $scripts{$script});
		my $name = "$how, $script";
		is($found[0], $state, "$name: SQLSTATE");
		like($found[1], $message, "$name: message");
		is($found[2], $status, "$name: how the client ends");
		# The connection is going down, core does not try to warn its client.
		like($found[1], qr/canceling wait for synchronous replication/, "$name: it did wait")
		  if $how ne 'terminate';
		nothing_held($name);
	}
}
is($node->safe_psql('postgres', 'SELECT count(*) FROM work'), '0', 'no transaction committed');

# The session goes on, and the cancel that was passed on hits nothing else.
{
	my $session = session($node, 'goes on');
	ask($session, 'BEGIN; SAVEPOINT s');
	ask($session, "SET statement_timeout = '1s'");
	is((ask_error($session, $TAKE))[0], '57014', 'in a subtransaction');
	ask($session, 'ROLLBACK TO s');
	is(ask($session, 'SELECT pg_sleep(0.05)'), '', 'the next statement is not cancelled');
	ask($session, 'COMMIT');
	nothing_held('in a subtransaction');

	# PL/pgSQL does not catch a cancel with OTHERS, but it does by name.
	is( ask($session, <<'SQL'), '', 'caught by name');
SET statement_timeout = '1s';
DO $$ BEGIN
	PERFORM hloom_try_acquire('absent', 'k');
	RAISE 'not reached' USING ERRCODE = 'XX000';
EXCEPTION WHEN query_canceled THEN NULL;
END $$
SQL
	nothing_held('caught by name');

	is( ask($session, "SET synchronous_commit = local; $TAKE"), 'taken',
		'a session that does not ask for a standby takes the key');
	ask($session, "SELECT hloom_release(namespace, key, owner) FROM hloom_leases");
	$session->quit;
}

# Keeping and giving back.  The lease is taken without the standby.
{
	my $session = session($node, 'keeps');
	my $owner = '00000000-0000-4000-8000-000000000001';
	my $renew = "SELECT fence FROM hloom_try_acquire('absent', 'k', '20min', owner => '$owner')";
	my $look = "SELECT fence || '|' || owner FROM hloom_leases WHERE key = 'k'";
	my $end = "SELECT expires_at FROM hloom_leases WHERE key = 'k'";

	ask($session, 'SET synchronous_commit = local');
	my $lease = ask($session, $renew) . "|$owner";
	ask($session, 'SET synchronous_commit = on');
	my $before = ask($session, $end);

	is( ask($session, "SELECT hloom_extend('absent', 'k', '$owner', '19min')"),
		't', 'a shorter lease need not wait');
	is(ask($session, "SELECT hloom_is_held('absent', 'k', '$owner')"),
		't', 'a look does not wait');

	for my $how (sort keys %expected)
	{
		for my $call ($renew, "SELECT hloom_extend('absent', 'k', '$owner', '30min')")
		{
			my ($state, $message) = @{ $expected{$how} };
			my @found = cut($how, "$call;");
			is($found[0], $state, "$how: a longer lease waits");
			like($found[1], $message, "$how: message");
			is(ask($session, $look), $lease, "$how: the old lease stands, with its fence");
			is(ask($session, "SELECT ($end) >= '$before'::timestamptz - interval '1 min'"),
				't', "$how: and is not shorter");
		}
	}
	is(ask($session, "SELECT hloom_release('absent', 'k', '$owner')"),
		't', 'a release need not wait');
	$session->quit;
	nothing_held('after the release');
}

# A client that got no answer tries again with its owner token on another connection.  What that
# one was told holds, whatever becomes of the first call.
{
	my $owner = '00000000-0000-4000-8000-000000000003';
	my $session = session($node, 'second');
	my $again = take('absent', 'k', "owner => '$owner'");
	my $run = start_sql($node, "$again;", 'cut');
	wait_for_event($node, 'cut', 'SyncRep');
	ask($session, 'SET synchronous_commit = local');
	my $told = ask($session, $again);
	$node->safe_psql('postgres',
		"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE application_name = 'cut'");
	my ($out, $messages) = finish_sql($run);
	like($messages, qr/ERROR:  57014/, 'tried again: the first call is cancelled');
	is(ask($session, "SELECT owner || '|' || fence FROM hloom_leases WHERE key = 'k'"),
		$told, 'tried again: the second one holds the lease');
	is(ask($session, "SELECT hloom_release('absent', 'k', '$owner')"), 't', 'tried again: release');
	$session->quit;
	nothing_held('tried again');
}

# Nobody has to end the wait: it is not longer than the lease.
{
	my $session = session($node, 'bound');
	my $owner = '00000000-0000-4000-8000-000000000002';
	my @found = ask_error($session, take('absent', 'k', "lease => '700 ms'"));
	is($found[0], 'LL003', 'bound: the lease is over before the standby has it');
	like($found[1], qr/canceling wait for synchronous replication/, 'bound: it did wait');
	is(ask($session, 'SELECT pg_sleep(0.05)'), '', 'bound: the next statement is not cancelled');
	nothing_held('bound');

	ask($session, 'SET synchronous_commit = local');
	ask($session, take('absent', 'k', "lease => '1 s', owner => '$owner'"));
	ask($session, 'SET synchronous_commit = on');
	$session->{stderr} = '';
	is(ask($session, "SELECT hloom_extend('absent', 'k', '$owner', '2 s')"),
		'f', 'bound: a longer lease is not confirmed');
	like($session->{stderr}, qr/LL003: LockExtendFailed/, 'bound: with a warning');
	ask($session, "SELECT hloom_release('absent', 'k', '$owner')");
	$session->quit;
	nothing_held('bound, extension');
}

# A server that shuts down ends the wait, too.
{
	my $run = start_sql($node, $TAKE, 'cut');
	wait_for_event($node, 'cut', 'SyncRep');
	$node->stop('fast');
	my ($out, $messages) = finish_sql($run);
	is($out, '', 'shutdown: no grant reported');
	like($messages, qr/57P01/, 'shutdown: the client sees it');
	$node->start;
	nothing_held('shutdown');
}

# The wait ends with a grant when no standby is asked for any more.
{
	my $run = start_sql($node, $TAKE, 'cut');
	wait_for_event($node, 'cut', 'SyncRep');
	set_standbys('');
	my ($out, $messages) = finish_sql($run);
	is($out, 'taken', 'the grant comes when the standby is no longer asked for');
	is($messages, '', 'without a warning');
	like(all_leases(), qr/^absent\|k\|\d+$/, 'and it is held');
}

$node->stop;
done_testing();
