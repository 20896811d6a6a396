# With a synchronous standby a reported grant is on the standby, as synchronous_commit says.
#
# A standby on the same machine receives WAL within microseconds, so it would have it with or
# without a wait.  Therefore its WAL receiver is stopped by a signal, or its replay paused, before
# each call that has to wait: the call is seen waiting, and goes on when they do.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomTest;
use Test::More;

my $LEASES = "SELECT string_agg(key || '|' || owner || '|' || fence || '|' || expires_at, ' '"
  . ' ORDER BY key) FROM hloom_leases';

# add_standby($primary, $name): a synchronous standby of its own, streaming
sub add_standby
{
	my ($primary, $name) = @_;
	$primary->backup("for_$name");
	my $standby = PostgreSQL::Test::Cluster->new($name);
	$standby->init_from_backup($primary, "for_$name", has_streaming => 1);
	# A copy has its primary's names.
	$standby->append_conf('postgresql.conf', settings('synchronous_standby_names' => ''));
	$standby->start;
	$primary->append_conf('postgresql.conf', settings('synchronous_standby_names' => $name));
	$primary->reload;
	wait_for_sql($primary,
		"SELECT count(*) = 1 FROM pg_stat_replication WHERE application_name = '$name'"
		  . " AND state = 'streaming' AND sync_state = 'sync'");
	return $standby;
}

# signal_receiver($standby, $signal): SIGSTOP the WAL receiver, and SIGCONT it
sub signal_receiver
{
	my ($standby, $signal) = @_;
	my $pid = $standby->safe_psql('postgres', 'SELECT pid FROM pg_stat_wal_receiver');
	kill($signal, $pid) == 1 or die "no WAL receiver $pid";
	return;
}

sub pause_replay
{
	my ($standby) = @_;
	$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
	wait_for_sql($standby, 'SELECT pg_get_wal_replay_pause_state()', 'paused');
	return;
}

my ($primary, $standby);

# A release is flushed when it suits the server, a commit at once.
sub catch_up
{
	$primary->safe_psql('postgres',
		"SET synchronous_commit = local; SELECT pg_logical_emit_message(true, '', '')");
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));
	return;
}

$primary = make_node(
	'primary',
	init => { allows_streaming => 1 },
	# Nothing but the calls writes WAL, and a stopped receiver is not given up.
	settings => { 'wal_sender_timeout' => '10min', 'wal_receiver_timeout' => '10min' });
$primary->safe_psql('postgres', 'CREATE TABLE work (id text PRIMARY KEY)');
$standby = add_standby($primary, 'standby');

# remote_apply: a look at the standby shows the lease at once.
{
	my $here = session($primary);
	my $there = session($standby);
	my ($rounds, $equal) = (rounds(50), 0);
	my $owner = '00000000-0000-4000-8000-000000000001';

	ask($here, 'SET synchronous_commit = remote_apply');
	for my $round (1 .. $rounds)
	{
		my $in_transaction = $round % 2;
		ask($here, 'BEGIN') if $in_transaction;
		ask($here, take('sync', "apply-$round", "owner => '$owner'"));
		my $seen = ask($there, $LEASES);
		$equal++ if $seen =~ /apply-$round\|/ && $seen eq ask($here, $LEASES);
		ask($here, "SELECT hloom_release('sync', 'apply-$round', '$owner')");
		ask($here, 'ROLLBACK') if $in_transaction;
	}
	is($equal, $rounds, "remote_apply: on the standby when reported, $rounds rounds");
	$_->quit for $here, $there;
}

# Which setting waits for what
my %waits = (
	'off' => {},
	'local' => {},
	'remote_write' => { receiver => 1 },
	'on' => { receiver => 1 },
	'remote_apply' => { receiver => 1, replay => 1 });

