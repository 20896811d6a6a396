# Shared by the TAP tests that put a server under load with pgbench.
package HloomLoad;

use strict;
use warnings;

use Exporter 'import';
use HloomTest;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(start_load end_load stop_load is_empty_memory);

# start_load($node, $database, $clients, $sql, @options): begins with -t TURNS or -T SECONDS
my $scripts = 0;

sub start_load
{
	my ($node, $database, $clients, $sql, @options) = @_;
	my $file = sprintf '%s/load-%d.sql', $node->basedir, $scripts++;
	append_to_file($file, $sql);
	my $load = { node => $node, err => '' };
	my @command = (
		$node->installed_command('pgbench'), '-n', '-M', 'prepared', '-c', $clients, '-j', '1',
		@options, '-f', $file, $node->connstr($database));
	local $ENV{PGAPPNAME} = 'load';
	$load->{handle} = IPC::Run::start(
		\@command, '>', '/dev/null', '2>', \$load->{err},
		IPC::Run::timeout(2 * rounds(1) * $PostgreSQL::Test::Utils::timeout_default));
	return $load;
}

# end_load($load, $name): all turns were made, without an error
sub end_load
{
	my ($load, $name) = @_;
	$load->{handle}->finish;
	is($load->{handle}->result(0), 0, $name) or diag(substr $load->{err}, 0, 2000);
	return;
}

# stop_load($load): ends it, and waits for the statements that run then
sub stop_load
{
	my ($load) = @_;
	$load->{handle}->signal('TERM');
	$load->{handle}->finish;
	wait_for_sql($load->{node},
		q{SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'load'});
	return;
}

# is_empty_memory($node, $name): provider "memory" has no lease, not even one that has ended
sub is_empty_memory
{
	my ($node, $name) = @_;
	my $detail = q{SELECT detail FROM hloom_health() WHERE provider = 'memory'};
	wait_until("$name: nothing is left",
		sub { $node->safe_psql('postgres', $detail) =~ /, 0 taken$/ });
	is($node->safe_psql('postgres', 'SELECT count(*) FROM hloom_locks'),
		'0', "$name: nothing is held or left");
	return;
}

1;
