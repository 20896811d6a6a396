# What watches the server.  Counters: none is lost when many sessions count at once, each namespace
# of each database has its own as long as there is room, and who may read them.  On a standby and
# without shared_preload_libraries whatever only looks has an answer.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomTest;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

# Numbers of the counters, as in stats.h
my ($ACQUIRED, $LOST, $FAILED) = (0, 0, 3);

my $node = make_node(
	'main',
	init => { allows_streaming => 1 },
	settings => { 'max_connections' => 30 });
plan skip_all => 'module hloom_test is not installed' if !need_test_module($node);

sub value
{
	my ($namespace, $name, $outcome, $db) = @_;
	$outcome = $outcome ? "outcome = '$outcome'" : 'outcome IS NULL';
	return $node->safe_psql($db || 'postgres',
		"SELECT value FROM hloom_metrics WHERE namespace = '$namespace'"
		  . " AND name = 'hostloom_lock_$name' AND $outcome");
}

# Nothing was counted: there is the start of counting, and nothing else.
is( $node->safe_psql(
		'postgres', 'SELECT namespace, name, outcome, value BETWEEN'
		  . " extract(epoch FROM pg_postmaster_start_time() - interval '1 min') AND"
		  . " extract(epoch FROM now() + interval '1 min') FROM hloom_metrics"),
	'|hostloom_lock_start_time_seconds||t',
	'since when');

# Each series, by its counter
$node->safe_psql('postgres',
	"SELECT hloom_test_count('each', i, (i + 7) * 1000000) FROM generate_series(0, 7) AS i;"
	  . "SELECT hloom_test_time('each', i, (i + 1) * 1000000)"
	  . ' FROM generate_series(0, 3) AS i, generate_series(0, i)');
is( $node->safe_psql(
		'postgres', "SELECT name, outcome, value FROM hloom_metrics WHERE namespace = 'each'"
		  . ' AND le IS NULL'),
	join("\n",
		'hostloom_lock_acquire_duration_seconds_count|acquired|1',
		'hostloom_lock_acquire_duration_seconds_sum|acquired|1',
		'hostloom_lock_acquire_duration_seconds_count|not_acquired|2',
		'hostloom_lock_acquire_duration_seconds_sum|not_acquired|4',
		'hostloom_lock_acquire_duration_seconds_count|unavailable|3',
		'hostloom_lock_acquire_duration_seconds_sum|unavailable|9',
		'hostloom_lock_hold_duration_seconds_count||4',
		'hostloom_lock_hold_duration_seconds_sum||16',
		'hostloom_lock_lost||7000000',
		'hostloom_lock_orphan_releases|released|8000000',
		'hostloom_lock_orphan_releases|absent|9000000',
		'hostloom_lock_orphan_releases|failed|10000000',
		'hostloom_lock_waits||11000000',
		'hostloom_lock_wakeups||12000000',
		'hostloom_lock_missed_turns||13000000',
		'hostloom_lock_deadlocks||14000000',
		'hostloom_lock_active||0',
		'hostloom_lock_enabled||1'),
	'each counter is one series');

# A count is not undone, and the longest namespace is not cut.
my $long = 'n' x 63;
$node->safe_psql('postgres',
	"BEGIN; SELECT hloom_test_count('$long', $LOST, 1); ROLLBACK;"
	  . "SELECT hloom_test_count(left('$long', 62), $LOST, 5)");
is(value($long, 'lost'), 1, 'counted whatever the transaction does');

# Another database has counters of its own.
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION hloom_lock; CREATE EXTENSION hloom_test');
$node->safe_psql('other', "SELECT hloom_test_count('each', $LOST, 3)");
is(value('each', 'lost', undef, 'other'), 3, 'a namespace of another database is another one');
is(value('each', 'lost'), 7000000, 'nothing was added to this one');

# Many at once, on namespaces that are new to all of them
my $script = $node->basedir . '/count.sql';
append_to_file($script, <<"SQL");
\\set n random(1, 150)
SELECT hloom_test_time('race-' || :n, $ACQUIRED, :n);
SQL
my ($clients, $transactions) = (8, rounds(500));
$node->command_ok(
	[
		'pgbench', '-n', '-c', $clients, '-j', 2, '-t', $transactions, '-f', $script, '-d',
		$node->connstr('postgres')
	],
	'many sessions count');
my $race = "namespace ~ '^race-' AND outcome = 'acquired'";
is( $node->safe_psql(
		'postgres', "SELECT sum(value) FROM hloom_metrics WHERE $race AND name ~ '_count\$'"),
	$clients * $transactions,
	'no count is lost');
like(
	$node->safe_psql(
		'postgres', 'SELECT count(*), count(DISTINCT namespace) FROM hloom_metrics'
		  . " WHERE $race AND name ~ '_count\$'"),
	qr/^([1-9]\d*)\|\1$/,
	'no namespace is there twice');
is( $node->safe_psql(
		'postgres', 'SELECT count(*) FROM (SELECT sum(value) FILTER (WHERE name ~ \'_sum$\')'
		  . ' - sum(value) FILTER (WHERE name ~ \'_count$\')'
		  . " * split_part(namespace, '-', 2)::int * 1e-6 AS difference"
		  . " FROM hloom_metrics WHERE $race GROUP BY namespace) AS r"
		  . ' WHERE abs(difference) > 1e-9'),
	0,
	'none is counted for another namespace');
