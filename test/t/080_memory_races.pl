# Provider "memory" under load: a key has one holder at a time, also when leases end while their
# holders work; waiters get it in order; and of a deadlock one is told.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomLoad;
use HloomTest;
use HloomWait;
use Test::More;

my $node = make_node(
	'races',
	settings => {
		'hloom_lock.provider' => 'memory',
		'deadlock_timeout' => '200ms',
		'max_connections' => 60
	});
my $sleeper = sleeper();
my $other = session($node, 'other');

# ---- leases that end while their holders work --------------------------------------------------

# A holder works for up to 10 ms, and many leases are shorter.  It held the key until it gave it
# back, or, if that was too late, until the end it knew.  A grant that was late, LL003, was given
# back in time or lost.
$node->safe_psql(
	'postgres', q{
CREATE UNLOGGED TABLE holds (key int, fence bigint, since timestamptz, until timestamptz,
	kept bool);
CREATE UNLOGGED TABLE others (outcome text);
CREATE FUNCTION hold(ns text, k int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	handle hloom_handle;
	since timestamptz;
	until timestamptz;
	kept bool;
BEGIN
	BEGIN
		SELECT * INTO handle FROM hloom_try_acquire(ns, k::text,
			CASE WHEN random() < 0.4 THEN random() * interval '8 ms' + interval '2 ms'
				ELSE interval '1 min' END);
		since := clock_timestamp();
		IF NOT FOUND THEN
			INSERT INTO others VALUES ('busy');
			RETURN;
		END IF;
	EXCEPTION WHEN SQLSTATE 'LL003' THEN
		INSERT INTO others VALUES ('late');
		RETURN;
	END;
	PERFORM pg_sleep(random() * 0.01);
	until := clock_timestamp();
	kept := hloom_release(handle);
	INSERT INTO holds VALUES (k, handle.fence, since,
		CASE WHEN kept THEN until ELSE least(until, handle.lease_end) END, kept);
END $$});
end_load(
	start_load(
		$node, 'postgres', 16, "SELECT hold('hold', (random() * 3)::int);\n", '-t', rounds(150)),
	'16 clients take 4 keys');
my ($holds, $lost, $doubled, $together) = split /\|/, $node->safe_psql('postgres', q{
WITH ordered AS (
	SELECT *, lag(fence) OVER w AS fence_before, max(until) OVER
		(PARTITION BY key ORDER BY fence ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
	FROM holds WINDOW w AS (PARTITION BY key ORDER BY fence))
SELECT count(*), count(*) FILTER (WHERE NOT kept), count(*) FILTER (WHERE fence = fence_before),
	count(*) FILTER (WHERE since < before AND since < until)
FROM ordered});
my ($refusals, $late) = split /\|/, $node->safe_psql('postgres',
	q{SELECT count(*) FILTER (WHERE outcome = 'busy'), count(*) FILTER (WHERE outcome = 'late')
		FROM others});
note("$holds holds, $lost lost; $refusals refusals, $late late");
is($doubled, 0, 'no fence is given twice');
is($together, 0, 'in the order of their fences the holders never overlap');
cmp_ok($lost, '>', $holds / 20, "$lost of $holds leases ended while their holder worked");
cmp_ok($refusals, '>', $holds / 5, "$refusals claims met a holder");
is_empty_memory($node, 'held');
my $counted = metric($other, 'lost');
ok($counted >= $lost && $counted <= $lost + $late, "each lost lease is counted once: $counted");

# ---- the order of waiters ----------------------------------------------------------------------

# Each begins to wait when the one before does: until then its advisory lock holds it up.
my $WAITERS = 40;
my $me = '11111111-1111-4111-8111-111111111111';
ask($other, 'CREATE TABLE got (waiter int, fence bigint)');
for my $round (1 .. rounds(2))
{
	ask($other, 'TRUNCATE got');
	ask($other, take('order', 'k', "owner => '$me'"));
	ask($other, "SELECT pg_advisory_lock(i) FROM generate_series(1, $WAITERS) AS i");
	my $queue = start_load($node, 'postgres', $WAITERS, qq{
SELECT pg_advisory_lock_shared(1 + :client_id);
SET statement_timeout = '60 s';
INSERT INTO got SELECT 1 + :client_id, fence
	FROM hloom_acquire('order', 'k', $sleeper, owner => md5(:client_id::text)::uuid);
SELECT hloom_release('order', 'k', md5(:client_id::text)::uuid);
}, '-t', 1);
	wait_until("$WAITERS clients are there",
		sub {
			$queue->{handle}->pump_nb;
			ask($other,
				q{SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted})
			  == $WAITERS;
		});
	my ($missed, $waits) = map { metric($other, $_) } qw(missed_turns waits);
	ask($other, qq{DO \$\$ BEGIN
	FOR i IN 1 .. $WAITERS LOOP
		PERFORM pg_advisory_unlock(i);
		WHILE (SELECT sum(value) <> $waits + i FROM hloom_metrics
				WHERE name = 'hostloom_lock_waits') LOOP
			PERFORM pg_sleep(0.001);
		END LOOP;
	END LOOP;
END \$\$});
	ask($other, "SELECT hloom_release('order', 'k', '$me')");
	end_load($queue, "round $round: $WAITERS waiters get the key");
	is(ask($other, 'SELECT count(DISTINCT waiter), count(DISTINCT fence) FROM got'),
		"$WAITERS|$WAITERS", "round $round: each once");

	# A machine that does not let a waiter run for 100 ms lets it miss its turn.
	my $overtaken = ask($other, q{SELECT count(*) FROM (
		SELECT waiter, max(waiter) OVER (ORDER BY fence) AS latest FROM got) AS g
		WHERE waiter < latest});
	$missed = metric($other, 'missed_turns') - $missed;
	cmp_ok($overtaken, '<=', $missed,
		"round $round: in order, but for $overtaken; $missed missed their turn");
}

# Each asks again when it has given the key back: nobody is left asleep.
my $turns = rounds(150);
$node->safe_psql(
	'postgres', qq{
CREATE UNLOGGED TABLE turns (fence bigint, alone bool);
CREATE FUNCTION turn(token uuid) RETURNS void LANGUAGE plpgsql AS \$\$
BEGIN
	INSERT INTO turns SELECT fence, pg_try_advisory_lock(1)
		FROM hloom_acquire('order', 'busy', $sleeper, owner => token);
	PERFORM pg_advisory_unlock(1);
	PERFORM hloom_release('order', 'busy', token);
END \$\$});
{
	local $ENV{PGOPTIONS} = '-c statement_timeout=40s';
	end_load(
		start_load(
			$node, 'postgres', 16, "SELECT turn(md5('x' || :client_id)::uuid);\n", '-t', $turns),
		'16 clients hand a key over');
}
is( ask($other, 'SELECT count(*), count(DISTINCT fence), bool_and(alone) FROM turns'),
	16 * $turns . '|' . 16 * $turns . '|t',
	'each has all its turns, and nobody else then');
is_empty_memory($node, 'handed over');

# ---- deadlocks ---------------------------------------------------------------------------------

# Each has a key and wants the other's.
my @sides = map { session($node, "side-$_") } 1 .. 2;
my $deadlocks = metric($other, 'deadlocks');
my ($told, $went_on) = (0, 0);
my $rounds = rounds(6);
for my $round (1 .. $rounds)
{
	my $scope = $round % 2 ? 'session' : 'transaction';
	my @ask =
	  map { "SELECT key FROM hloom_acquire('dead', '$_', scope => '$scope', $sleeper)" } 0, 1;
	ask($sides[$_], "BEGIN; $ask[$_]") for 0, 1;
	send_query($sides[$_], "$ask[1 - $_]; ROLLBACK; SELECT hloom_release_session() IS NULL")
	  for 0, 1;
	my @answers = map { join '', read_query($_) } @sides;
	$told += grep { state_of($_) eq '40P01' } @answers;
	$went_on += grep { /^[01]\n/ && state_of($_) eq '' } @answers;
}
is("$told|$went_on", "$rounds|$rounds", 'of two that wait for each other one is told, one goes on');
is(metric($other, 'deadlocks') - $deadlocks, $rounds, 'and each deadlock is counted');
$_->quit for @sides;
is_empty_memory($node, 'deadlocks');

$other->quit;
$node->stop;
done_testing();
