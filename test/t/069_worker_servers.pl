# Leases that the server renews when the server itself changes: a synchronous standby that is not
# there, and comes to be not needed; fast shutdowns, also while a renewal waits for that standby;
# a standby that takes over.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $WORKER = "backend_type = 'hloom_lock worker'";
my $LAUNCHER = "backend_type = 'hloom_lock launcher'";
my $FAILED = 'LockExtendFailed: could not renew the lease on key "%s": no standby has confirmed it';
my $PREFIX = { 'log_line_prefix' => '%m [%p] %b ' };

# keeps($session, $key, $lease [, $rest]): takes a lease that the server is to renew; returns its
# fence
sub keeps
{
	my ($session, $key, $lease, $rest) = @_;
	$rest = defined $rest ? ", $rest" : '';
	return ask($session,
		"SELECT fence FROM hloom_try_acquire('kept', '$key', '$lease', scope => 'session',"
		  . " auto_extend => true$rest)");
}

sub end_of
{
	my ($node, $key) = @_;
	return $node->safe_psql('postgres',
		"SELECT expires_at FROM hloom_leases WHERE key = '$key'");
}

# becomes_later($node, $key, $end, $name): the lease gets a later end
sub becomes_later
{
	my ($node, $key, $end, $name) = @_;
	my $looked = wait_until(
		"$name: the lease is renewed",
		sub {
			return $node->safe_psql('postgres',
				    "SELECT CASE WHEN expires_at > '$end' THEN 'later'"
				  . " WHEN expires_at <= clock_timestamp() THEN 'over' ELSE '' END"
				  . " FROM hloom_leases WHERE key = '$key' UNION ALL SELECT 'gone' LIMIT 1");
		});
	is($looked, 'later', "$name: the lease is renewed");
	return;
}

sub lines_about
{
	my ($node, $pattern, $from) = @_;
	return grep { /$pattern/ } split /\n/, slurp_file($node->logfile, $from);
}

# wait_for_line($node, $pattern, $from): until the server's log has it
sub wait_for_line
{
	my ($node, $pattern, $from) = @_;
	wait_until("the log has $pattern", sub { lines_about($node, $pattern, $from) > 0 });
	return;
}

# kill_client($session): its server has ended
sub kill_client
{
	my ($session) = @_;
	$session->{run}->signal('KILL');
	$session->{run}->finish;
	return;
}

# stops_fast($node, $name): within half a minute and cleanly
sub stops_fast
{
	my ($node, $name) = @_;
	my $from = -s $node->logfile;
	local $ENV{PGCTLTIMEOUT} = 30;
	my $stopped = $node->stop('fast', fail_ok => 1);
	ok($stopped, "$name: the server stops");
	$node->stop('immediate') if !$stopped;
	my $log = slurp_file($node->logfile, $from);
	my $usual = '\b(?:terminating .* due to administrator command'
	  . '|(?:terminating connection|canceling the wait) .*)$';
	is_deeply([ grep { /(?:ERROR|FATAL|PANIC):  / && !/$usual/ } split /\n/, $log ],
		[], "$name: no other error");
	is_deeply([ grep { / exited with / && !/exited with exit code 1$/ } split /\n/, $log ],
		[], "$name: every background worker ends as told");
	like($log, qr/database system is shut down/, "$name: cleanly");
	return;
}

# ---- without the synchronous standby -------------------------------------------------------------

my $node = make_node('servers', init => { allows_streaming => 1 }, settings => $PREFIX);

# set_standbys($names): the checkpointer tells the others, so commit until it waits, or does not
sub set_standbys
{
	my ($names) = @_;
	my $waiting = 'SELECT pg_cancel_backend(pid) FROM pg_stat_activity'
	  . " WHERE application_name = 'probe' AND wait_event = 'SyncRep'";
	$node->append_conf('postgresql.conf', settings('synchronous_standby_names' => $names));
	$node->reload;
	wait_until(
		"synchronous_standby_names '$names'",
		sub {
			my $run = start_sql($node, "SELECT pg_logical_emit_message(true, '', '')", 'probe');
			my $waits = '';
			wait_until(
				'a commit ends or waits',
				sub {
					$run->{handle}->pump_nb;
					$waits ||= $node->safe_psql('postgres', $waiting);
					return !$run->{handle}->pumpable || $waits;
				});
			finish_sql($run);
			return ($waits ne '') == ($names ne '');
		});
	return;
}

