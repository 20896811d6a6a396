# Activities: the ring keeps the latest ones, all of them and each whole, whoever writes while it is
# read; calls that are cut short leave theirs; of every database its own; none where none are kept,
# and a clear answer without the library preloaded.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomLoad;
use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $size = 8;
my $node = make_node('activities', settings => { 'hloom_lock.activity_history' => $size });
my $session = session($node);
my $trace = '4bf92f3577b34da6a3ce929d0e0e4736';

# Acquires a key, and gives it back.
sub turn
{
	my ($key) = @_;
	ask($session, "SELECT hloom_release(h) FROM hloom_acquire('turns', '$key') AS h");
	return;
}

# ---- the ring wraps ----------------------------------------------------------------------------

is(ask($session, 'SELECT count(*) FROM hloom_activities'), '0', 'nothing was done yet');
my $seen = 'SELECT key FROM hloom_activities()';
for my $i (1 .. $size)
{
	turn($i);
	is(ask($session, $seen), join("\n", reverse 1 .. $i), "the newest of $i comes first");
}
for my $i ($size + 1 .. 3 * $size + 1)
{
	turn($i);
	is(ask($session, $seen), join("\n", reverse $i - $size + 1 .. $i), "the latest of $i");
}

# ---- calls that are cut short ------------------------------------------------------------------

# cut($what, $sql, $rows): a client waits for a busy key until it is cancelled
my $cut = 0;

sub cut
{
	my ($what, $sql, $rows) = @_;
	my $key = 'cut' . ++$cut;
	ask($session, "SELECT FROM hloom_acquire('cut', '$key')");
	my $waiter = start_sql($node,
		"SET hloom_lock.traceparent = '00-$trace-00f067aa0ba902b7-01';\n"
		  . sprintf($sql, $key, 'retry => hloom_retry_interval(1000, \'1 h\')'),
		'cut');
	wait_until("$what: it waits",
		sub { ask($session, "SELECT count(*) FROM hloom_waiters WHERE key = '$key'") });
	my $pid = ask($session, "SELECT pid FROM hloom_waiters WHERE key = '$key'");
	ask($session, "SELECT pg_cancel_backend($pid)");
	my ($out, $err) = finish_sql($waiter);
	is(state_of($err), '57014', "$what: cancelled");
	is( ask($session,
			    'SELECT name, key, key_cut, acquired, wait_ms, hold_ms, duration_ms > 0,'
			  . " parent_span_id = '00f067aa0ba902b7', sampled, pid FROM hloom_activities"
			  . " WHERE pid = $pid AND trace_id = '$trace' ORDER BY name"),
		join("\n", map { sprintf $_, $key, $pid } @$rows),
		"$what: no more than the key");
	return $pid;
}

cut('acquire', q{SELECT hloom_acquire('cut', '%s', %s)}, ['lock.acquire|%s|f||||t|t|t|%s']);
cut('acquire_wait', q{CALL hloom_acquire_wait('cut', '%s', NULL, NULL, NULL, %s)},
	['lock.acquire|%s|f||||t|t|t|%s']);
my $pid = cut('execute',
	q{SELECT hloom_execute_with_lock('cut', '%s', 'SELECT 1', %s)},
	[ 'lock.acquire|%s|f||||t|f|t|%s', 'lock.execute|%s|f||||t|t|t|%s' ]);
is( ask($session,
		    'SELECT a.parent_span_id = e.span_id FROM hloom_activities AS a, hloom_activities AS e'
		  . " WHERE a.pid = $pid AND e.pid = $pid AND a.name = 'lock.acquire'"
		  . " AND e.name = 'lock.execute'"),
	't', 'of an action that was not begun, the acquisition is a part');
turn('after');
is( ask($session,
		"SELECT count(*), count(parent_span_id) FROM hloom_activities WHERE key = 'after'"),
	'1|0', 'which others are not');

# A session that is terminated has no time to tell.
ask($session, "SELECT FROM hloom_acquire('cut', 'terminated')");
my $waiter = start_sql($node,
	q{SELECT hloom_acquire('cut', 'terminated', retry => hloom_retry_interval(1000, '1 h'))},
	'cut');
my $waits = q{SELECT pid FROM hloom_waiters WHERE key = 'terminated'};
$pid = wait_until('it waits', sub { ask($session, $waits) });
ask($session, "SELECT pg_terminate_backend($pid, 60000)");
finish_sql($waiter);
is(ask($session, "SELECT count(*) FROM hloom_activities WHERE pid = $pid"), '0', 'terminated');
turn('after');
is((split /\n/, ask($session, $seen))[0], 'after', 'and nobody minds');

