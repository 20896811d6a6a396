# The room for leases that follow a session or a transaction is used up: the next one is an error
# that names the setting, nothing else is harmed, and room that is given back is usable at once by
# everybody.  Orphans for which there is no room are counted and live to their end.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $LIMIT = 100;
my $SETTING = 'hloom_lock.max_tracked_leases';

my $node = make_node('capacity', settings => { $SETTING => $LIMIT });
my $me = '11111111-1111-4111-8111-111111111111';

# fill(prefix, most, scope): takes leases until there is no room; how many
my $fill = <<"SQL";
CREATE FUNCTION fill(prefix text, most int DEFAULT 1000, scope text DEFAULT 'session')
RETURNS int LANGUAGE plpgsql AS \$\$
BEGIN
	FOR i IN 1 .. most LOOP
		BEGIN
			PERFORM FROM hloom_acquire('capacity', prefix || ':' || i, scope => scope,
				owner => '$me');
		EXCEPTION WHEN configuration_limit_exceeded THEN
			RETURN i - 1;
		END;
	END LOOP;
	RETURN most;
END \$\$;
SQL
$node->safe_psql('postgres', $fill);

# held($prefix): how many leases there are of this prefix
sub held
{
	my ($prefix) = @_;
	return $node->safe_psql('postgres',
		    q{SELECT count(*) FROM hloom_leases WHERE hloom_is_held(namespace, key, owner)}
		  . " AND starts_with(key, '$prefix:')");
}

# leave($session, $application): ends a session, and waits until nobody sees it any more
sub leave
{
	my ($session, $application) = @_;
	$session->quit;
	wait_for_sql($node,
		"SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = '$application'");
	return;
}

my $first = session($node, 'first');
my $second = session($node, 'second');

# ---- the limit ---------------------------------------------------------------------------------

my $OTHERS = 10;
is(ask($second, "SELECT fill('others', $OTHERS)"), $OTHERS, 'somebody else has leases');
my $room = ask($first, q{SELECT fill('first')}) + $OTHERS;
note("$room leases were admitted with $SETTING = $LIMIT");
cmp_ok($room, '>=', $LIMIT, "at least the $LIMIT are admitted");
cmp_ok($room, '<', 2 * $LIMIT, 'and there is a limit');

for my $try (
	[ first => $first, q{SELECT * FROM hloom_acquire('capacity', 'more:1', scope => 'session')} ],
	[ second => $second, take('capacity', 'more:2', q{scope => 'transaction'}) ],
	[ execute => $second, q{SELECT hloom_execute_with_lock('capacity', 'more:3', 'SELECT 1')} ])
{
	my ($name, $session, $sql) = @$try;
	my ($state, $messages) = ask_error($session, $sql);
	is($state, '53400', "$name: no room is 53400");
	like($messages, qr/\Q$SETTING\E/, "$name: which names the setting");
}
is(held('more'), '0', 'nothing is held by those who got no room');
is(held('others') . ' ' . held('first'),
	"$OTHERS " . ($room - $OTHERS),
	'and everybody has what he had');

is( ask($first,
		q{SELECT count(*) FROM generate_series(1, 200) AS i,
			hloom_try_acquire('capacity', 'lease:' || i)}),
	'200',
	'leases of scope lease go on');
is( ask($second,
		q{SELECT hloom_execute_with_lock('capacity', 'more:4', 'SELECT 1', scope => 'lease')}),
	'1',
	'so do actions under one');
is(held('lease'), '200', 'they are held');

# ---- room that is given back -------------------------------------------------------------------

is(ask($first, 'SELECT hloom_release_session()'), $room - $OTHERS, 'all are given back');
my $third = session($node, 'third');
is(ask($third, q{SELECT fill('third')}), $room - $OTHERS, 'the room is usable by another session');
leave($third, 'third');
is(ask($first, q{SELECT fill('again')}), $room - $OTHERS, 'after the end of that one, too');
ask($first, 'DISCARD ALL');
is(ask($second, q{SELECT fill('discarded')}), $room - $OTHERS, 'after DISCARD ALL');
ask($second, 'SELECT hloom_release_session()');
for my $end ('COMMIT', 'ROLLBACK')
{
	ask($first, 'BEGIN');
	is(ask($first, "SELECT fill('in-$end', scope => 'transaction')"),
		$room, "all the room is usable by one transaction");
	my ($state) = ask_error($second, take('capacity', 'more:5', q{scope => 'session'}));
	is($state, '53400', 'and then by nobody else');
	ask($first, $end);
	is(ask($second, "SELECT fill('after-$end')"), $room, "after $end it is free");
	ask($second, 'SELECT hloom_release_session()');
}
is( ask($first,
		q{SELECT hloom_release('capacity', key, owner) FROM (SELECT fill('one', 1)) f,
			hloom_leases WHERE key = 'one:1'}),
	't',
	'a lease that is released');
is(ask($second, q{SELECT fill('released')}), $room, 'leaves its room');
ask($second, 'SELECT hloom_release_session()');

# ---- another database --------------------------------------------------------------------------

# Each database has its own table: what is left of its leases is removed there, by whoever needs
# room, and before that by the session that gave them back, with the next leases it takes.
$node->safe_psql('postgres', 'CREATE DATABASE gone');
$node->safe_psql('gone', "CREATE EXTENSION hloom_lock; $fill");
my $elsewhere = session($node, 'elsewhere', 'gone');
note("$room leases given back in one database leave room in another for "
	  . ask($elsewhere, q{SELECT fill('before')}));
