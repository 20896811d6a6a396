# Shared by the TAP tests of the hand-over of keys to those who wait for them.
#
# The policy of all waiters sleeps so long that only a wake-up ends a wait.  A wake-up that is lost
# shows as statement_timeout.
package HloomWait;

use strict;
use warnings;

use Exporter 'import';
use HloomTest;
use IPC::Run ();
use PostgreSQL::Test::Utils;

our @EXPORT = qw(
  sleeper metric
  start_waiter end_waiter process_of
  send_query read_query kill_client
);

# sleeper(): the argument that makes a call wait for a wake-up
sub sleeper
{
	return q{retry => hloom_retry_interval(10, '1 hour')};
}

# metric($session, $name): its value so far, of all namespaces together
sub metric
{
	my ($session, $name) = @_;
	return ask($session,
		"SELECT coalesce(sum(value), 0) FROM hloom_metrics WHERE name = 'hostloom_lock_$name'");
}

# start_waiter($node, $session, $application, $sql): begins a script that waits for a key, and goes
# on when it is listed as a waiter; $session is to look with.  The script gives its error up after
# statement_timeout.
sub start_waiter
{
	my ($node, $session, $application, $sql) = @_;
	my $before = metric($session, 'waits');
	my $run = { file => sprintf('%s/%s', $node->basedir, $application) };
	append_to_file("$run->{file}.sql", "SET statement_timeout = '40 s';\n$sql");
	local $ENV{PGAPPNAME} = $application;
	# Files, since so many pipes as there can be waiters are too many.
	my @command = (
		$node->installed_command('psql'), '-XAtq', '-d', $node->connstr('postgres'),
		'-v', 'ON_ERROR_STOP=1', '-v', 'VERBOSITY=verbose', '-f', "$run->{file}.sql");
	$run->{handle} = IPC::Run::start(
		\@command, '<', '/dev/null', '>', "$run->{file}.out", '2>', "$run->{file}.err",
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	wait_until("$application waits", sub { metric($session, 'waits') == $before + 1 });
	return $run;
}

# end_waiter($run): its end: (stdout, stderr, status of psql)
sub end_waiter
{
	my ($run) = @_;
	$run->{handle}->finish;
	my $out = slurp_file("$run->{file}.out");
	my $err = slurp_file("$run->{file}.err");
	chomp $out;
	chomp $err;
	return ($out, $err, $run->{handle}->result(0));
}

# process_of($session, $application): the backend that has this name
sub process_of
{
	my ($session, $application) = @_;
	return ask($session,
		"SELECT pid FROM pg_stat_activity WHERE application_name = '$application'");
}

# send_query($session, $sql): has the session run it, without waiting for the answer, which
# read_query waits for: output and message, one of which is empty
my $sent = 0;

sub send_query
{
	my ($session, $sql) = @_;
	$session->{stderr} = '';
	$session->{sent} = 'sent ' . ++$sent;
	$session->{stdin} .= "$sql\n;\n\\echo '$session->{sent}'\n\\warn '$session->{sent}'\n";
	$session->{timeout}->start;
	$session->{run}->pump_nb while length $session->{stdin};
	return;
}

sub read_query
{
	my ($session) = @_;
	my $end = qr/\n?\Q$session->{sent}\E\n/;
	$session->{run}->pump until $session->{stdout} =~ $end && $session->{stderr} =~ $end;
	my ($output, $message) = map { s/$end//r } @$session{qw(stdout stderr)};
	$session->{stdout} = '';
	return ($output, $message);
}

# kill_client($session): psql has no time to say that it ends
sub kill_client
{
	my ($session) = @_;
	$session->{run}->signal('KILL');
	$session->{run}->finish;
	return;
}

1;
