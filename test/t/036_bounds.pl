# Somebody holds the lease table in an open transaction: every call answers within its bound, can be
# cancelled, and leaves nothing behind.  Whoever wants the table gets it under a stream of calls.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HloomTest;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

# Far above any bound below, far below a hang.
my $SOON = 20;

my $node = make_node('bounds');
my $blocker = session($node, 'blocker');
my $caller = session($node, 'caller');
my $owner = '11111111-1111-4111-8111-111111111111';
my $mine = "'bounds', 'mine', '$owner'";

# timed($name, $at_least, $sql): SQLSTATE, messages and output of a call that has to wait for
# $at_least seconds, since nobody gives the table back
sub timed
{
	my ($name, $at_least, $sql) = @_;
	$caller->{stderr} = '';
	my $start = time;
	my $output = $caller->query($sql);
	my $took = time - $start;
	ok($took >= $at_least && $took < $SOON, sprintf('%s: answered after %.2f s', $name, $took));
	my $messages = $caller->{stderr};
	my $state = $messages =~ /ERROR:  (\w{5}):/ ? $1 : '';
	return ($state, $messages, $output);
}

sub check_bounds
{
	my ($lock) = @_;
	my ($state, $messages, $output);

	($state) = timed("$lock, acquire", 0.4, take('bounds', 'new', q{lease => '400 ms'}));
	is($state, 'LL003', "$lock, acquire: LL003 when the lease is over");

	ask($caller, q{SET lock_timeout = '300 ms'});
	($state) = timed("$lock, acquire with lock_timeout", 0.3, take('bounds', 'new'));
	is($state, 'LL003', "$lock, acquire: LL003 after lock_timeout");
	ask($caller, q{RESET lock_timeout});

	($state, $messages, $output) =
	  timed("$lock, extend", 0.4, "SELECT hloom_extend($mine, '400 ms')");
	is($state, '', "$lock, extend: no error");
	is($output, 'f', "$lock, extend: false");
	like($messages, qr/WARNING:  LL003: LockExtendFailed/, "$lock, extend: a warning");

	ask($caller, q{SET hloom_lock.default_lease = '300 ms'});
	($state, $messages, $output) =
	  timed("$lock, extend without a lease", 0.3, "SELECT hloom_extend($mine)");
	is("$state$output", 'f', "$lock, extend without a lease: false after default_lease");

	($state, $messages, $output) =
	  timed("$lock, release", 0.3, "SELECT coalesce(hloom_release($mine)::text, 'null')");
	is("$state$output", 'null', "$lock, release: not known after default_lease");
	like($messages, qr/WARNING:  LL003: LockReleaseFailed/, "$lock, release: a warning");

	for my $function ('is_held', 'remaining')
	{
		($state) = timed("$lock, $function", 0.3, "SELECT hloom_$function($mine)");
		is($state, 'LL003', "$lock, $function: LL003 after default_lease");
	}
	ask($caller, q{RESET hloom_lock.default_lease});
	return;
}

# wait_behind($sql): a script in a session of its own, once it waits for the table
sub wait_behind
{
	my ($sql) = @_;
	my $run = start_sql($node, "$sql;\n", 'waiting');
	# psql gets its script only while somebody pumps, and no end of file before it has ended.
	$run->{handle}->pump while length $run->{sql};
	wait_for_event($node, 'waiting', 'Extension');
	return $run;
}

sub check_cancel
{
	my ($state) = timed(
		'statement_timeout', 0.5,
		"SET statement_timeout = '500 ms'; " . take('bounds', 'new', q{lease => '50 min'}));
	is($state, '57014', 'statement_timeout ends the wait');
	ask($caller, q{RESET statement_timeout});

	my %call = (
		acquire => take('bounds', 'new', q{lease => '50 min'}),
		extend => "SELECT hloom_extend($mine, '50 min')",
		release => "SELECT hloom_release($mine)",
		is_held => "SELECT hloom_is_held($mine)");
	for my $what (sort keys %call)
	{
		for my $how ([ 'cancel', '57014' ], [ 'terminate', '57P01' ])
		{
			my ($function, $expected) = @$how;
			my $run = wait_behind($call{$what});
			$node->safe_psql('postgres',
				"SELECT pg_${function}_backend(pid) FROM pg_stat_activity"
				  . " WHERE application_name = 'waiting'");
			my ($out, $err) = finish_sql($run);
			like($err, qr/(?:ERROR|FATAL):  $expected:/, "$what: $function ends the wait");
		}
	}
	return;
}

