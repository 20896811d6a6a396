# Heartbeats that fail: a lease that the server renews is tried again half-way to its end, and
# half-way again, but a twentieth of the lease later at least and at its end at the latest.  One
# that succeeds in time keeps the lease; when none does it is lost, and that is told once.  Here the
# lease table is locked; leases in memory need no table.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomLoss;
use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $me = '11111111-1111-4111-8111-111111111111';
my $lease = 16;

my $node = make_loss_node('heartbeat', settings => { 'log_line_prefix' => '%n %p ' });
$node->safe_psql('postgres', q{SELECT hloom_configure('in-memory', provider => 'memory')});
my $holder = session($node, 'holder');
my $locker = session($node, 'locker');
my $listener = listener($node);
my $follower = follow($node);

# failed($granted): when renewals have failed, in seconds after that
sub failed
{
	my ($granted) = @_;
	my $log = slurp_file($node->logfile, $follower->{from});
	return map { $_ - $granted } $log =~ /^([\d.]+) \d+ WARNING: .*LockExtendFailed: /mg;
}

# is_over($session, $at): by the server's clock, in seconds since 1970
sub is_over
{
	my ($session, $at) = @_;
	return ask($session, "SELECT extract(epoch FROM clock_timestamp()) > $at") eq 't';
}

# take_and_lock($key): a lease that is renewed, in the table and in memory, and a lock on the table
# soon after; returns when it was granted
sub take_and_lock
{
	my ($key) = @_;
	$follower = follow($node);
	ask($holder,
		"SELECT FROM hloom_acquire('$_', '$key', '$lease s', scope => 'session',"
		  . " auto_extend => true, owner => '$me')")
	  for qw(heartbeat in-memory);
	ask($locker, 'BEGIN; LOCK TABLE hloom_leases IN SHARE MODE');
	my $granted = ask($locker,
		"SELECT extract(epoch FROM granted_at) FROM hloom_leases WHERE key = '$key'");
	# The one who looks at the lease may do so in any mode; now nobody may.
	ask($locker, 'LOCK TABLE hloom_leases IN ACCESS EXCLUSIVE MODE');
	return $granted;
}

# check_times($what, $granted): the attempts that have failed came when they should
sub check_times
{
	my ($what, $granted) = @_;
	my @times = failed($granted);
	my @nominal = map { $_ * $lease } 0.5, 0.75, 0.875, 0.9375, 0.9875, 1;
	note("$what: failed after @times");
	cmp_ok(scalar @times, '<=', scalar @nominal, "$what: not tried all the time");
	# An attempt that was late counts from its own time, which is later than it should be.
	for my $i (0 .. $#times)
	{
		cmp_ok($times[$i], '>=', $nominal[$i] - 0.002, "$what: attempt $i not before its time");
		cmp_ok($times[$i], '<=', $lease + 30, "$what: attempt $i bounded") if $i == $#times;
	}
	return scalar @times;
}

# ---- a later attempt succeeds ------------------------------------------------------------------

my $granted = take_and_lock('kept');
wait_until('two renewals have failed', sub { failed($granted) >= 2 });
ask($locker, 'COMMIT');
wait_until(
	'it is renewed',
	sub {
		ask($locker,
			"SELECT extract(epoch FROM expires_at) > $granted + $lease FROM hloom_leases") eq 't';
	});
cmp_ok(check_times('kept', $granted), '>=', 2, 'kept: two attempts failed at least');
wait_until('its first end is over', sub { is_over($locker, $granted + $lease) });
is(ask($holder, "SELECT hloom_is_held('heartbeat', 'kept', '$me')"), 't', 'kept: held afterwards');
is(ask($holder, "SELECT hloom_is_held('in-memory', 'kept', '$me')"),
	't', 'kept: as is the one in memory, which nothing has failed for');
is(ask($holder, "SELECT hloom_release('heartbeat', 'kept', '$me'),"
	  . " hloom_release('in-memory', 'kept', '$me')"), 't|t', 'kept: given back');
settle($follower, $listener);
is(scalar(logged($follower, $_)), 0, "kept: no loss in $_") for qw(heartbeat in-memory);
is(counted($node, 'heartbeat'), 0, 'kept: none counted');

# ---- none does ---------------------------------------------------------------------------------

$granted = take_and_lock('lost');
wait_until('the lease is over', sub { is_over($locker, $granted + $lease) });
ask($locker, 'COMMIT');
cmp_ok(check_times('lost', $granted), '>=', 3, 'lost: tried again');
is(ask($holder, "SELECT hloom_is_held('heartbeat', 'lost', '$me')"), 'f', 'lost');
my ($state) = ask_error($holder, "SELECT hloom_guard('heartbeat', 'lost', '$me')");
is($state, 'LL010', 'lost: no transaction can depend on it');
is(ask($holder, "SELECT hloom_extend('heartbeat', 'lost', '$me')"),
	'f', 'lost: it does not come back to life');
is(ask($holder, "SELECT hloom_is_held('in-memory', 'lost', '$me')"),
	't', 'lost: the one in memory is held');
settle($follower, $listener);
my @lost = logged($follower, 'heartbeat');
is(join(', ', map { "$_->{key} $_->{reason}" } @lost), 'lost expired', 'lost: logged once');
is(join(', ', map { "$_->{key} $_->{reason}" } heard($listener, 'heartbeat')),
	'lost expired', 'lost: told once');
is(counted($node, 'heartbeat'), 1, 'lost: counted once');
is(counted($node, 'in-memory'), 0, 'lost: none in memory');

$_->quit for $holder, $locker, $listener->{session};
$node->stop;
done_testing();
