# Provider memory when there is no room: the next lease is an error that names the setting, nothing
# else is harmed, and whatever has ended, in any database, makes room.  What is lost is counted,
# logged and told once, for its own database.  Leases that are to be renewed are, without a table.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomLoss;
use HloomTest;
use HloomWait;
use PostgreSQL::Test::Utils;
use Test::More;

# One in 16 may be long, and one more.
my $LIMIT = 100;
my $LONG = 7;

# No pass over the leases comes in between.
my $node = make_loss_node(
	'life',
	settings => {
		'hloom_lock.provider' => 'memory',
		'hloom_lock.memory_leases' => $LIMIT,
		'hloom_lock.max_tracked_leases' => $LIMIT,
		'hloom_lock.reap_interval' => '1h'
	});
my $me = '11111111-1111-4111-8111-111111111111';
my $you = '22222222-2222-4222-8222-222222222222';

# fill(ns, prefix, most, scope, note): takes leases until there is no room; how many
my $functions = <<"SQL";
CREATE EXTENSION IF NOT EXISTS hloom_lock;
CREATE FUNCTION fill(ns text, prefix text, most int DEFAULT 1000, scope text DEFAULT 'lease',
	note text DEFAULT NULL)
RETURNS int LANGUAGE plpgsql AS \$\$
BEGIN
	FOR i IN 1 .. most LOOP
		BEGIN
			PERFORM FROM hloom_acquire(ns, prefix || ':' || i, scope => scope, owner => '$me',
				note => note);
		EXCEPTION WHEN configuration_limit_exceeded THEN
			RETURN i - 1;
		END;
	END LOOP;
	RETURN most;
END \$\$;
CREATE FUNCTION finish(ns text, call text, may_be_false boolean DEFAULT true)
RETURNS bigint LANGUAGE plpgsql AS \$\$
DECLARE
	held text;
	done bigint := 0;
	yes boolean;
BEGIN
	FOR held IN SELECT key FROM hloom_locks WHERE namespace = ns LOOP
		EXECUTE 'SELECT ' || call INTO yes USING ns, held, '$me'::uuid;
		done := done + (yes OR may_be_false)::int;
	END LOOP;
	RETURN done;
END \$\$;
SQL
my $RELEASE = q{'hloom_release($1, $2, $3)', false};
# It may have ended before the answer.
my $END = q{$$hloom_extend($1, $2, $3, '1 ms')$$};
$node->safe_psql('postgres', $functions);
$node->safe_psql('postgres', q{SELECT hloom_configure('durable', provider => 'table')});
for my $database ('other', 'gone')
{
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, $functions);
}
my $first = session($node, 'first');
my $second = session($node, 'second');

# health(): of provider memory
sub health
{
	return ask($second, q{SELECT healthy, detail FROM hloom_health() WHERE provider = 'memory'});
}

# held($prefix): how many leases there are of this prefix
sub held
{
	my ($prefix) = @_;
	return ask($second, "SELECT count(*) FROM hloom_locks WHERE starts_with(key, '$prefix')");
}

# ends($namespace, $key): a lease does; it may have ended before the answer
sub ends
{
	my ($namespace, $key) = @_;
	ask($first, "SELECT hloom_extend('$namespace', '$key', '$me', '1 us')") =~ /^[tf]$/
	  or die "$key was not extended";
	return;
}

# lost_there($namespace): counted in the other database
sub lost_there
{
	my ($namespace) = @_;
	return $node->safe_psql('other',
		q{SELECT coalesce(sum(value), 0) FROM hloom_metrics WHERE name = 'hostloom_lock_lost'}
		  . " AND namespace = '$namespace'");
}

# ---- no room -----------------------------------------------------------------------------------

like(health(), qr/^t\|memory has room for $LIMIT leases, 0 taken$/, 'nothing is taken');
is(ask($first, q{SELECT fill('full', 'k')}), $LIMIT, 'as many as there is room for');

