# Shared by the TAP tests of lost leases: what was told of them, and where.
#
# A loss is counted in hloom_metrics, logged, and told on channel hloom_lost.  A listener is a
# session of psql; a follower remembers where the log of a server began.
package HloomLoss;

use strict;
use warnings;

use Exporter 'import';
use HloomTest;
use JSON::PP ();
use PostgreSQL::Test::Utils;

our @EXPORT = qw(
  make_loss_node counted
  follow logged
  listener listener_asks heard payloads wait_for_heard
  lose wait_for_logged settle
);

my $json = JSON::PP->new->utf8;

# make_loss_node($name, option => ...): as make_node, in UTF-8
sub make_loss_node
{
	my ($name, %option) = @_;
	$option{init}{extra} = [ '--encoding=UTF8', @{ $option{init}{extra} || [] } ];
	return make_node($name, %option);
}

# counted($node, $namespace): the leases counted as lost
sub counted
{
	my ($node, $namespace) = @_;
	return $node->safe_psql('postgres',
		'SELECT coalesce(sum(value), 0) FROM hloom_metrics'
		  . " WHERE name = 'hostloom_lock_lost' AND namespace = '$namespace'");
}

# follow($node): what is logged from now on
sub follow
{
	my ($node) = @_;
	return { node => $node, from => -s $node->logfile };
}

# logged($follower [, $namespace]): the losses logged, each as its DETAIL was; message is the line
# before it, without the time.
sub logged
{
	my ($follower, $namespace) = @_;
	my $log = slurp_file($follower->{node}->logfile, $follower->{from});
	my @losses;
	while ($log =~ /WARNING:  (LockLeaseLost: the lease .*)\n.*?DETAIL:  (\{.*\})$/mg)
	{
		my ($message, $detail) = ($1, $2);
		push @losses, { message => $message, %{ $json->decode($detail) } };
	}
	return grep { !defined $namespace || $_->{namespace} eq $namespace } @losses;
}

# listener($node [, $database]): a session that listens
sub listener
{
	my ($node, $database) = @_;
	my $listener = { session => session($node, 'listener', $database), payloads => [] };
	ask($listener->{session}, 'LISTEN hloom_lost');
	return $listener;
}

# listener_asks($listener, $sql): the listener's own query, whose output has what came meanwhile
sub listener_asks
{
	my ($listener, $sql) = @_;
	my $output = ask($listener->{session}, $sql);
	push @{ $listener->{payloads} }, $1
	  while $output =~
	  /^Asynchronous notification "hloom_lost" with payload "(.*)" received from server/mg;
	return;
}

# payloads($listener): the messages that came, as bytes
sub payloads
{
	my ($listener) = @_;
	listener_asks($listener, q{SELECT 'asked'});
	return @{ $listener->{payloads} };
}

# heard($listener [, $namespace]): the losses told
sub heard
{
	my ($listener, $namespace) = @_;
	my @losses = map { @{ $json->decode($_) } } payloads($listener);
	return grep { !defined $namespace || $_->{namespace} eq $namespace } @losses;
}

# wait_for_heard($listener, $namespace, $count): until so many were told, or more
sub wait_for_heard
{
	my ($listener, $namespace, $count) = @_;
	my @losses;
	wait_until("$count losses of $namespace are told",
		sub { (@losses = heard($listener, $namespace)) >= $count });
	return @losses;
}

# wait_for_logged($follower, $namespace, $count): until so many were logged, or more
sub wait_for_logged
{
	my ($follower, $namespace, $count) = @_;
	my @losses;
	wait_until("$count losses of $namespace are logged",
		sub { (@losses = logged($follower, $namespace)) >= $count });
	return @losses;
}

# lose($node, $namespace, $key [, $count]): takes leases that end at once; $key is an expression, in
# which i is 1 to $count
sub lose
{
	my ($node, $namespace, $key, $count) = @_;
	$count = 1 if !defined $count;
	# One taken for so short a time might end before it is granted.  Whether it ended before the
	# answer of hloom_extend does not matter.
	my $lost = $node->safe_psql('postgres',
		"SELECT count(hloom_extend(h, '1 ms')) FROM generate_series(1, $count) AS i,"
		  . " hloom_try_acquire('$namespace', $key) AS h");
	die "$lost leases of $count" if $lost != $count;
	return;
}

# settle($follower [, $listener]): until whatever has ended by now is reported.  Losses are reported
# in the order in which their rows go, so one more is the last.
my $markers = 0;

sub settle
{
	my ($follower, $listener) = @_;
	my $namespace = sprintf('marker-%d', ++$markers);
	$follower->{node}->safe_psql('postgres', 'SELECT hloom_reap()');
	lose($follower->{node}, $namespace, q{'m'});
	wait_until('the marker has ended',
		sub {
			$follower->{node}->safe_psql('postgres', 'SELECT hloom_reap()');
			return counted($follower->{node}, $namespace) == 1;
		});
	wait_for_logged($follower, $namespace, 1);
	wait_for_heard($listener, $namespace, 1) if defined $listener;
	return;
}

1;
