# Shared by the TAP tests: clusters with hloom_lock, sessions, states to wait for.
#
# A test file begins with
#
#	use FindBin;
#	use lib $FindBin::RealBin;
#	use HloomTest;
#
# Everything here is bounded by PG_TEST_TIMEOUT_DEFAULT seconds and dies when that is over.
package HloomTest;

use strict;
use warnings;

# A test file has less time than core's default of 180 seconds for each single wait would need.
BEGIN { $ENV{PG_TEST_TIMEOUT_DEFAULT} = 90 if !defined $ENV{PG_TEST_TIMEOUT_DEFAULT}; }

use Exporter 'import';
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

our @EXPORT = qw(
  rounds make_node settings take
  wait_until wait_for_event wait_for_sql
  sql_error state_of start_sql finish_sql
  session ask ask_error
  need_test_module error_lines
  launcher_pid worker_pid wait_for_worker worker_health signal_process stop_process
  $WORKER_STATE
);

# Asks what the background worker of the database does: all providers tell the same.
our $WORKER_STATE = q{SELECT worker FROM hloom_health() WHERE provider = 'table'};

# The PostgreSQL user's own settings must not decide what a test sees.
$ENV{PGOPTIONS} = '';

# rounds($default): how often to repeat something.  HLOOM_ROUNDS is a factor: HLOOM_ROUNDS=10 makes
# ten times the default rounds, HLOOM_ROUNDS=0.1 a tenth, never less than one.
sub rounds
{
	my ($default) = @_;
	my $rounds = int($default * ($ENV{HLOOM_ROUNDS} || 1) + 0.5);
	return $rounds < 1 ? 1 : $rounds;
}

# settings(name => value, ...): lines for postgresql.conf, the values quoted
sub settings
{
	my %settings = @_;
	my $lines = '';
	for my $name (sort keys %settings)
	{
		(my $value = $settings{$name}) =~ s/'/''/g;
		$lines .= "$name = '$value'\n";
	}
	return $lines;
}

# make_node($name, option => ...): a running cluster with hloom_lock preloaded and created in
# database postgres.
#
#	settings => { name => value }	for postgresql.conf
#	init => { ... }					parameters of PostgreSQL::Test::Cluster's init()
#	extension => 0					without CREATE EXTENSION
#	start => 0						neither started nor with the extension
#
# max_lease is an hour, so that leases do not end while a slow machine looks at them.
sub make_node
{
	my ($name, %option) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	$node->init(%{ $option{init} || {} });
	$node->append_conf(
		'postgresql.conf',
		settings(
			'shared_preload_libraries' => 'hloom_lock',
			'hloom_lock.max_lease' => '1h',
			'hloom_lock.default_lease' => '10min',
			# These write WAL on their own and would make a lost flush durable.
			'autovacuum' => 'off',
			'log_statement' => 'none',
			%{ $option{settings} || {} }));
	return $node if defined $option{start} && !$option{start};
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION hloom_lock')
	  if !defined $option{extension} || $option{extension};
	return $node;
}

# take($namespace, $key [, $rest]): the SQL that takes a lease and gives owner|fence; $rest are
# further arguments in named notation
sub take
{
	my ($namespace, $key, $rest) = @_;
	$rest = defined $rest ? ", $rest" : '';
	return "SELECT owner, fence FROM hloom_try_acquire('$namespace', '$key'$rest)";
}

# wait_until($what, $code [, $seconds]): call $code until it returns true; returns that
sub wait_until
{
	my ($what, $code, $seconds) = @_;
	my $end = time + ($seconds || $PostgreSQL::Test::Utils::timeout_default);
	while (1)
	{
		my $result = $code->();
		return $result if $result;
		die "timed out: $what" if time > $end;
		usleep(20_000);
	}
}

# wait_for_sql($node, $sql [, $expected]): until the query gives what is expected ('t')
sub wait_for_sql
{
	my ($node, $sql, $expected) = @_;
	$expected = 't' if !defined $expected;
	$node->poll_query_until('postgres', $sql, $expected) or die "timed out: $sql";
	return;
}

# wait_for_event($node, $application, $event): until a session of the name waits for the event, or
# for one of this type: before 17 an extension's events have no names of their own
sub wait_for_event
{
	my ($node, $application, $event) = @_;
	wait_for_sql($node,
		"SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = '$application'"
		  . " AND '$event' IN (wait_event, wait_event_type)");
	return;
}

# sql_error($node, $sql): SQLSTATE and complete message of a failing script, ('', message) when it
# does not fail
sub sql_error
{
	my ($node, $sql) = @_;
	my ($out, $err, $rc) = finish_sql(start_sql($node, $sql));
	return (state_of($err), $err);
}

# The SQLSTATE of the first error in verbose messages
sub state_of
{
	my ($messages) = @_;
	return $messages =~ /(?:ERROR|FATAL|PANIC):  ([0-9A-Z]{5}):/ ? $1 : '';
}