ask($elsewhere, 'SELECT hloom_release_session()');
ask($second, q{SELECT count(*) FROM generate_series(1, 10) AS i,
	hloom_try_acquire('capacity', 'remove:' || i)});
is(ask($elsewhere, q{SELECT fill('elsewhere')}), $room, 'the room is that of all databases');
my ($state) = ask_error($first, take('capacity', 'more:6', q{scope => 'session'}));
is($state, '53400', 'there is none here then');
leave($elsewhere, 'elsewhere');
note('after the end of the session in another database there is room for '
	  . ask($first, q{SELECT fill('before')}));
ask($first, 'SELECT hloom_release_session()');
$node->safe_psql('postgres', 'DROP DATABASE gone');
is(ask($first, q{SELECT fill('dropped')}), $room, 'what a dropped database left is free');
ask($first, 'SELECT hloom_release_session()');

# ---- orphans -----------------------------------------------------------------------------------

sub orphans
{
	my ($outcome) = @_;
	return $node->safe_psql('postgres',
		    'SELECT coalesce(sum(value), 0)::bigint FROM hloom_metrics'
		  . q{ WHERE namespace = 'orphans' AND name = 'hostloom_lock_orphan_releases'}
		  . " AND outcome = '$outcome'");
}

my $ORPHANS = 1000;
is(ask($first, "SELECT fill('others', $OTHERS)"), $OTHERS, 'somebody has leases');
is(ask($first, q{SELECT fill('kept', 10, 'lease')}), '10', 'and some of scope lease');
$third = session($node, 'third');
($state) = ask_error(
	$third,
	"SELECT 1 / (count(*) - $ORPHANS) FROM generate_series(1, $ORPHANS) AS i,"
	  . " hloom_try_acquire('orphans', 'orphan:' || i, lease => '10 s')");
is($state, '22012', "a statement took $ORPHANS leases and failed");
my $left = held('orphan');
my $failed = orphans('failed');
note("$left of $ORPHANS orphans found no room");
# The worker may make room meanwhile.
cmp_ok($left, '>', 0, 'the room did not do for all');
cmp_ok($left, '<', $ORPHANS, 'but for some');
is($failed, $left, 'those that found none are counted as failed, and held');
is( $node->safe_psql(
		'postgres',
		q{SELECT bool_and(lease = '10 s' AND expires_at <= granted_at + lease)
FROM hloom_leases WHERE namespace = 'orphans'}),
	't',
	'until their end');
is(held('others'), $OTHERS, 'the leases of others are unharmed');
is(held('kept') . ' ' . held('lease'), '10 200', 'those of scope lease, too');
is(ask($second, q{SELECT fill('second')}), $room - $OTHERS, 'and the room is usable again');
is(orphans('released') + $left, $ORPHANS, 'the orphans that found room are released');
wait_for_sql($node, q{SELECT count(*) = 0 FROM hloom_leases WHERE namespace = 'orphans'});
is(orphans('failed'), $left, 'the others have come to their end');
is(held('others') . ' ' . held('second'),
	"$OTHERS " . ($room - $OTHERS),
	'which is nobody else\'s');

ask($_, 'SELECT hloom_release_session()') for $first, $second;

# ---- leases that are lost ----------------------------------------------------------------------

# The actions lose theirs by making it short.
for my $scope ('session', 'transaction')
{
	ask($third, <<"SQL");
SET client_min_messages = error;
DO \$\$ BEGIN
	FOR i IN 1 .. 20 LOOP
		PERFORM hloom_execute_with_lock('capacity', 'lost',
			\$a\$SELECT pg_sleep(0.002)
			FROM hloom_extend('capacity', 'lost', '$me', '1 ms') AS e WHERE e\$a\$,
			owner => '$me', scope => '$scope');
	END LOOP;
END \$\$
SQL
	is(ask($second, q{SELECT fill('lost')}), $room, "lost by actions with scope $scope: no room");
	ask($second, 'SELECT hloom_release_session()');
}

# The last one's row has to go first.
$node->safe_psql('postgres', 'SELECT hloom_reap()');
is($node->safe_psql('postgres', q{SELECT value FROM hloom_metrics
		WHERE namespace = 'capacity' AND name = 'hostloom_lock_lost'}), '40', '40 were lost');

# A lease that has ended by itself has its room until its session's end, or is given back.
is(ask($third, q{SELECT fill('short', 20)}), '20', 'leases that will end by themselves');
ask($third,
	qq{SELECT count(hloom_extend('capacity', 'short:' || i, '$me', '1 ms'))
		FROM generate_series(1, 20) AS i});
wait_for_sql($node, q{SELECT count(*) = 0 FROM hloom_leases WHERE starts_with(key, 'short:')});
is( ask($second, q{SELECT count(*) FROM generate_series(1, 10) AS i,
		hloom_try_acquire('capacity', 'short:' || i)}),
	'10', 'others take some of the keys');
note('meanwhile there is room for ' . ask($second, q{SELECT fill('meanwhile')}));
ask($second, 'SELECT hloom_release_session()');
leave($third, 'third');
is(ask($second, q{SELECT fill('afterwards')}), $room, 'and none after the end of the session');
is(held('short'), '10', 'those others took are theirs');

$_->quit for $first, $second;
$node->stop;
done_testing();