# What is held is told when there is no room, and the rest when the lease table is locked.
my $active = q{SELECT sum(value) FILTER (WHERE name = 'hostloom_lock_active'),
	sum(value) FILTER (WHERE name ~ 'acquire_duration_seconds_count$') FROM hloom_metrics};
is(ask($second, $active), "$LIMIT|$LIMIT", 'the metrics: full');
ask($first, 'BEGIN; LOCK TABLE hloom_leases IN ACCESS EXCLUSIVE MODE');
is(ask($second, $active), "|$LIMIT", 'the metrics: the lease table is locked');
ask($first, 'ROLLBACK');
like(health(), qr/^f\|memory has room for $LIMIT leases, $LIMIT taken$/, 'that is not healthy');
for my $try ([ try_acquire => take('full', 'more') ],
	[ acquire => "SELECT fence FROM hloom_acquire('full', 'more', max_wait => '1 min')" ],
	[ session => take('full', 'more', q{scope => 'session'}) ],
	[ transaction => 'BEGIN; ' . take('full', 'more', q{scope => 'transaction'}) ],
	[ execute => q{SELECT hloom_execute_with_lock('full', 'more', 'SELECT 1')} ])
{
	my ($name, $sql) = @$try;
	my ($state, $messages) = ask_error($second, $sql);
	ask($second, 'ROLLBACK') if $name eq 'transaction';
	is($state, '53400', "$name: no room is 53400");
	like($messages, qr/too many leases in memory.*HINT:  .*hloom_lock\.memory_leases/s,
		"$name: which names the setting");
}
is(held('more'), 0, 'nothing is held by those who got no room');
is(ask($second, 'SELECT hloom_release_session()'), 0, 'nor remembered');
is(ask($second, take('full', 'k:1')), '', 'a key that is held is refused as ever');
is( ask($second, "SELECT hloom_is_held('full', 'k:1', '$me'), hloom_extend('full', 'k:1', '$me')"),
	't|t',
	'a lease is looked at and extended');
like(ask($second, take('full', 'k:1', "owner => '$me', note => 'n'")), qr/^\Q$me\E/, 'and renewed');
like(ask($second, take('durable', 'k')), qr/\d$/, 'the table has room');
is(ask($second, "SELECT hloom_release('full', 'k:1', '$me')"), 't', 'one is given back');
is(ask($second, q{SELECT fill('full', 'more')}), 1, 'and its room is taken');
is(ask($second, q{SELECT hloom_force_release('full', 'k:2', 'test')}), 't', 'one is taken away');
is(ask($second, q{SELECT fill('full', 'again')}), 1, 'and its room is taken');
is(counted($node, 'full'), 1, 'which is the only one lost');
is(ask($first, "SELECT finish('full', $RELEASE)"), $LIMIT, 'all are given back');

# What a failed statement took makes room at once, and what a session took.
is(ask($first, q{SELECT fill('full', 'kept', 60)}), 60, 'some leases');
my ($state) = ask_error($first, q{SELECT 1 / (count(*) - 40) FROM generate_series(1, 40) AS i,
	hloom_try_acquire('full', 'failed-' || i)});
is($state, '22012', 'a statement took the others and failed');
is(ask($second, q{SELECT fill('full', 'next')}), 40, 'they are free');
is(ask($second, "SELECT finish('full', $RELEASE)"), $LIMIT, 'all are given back');
my $third = session($node, 'third');
is(ask($third, q{SELECT fill('full', 'session', scope => 'session')}),
	$LIMIT, 'a session has all');
$third->quit;
wait_until('its leases are free', sub { held('session') == 0 });
is(ask($second, q{SELECT fill('full', 'next')}), $LIMIT, 'its end makes room');
is(counted($node, 'full'), 1, 'nothing of this is lost');

# ---- what has ended makes room -----------------------------------------------------------------

