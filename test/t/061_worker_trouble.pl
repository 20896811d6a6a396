# A worker that is terminated, or stopped for longer than a lease lasts, and a launcher that is:
# another worker comes and no lease is lost for it; a lease that has ended meanwhile does not come
# back to life, and leaves that of the next owner alone.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomTest;
use Test::More;
use Time::HiRes qw(time);

my $me = '11111111-1111-4111-8111-111111111111';
my $you = '22222222-2222-4222-8222-222222222222';

# Its sender is for a standby that never comes.
my $node = make_node('trouble', init => { allows_streaming => 1 });
$node->safe_psql('postgres', 'CREATE TABLE stop (); CREATE TABLE attempts (n int)');
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION hloom_lock');
my $looker = session($node, 'looker');

# mine($lease): the rest of the arguments for a lease that is renewed
sub mine
{
	my ($lease) = @_;
	return "'$lease', scope => 'session', auto_extend => true, owner => '$me'";
}

# lease_end($key): of the row, '' when there is none
sub lease_end
{
	my ($key) = @_;
	return ask($looker, "SELECT expires_at FROM hloom_leases WHERE key = '$key'");
}

sub wait_until_renewed
{
	my ($key) = @_;
	my $end = lease_end($key);
	wait_until("$key is renewed", sub { lease_end($key) gt $end });
	return;
}

sub is_held
{
	my ($key, $owner) = @_;
	return ask($looker, "SELECT hloom_is_held('trouble', '$key', '$owner')");
}

# terminate($pid): the process gets SIGTERM
sub terminate
{
	my ($pid) = @_;
	is(ask($looker, "SELECT pg_terminate_backend($pid)"), 't', "process $pid is terminated");
	return;
}

# ---- terminated while somebody works and somebody wants ----------------------------------------

my $holder = start_sql($node, take('trouble', 'kept', mine('4 s')) . "; SELECT pg_sleep(300)",
	'holder');
wait_for_event($node, 'holder', 'PgSleep');
my $wanting = start_sql($node, <<'EOS');
DO $$
DECLARE attempts int := 0;
BEGIN
	WHILE NOT EXISTS (SELECT FROM stop) LOOP
		IF EXISTS (SELECT FROM hloom_try_acquire('trouble', 'kept')) THEN
			RAISE 'the lease was free after % attempts', attempts;
		END IF;
		attempts := attempts + 1;
		PERFORM pg_sleep(0.01);
	END LOOP;
	INSERT INTO attempts VALUES (attempts);
END $$
EOS
my $began = time;
my $pid = wait_for_worker($node);

# A worker that ends soon is replaced at once, the next after a second, the third after two: just
# renewed, the lease lasts longer.
my $launcher = launcher_pid($node);
my $seconds;
for my $round (1 .. 3)
{
	terminate($pid);
	my $terminated = time;
	$pid = wait_for_worker($node, undef, $pid);
	$seconds = time - $terminated;
	wait_until_renewed('kept');
	next if $round > 1;
	terminate($launcher);
	wait_until('another launcher runs', sub { launcher_pid($node) ne $launcher });
	wait_until_renewed('kept');
}
cmp_ok($seconds, '>', 1, 'the pause grows');
cmp_ok(time - $began, '>', 8, 'the lease was renewed for several of its lengths');
is(is_held('kept', $me), 't', 'it is held');
$node->safe_psql('postgres', 'INSERT INTO stop DEFAULT VALUES');
my ($out, $err, $rc) = finish_sql($wanting);
is("$rc|$err", '0|', 'and was at no time free');
my $attempts = ask($looker, 'SELECT n FROM attempts');
cmp_ok($attempts, '>', 100, "in $attempts attempts");
ask($looker, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
	  . " WHERE application_name = 'holder'");
finish_sql($holder);

# The fourth takes longer.
ask($looker, take('trouble', 'long', mine('10 min')));
terminate($pid);
wait_until(
	'health tells of the pause',
	sub {
		worker_health($node) =~ /^missing: it has failed or .*, tried again in \d+ s$/;
	});