{
	my $kept = session($node, 'kept');
	my $lost = session($node, 'lost');
	my $observer = session($node, 'observer');
	my $from = -s $node->logfile;
	my $fence = keeps($kept, 'kept', '18 s', "on_lost => 'cancel'");
	my $end = end_of($node, 'kept');
	keeps($lost, 'lost', '6 s', "on_lost => 'cancel'");
	keeps($observer, 'observed', '6 s');
	my $lost_end = end_of($node, 'lost');
	wait_for_sql($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE $WORKER");
	set_standbys('nobody');

	# The short ones end before the standby has them.
	is((ask_error($lost, "SELECT pg_sleep($PostgreSQL::Test::Utils::timeout_default)"))[0],
		'LL010', 'no standby: the holder loses its lease');
	is( $node->safe_psql('postgres', "SELECT clock_timestamp() >= '$lost_end'"),
		't', 'no standby: at its end');

	# Their rows were written for longer, which no standby has confirmed.
	wait_for_sql($node, q{SELECT count(*) = 0 FROM hloom_leases WHERE key IN ('lost', 'observed')});
	is( $node->safe_psql(
			'postgres', "SELECT clock_timestamp() < '$lost_end'::timestamptz + '2.9 s'"),
		't',
		'no standby: nor are they held by what was written but is not durable');
	wait_for_line($node, sprintf($FAILED, $_), $from) for 'lost', 'observed';

	# The long one is tried again.
	wait_for_line($node, sprintf($FAILED, 'kept'), $from);
	is(ask($kept, 'SELECT 1'), '1', 'no standby: a lease is kept to its end');
	set_standbys('');
	wait_for_sql($node, "SELECT clock_timestamp() > '$end'");
	is(ask($kept, "SELECT fence FROM hloom_leases WHERE key = 'kept'"),
		$fence, 'the standby is not needed any more: the lease is renewed');
	is(end_of($node, $_), '', "the standby is not needed any more: $_ is not held again")
	  for 'lost', 'observed';
	is( $node->safe_psql('postgres', "SELECT count(*) FROM hloom_try_acquire('kept', '$_')"),
		'1', "the standby is not needed any more: $_ is free")
	  for 'lost', 'observed';
	wait_for_sql($node,
		q{SELECT value = 2 FROM hloom_metrics
			WHERE name = 'hostloom_lock_lost' AND namespace = 'kept'});
	my @lines = lines_about($node, 'hloom_lock (?:worker|launcher) .*(?:LOG|WARNING|ERROR)', $from);
	cmp_ok(scalar(@lines), '<', 30, 'no standby: lines in the log');
	$_->quit for $kept, $lost, $observer;
}

# The server is stopped while a renewal waits.
{
	my $from = -s $node->logfile;
	my $holder = session($node, 'holder');
	keeps($holder, 'stopped', '8 s');
	set_standbys('nobody');
	wait_for_sql($node, "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE $WORKER");
	stops_fast($node, 'stopped while a renewal waits');
	kill_client($holder);
	$node->append_conf('postgresql.conf', settings('synchronous_standby_names' => ''));
	$node->start;
	is( $node->safe_psql('postgres', "SELECT count(*) FROM hloom_try_acquire('kept', 'stopped')"),
		'1', 'stopped while a renewal waits: its lease is free afterwards');
}

# ---- restarts ------------------------------------------------------------------------------------

# Two databases whose workers are busy: with renewals, and with what was given back.
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION hloom_lock');
for my $round (1 .. rounds(5))
{
	my @sessions;
	for my $database ('postgres', 'other')
	{
		push @sessions, map { session($node, 'busy', $database) } 1 .. 2;
		ask($_, <<'SQL') for @sessions[-2, -1];
SELECT count(*) FROM generate_series(1, 50) i, hloom_try_acquire('busy',
	format('%s:%s', i, pg_backend_pid()), (500 + 20 * i) * interval '1 ms',
	scope => 'session', auto_extend => true);
BEGIN;
SELECT count(*) FROM hloom_try_acquire('busy', 'transaction:' || pg_backend_pid(),
	scope => 'transaction', auto_extend => true);
SQL
	}
	my $renewed = 'SELECT count(*) FROM hloom_leases WHERE expires_at > granted_at + lease';
	for my $database ('postgres', 'other')
	{
		wait_until("leases are renewed in $database",
			sub { $node->safe_psql($database, $renewed) > 5 });
	}
	stops_fast($node, 'stopped with busy workers');
	kill_client($_) for @sessions;
	$node->start;
}
{
	my $session = session($node, 'after');
	keeps($session, 'after', '1 s');
	becomes_later($node, 'after', end_of($node, 'after'), 'after the last restart');
	$session->quit;
}
$node->stop;

# ---- a standby takes over ------------------------------------------------------------------------

my $primary = make_node('primary', init => { allows_streaming => 1 }, settings => $PREFIX);
$primary->backup('standby');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'standby', has_streaming => 1);
$standby->start;

