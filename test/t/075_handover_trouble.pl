# Waiters that go away, are stopped or killed keep nobody else from the key, whenever it happens:
# the next one gets it, and who is left waits for nothing.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomTest;
use HloomWait;
use Test::More;

my $me = '11111111-1111-4111-8111-111111111111';
my $sleeper = sleeper();

# The clusters of the TAP tests stay down after a crash unless told otherwise.
my $node = make_node('trouble', settings => { max_connections => 60, restart_after_crash => 'on' });
my $other = session($node, 'other');
my $holder = session($node, 'holder');
my $release = "SELECT hloom_release('trouble', 'k', '$me')";

# A turn: has the key for as long as the statement takes; tells that it had it
my $turn = "SELECT hloom_release(h) FROM hloom_acquire('trouble', 'k', $sleeper) AS h";

sub hold
{
	ask($holder, take('trouble', 'k', "owner => '$me'")) ne '' or die 'the key is not free';
	return;
}

# is_clean($name): nothing is held any more
sub is_clean
{
	my ($name) = @_;
	is(ask($other, 'SELECT count(*) FROM hloom_leases'), 0, "$name: no lease is left");
	return;
}

# ---- the oldest one goes away ------------------------------------------------------------------

# Each leaves before the release, or after it: stopped then, so that it does not get the key before.
my %away = (
	'cancelled' => sub { ask($other, "SELECT pg_cancel_backend($_[1])") },
	'terminated' => sub { ask($other, "SELECT pg_terminate_backend($_[1])") },
	'client killed' => sub { $_[0]->{handle}->signal('KILL') },
	'stopped' => sub { });
my $waiters = 0;
for my $away (sort keys %away)
{
	for my $when ('before', 'after')
	{
		hold();
		my ($oldest, @next) =
		  map { start_waiter($node, $other, sprintf('waiter-%d', ++$waiters), $turn) } 1 .. 3;
		my $pid = process_of($other, sprintf('waiter-%d', $waiters - 2));
		if ($when eq 'before')
		{
			$away{$away}->($oldest, $pid);
			stop_process($other, $pid) if $away eq 'stopped';
			wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity"
				  . " WHERE pid = $pid AND state = 'active'") if $away ne 'stopped';
			ask($holder, $release);
		}
		else
		{
			stop_process($other, $pid);
			ask($holder, $release);
			$away{$away}->($oldest, $pid);
			signal_process('CONT', $pid) if $away ne 'stopped';
		}
		my $name = "$away $when the release";
		is(join('|', map { (end_waiter($_))[0] } @next), 't|t', "$name: the next ones get the key");
		if ($away eq 'stopped')
		{
			signal_process('CONT', $pid);
			is((end_waiter($oldest))[0], 't', "$name: and it itself when it goes on");
		}
		elsif ($away eq 'client killed')
		{
			$oldest->{handle}->finish;
		}
		else
		{
			my ($out, $err) = end_waiter($oldest);
			like(state_of($err) . $out, qr/^(?:57014|57P01)$/, "$name: it is told");
		}
		wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
		is_clean($name);
	}
}

# ---- cancelled at the moment of the release ----------------------------------------------------

# The first of two waits in a session that stays.  Whether it gets the key or is cancelled, the
# second one, which nobody cancels, gets it.
my ($first, $second) = map { session($node, "contender-$_") } 1 .. 2;
my %pid = map { $_ => process_of($other, $_) } qw(contender-1 contender-2);
ask($second, "SET statement_timeout = '40 s'");

# race($name, $timeout, $rounds, $free): $free is what releases the key; $timeout is the first one's
sub race
{
	my ($name, $timeout, $rounds, $free) = @_;
	my ($got, $ended, $well) = (0, 0, 0);
	ask($first, "SET statement_timeout = '$timeout'");
	for my $round (1 .. $rounds)
	{
		hold();
		for my $session ($first, $second)
		{
			my $waits = metric($other, 'waits');
			send_query($session, $turn);
			wait_until('it waits', sub { metric($other, 'waits') > $waits });
		}
		ask($holder, $free);
		my ($out, $err) = read_query($first);
		my ($next, $next_err) = read_query($second);
		$got++ if $out eq 't' && $err eq '';
		$ended++ if $out eq '' && state_of($err) eq '57014';
		$well++ if $next eq 't';
		diag("$name: $next_err") if $next_err ne '';
	}
	is($got + $ended, $rounds, "$name: it gets the key or the error: $got, $ended");
	is($well, $rounds, "$name: the next one gets the key");
	is_clean($name);
	return;
}

