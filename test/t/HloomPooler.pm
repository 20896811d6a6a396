# Shared by the TAP tests that go through a transaction pooler: a pgbouncer before a server.
package HloomPooler;

use strict;
use warnings;

use Exporter 'import';
use File::Basename qw(dirname);
use HloomTest;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(
  $APPLICATION start_pooler stop_pooler pooled console client start_client bench
);

# The clients have one name, so that the pooler sends no SET of its own between their statements.
our $APPLICATION = 'pooled';

my ($node, $directory, $port, $pooler);

# Daemons are often kept where only root's PATH leads to.
sub find_pgbouncer
{
	my @found = grep { -x } map { "$_/pgbouncer" } split(/:/, $ENV{PATH}), '/usr/sbin',
	  '/usr/local/sbin';
	return $found[0] if @found;
	# What dies is in the test's own log only.
	diag('there is no pgbouncer in PATH, /usr/sbin and /usr/local/sbin: install that package');
	die 'no pgbouncer';
}

# start_pooler($server): before this node; it ends with the test.  Database "one" has one server
# connection for all of its clients, "two" has two; in "whole" a client has the server connection
# for itself until it disconnects.
sub start_pooler
{
	($node) = @_;
	my $program = find_pgbouncer();
	$directory = PostgreSQL::Test::Utils::tempdir_short();
	$port = PostgreSQL::Test::Cluster::get_free_port();
	my $server = sprintf('host=%s port=%d dbname=postgres user=%s',
		$node->host, $node->port, scalar getpwuid $>);
	my $log = $node->logfile . '.pgbouncer';
	append_to_file("$directory/pgbouncer.ini", <<"INI");
[databases]
one = $server pool_mode=transaction pool_size=1
two = $server pool_mode=transaction pool_size=2
whole = $server pool_mode=session pool_size=1
[pgbouncer]
listen_addr =
listen_port = $port
unix_socket_dir = $directory
auth_type = any
logfile = $log
INI
	$pooler = IPC::Run::start([ $program, '-q', "$directory/pgbouncer.ini" ],
		'<', \'', '>&', \my $output);
	wait_until(
		'pgbouncer answers',
		sub {
			die "pgbouncer ended: $output" . slurp_file($log) if !$pooler->pumpable;
			return console('SHOW VERSION') =~ /PgBouncer/;
		});
	return;
}

sub stop_pooler
{
	$pooler->kill_kill(grace => 0) if $pooler;
	undef $pooler;
	return;
}

# Before the one of PostgreSQL::Test::Cluster, which stops the server.
END
{
	local $?;
	stop_pooler();
}

# pooled($database): a connection string
sub pooled
{
	my ($database) = @_;
	return "host=$directory port=$port dbname=$database";
}

# console($command): what the pooler's own database answers, '' when it does not
sub console
{
	my ($command) = @_;
	IPC::Run::run(
		[ $node->installed_command('psql'), '-XAtq', '-d', pooled('pgbouncer'), '-c', $command ],
		'<', \'', '>', \my $out, '2>', \my $err,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return $out;
}

# client($database): a session as of session(), through the pooler
sub client
{
	my ($database) = @_;
	local $ENV{PGAPPNAME} = $APPLICATION;
	my $client = $node->background_psql(
		'postgres',
		on_error_stop => 0,
		extra_params => [ '-d', pooled($database) ]);
	$client->set_query_timer_restart(1);
	$client->query('\set VERBOSITY verbose');
	return $client;
}

# start_client($database, $sql): a script as of start_sql(), through the pooler
sub start_client
{
	my ($database, $sql) = @_;
	return start_sql($node, sprintf("\\connect '%s'\n%s", pooled($database), $sql), $APPLICATION);
}

# bench($database, $name, $script, option, ...): pgbench with the extended protocol, through the
# pooler; its messages
sub bench
{
	my ($database, $name, $script, @options) = @_;
	my $file = $node->basedir . "/$name.sql";
	append_to_file($file, $script);
	local $ENV{PGAPPNAME} = $APPLICATION;
	IPC::Run::run(
		[
			$node->installed_command('pgbench'), '-n', '-M', 'extended', @options, '-f', $file,
			pooled($database)
		],
		'<', \'', '>', \my $out, '2>', \my $err,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return $err;
}

1;