# ---- each call within its bound ----------------------------------------------------------------

ask($caller, take('bounds', 'mine', "owner => '$owner'"));
ask($blocker, 'BEGIN; LOCK TABLE hloom_leases');
check_bounds('LOCK TABLE');
check_cancel();
ask($blocker, 'ROLLBACK');
is(ask($caller, "SELECT hloom_is_held($mine)"), 't', 'the lease is held as before');
is( ask($caller, 'SELECT count(*) FROM hloom_leases'),
	'1',
	'nothing was granted by the calls that failed');

my $fence = ask($caller, "SELECT fence FROM hloom_leases WHERE key = 'mine'");
ask($blocker, 'BEGIN; TRUNCATE hloom_leases');
check_bounds('TRUNCATE');

# A call that waits when the table becomes free goes on at once, not when its bound is over.
my $run = wait_behind("SELECT hloom_is_held($mine)");
ask($blocker, 'ROLLBACK');
is((finish_sql($run))[0], 't', 'a rolled back TRUNCATE takes nothing away');

ask($blocker, 'BEGIN; TRUNCATE hloom_leases');
$run = wait_behind(take('bounds', 'mine'));
ask($blocker, 'COMMIT');
my ($out) = finish_sql($run);
like($out, qr/^[0-9a-f-]{36}\|\d+$/, 'after the TRUNCATE the waiting call takes the lease');
my $next = $out =~ /\|(\d+)/ ? $1 : 0;
cmp_ok($next, '>', $fence, 'with a higher fence');
is(ask($caller, "SELECT hloom_is_held($mine)"), 'f', 'the owner from before has lost it');

# A lock that lets changes in does not hinder anybody.
ask($blocker, 'BEGIN; LOCK TABLE hloom_leases IN ROW EXCLUSIVE MODE');
is(ask($caller, 'SELECT count(*) FROM hloom_try_acquire(\'bounds\', \'other\')'),
	'1', 'ROW EXCLUSIVE MODE hinders nobody');
ask($blocker, 'ROLLBACK');

# ---- whoever wants the table gets it -----------------------------------------------------------

my $script = $node->basedir . '/stream.sql';
append_to_file($script, <<'SQL');
\set key random(1, 100)
SELECT count(*) FROM hloom_try_acquire('stream', 'key' || :key, lease => '60 s',
	owner => md5(:client_id::text)::uuid);
SELECT hloom_extend('stream', 'key' || :key, md5(:client_id::text), '50 s');
SELECT hloom_release('stream', 'key' || :key, md5(:client_id::text));
SQL
my $seconds = rounds(4);
my ($stream_out, $stream_err) = ('', '');
my $stream = IPC::Run::start(
	[
		'pgbench', '-n', '-c', '8', '-T', $seconds, '-f', $script, $node->connstr('postgres')
	],
	'>', \$stream_out, '2>', \$stream_err,
	IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default + $seconds));
my %got = ('TRUNCATE hloom_leases' => 0, 'VACUUM FULL hloom_leases' => 0);
my $longest = 0;
ask($blocker, q{SET lock_timeout = '30 s'});
while ($stream->pumpable)
{
	for my $statement (sort keys %got)
	{
		my $start = time;
		ask($blocker, $statement);
		$longest = time - $start if time - $start > $longest;
		$got{$statement}++;
	}
	$stream->pump_nb;
}
$stream->finish;
is($stream->result(0), 0, 'a stream of calls goes on while others take the table')
  or diag($stream_err);
note(sprintf('longest wait for the table: %.2f s', $longest));
my ($calls) = $stream_out =~ /transactions actually processed: (\d+)/;
cmp_ok($calls, '>=', 100, "calls of $calls rounds");
cmp_ok($got{$_}, '>=', 3, "$_: $got{$_} times") for sort keys %got;

$blocker->quit;
$caller->quit;
done_testing();
