# Shared by the TAP tests that put a server under load, with pgbench or with cancels.
package HloomLoad;

use strict;
use warnings;

use Exporter 'import';
use HloomTest;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(start_load end_load stop_load is_empty_memory
  create_canceller wait_for_victims);

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

# create_canceller($node, $victims): procedure cancel_at_random(), which cancels sessions named
# "victim-..." in calls that acquire, at random moments, until so many wait for an advisory lock
sub create_canceller
{
	my ($node, $victims) = @_;
	$node->safe_psql('postgres', <<"SQL");
CREATE PROCEDURE cancel_at_random() LANGUAGE plpgsql AS \$\$
DECLARE
	victim int;
	waiting bigint;
	moment timestamptz;
BEGIN
	LOOP
		PERFORM pg_stat_clear_snapshot();
		SELECT count(*) FILTER (WHERE wait_event = 'advisory'),
			(array_agg(pid ORDER BY random())
				FILTER (WHERE state = 'active' AND query LIKE '%acquire%'))[1]
		INTO waiting, victim
		FROM pg_stat_activity WHERE application_name LIKE 'victim-%';
		EXIT WHEN waiting = $victims;

		-- The clock is finer than pg_sleep.
		moment := clock_timestamp() + random() * interval '1 ms';
		WHILE clock_timestamp() < moment LOOP END LOOP;
		PERFORM pg_cancel_backend(victim);
	END LOOP;
END \$\$;
SQL
	return;
}

# wait_for_victims($node, $victims, $lock): so many of them wait for this advisory lock
sub wait_for_victims
{
	my ($node, $victims, $lock) = @_;
	wait_for_sql($node,
		'SELECT count(DISTINCT a.pid) FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid'
		  . " WHERE application_name LIKE 'victim-%' AND NOT granted AND l.objid = $lock",
		$victims);
	return;
}

1;