is(ask($first, "SELECT finish('full', $END)"), $LIMIT, 'all have ended');
is(ask($second, q{SELECT fill('ended', 'k')}), $LIMIT, 'here: there is room');
is(counted($node, 'full'), $LIMIT + 1, 'each is counted once');
ask($first, "SELECT finish('ended', $END)");
like(health(), qr/^t\|/, 'what has ended does not make it unhealthy');
# Nobody needs the room, so this is the worker's, which may still be at it.
wait_until('the worker has counted all', sub { counted($node, 'ended') >= $LIMIT });
is(counted($node, 'ended'), $LIMIT, 'each is counted once');

my $there = listener($node, 'other');
my $log_there = follow($node);
is( $node->safe_psql('other', q{SELECT fill('there', 'k')}), $LIMIT, 'another database has all');
($state) = ask_error($first, take('full', 'k'));
is($state, '53400', 'there is no room here');
is($node->safe_psql('other', "SELECT finish('there', $END)"), $LIMIT, 'they have ended');
is(ask($first, q{SELECT fill('full', 'k')}), $LIMIT, 'there is room here');
is(lost_there('there'), $LIMIT, 'each is counted once, there');
is(counted($node, 'there'), 0, 'and not here');
ask($first, "SELECT finish('full', $RELEASE)");

is($node->safe_psql('gone', q{SELECT fill('gone', 'k')}), $LIMIT, 'a third one has all');
$node->safe_psql('gone', "SELECT finish('gone', $END)");
$node->safe_psql('postgres', 'DROP DATABASE gone');
is(ask($first, q{SELECT fill('full', 'k')}), $LIMIT, 'it is dropped: there is room');
ask($first, "SELECT finish('full', $RELEASE)");

# ---- long ones ---------------------------------------------------------------------------------

my $long = 'x' x 200;
my $note = 'n' x 256;
is(ask($first, "SELECT fill('long', '$long')"), $LONG, 'a long key takes one of few places');
my $messages;
($state, $messages) = ask_error($first, take('long', 'note', "note => '$note'"));
is($state, '53400', 'so does a long note');
like($messages, qr/DETAIL:  There are $LONG; one in 16 of all can have a long key or note\./,
	'the message tells');
is(held('note'), 0, 'nothing is held then');
is(ask($first, q{SELECT fill('long', 'short', 20, 'lease', repeat('n', 140))}),
	20, 'others have room');
is( ask($first, take('long', 'short:1', "owner => '$me', note => '$note'")
		  . q{\;SELECT length(note) FROM hloom_locks WHERE key = 'short:1'}) =~ s/^.*\n//r,
	140,
	'one that is renewed with a long note keeps the old one');
is( ask($first, take('long', "$long:1", "owner => '$me', note => 'new'")
		  . "\\;SELECT note FROM hloom_locks WHERE key = '$long:1'") =~ s/^.*\n//r,
	'new',
	'a long one is renewed with a short note');
is(ask($first, "SELECT hloom_release('long', '$long:1', '$me')"), 't', 'one is given back');
like(ask($first, take('long', 'note', "owner => '$me', note => '$note'")),
	qr/^\Q$me\E/, 'its place is free');
is(held('note'), 1, 'taken by another');
ends('long', 'note');
like(ask($first, take('long', 'note2', "owner => '$me', note => '$note'")),
	qr/^\Q$me\E/, 'its place is free');
ends('long', 'note2');
is(ask($first, take('long', 'note2', "owner => '$you', note => '$note'")) =~ /^\Q$you\E/ ? 1 : 0,
	1, 'the key is another owner\'s, in the same place');
($state) = ask_error($first, take('long', "$long:more"));
is($state, '53400', 'no other is free');
ends('long', 'short:2');
($state) = ask_error($first, take('long', 'short:2', "note => '$note'"));
is($state, '53400', 'its key is not free for a long note');
like(ask($first, take('long', 'short:2', "owner => '$me'")), qr/^\Q$me\E/, 'but for a short one');
is(ask($first, q{SELECT hloom_force_release('long', 'note2', 'test')}), 't', 'taken away');
is(ask($first, "SELECT finish('long', $RELEASE)"), 19 + 1 + $LONG - 1, 'all are given back');
is(ask($first, "SELECT fill('long', '$long')"), $LONG, 'there are as many places as before');
is(ask($first, q{SELECT fill('long', 'short')}), $LIMIT - $LONG, 'and as many in all');
is(ask($first, "SELECT finish('long', $RELEASE)"), $LIMIT, 'all are given back');

