# Who waits for a key gets it in the order in which the waits began; one wake-up for each hand-over.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomTest;
use HloomWait;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

my $WAITERS = 200;
my $CLIENTS = 64;
my $me = '11111111-1111-4111-8111-111111111111';
my $sleeper = sleeper();

my $node = make_node('order', settings => { max_connections => 250 });
my $holder = session($node, 'holder');

# ---- one after another -------------------------------------------------------------------------

# Each begins to wait when the one before does, and has the key for one statement.  Until then its
# advisory lock holds it up.
$node->safe_psql('postgres', 'CREATE TABLE got (waiter int, fence bigint)');
my $one = $node->basedir . '/one.sql';
append_to_file($one, qq{
SELECT pg_advisory_lock_shared(1 + :client_id);
SET statement_timeout = '60 s';
INSERT INTO got SELECT 1 + :client_id, fence
	FROM hloom_acquire('order', 'k', $sleeper, owner => md5(:client_id::text)::uuid);
SELECT hloom_release('order', 'k', md5(:client_id::text)::uuid);
});
ask($holder, take('order', 'k', "owner => '$me'"));
ask($holder, "SELECT pg_advisory_lock(i) FROM generate_series(1, $WAITERS) AS i");
my $run = IPC::Run::start(
	[
		$node->installed_command('pgbench'), '-n', '-c', $WAITERS, '-j', '1', '-t', '1', '-f',
		$one, $node->connstr('postgres')
	],
	'>', \my $output, '2>', \my $messages,
	IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
wait_until("$WAITERS clients are there",
	sub {
		$run->pump_nb;
		ask($holder, q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted})
		  == $WAITERS;
	});
ask($holder, qq{DO \$\$ BEGIN
	FOR i IN 1 .. $WAITERS LOOP
		PERFORM pg_advisory_unlock(i);
		WHILE (SELECT sum(value) <> i FROM hloom_metrics WHERE name = 'hostloom_lock_waits') LOOP
			PERFORM pg_sleep(0.001);
		END LOOP;
	END LOOP;
END \$\$});
my $wakeups = metric($holder, 'wakeups');
ask($holder, "SELECT hloom_release('order', 'k', '$me')");
$run->finish;
is($run->result(0), 0, "$WAITERS waiters, each until it got the key") or diag($messages);
$wakeups = metric($holder, 'wakeups') - $wakeups;
ok($wakeups >= $WAITERS - 1 && $wakeups <= $WAITERS * 1.1, "$wakeups wake-ups");
is(ask($holder, 'SELECT string_agg(waiter::text, $$ $$ ORDER BY waiter) FROM got'),
	join(' ', 1 .. $WAITERS), 'each once');

# A machine that does not let a waiter run for 100 ms lets it miss its turn: only that one is late.
my $overtaken = ask($holder, q{SELECT count(*) FROM (
	SELECT waiter, max(waiter) OVER (ORDER BY fence) AS latest FROM got) AS g
	WHERE waiter < latest});
my $missed = metric($holder, 'missed_turns');
cmp_ok($overtaken, '<=', $missed, "in their order, but for $overtaken; $missed missed their turn");

# ---- under load --------------------------------------------------------------------------------

# Each client asks again when it has released.  The advisory lock shows whether two are inside.
my $turns = int(rounds(100_000) / $CLIENTS) + 1;
$node->safe_psql(
	'postgres', qq{
CREATE UNLOGGED TABLE turns (client int, asked timestamptz, fence bigint, alone bool);
CREATE FUNCTION turn(client int, token uuid) RETURNS bool LANGUAGE plpgsql AS \$\$
BEGIN
	INSERT INTO turns SELECT client, statement_timestamp(), fence, pg_try_advisory_lock(1)
		FROM hloom_acquire('order', 'busy', $sleeper, owner => token);
	PERFORM pg_advisory_unlock(1);
	RETURN hloom_release('order', 'busy', token);
END \$\$});
my $script = $node->basedir . '/turn.sql';
append_to_file($script, "SELECT turn(:client_id, md5('x' || :client_id)::uuid);\n");
{
	local $ENV{PGOPTIONS} = '-c statement_timeout=60s';
	$wakeups = metric($holder, 'wakeups');
	$node->command_ok(
		[
			'pgbench', '-n', '-M', 'prepared', '-c', $CLIENTS, '-j', '1', '-t', $turns, '-f',
			$script, 'postgres'
		],
		"$CLIENTS clients, $turns turns each");
	$wakeups = metric($holder, 'wakeups') - $wakeups;
}
my $made = $turns * $CLIENTS;
is( $node->safe_psql(
		'postgres', 'SELECT count(*), count(DISTINCT fence), bool_and(alone) FROM turns'),
	"$made|$made|t",
	'each had all its turns, and nobody else then');

# overtaken($leeway): the turns before which somebody had one that had asked so many requests later.
# When exactly a wait began is not known: between the request and that its backend may be preempted.
sub overtaken
{
	my ($leeway) = @_;
	return $node->safe_psql('postgres', qq{
WITH ranked AS (SELECT fence, row_number() OVER (ORDER BY asked) AS rank FROM turns),
	seen AS (SELECT rank, max(rank) OVER (ORDER BY fence) AS latest FROM ranked)
SELECT count(*) FROM seen WHERE latest > rank + $leeway});
}
note(overtaken(0) . " of $made turns came after some that were asked for later,"
	  . " $wakeups wake-ups");
my $late = overtaken($CLIENTS);
cmp_ok($late, '<', 0.01 * $made,
	"$late of $made turns came after some that were asked for a whole round later");

$holder->quit;
$node->stop;
done_testing();