is(value('(other)', 'lost'), '', 'all found a place');

# No room: of all databases together 256 have a place, of which 'other' took one.
$node->safe_psql('postgres',
	"SELECT count(hloom_test_count('fill-' || i, $LOST, 1)) FROM generate_series(1, 300) AS i");
my $filled = $node->safe_psql('postgres',
	"SELECT count(DISTINCT namespace) FROM hloom_metrics WHERE namespace <> '(other)'");
is($filled, 255, 'the places are all taken');
my $lost = "SELECT sum(value) FROM hloom_metrics WHERE name = 'hostloom_lock_lost'";
is($node->safe_psql('postgres', "$lost AND namespace ~ 'fill-|other'"),
	300, 'what found no place is counted together');
$node->safe_psql('other', "SELECT hloom_test_count('fill-300', $FAILED, 4)");
is(value('(other)', 'orphan_releases', 'failed', 'other'), 4, 'that of other databases, too');
is(value('(other)', 'orphan_releases', 'failed'), 4, 'which all see');
$node->safe_psql('postgres', "SELECT hloom_test_count('each', $LOST, 1)");
is(value('each', 'lost'), 7000001, 'who has a place keeps it');

# For whom
$node->safe_psql('postgres',
	'CREATE ROLE ordinary LOGIN; CREATE ROLE monitor LOGIN; GRANT pg_monitor TO monitor');
for my $sql ('SELECT * FROM hloom_metrics', 'SELECT * FROM hloom_metrics()')
{
	is((sql_error($node, "SET ROLE ordinary; $sql"))[0], '42501', "not for everybody: $sql");
	is((sql_error($node, "SET ROLE monitor; $sql"))[0], '', "for pg_monitor: $sql");
}

# A restart begins anew.
my $since = "SELECT value FROM hloom_metrics WHERE name = 'hostloom_lock_start_time_seconds'";
my $before = $node->safe_psql('postgres', $since);
$node->append_conf('postgresql.conf', 'hloom_lock.metrics_namespaces = 3');
$node->restart;
is($node->safe_psql('postgres', "SELECT count(*), ($since) > $before FROM hloom_metrics"),
	'1|t', 'a restart begins anew and says so');
$node->safe_psql('postgres',
	"SELECT count(hloom_test_count('few-' || i, $LOST, 1)) FROM generate_series(1, 5) AS i");
is( $node->safe_psql('postgres',
		'SELECT namespace, value FROM hloom_metrics'
		  . " WHERE name = 'hostloom_lock_lost' AND value > 0 ORDER BY namespace"),
	"(other)|2\nfew-1|1\nfew-2|1\nfew-3|1",
	'as many namespaces as the setting says have a place');

# What only looks works on a standby, which does not take a process of the primary for its own.
my $locks = 'SELECT key, holder_pid IS NULL, note FROM hloom_locks';
my $waits = 'SELECT count(*), hloom_blocking_pids(pg_backend_pid()) FROM hloom_waiters';
my $health = 'SELECT provider, healthy, detail, latency FROM hloom_health()';
my $hash = "SELECT hloom_key_from_sensitive('1234', 'catalog-service-pepper')";
my $holder = session($node, 'holder');
ask($holder, take('looking', 'k', "note => 'n'"));
$node->backup('standby');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'standby', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby, 'replay', $node->lsn('flush'));
is($node->safe_psql('postgres', $locks), 'k|f|n', 'the primary knows the process');
is($standby->safe_psql('postgres', $locks), 'k|t|n', 'standby: no process');
is( $standby->safe_psql('postgres', $health),
	"table|f|the server is a standby, locks are taken on the primary|\n"
	  . 'memory|f|the server is a standby, locks are taken on the primary|',
	'standby: no locks here');
is( $standby->safe_psql('postgres', $hash),
	'4206b0e68f2edc74108d084419373455',
	'standby: a key from a sensitive value');
is( $standby->safe_psql('postgres', 'SELECT name, value FROM hloom_metrics OFFSET 1'),
	"hostloom_lock_active|1\nhostloom_lock_enabled|1",
	'standby: counters of its own, and the leases there are');
is($standby->safe_psql('postgres', $waits), '0|{}', 'standby: nobody waits');
$standby->stop;
$holder->quit;

$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
is((sql_error($node, 'SELECT * FROM hloom_metrics'))[0],
	'55000', 'not preloaded, the counters say what to add');
is($node->safe_psql('postgres', $locks), 'k|t|n', 'not preloaded: the leases are seen');
is($node->safe_psql('postgres', $waits), '0|{}', 'not preloaded: nobody waits');
is( $node->safe_psql('postgres', $health),
	"table|f|hloom_lock is not in shared_preload_libraries|\n"
	  . 'memory|f|hloom_lock is not in shared_preload_libraries|',
	'not preloaded: no locks here');
is( $node->safe_psql('postgres', $hash),
	'4206b0e68f2edc74108d084419373455',
	'not preloaded: a key from a sensitive value');

done_testing();