# ---- no room to follow a session ---------------------------------------------------------------

is(ask($first, q{SELECT fill('durable', 'k', 60, 'session')}), 60, 'leases of the table');
my $room = ask($second, q{SELECT fill('tracked', 'k', scope => 'session')});
note("room for $room beside them");
cmp_ok($room, '>=', $LIMIT - 60, 'those in memory have the rest of the places');
cmp_ok($room, '<', $LIMIT, 'and no more');
for my $scope ('session', 'transaction')
{
	($state, $messages) =
	  ask_error($second, 'BEGIN; ' . take('tracked', 'more', "scope => '$scope'"));
	ask($second, 'ROLLBACK');
	is($state, '53400', "scope $scope: no room is 53400");
	like($messages, qr/hloom_lock\.max_tracked_leases/, "scope $scope: which names the setting");
}
is(held('more'), 0, 'nothing is held then');
is(ask($second, q{SELECT fill('tracked', 'lease', 1)}), 1, 'scope lease goes on');
is(ask($first, 'SELECT hloom_release_session()'), 60, 'room is given back');
is(ask($second, q{SELECT fill('tracked', 'rest', 30, scope => 'session')}), 30, 'and usable');
is(ask($second, 'SELECT hloom_release_session()'), $room + 30, 'all are given back');
ask($second, "SELECT finish('tracked', $RELEASE)");
wait_until('nothing is left', sub { health() =~ /^t\|.* 0 taken$/ });

# ---- losses ------------------------------------------------------------------------------------

$node->append_conf('postgresql.conf', settings('hloom_lock.reap_interval' => '100ms'));
$node->reload;
my $listener = listener($node);
my $log = follow($node);

# names_of(losses): what each tells of, sorted
sub names_of
{
	return join(' ', sort map { "$_->{key}:$_->{fence}:$_->{reason}" } @_);
}

my @expected;
for my $i (1 .. 5)
{
	my (undef, $fence) = split /\|/, ask($first, take('lost', "k$i", "owner => '$me'"));
	push @expected, "k$i:$fence:" . ($i < 4 ? 'expired' : 'taken away');
	ask($first, $i < 4 ? "SELECT hloom_extend('lost', 'k$i', '$me', '1 ms')" :
		  "SELECT hloom_force_release('lost', 'k$i', 'test')");
}
ask($first, take('lost', 'back', q{scope => 'session'}));
ask($first, 'SELECT hloom_release_session()');
wait_until('all are counted', sub { counted($node, 'lost') >= 5 });
wait_for_logged($log, 'lost', 5);
wait_for_heard($listener, 'lost', 5);
settle($log, $listener);
is(counted($node, 'lost'), 5, 'each is counted once');
is(names_of(logged($log, 'lost')), "@expected", 'logged once');
is(names_of(heard($listener, 'lost')), "@expected", 'and told once');
is(lost_there('lost'), 0, 'another database knows nothing of them');

wait_for_heard($there, 'there', $LIMIT);
is(scalar(heard($there, 'there')), $LIMIT, 'what ended there before is told there, each once');
is(scalar(logged($log_there, 'there')), $LIMIT, 'and logged');
is(lost_there('there'), $LIMIT, 'and still counted once');

# Taken over by whoever wants the key, at the same time as the worker looks for it.
for my $round (1 .. rounds(20))
{
	ask($first, take('over', "k$round", "owner => '$me', lease => '1 h'"));
	ends('over', "k$round");
	ask($first, take('over', "k$round", "owner => '$you', lease => '1 h'")) =~ /^\Q$you\E/
	  or die "round $round: not taken over";
}
wait_for_heard($listener, 'over', rounds(20));
settle($log, $listener);
is(counted($node, 'over'), rounds(20), 'taken over: each is counted once');
is(scalar(logged($log, 'over')), rounds(20), 'logged once');
is(scalar(heard($listener, 'over')), rounds(20), 'and told once');

