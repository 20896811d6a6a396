# A worker or launcher that is killed, which restarts the server; and one that cannot be had, since
# max_worker_processes does not allow it: locks work without, and hloom_health and one line of the
# log tell it.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $auto = q{'3 s', scope => 'session', auto_extend => true};
my $shortage = 'could not start a hloom_lock worker';

# The clusters of the TAP tests stay down after a crash unless told otherwise.
my $node = make_node(
	'missing',
	settings => { restart_after_crash => 'on', max_logical_replication_workers => 0 });

sub lines_about
{
	my ($what, $from) = @_;
	my @lines = grep { /\Q$what\E/ } split /\n/, slurp_file($node->logfile, $from);
	return scalar @lines;
}

# is_renewed($what): a lease that is taken in a session of its own is
sub is_renewed
{
	my ($what) = @_;
	my $session = session($node, 'renewing');
	my ($owner) = split /\|/, ask($session, take('missing', 'renewed', $auto));
	my $looks = q{SELECT expires_at FROM hloom_leases WHERE key = 'renewed'};
	my $end = ask($session, $looks);
	wait_until('the lease is renewed', sub { ask($session, $looks) gt $end });
	is(ask($session, "SELECT hloom_is_held('missing', 'renewed', '$owner')"), 't', $what);
	$session->quit;
	return;
}

# ---- kill -9 -----------------------------------------------------------------------------------

for my $victim ('worker', 'launcher')
{
	my $holder = session($node, 'holder');
	ask($holder, take('missing', "$victim-session", $auto));
	ask($holder, take('missing', "$victim-lease"));
	my %pid = (worker => wait_for_worker($node), launcher => launcher_pid($node));
	my $from = -s $node->logfile;
	signal_process('KILL', $pid{$victim});
	wait_until('the server is up again',
		sub { lines_about('ready to accept connections', $from) > 0 });

	# It stays: nobody works for a database without a client.
	my $next = session($node, 'next');
	is( ask($next,
			"SELECT key, (SELECT count(*) FROM hloom_try_acquire('missing', '$victim-' || key))"
			  . " FROM unnest(ARRAY['session', 'lease']) AS key"),
		"session|1\nlease|0",
		"$victim killed: the session's lease is gone, the other is held");
	isnt(launcher_pid($node), $pid{launcher}, 'another launcher runs');
	isnt(wait_for_worker($node), $pid{worker}, 'another worker runs');
	is_renewed('and renews');
	$holder->{run}->signal('KILL');
	$holder->{run}->finish;
	$next->quit;
}

# ---- no room for a worker ----------------------------------------------------------------------

# restart($workers): with so many background workers; returns where the log goes on
sub restart
{
	my ($workers) = @_;
	$node->append_conf('postgresql.conf', settings(max_worker_processes => $workers));
	$node->stop;
	my $from = -s $node->logfile;
	$node->start;
	return $from;
}

# locks_work($what): leases are granted, extended, and given back in each way, by sessions that end
sub locks_work
{
	my ($what) = @_;
	my $holder = session($node, 'holder');
	my $other = session($node, 'other');
	my $pid = ask($holder, 'SELECT pg_backend_pid()');
	my ($owner) = split /\|/, ask($holder, take('missing', 'k', $auto));
	is(ask($other, take('missing', 'k')), '', "$what: a held lease is held");
	is( ask($holder,
			"SELECT hloom_extend('missing', 'k', '$owner', '10 min'),"
			  . " hloom_release('missing', 'k', '$owner')"),
		't|t',
		"$what: extended and released");
	ask($holder, take('missing', 'session', q{'10 min', scope => 'session', auto_extend => true}));
	$holder->quit;
	wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
	like(ask($other, take('missing', 'session', q{scope => 'session'})),
		qr/\|/, "$what: its session ends and a lease is free at once");
	ask($other, 'BEGIN');
	like(ask($other, take('missing', 'transaction', q{scope => 'transaction'})),
		qr/\|/, "$what: scope transaction");
	ask($other, 'ROLLBACK');
	my $third = session($node, 'third');
	like(ask($third, take('missing', 'transaction')),
		qr/\|/, "$what: its transaction ends and a lease is free at once");
	ask($third, take('missing', 'short', q{'200 ms', scope => 'session', auto_extend => true}));
	like(
		ask($other, q{SELECT fence FROM hloom_acquire('missing', 'short', max_wait => '30 s',
			retry => hloom_retry_interval(1000, '20 ms'))}),
		qr/^\d+$/, "$what: nobody renews and a lease ends");
	ask($third, 'TRUNCATE hloom_leases');
	$_->quit for $other, $third;
	return;
}

my $from = restart(1);
launcher_pid($node);
my $client = session($node, 'client');
locks_work('no free worker');
wait_until(
	'health tells that there is no worker',
	sub {
		worker_health($node) eq
		  'missing: no background worker is free, see max_worker_processes';
	});

# The launcher tries once a second, and each of these would wake it.
my $end = time + 4;
while (time < $end)
{
	my ($owner) = split /\|/, ask($client, take('missing', 'k', $auto));
	ask($client, "SELECT hloom_release('missing', 'k', '$owner')");
}
is(lines_about($shortage, $from), 1, 'the log tells it once');
is(worker_health($node),
	'missing: no background worker is free, see max_worker_processes', 'health still does');
$client->quit;

# Exactly as many as needed: the place of one that has ended is free a little later.
$from = restart(2);
is_renewed('room for one worker: it renews');
$client = session($node, 'client');
for my $round (1 .. 2)
{
	my $pid = wait_for_worker($node);
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	isnt(wait_for_worker($node, undef, $pid), $pid, 'one that was terminated is replaced');
}
is(lines_about($shortage, $from), 0, 'the log does not complain');
$client->quit;

$from = restart(0);
locks_work('no launcher');
is(worker_health($node),
	'missing: the launcher does not run, see max_worker_processes', 'health tells it');

$node->stop;
done_testing();