my $plain_owner = '11111111-1111-4111-8111-111111111111';
my $holder = session($primary, 'holder');
keeps($holder, 'session', '1 min');
ask($holder, take('kept', 'plain', "lease => '1 h', owner => '$plain_owner'"));
ask($holder, 'BEGIN; ' . take('kept', 'transaction', "scope => 'transaction', lease => '1 h'"));
keeps($holder, 'renewed', '2 s');
becomes_later($primary, 'renewed', end_of($primary, 'renewed'), 'on the primary');
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));

my $HEALTH = q{SELECT healthy, detail ~ 'standby', worker FROM hloom_health()
	WHERE provider = 'table'};
my $from_before = session($standby, 'before');
is(ask($from_before, $HEALTH), 'f|t|', 'standby: what health says');
is($standby->safe_psql('postgres', 'SELECT string_agg(key, \',\' ORDER BY key) FROM hloom_leases'
	  . ' WHERE key <> \'renewed\''), 'plain,session,transaction', 'standby: the leases are there');
is( $standby->safe_psql(
		'postgres', "SELECT count(*) FROM pg_stat_activity WHERE $WORKER OR $LAUNCHER"),
	'0', 'standby: no launcher and no worker');
is_deeply([ lines_about($standby, 'background worker "hloom_lock', 0) ],
	[], 'standby: and none has been there');

$primary->stop('immediate');
kill_client($holder);
is($standby->safe_psql('postgres', 'SELECT pg_promote()'), 't', 'the standby is promoted');
wait_for_sql($standby, "SELECT count(*) = 1 FROM pg_stat_activity WHERE $LAUNCHER");
pass('promoted: the launcher starts');

is( $standby->safe_psql(
		'postgres', "SELECT key, (SELECT count(*) FROM hloom_try_acquire('kept', key))"
		  . " FROM unnest('{session,transaction,renewed,plain}'::text[]) AS key"),
	"session|1\ntransaction|1\nrenewed|1\nplain|0",
	'promoted: what followed a session or a transaction is free, nothing else');
is($standby->safe_psql('postgres', "SELECT hloom_is_held('kept', 'plain', '$plain_owner')"),
	't', 'promoted: the other lease is still its owner\'s');
my $fence = keeps($from_before, 'new', '1 s', "on_lost => 'cancel'");
becomes_later($standby, 'new', end_of($standby, 'new'), 'promoted') for 1 .. 3;
is(ask($from_before, 'SELECT fence FROM hloom_leases WHERE key = \'new\''),
	$fence, 'promoted: a lease is kept');
like(ask($from_before, $WORKER_STATE), qr/^running/, 'promoted: health');
$from_before->quit;

stops_fast($standby, 'promoted');
done_testing();