# ---- each database sees its own ----------------------------------------------------------------

$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other',
	"CREATE EXTENSION hloom_lock; SELECT FROM hloom_acquire('turns', 'in-other')");
is($node->safe_psql('other', $seen), 'in-other', 'of its own database');
is(ask($session, "SELECT count(*), count(*) FILTER (WHERE key = 'in-other') FROM hloom_activities"),
	($size - 1) . '|0', 'and of no other');

# ---- a ring is read while it is written --------------------------------------------------------

# Key, trace and parent tell one number, and so does every part of the key, which is of any length.
$session->quit;
$node->adjust_conf('postgresql.conf', 'hloom_lock.activity_history', 3);
$node->restart;
$session = session($node);
$node->safe_psql('postgres', <<'SQL');
SELECT hloom_configure('torn', provider => 'memory');
CREATE VIEW torn AS SELECT a.*, number FROM hloom_activities AS a,
	LATERAL (SELECT split_part(key, '.', 1)) AS n (number) WHERE namespace = 'torn' AND NOT (
		key = left(repeat(number || '.', 100), length(key))
		AND length(key) % length(number || '.') = 0
		AND trace_id = lpad(number, 32, '0') AND parent_span_id = lpad(number, 16, '0')
		AND name = 'lock.acquire' AND acquired AND wait_ms >= 0 AND hold_ms IS NULL AND sampled);
CREATE PROCEDURE look(rounds int, INOUT seen bigint) LANGUAGE plpgsql AS $$
DECLARE
	torn text;
BEGIN
	FOR i IN 1 .. rounds LOOP
		SELECT string_agg(t::text, ' ') INTO torn FROM torn AS t;
		IF torn IS NOT NULL THEN
			RAISE EXCEPTION 'torn: %', torn;
		END IF;
		seen := seen + (SELECT count(*) FROM hloom_activities WHERE namespace = 'torn');
	END LOOP;
END $$;
SQL
my $writer = <<'SQL';
\set n random(1, 1000000000)
\set parts random(1, 12)
SELECT set_config('hloom_lock.traceparent', format('00-%s-%s-01', lpad(to_hex(:n::bigint), 32, '0'),
	lpad(to_hex(:n::bigint), 16, '0')), false);
SELECT hloom_release(h) FROM hloom_acquire('torn', repeat(to_hex(:n::bigint) || '.', :parts)) AS h;
SQL
my $turns = rounds(5000);
my $load = start_load($node, 'postgres', 6, $writer, '-t', $turns);
wait_until('the writers write',
	sub { ask($session, "SELECT count(*) FROM hloom_activities WHERE namespace = 'torn'") });
my $looks = 0;
my $rows = 0;
while ($load->{handle}->pumpable)
{
	my ($state, $message) = ask_error($session, 'CALL look(200, 0)');
	is($state, '', 'whole rows') or diag($message), last if $state ne '';
	$rows += ask($session, 'CALL look(100, 0)');
	$looks += 300;
	$load->{handle}->pump_nb;
}
end_load($load, 'nobody who writes fails');
cmp_ok($rows, '>', 0, "each of $rows rows in $looks looks is whole");
is(ask($session, 'SELECT count(*) FROM torn'), '0', 'and those in the end');
is(ask($session, 'SELECT count(*) FROM hloom_activities'), '3', 'of which none is missing');
$session->quit;

# ---- none are kept -----------------------------------------------------------------------------

$node->adjust_conf('postgresql.conf', 'hloom_lock.activity_history', 0);
$node->restart;
$session = session($node);
turn('none');
is(ask($session, "SELECT hloom_execute_with_lock('turns', 'none', 'SELECT 1')"),
	'1', 'history 0: locks are taken');
is(ask($session, 'SELECT count(*) FROM hloom_activities'), '0', 'and no activity is kept');
is((ask_error($session, 'SET hloom_lock.activity_history = 1'))[0],
	'55P02', 'which a session cannot change');
$session->quit;

# ---- without the library preloaded -------------------------------------------------------------

$node->adjust_conf('postgresql.conf', 'shared_preload_libraries', q{''});
$node->restart;
my ($state, $message) = sql_error($node, 'SELECT * FROM hloom_activities');
is($state, '55000', 'not preloaded: no activities');
like($message, qr/Add "hloom_lock" to shared_preload_libraries/, 'and what to do about it');
is($node->psql('postgres', "LOAD 'hloom_lock'; SET hloom_lock.traceparent = 'x'"),
	0, 'the client may set its span');

done_testing();