my $victim = $pid{'contender-1'};
my $nap = 'pg_sleep(random() * 0.0005)';
race('cancelled after the release', '40 s', rounds(60),
	"$release, $nap, pg_cancel_backend($victim)");
race('cancelled before the release', '40 s', rounds(60),
	"SELECT pg_cancel_backend($victim), $nap, hloom_release('trouble', 'k', '$me')");
race(
	'statement_timeout', '500 ms', rounds(20), qq{
SELECT pg_sleep(greatest(0, extract(epoch FROM query_start - clock_timestamp())
	+ 0.495 + random() * 0.005)) FROM pg_stat_activity WHERE pid = $victim;
$release});
$_->quit for $first, $second;

# ---- every second one is stopped ---------------------------------------------------------------

my $WAITERS = 20;
ask($other, 'CREATE TABLE got (waiter int, at timestamptz, fence bigint)');
hold();
my @runs = map {
	start_waiter($node, $other, "one-of-$_", qq{
INSERT INTO got SELECT $_, clock_timestamp(), fence
	FROM hloom_acquire('trouble', 'k', $sleeper, owner => md5('$_')::uuid);
SELECT hloom_release('trouble', 'k', md5('$_')::uuid)})
} 1 .. $WAITERS;
my (@stopped, @alive);
push @{ $_ % 2 ? \@stopped : \@alive }, $_ for 1 .. $WAITERS;
my @pids = map { process_of($other, "one-of-$_") } @stopped;
stop_process($other, $_) for @pids;
my $released_at = ask($other, 'SELECT clock_timestamp()');
ask($holder, $release);
is(join('|', map { (end_waiter($runs[ $_ - 1 ]))[0] } @alive),
	join('|', ('t') x @alive), 'stopped ones: the others get the key');
is(ask($other, 'SELECT string_agg(waiter::text, $$ $$ ORDER BY fence) FROM got'),
	"@alive", 'in their order');
is(ask($other, qq{SELECT max(at - before) < '10 s' FROM
	(SELECT at, lag(at, 1, '$released_at') OVER (ORDER BY at) AS before FROM got) AS steps}),
	't', 'each within seconds');
signal_process('CONT', $_) for @pids;
is(join('|', map { (end_waiter($runs[ $_ - 1 ]))[0] } @stopped),
	join('|', ('t') x @stopped), 'those get it when they go on');
is(ask($other, 'SELECT count(*), count(DISTINCT waiter), count(DISTINCT fence) FROM got'),
	join('|', ($WAITERS) x 3), 'each once');
is_clean('stopped ones');

# ---- kill -9 -----------------------------------------------------------------------------------

# The server restarts, and with it the lists.
hold();
my @killed = map { start_waiter($node, $other, "killed-$_", $turn) } 1 .. 3;
my $killed = process_of($other, 'killed-1');
$_->quit for $holder, $other;
signal_process('KILL', $killed);
isnt((end_waiter($_))[2], 0, 'kill -9 of one ends the wait of all') for @killed;
$node->poll_query_until('postgres', q{SELECT 't'}) or die 'the server does not come up again';
($holder, $other) = map { session($node, $_) } qw(holder other);
is(metric($other, 'waits'), 0, 'nobody waits any more');
is(ask($other, "SELECT hloom_is_held('trouble', 'k', '$me')"), 't', 'the lease is still held');
my @again = map { start_waiter($node, $other, "again-$_", $turn) } 1 .. 2;
ask($holder, $release);
is(join('|', map { (end_waiter($_))[0] } @again), 't|t', 'and is handed over as ever');
is(metric($other, 'wakeups'), 2, 'with one wake-up each');
is_clean('killed');

$_->quit for $holder, $other;
$node->stop;
done_testing();