# ---- renewal -----------------------------------------------------------------------------------

ask($second, q{SELECT hloom_configure('limited', max_hold => '3 s')});
my $holder = session($node, 'holder');
my $renewed = q{scope => 'session', auto_extend => true};
my $limited = session($node, 'limited');
ask($holder, take('renewed', 'session', "lease => '1 s', $renewed"));
ask($holder, 'BEGIN');
ask($holder, take('renewed', 'transaction', q{lease => '1 s', scope => 'transaction',}
	  . q{ auto_extend => true, on_lost => 'cancel'}));
ask($first, take('renewed', 'by-hand', "owner => '$me', $renewed"));
ask($first, "SELECT hloom_extend('renewed', 'by-hand', '$me', '1 s')");
ask($limited, take('limited', 'k', "lease => '1 s', on_lost => 'cancel', $renewed"));
send_query($limited, 'SELECT pg_sleep(40)');
ask($second, take('renewed', 'plain', q{lease => '3 s', scope => 'session'}));
wait_for_sql($node, q{SELECT count(*) = 3 AND min(held_for) > '2 s' FROM hloom_locks}
	  . q{ WHERE namespace = 'renewed' AND key <> 'plain'});
pass('leases are kept beyond their end');
is( ask($second, q{SELECT remaining <= '1 s' AND remaining + held_for <= '3 s' FROM hloom_locks}
		  . q{ WHERE namespace = 'limited'}),
	't',
	'none longer than max_hold');
is(state_of((read_query($limited))[1]),
	'LL010', 'whose statement depends on it is told at its end');
my ($lost) = wait_for_logged($log, 'limited', 1);
is($lost->{reason}, 'expired', 'which is a loss');
my $text = slurp_file($node->logfile, $log->{from});
my $json = qr/[^\n]*"namespace": "limited"[^\n]*/;
is(scalar(() = $text =~ /"event": "LockAutoExtendStopped"$json/g), 1, 'it is logged that it ends');
is(scalar(() = $text =~ /"event": "LockHoldThreshold"$json/g), 1, 'after a warning');
wait_until(
	'a lease that nobody extends is warned of',
	sub {
		slurp_file($node->logfile, $log->{from}) =~
		  /"event": "LockHoldThreshold"[^\n]*"key": "plain"/;
	});
is(ask($holder, 'SELECT 1'), 1, 'who depends on a renewed lease goes on');
ask($holder, 'COMMIT');
is( ask($second, q{SELECT string_agg(key, ' ' ORDER BY key) FROM hloom_locks}
		  . q{ WHERE namespace = 'renewed' AND key <> 'plain'}),
	'by-hand session',
	'after COMMIT its lease is free');

# Taken away from a session whose statement depends on it
ask($holder, take('renewed', 'cancel', q{scope => 'session', on_lost => 'cancel'}));
send_query($holder, 'SELECT pg_sleep(40)');
wait_for_event($node, 'holder', 'PgSleep');
ask($second, q{SELECT hloom_force_release('renewed', 'cancel', 'test')});
$messages = (read_query($holder))[1];
is(state_of($messages), 'LL010', 'taken away: the statement is cancelled');
like($messages, qr/it was given back or taken away/, 'and the message tells');

# Nothing is renewed for a backend that has gone.
$holder->quit;
wait_for_sql($node, q{SELECT count(*) = 0 FROM hloom_locks WHERE key = 'session'});
pass('at the end of its session a renewed lease is free');
unlike(slurp_file($node->logfile), qr/\Q$me\E|\Q$you\E/, 'no owner token was logged');

$_->quit for $first, $second, $limited, $listener->{session}, $there->{session};
$node->stop;
done_testing();
