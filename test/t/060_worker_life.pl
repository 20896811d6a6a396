# The background processes: what they are called, when a worker comes and leaves and what
# hloom_health tells of it; that they take up a changed configuration; and that a worker with
# nothing to do does nothing: no turn, no transaction, no WAL.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $idle = 'not running: nothing to do';
my $auto = q{'3 s', scope => 'session', auto_extend => true};

my $node = make_node('life');
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION hloom_lock');

# ---- the first lease brings a worker -----------------------------------------------------------

my $launcher = launcher_pid($node);
is( $node->safe_psql('postgres',
		'SELECT count(*), count(datname), count(xact_start) FROM pg_stat_activity'
		  . " WHERE backend_type LIKE 'hloom%'"),
	'1|0|0',
	'the launcher is all there is, in no database and no transaction');

my $client = session($node, 'client');
my $other = session($node, 'other', 'other');
is(ask($client, $WORKER_STATE), $idle, 'no lease, no worker');
ask($client, q{SELECT hloom_is_held('life', 'k', gen_random_uuid())});

# A stopped postmaster starts nobody; sessions that are there go on.
my $postmaster = slurp_file($node->data_dir . '/postmaster.pid');
($postmaster) = $postmaster =~ /^(\d+)/;
signal_process('STOP', $postmaster);
ask($other, take('life', 'k', "'10 min'"));
wait_until('the launcher has asked for a worker',
	sub { ask($other, $WORKER_STATE) eq 'starting' });
pass('a worker that was asked for and has not come: starting');
signal_process('CONT', $postmaster);
my $pid = wait_for_worker($node, 'other');
is( $node->safe_psql('postgres',
		'SELECT pid, backend_type, datname FROM pg_stat_activity'
		  . " WHERE backend_type LIKE 'hloom%' AND datname IS NOT NULL"),
	"$pid|hloom_lock worker|other",
	'the first lease of a database brings its worker');
is(worker_health($node), $idle, 'and no other');

# It leaves soon after the last client, so the database can be dropped.
my $worker_gone = "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid";
$other->quit;
wait_for_sql($node, $worker_gone);
pass('the worker leaves after the last client');
is(worker_health($node, 'other'), $idle, 'nothing is due in a look only');
$other = session($node, 'other', 'other');
ask($other, take('life', 'k2', "'10 min'"));
$pid = wait_for_worker($node, 'other');
$other->quit;
$node->safe_psql('postgres', 'DROP DATABASE other');
is($node->safe_psql('postgres', $worker_gone), 't', 'DROP DATABASE waits until it has left');

# ---- a changed configuration -------------------------------------------------------------------

my $lease = ask($client, take('life', 'k', $auto));
my ($owner) = split /\|/, $lease;
$pid = wait_for_worker($node);

sub lease_end
{
	return ask($client, q{SELECT expires_at FROM hloom_leases WHERE key = 'k'});
}

sub is_renewed
{
	my ($what) = @_;
	my $end = lease_end();
	wait_until('the lease is renewed', sub { lease_end() gt $end });
	is(ask($client, "SELECT hloom_is_held('life', 'k', '$owner')"), 't', $what);
	return;
}

is_renewed('the worker renews');
my $from = -s $node->logfile;
$node->append_conf(
	'postgresql.conf',
	settings(
		'hloom_lock.reap_interval' => '100 ms',
		'hloom_lock.notify_lost' => 'off',
		'log_line_prefix' => 'reloaded %b [%p] '));
$node->reload;

# Each of them writes a line by the new prefix once it has read it.
my %type = ($launcher => 'launcher', $pid => 'worker');
for my $process ($launcher, $pid)
{
	my $line = "reloaded hloom_lock $type{$process} [$process] LOG:  logging memory contexts";
	wait_until(
		"$type{$process} has read its configuration",
		sub {
			ask($client, "SELECT pg_log_backend_memory_contexts($process)");
			return index(slurp_file($node->logfile, $from), $line) >= 0;
		});
	pass("the $type{$process} takes up a changed configuration");
}
is_renewed('and the worker goes on');
is(wait_for_worker($node), $pid, 'the same one');
is(launcher_pid($node), $launcher, 'and so does the launcher');

# ---- nothing to do -----------------------------------------------------------------------------

ask($client, "SELECT hloom_release('life', 'k', '$owner')");
ask($client, take('life', 'idle', "'10 min'"));

# looks($seconds): what has changed meanwhile, seen by one statement of the only session
$node->safe_psql(
	'postgres', <<'EOS');
CREATE FUNCTION looks(seconds int, OUT turns bool, OUT wal bool, OUT commits bool, OUT xacts bigint)
LANGUAGE plpgsql AS $$
DECLARE
	database oid := (SELECT oid FROM pg_database WHERE datname = current_database());
	health text := (SELECT worker FROM hloom_health() WHERE provider = 'table');
	lsn pg_lsn := pg_current_wal_insert_lsn();
	committed bigint := pg_stat_get_db_xact_commit(database);
BEGIN
	xacts := 0;
	FOR i IN 1 .. 10 * seconds LOOP
		PERFORM pg_sleep(0.1), pg_stat_clear_snapshot();
		xacts := xacts + (SELECT count(xact_start) FROM pg_stat_activity
			WHERE backend_type LIKE 'hloom%');
	END LOOP;
	turns := (SELECT worker FROM hloom_health() WHERE provider = 'table') IS DISTINCT FROM health;
	wal := pg_current_wal_insert_lsn() <> lsn;
	commits := pg_stat_get_db_xact_commit(database) <> committed;
END $$
EOS

# Once there may be something left over, as of who was there before; not each time.
my $seen;
for my $look (1 .. 5)
{
	$seen = ask($client, 'SELECT * FROM looks(3)');
	note("look $look: turns, WAL, commits, transactions: $seen");
	last if $seen eq 'f|f|f|0';
}
is($seen, 'f|f|f|0', 'nothing to do: no turn, no WAL, no commit, no transaction');
is(wait_for_worker($node), $pid, 'the worker is there all the time');

$client->quit;
$node->stop;

# pg_upgrade starts a server like this: nothing works in its background.
{
	my @pg_ctl = ($node->installed_command('pg_ctl'), '-w', '-D', $node->data_dir);
	PostgreSQL::Test::Utils::system_or_bail(@pg_ctl, '-l', $node->logfile, '-o', '-b', 'start');
	is( $node->safe_psql('postgres',
			q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ '^hloom_lock'}),
		'0',
		'under pg_upgrade there is no launcher');
	PostgreSQL::Test::Utils::system_or_bail(@pg_ctl, '-m', 'fast', 'stop');
}
done_testing();