for my $level (sort keys %waits)
{
	my $session = session($primary);
	my $owner = '00000000-0000-4000-8000-000000000002';
	my $SET = "SET synchronous_commit = $level;";
	my %calls = (
		'a grant' => take('sync', $level, "lease => '10min', owner => '$owner'"),
		'a longer lease' => "SELECT hloom_extend('sync', '$level', '$owner', '40min')");

	for my $what ('receiver', 'replay')
	{
		for my $call ('a grant', 'a longer lease')
		{
			my $name = "$level, $what stopped: $call";
			$what eq 'receiver' ? signal_receiver($standby, 'STOP') : pause_replay($standby);
			my $run = start_sql($primary, $SET . $calls{$call}, 'call');
			if ($waits{$level}{$what})
			{
				wait_for_event($primary, 'call', 'SyncRep');
				pass("$name waits");
				is( ask($session, 'SET synchronous_commit = local; ' . take('sync', $level)),
					'', "$name is on its way, nobody else gets the key");
			}
			else
			{
				my ($out, $messages) = finish_sql($run);
				is($messages, '', "$name does not wait");
			}
			# What gives back, looks or shortens does not wait for anybody.
			is( ask($session, $SET . "SELECT hloom_release('sync', 'other', owner)"
					  . " FROM (SELECT gen_random_uuid() AS owner) o"),
				'f', "$name: a release in vain");
			is( ask($session, $SET . "SELECT hloom_extend('sync', '$level', '$owner', '5min')"),
				't', "$name: shortening does not wait");
			$what eq 'receiver'
			  ? signal_receiver($standby, 'CONT')
			  : $standby->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
			if ($waits{$level}{$what})
			{
				my ($out, $messages) = finish_sql($run);
				is($messages, '', "$name goes on");
				isnt($out, '', "$name has an answer");
			}
		}
		is( ask($session, $SET . "SELECT hloom_release('sync', '$level', '$owner')"),
			't', "$level, $what: a release");
	}
	$session->quit;
	catch_up();
	is($standby->safe_psql('postgres', $LEASES), '', "$level: the standby has the same");
}

# Failover.  Replay is paused, so what the new primary has, it got from the WAL that was waited for.
# The kinds take turns in being the last one before the stop.
my @kinds = (
	'row beside a lease' => sub {
		my ($session, $key) = @_;
		ask($session, "BEGIN; INSERT INTO work VALUES ('$key')");
		is(ask($session, "SELECT hloom_release(h) FROM hloom_try_acquire('sync', '$key') h"),
			't', 'released before the commit');
		ask($session, 'COMMIT');
		return (
			"SELECT (SELECT count(*) FROM work WHERE id = '$key') || ' '"
			  . " || (SELECT count(*) FROM hloom_leases WHERE key = '$key')",
			'1 0');
	},
	'open transaction' => sub {
		my ($session, $key) = @_;
		ask($session, 'BEGIN');
		return (
			"SELECT owner || '|' || fence FROM hloom_leases WHERE key = '$key'",
			ask($session, take('sync', $key)));
	});

for my $round (1 .. rounds(2))
{
	my @checks;
	my @sessions = map { session($primary) } 1 .. @kinds / 2;
	pause_replay($standby);
	for my $n (0 .. $#sessions)
	{
		my $kind = 2 * (($n + $round) % @sessions);
		push @checks, [ $kinds[$kind], $kinds[ $kind + 1 ]->($sessions[$n], "failover-$round-$n") ];
	}
	my $fence = ask($sessions[0], 'SELECT max(fence) FROM hloom_leases');
	is($standby->safe_psql('postgres', "SELECT count(*) FROM work WHERE id ~ '-$round-'"),
		'0', 'the standby has not replayed it');
	$primary->stop('immediate');
	$_->quit for @sessions;
	$standby->promote;

	for my $check (@checks)
	{
		my ($kind, $sql, $expected) = @$check;
		is($standby->safe_psql('postgres', $sql), $expected, "failover $round: $kind");
	}
	is( $standby->safe_psql(
			'postgres',
			'CREATE TEMP TABLE old AS SELECT namespace, key, owner, fence FROM hloom_leases;'
			  . 'SELECT count(*) > 0 AND bool_and(hloom_release(namespace, key, owner)) FROM old;'
			  . 'SELECT bool_and(h.fence > old.fence)'
			  . ' FROM old, hloom_try_acquire(old.namespace, old.key) h'),
		"t\nt",
		"failover $round: the owner gives back, and the next fence is higher");
	$primary = $standby;
	last if $round == rounds(2);
	$primary->safe_psql('postgres',
		'SELECT hloom_release(namespace, key, owner) FROM hloom_leases');
	$standby = add_standby($primary, "standby$round");
}

$primary->stop;
done_testing();