pass('health tells that a worker has failed and when there is another');
$pid = wait_for_worker($node, undef, $pid);
ask($looker, "SELECT hloom_release('trouble', 'long', '$me')");

# ---- terminated in the middle of a turn --------------------------------------------------------

# Nothing else brings the next worker: what was due is known to the first one only.
my $other = session($node, 'other', 'other');
my $other_end = "SELECT expires_at FROM hloom_leases WHERE key = 'other'";
ask($other, take('trouble', 'other', mine('6 s')));
my $other_pid = wait_for_worker($node, 'other');
my $end = ask($other, $other_end);
$node->append_conf('postgresql.conf', settings('synchronous_standby_names' => 'absent'));
$node->reload;
wait_for_sql($node, "SELECT wait_event = 'SyncRep' FROM pg_stat_activity WHERE pid = $other_pid");
terminate($other_pid);
wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $other_pid");
$node->append_conf('postgresql.conf', settings('synchronous_standby_names' => ''));
$node->reload;
$other_pid = wait_for_worker($node, 'other', $other_pid);
wait_until('it is renewed', sub { ask($other, $other_end) gt $end });
is(ask($other, "SELECT hloom_is_held('trouble', 'other', '$me')"),
	't', 'terminated in a turn: the next worker renews');

# ---- stopped for longer than a lease lasts -----------------------------------------------------

ask($other, "SELECT hloom_extend('trouble', 'other', '$me', '2 s')");
$launcher = launcher_pid($node);
stop_process($looker, $launcher);
$end = ask($other, $other_end);

ask($looker, take('trouble', 'stopped', mine('2 s')));
$pid = wait_for_worker($node);
wait_until_renewed('stopped');
stop_process($looker, $pid);
my $next = session($node, 'next');
my $new = ask($next, "SELECT fence FROM hloom_acquire('trouble', 'stopped', '10 min',"
	  . " max_wait => '30 s', owner => '$you', retry => hloom_retry_interval(1000, '50 ms'))");
like($new, qr/^\d+$/, 'worker stopped: the lease ends and another owner gets it');
is(is_held('stopped', $me), 'f', 'the old owner holds nothing');
my $row = "SELECT fence, expires_at, owner FROM hloom_leases WHERE key = 'stopped'";
my $before = ask($next, $row);
like($before, qr/^$new\|.*\|$you$/, 'but the new one');
wait_until('the worker is late',
	sub { worker_health($node) =~ /^late: process $pid should have run [5-9] seconds ago$/ });
pass('health tells that the worker is late');

signal_process('CONT', $pid);
is(wait_for_worker($node), $pid, 'continued: the worker runs');
is(is_held('stopped', $me), 'f', 'the old lease does not come back to life');
is(ask($looker, "SELECT hloom_extend('trouble', 'stopped', '$me', '1 min'),"
	  . " hloom_release('trouble', 'stopped', '$me')"), 'f|f', 'neither extended nor released');
is(ask($next, $row), $before, 'the new lease is as it was');

# The launcher was stopped all the time.
cmp_ok(ask($other, $other_end), 'gt', $end, 'launcher stopped: a running worker renews');
is(ask($other, "SELECT hloom_is_held('trouble', 'other', '$me')"), 't', 'no lease is lost');
signal_process('CONT', $launcher);
terminate($other_pid);
isnt(wait_for_worker($node, 'other', $other_pid), $other_pid,
	'continued: it replaces a worker');

# A worker that was stopped while it had nothing to do is late once there is something.
stop_process($looker, $pid);
ask($looker, take('trouble', 'idle', mine('2 s')));
wait_until('the worker is late', sub { worker_health($node) =~ /^late: process $pid / });
pass('stopped while idle: late');
signal_process('CONT', $pid);
is(wait_for_worker($node), $pid, 'continued: the worker runs');
is(is_held('idle', $me), 'f', 'the lease has ended');

$_->quit for $looker, $next, $other;
$node->stop;
done_testing();