# start_sql($node, $sql [, $application]): runs a script in a session of its own, which ends at the
# first error; goes on at once.  finish_sql waits for its end: (stdout, stderr, status of psql).
my $scripts = 0;

sub start_sql
{
	my ($node, $sql, $application) = @_;
	my $run = { out => '', err => '' };
	# From a file, since text fed through a pipe would arrive only while somebody waits for the end.
	my $file = sprintf('%s/script-%d.sql', $node->basedir, $scripts++);
	append_to_file($file, $sql);
	local $ENV{PGAPPNAME} = $application || 'test';
	my @command = (
		$node->installed_command('psql'), '-XAtq', '-d', $node->connstr('postgres'),
		'-v', 'ON_ERROR_STOP=1', '-v', 'VERBOSITY=verbose', '-f', $file);
	$run->{handle} = IPC::Run::start(
		\@command, '<', \'', '>', \$run->{out}, '2>', \$run->{err},
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return $run;
}

sub finish_sql
{
	my ($run) = @_;
	$run->{handle}->finish;
	chomp $run->{out};
	chomp $run->{err};
	return ($run->{out}, $run->{err}, $run->{handle}->result(0));
}

# session($node [, $application [, $database]]): a session that stays open and goes on after errors
sub session
{
	my ($node, $application, $database) = @_;
	local $ENV{PGAPPNAME} = $application || 'test';
	my $session = $node->background_psql($database || 'postgres', on_error_stop => 0);
	$session->set_query_timer_restart(1);
	$session->query('\set VERBOSITY verbose');
	return $session;
}

# ask($session, $sql): the output; dies when there was an error (notices and warnings are none)
sub ask
{
	my ($session, $sql) = @_;
	$session->{stderr} = '';
	my $output = $session->query($sql);
	die "$sql: $session->{stderr}" if state_of($session->{stderr}) ne '';
	return $output;
}

# ask_error($session, $sql): SQLSTATE ('' when it succeeds) and complete message
sub ask_error
{
	my ($session, $sql) = @_;
	$session->{stderr} = '';
	$session->query($sql);
	return (state_of($session->{stderr}), $session->{stderr});
}

# need_test_module($node): creates hloom_test, which sets what happens at the test points; returns
# false where it is not installed, as beside an installed release
sub need_test_module
{
	my ($node) = @_;
	return $node->psql('postgres', 'CREATE EXTENSION hloom_test') == 0;
}

# error_lines($node [, $from]): what the server's log has at ERROR and above, from an offset on
sub error_lines
{
	my ($node, $from) = @_;
	my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile, $from || 0);
	return grep { /(?:ERROR|FATAL|PANIC):  / } split /\n/, $log;
}

# launcher_pid($node): waits for it
sub launcher_pid
{
	my ($node) = @_;
	return wait_until(
		'the launcher runs',
		sub {
			$node->safe_psql('postgres',
				"SELECT pid FROM pg_stat_activity WHERE backend_type = 'hloom_lock launcher'");
		});
}

# worker_pid($node [, $database]): '' when there is none
sub worker_pid
{
	my ($node, $database) = @_;
	$database ||= 'postgres';
	return $node->safe_psql('postgres',
		    "SELECT pid FROM pg_stat_activity"
		  . " WHERE backend_type = 'hloom_lock worker' AND datname = '$database'");
}

# worker_health($node [, $database]): what hloom_health tells of the worker.  The look is a client.
sub worker_health
{
	my ($node, $database) = @_;
	return $node->safe_psql($database || 'postgres', $WORKER_STATE);
}

# wait_for_worker($node [, $database [, $not]]): the process that works for the database, once it
# does and is another one than $not
sub wait_for_worker
{
	my ($node, $database, $not) = @_;
	return wait_until(
		'a worker runs',
		sub {
			my ($pid) = worker_health($node, $database) =~ /^running: process (\d+), \d+ turns$/;
			return defined $pid && $pid ne ($not || '') ? $pid : undef;
		});
}

# signal_process($signal, $pid): of a server that runs as the same user as the test
sub signal_process
{
	my ($signal, $pid) = @_;
	kill $signal, $pid or die "cannot send $signal to $pid: $!";
	return;
}

# stop_process($session, $pid): SIGSTOP to a server process that waits, and until it has stopped
# there.  Anywhere else it may have a lock that others need, so it goes on for a moment then.
sub stop_process
{
	my ($session, $pid) = @_;
	my $waits = "SELECT wait_event_type IN ('Extension', 'Activity', 'Client')"
	  . " FROM pg_stat_activity WHERE pid = $pid";
	wait_until("process $pid stops while it waits", sub {
		signal_process('STOP', $pid);
		wait_until("process $pid stops", sub { slurp_file("/proc/$pid/stat") =~ /^\d+ \(.*\) T / });
		return 1 if ask($session, $waits) eq 't';
		signal_process('CONT', $pid);
		return 0;
	});
	return;
}

1;
