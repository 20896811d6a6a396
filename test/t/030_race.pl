# Many sessions racing for keys that were never used: one winner each, nothing in the server's
# log, and nothing written by those who lose.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HloomTest;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

my $CLIENTS = 50;

my $node = make_node('race', settings => { max_connections => $CLIENTS + 10 });

# ---- the race ----------------------------------------------------------------------------------

# Everybody asks for the key of the present fifth of a millisecond, as fast as it can: each key is
# new, and those who run at the same time come for the same one.  An attempt's times tell afterwards
# who met whom.
$node->safe_psql('postgres',
	    'CREATE UNLOGGED TABLE attempts (key text, client int, since timestamptz,'
	  . ' granted int, fence int8, until timestamptz)');
my $script = $node->basedir . '/race.sql';
append_to_file($script, <<'SQL');
INSERT INTO attempts
SELECT k.key, :client_id::int4, s.since, w.count, w.max, clock_timestamp()
FROM generate_series(1, 100) i,
	LATERAL (SELECT clock_timestamp() AS since WHERE i > 0) s,
	LATERAL (SELECT floor(extract(epoch FROM s.since) * 5000)::int8::text AS key) k,
	LATERAL (SELECT count(*), max(fence)
		FROM hloom_try_acquire('race', k.key, note => s.since::text)) w;
SQL

my $attempts = rounds(20);
my $log_start = -s $node->logfile;
IPC::Run::run(
	[
		'pgbench', '-n', '-M', 'prepared', '-c', $CLIENTS, '-j', '2', '-t', $attempts,
		'-f', $script, $node->connstr('postgres')
	],
	'>', \my $out, '2>', \my $err,
	IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
is($?, 0, "$CLIENTS clients made $attempts rounds each") or diag($err);

my $keys = $node->safe_psql('postgres', 'SELECT count(DISTINCT key) FROM attempts');
cmp_ok($keys, '>=', 100, "they raced for $keys keys");
is( $node->safe_psql(
		'postgres',
		'SELECT count(*) FROM (SELECT sum(granted) FROM attempts GROUP BY key) s WHERE sum <> 1'),
	'0',
	'each key had exactly one winner');
is( $node->safe_psql('postgres',
		    'SELECT count(*) FROM attempts a'
		  . ' FULL JOIN hloom_leases l ON l.key = a.key AND l.fence = a.fence'
		  . ' WHERE (a.granted = 1) IS DISTINCT FROM (l.key IS NOT NULL)'),
	'0',
	'the table has the winners\' leases and no other');

# The test is worth nothing unless losers were under way while the winner was.  Few
# keys will do: no more sessions run at a time than there are processors, each some 10 us.
my $met = $node->safe_psql('postgres', <<'SQL');
SELECT count(DISTINCT w.key) FROM attempts w
JOIN attempts l ON l.key = w.key AND l.granted = 0
	AND l.since < w.until AND w.since < l.until
WHERE w.granted = 1
SQL
cmp_ok($met, '>', $keys / 50, "losers met the winner of $met keys");
my @errors = error_lines($node, $log_start);
is(scalar(@errors), 0, 'no log line at ERROR or above') or diag(join "\n", @errors[ 0 .. 4 ]);
$node->stop;

# ---- what a losing attempt writes --------------------------------------------------------------

# On a server on which nobody else writes: no replication, no checkpoint, no vacuum.
my $quiet = make_node(
	'quiet',
	settings => {
		wal_level => 'minimal',
		max_wal_senders => 0,
		checkpoint_timeout => '1h',
		synchronous_commit => 'on',
	});
my $holder = session($quiet, 'holder');
my $loser = session($quiet, 'loser');
ask($holder, take('race', 'held'));
my $lose = 'SELECT count(*) FROM hloom_try_acquire(\'race\', \'held\')';
my $explain = 'EXPLAIN (ANALYZE, WAL, COSTS OFF, TIMING OFF, SUMMARY OFF) ';

# Reading the catalogs for the first time may prune their pages, which is logged.
ask($loser, "$explain $lose; SELECT pg_current_wal_insert_lsn()") for 1 .. 3;

my $before = ask($loser, 'SELECT pg_current_wal_insert_lsn()');
is(join('', map { ask($loser, $lose) } 1 .. 10), '0' x 10, 'the key is held');
is(ask($loser, 'SELECT pg_current_wal_insert_lsn()'),
	$before, 'losing attempts in transactions of their own write no WAL');
my $explained =
  ask($loser, "BEGIN; $explain $lose; SELECT pg_current_xact_id_if_assigned() IS NULL");
unlike($explained, qr/WAL:/, 'EXPLAIN (ANALYZE, WAL) shows no WAL for a losing attempt');
like($explained, qr/^t$/m, 'a losing attempt assigns no xid');
ask($loser, 'COMMIT');
is(ask($loser, 'SELECT pg_current_wal_insert_lsn()'),
	$before, 'nor does the COMMIT of such a transaction write WAL');

# The same look at a winning attempt, or it would prove nothing.
$explained = ask($loser,
	"BEGIN; $explain SELECT count(*) FROM hloom_try_acquire('race', 'free');"
	  . ' SELECT pg_current_xact_id_if_assigned() IS NULL');
like($explained, qr/WAL: records=1\b/, 'a winning attempt writes one record');
like($explained, qr/^t$/m, 'and assigns no xid either');
ask($loser, 'COMMIT');
isnt(ask($loser, 'SELECT pg_current_wal_insert_lsn()'), $before, 'the position shows it');

$holder->quit;
$loser->quit;
done_testing();
