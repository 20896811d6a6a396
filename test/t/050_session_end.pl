# A session ends in every way there is: its leases of scope session and transaction are free at
# once, those of scope lease are still held, and who gets a lease finds the rows unlocked, since
# the rollback came first.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

# The clusters of the TAP tests stay down after a crash unless told otherwise.
my $node = make_node('ends', settings => { restart_after_crash => 'on' });
$node->safe_psql(
	'postgres', 'CREATE TABLE work (id int PRIMARY KEY, done int DEFAULT 0);
INSERT INTO work SELECT generate_series(1, 2)');
my $me = '11111111-1111-4111-8111-111111111111';

# The waiters ask so often that one asks while the session is at its end.
my $patient = q{max_wait => '30 s', retry => hloom_retry_interval(1000000, '1 ms')};

sub take_as_me
{
	my ($session, $key, $scope) = @_;
	ask($session, take('ends', $key, "scope => '$scope', owner => '$me'")) =~ /^\Q$me\E\|/
	  or die "the lease on $key was not granted";
	return;
}

# is_mine($key): whether the lease is held, asked and seen by a session of its own
sub is_mine
{
	my ($key) = @_;
	return $node->safe_psql(
		'postgres', "SELECT hloom_is_held('ends', '$key', '$me'),
	(SELECT count(*) FROM hloom_leases WHERE key = '$key' AND owner = '$me')");
}

# keys_of($prefix): what is held of what begins so
sub keys_of
{
	my ($prefix) = @_;
	return $node->safe_psql(
		'postgres', "SELECT coalesce(string_agg(key, ' ' ORDER BY key), '')
FROM hloom_leases WHERE starts_with(key, '$prefix')");
}

# holder($prefix): a session with leases of all kinds and an open transaction that has locked the
# rows; and its process.  "last" comes last: the session has heard of it, and sent nothing since.
sub holder
{
	my ($prefix) = @_;
	my $session = session($node, "holder $prefix");
	my $pid = ask($session, 'SELECT pg_backend_pid()');
	take_as_me($session, "$prefix:lease", 'lease');
	take_as_me($session, "$prefix:session", 'session');
	ask($session, 'BEGIN; UPDATE work SET done = -1');
	take_as_me($session, "$prefix:transaction", 'transaction');
	take_as_me($session, "$prefix:session2", 'session');
	take_as_me($session, "$prefix:last", 'lease');
	return ($session, $pid);
}

# let_wait($session): has the session wait for a busy key, without waiting for its answer
sub let_wait
{
	my ($session, $prefix) = @_;
	$session->{stdin} .= "SELECT count(*) FROM hloom_acquire('ends', 'busy', $patient);\n";
	$session->{run}->pump_nb;
	wait_until('the session waits',
		sub {
			$session->{run}->pump_nb;
			$node->safe_psql('postgres',
				    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension'"
				  . " AND application_name = 'holder $prefix'") eq '1';
		});
	return;
}

# kill_client($session): psql has no time to say that it ends
sub kill_client
{
	my ($session) = @_;
	$session->{run}->signal('KILL');
	$session->{run}->finish;
	return;
}

my $busy = session($node, 'busy');
ask($busy, take('ends', 'busy'));

# ---- the server goes on ------------------------------------------------------------------------

my %ends = (
	quit => sub { $_[0]->quit },
	'quit after commit' => sub { ask($_[0], 'COMMIT'); $_[0]->quit },
	terminated => sub { $node->safe_psql('postgres', "SELECT pg_terminate_backend($_[1])") },
	'terminated while waiting' => sub {
		let_wait($_[0], $_[2]);
		$node->safe_psql('postgres', "SELECT pg_terminate_backend($_[1])");
	},
	'idle timeout' => sub {
		# Its RELEASE is the session's last statement then, not the one that took "last".
		ask($_[0], q{SAVEPOINT s; SET idle_in_transaction_session_timeout = '10 ms'; RELEASE s});
	},
	'client killed' => sub { kill_client($_[0]) },
	'client killed while waiting' => sub {
		let_wait($_[0], $_[2]);
		kill_client($_[0]);
	});

for my $end (sort keys %ends)
{
	my $met = 0;
	my $rounds = $end =~ /^(?:terminated|client killed|quit)$/ ? rounds(3) : 1;
	for my $round (1 .. $rounds)
	{
		(my $prefix = "$end-$round") =~ tr/ /-/;
		my ($session, $pid) = holder($prefix);

		# Each waits for a lease and then wants a row the session has locked.
		my %waiter = map {
			my ($scope, $row) = @$_;
			(   $scope => start_sql(
					$node,
					"SELECT count(*) FROM hloom_acquire('ends', '$prefix:$scope', $patient);"
					  . "SELECT done FROM work WHERE id = $row FOR UPDATE NOWAIT;",
					"waiter $scope"))
		} ([ session => 1 ], [ transaction => 2 ]);
		wait_for_event($node, "waiter $_", 'Extension') for keys %waiter;

		is(keys_of("$prefix:"),
			join(' ', map { "$prefix:$_" } qw(last lease session session2 transaction)),
			"$end: all are held")
		  if $round == 1;
		$ends{$end}->($session, $pid, $prefix);
		my $done = $end eq 'quit after commit' ? -1 : 0;
		for my $scope (sort keys %waiter)
		{
			my ($out, $err, $rc) = finish_sql($waiter{$scope});
			is("$out|" . state_of($err), "1\n$done|", "$end: lease of scope $scope, then the row")
			  or diag($err);
		}

		# Whoever does not see the session any more finds its lease free, in one attempt.
		wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
		is( $node->safe_psql(
				'postgres',
				"SELECT count(*) FROM hloom_try_acquire('ends', '$prefix:session2')"),
			'1',
			"$end: the session's lease is free");
		is(is_mine("$prefix:lease"), 't|1', "$end: the lease of scope lease is held");
		is(is_mine("$prefix:last"), 't|1', "$end: so is the one it took last, and heard of");
		kill_client($session) if $end !~ /^quit|killed/;
		$node->safe_psql('postgres', 'TRUNCATE hloom_leases; UPDATE work SET done = 0');
		ask($busy, take('ends', 'busy'));
	}
}

# ---- the server ends, too ----------------------------------------------------------------------

my %server_ends = (
	'fast restart' => sub {
		$node->stop('fast');
		$node->start;
	},
	'immediate stop' => sub {
		$node->stop('immediate');
		$node->start;
	},
	'kill -9' => sub {
		my ($pid) = @_;
		my $from = -s $node->logfile;
		kill 'KILL', $pid or die "cannot kill $pid: $!";
		wait_until(
			'the server is up again',
			sub {
				slurp_file($node->logfile, $from) =~ /ready to accept connections/;
			});
	});

for my $end (sort keys %server_ends)
{
	(my $prefix = $end) =~ tr/ /-/;
	my ($session, $pid) = holder($prefix);
	my $other = session($node, 'other');
	take_as_me($other, "$prefix:other-session", 'session');
	ask($other, 'BEGIN');
	take_as_me($other, "$prefix:other-transaction", 'transaction');
	take_as_me($other, "$prefix:other-lease", 'lease');
	ask($other, 'SELECT 1');

	$server_ends{$end}->($pid);
	is( $node->safe_psql(
			'postgres',
			"SELECT key, (SELECT count(*) FROM hloom_try_acquire('ends', '$prefix:' || key))"
			  . " FROM unnest(ARRAY['session', 'session2', 'transaction', 'other-session',"
			  . " 'other-transaction']) AS key"),
		"session|1\nsession2|1\ntransaction|1\nother-session|1\nother-transaction|1",
		"$end: what followed a session or a transaction is free");
	is(is_mine("$prefix:$_"), 't|1', "$end: $_ is held") for qw(lease last other-lease);
	is( $node->safe_psql('postgres', 'SELECT sum(done) FROM work'),
		'0', "$end: and the transaction is rolled back");
	kill_client($_) for $session, $other;
}
kill_client($busy);

$node->stop;
done_testing();
