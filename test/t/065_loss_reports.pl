# A lease that ends, or is taken away, is counted once, logged once and told once on channel
# hloom_lost, with what the documentation says and nothing else; one that is given back is not.
# Nobody's owner token is told, nor the key of a namespace that is for members of a role.  What ends
# while nobody is connected, or the server is down, is reported later.
use strict;
use warnings;
use utf8;

use FindBin;
use lib $FindBin::RealBin;

use HloomLoss;
use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $me = '11111111-1111-4111-8111-111111111111';
my $you = '22222222-2222-4222-8222-222222222222';
my $node = make_loss_node('reports', settings => { 'hloom_lock.reap_interval' => '100ms' });
my $log_start = -s $node->logfile;
my $log = follow($node);
my $listener = listener($node);
my $holder = session($node, 'holder');
my @told = qw(fence key namespace reason);

# quoted($text): as a literal of SQL, in bytes
sub quoted
{
	my ($text) = @_;
	$text =~ s/'/''/g;
	utf8::encode($text);
	return "'$text'";
}

# same_time($a, $b): whether both texts are the same instant
sub same_time
{
	my ($one, $other) = @_;
	return $node->safe_psql('postgres', "SELECT timestamptz '$one' = timestamptz '$other'");
}

# names_of(losses): what each tells of, sorted
sub names_of
{
	return join(' ', sort map { "$_->{key}:$_->{fence}:$_->{reason}" } @_);
}

# ---- a lease ends ------------------------------------------------------------------------------

my $fence = ask($holder,
	"SELECT fence FROM hloom_try_acquire('ends', 'k', '1500 ms', owner => '$me')");
my $end = ask($holder, 'SELECT expires_at FROM hloom_leases');
my @heard = wait_for_heard($listener, 'ends', 1);
settle($log, $listener);
@heard = heard($listener, 'ends');
is(scalar(@heard), 1, 'told once');
is(join(' ', sort keys %{ $heard[0] }), "@told", 'what is told');
is(names_of(@heard), "k:$fence:expired", 'of this lease');
my @logged = logged($log, 'ends');
is(scalar(@logged), 1, 'logged once');
is( join(' ', sort keys %{ $logged[0] }),
	'event expired_at fence id key message namespace reason',
	'what is logged');
is(names_of(@logged), "k:$fence:expired", 'of this lease');
is("$logged[0]{event} $logged[0]{id}", 'LockLeaseLost 3102', 'under its name and number');
is( $logged[0]{message},
	'LockLeaseLost: the lease on key "k" ended without being given back',
	'in words');
is(same_time($logged[0]{expired_at}, $end), 't', 'with its end');
is(counted($node, 'ends'), 1, 'counted once');

# The next lease on the key is another one.
lose($node, 'ends', q{'k'});
wait_for_heard($listener, 'ends', 2);
settle($log, $listener);
is(join(' ', map { scalar(@$_) } [ heard($listener, 'ends') ], [ logged($log, 'ends') ]),
	'2 2', 'each lease once');
is(counted($node, 'ends'), 2, 'and counted');

# ---- given back --------------------------------------------------------------------------------

my $back = session($node, 'back');
my $held = ask($back, take('back', 'released', "owner => '$me'"));
is(ask($back, "SELECT hloom_release('back', 'released', '$me')"), 't', 'released');
ask($back, "SELECT fence FROM hloom_try_acquire('back', 'session', scope => 'session')");
is(ask($back, 'SELECT hloom_release_session()'), 1, 'given back by the session');
ask($back, 'BEGIN');
ask($back, "SELECT fence FROM hloom_try_acquire('back', 'commit', scope => 'transaction')");
ask($back, 'COMMIT');
ask($back, 'BEGIN');
ask($back, "SELECT fence FROM hloom_try_acquire('back', 'rollback', scope => 'transaction')");
ask($back, 'ROLLBACK');
ask($back, "SELECT fence FROM hloom_try_acquire('back', 'exit', scope => 'session')");
ask($back, "SELECT hloom_execute_with_lock('back', 'action', 'SELECT 1')");
$back->quit;
wait_for_sql($node, q{SELECT count(*) = 0 FROM hloom_leases WHERE namespace = 'back'});
settle($log, $listener);
is(counted($node, 'back'), 0, 'given back: not counted');
is(scalar(logged($log, 'back')), 0, 'not logged');
is(scalar(heard($listener, 'back')), 0, 'not told');

# ---- keys of all sorts -------------------------------------------------------------------------

my @keys = (
	q{it's"quoted"}, q{back\\slash\n\u0041\\\\}, q{100%s%n%1$s%%%}, q{Grüße,東京,🔒},
	q{{"key":"value"}}, q{"],[}, q{$1$$$a$}, q{'OR(1=1)--}, q{<&>}, q{[]}, q{\\}, 'ю' x 512,
	'🔒' x 512, '"' x 512);
lose($node, 'sorts', quoted($_)) for @keys;
wait_for_heard($listener, 'sorts', scalar(@keys));
settle($log, $listener);
for my $what ([ told => heard($listener, 'sorts') ], [ logged => logged($log, 'sorts') ])
{
	my ($how, @losses) = @$what;
	my %times;
	$times{ $_->{key} }++ for @losses;
	is(scalar(@losses), scalar(@keys), "keys of all sorts are $how");
	is(join('|', map { $times{$_} || 0 } @keys), join('|', map { 1 } @keys), "$how: exactly");
}
is(counted($node, 'sorts'), scalar(@keys), 'and counted');

# ---- taken away --------------------------------------------------------------------------------

(undef, $fence) = split /\|/, ask($holder, take('force', 'k', "owner => '$me'"));
is(ask($holder, q{SELECT hloom_force_release('force', 'k', 'a test')}), 't', 'taken away');
@heard = wait_for_heard($listener, 'force', 1);
settle($log, $listener);
@heard = heard($listener, 'force');
is(names_of(@heard), "k:$fence:taken away", 'taken away: told once');
is(join(' ', sort keys %{ $heard[0] }), "@told", 'as any');
@logged = logged($log, 'force');
is(names_of(@logged), "k:$fence:taken away", 'logged once');
is($logged[0]{message}, 'LockLeaseLost: the lease on key "k" was taken away', 'in words');
ok(!exists $logged[0]{expired_at}, 'without an end');
is(counted($node, 'force'), 1, 'and counted');

# ---- a namespace for members of a role ---------------------------------------------------------

$node->safe_psql('postgres', q{CREATE ROLE few; SELECT hloom_configure('secret', role => 'few')});

# Without the key two losses can say the same, as those of the first leases of two buckets of a
# table that was just written anew, and so can whole messages, each of which counts.
my $SECRETS = 250;
$node->safe_psql('postgres', <<"SQL");
SELECT count(*) FROM generate_series(1, 15000) AS i, hloom_try_acquire('fill', 'k' || i);
VACUUM FULL hloom_leases;
CREATE TABLE fill AS SELECT key, owner FROM hloom_leases;
SELECT count(*) FROM fill WHERE hloom_release('fill', key, owner);
CREATE TABLE grants (h hloom_handle, fence bigint);
DO \$\$ BEGIN
	FOR i IN 1 .. 100000 LOOP
		INSERT INTO grants SELECT h, h.fence
			FROM hloom_try_acquire('secret', 'secret-key-' || i) AS h;
		IF i % 100 = 0 THEN
			EXIT WHEN (SELECT count(*) FROM grants WHERE fence = (SELECT min(fence) FROM grants))
				>= $SECRETS;
		END IF;
	END LOOP;
	PERFORM hloom_release(h) FROM grants WHERE fence > (SELECT min(fence) FROM grants);
	DELETE FROM grants WHERE fence > (SELECT min(fence) FROM grants);
END \$\$;
SQL
# The worker does not come in between, so that they are reported together.
$SECRETS = $node->safe_psql('postgres', 'BEGIN; LOCK TABLE hloom_leases IN SHARE MODE;'
	  . q{SELECT count(hloom_extend(h, '1 ms')) FROM grants; COMMIT});
note("$SECRETS leases of one fence");
wait_for_logged($log, 'secret', $SECRETS);
settle($log, $listener);
@heard = heard($listener, 'secret');
is(scalar(@heard), $SECRETS, 'a namespace for a role: all are told');
is( join(', ', map { join(' ', sort keys %$_) } grep { keys %$_ != 3 || $_->{key} } @heard),
	'', 'without the key');
ok(!grep({ /secret-key/ } payloads($listener)), 'nowhere');
my %keys = map { $_->{key} => 1 } logged($log, 'secret');
is(scalar(keys %keys), $SECRETS, 'the log has all keys');
is(counted($node, 'secret'), $SECRETS, 'and all are counted');
$node->safe_psql('postgres', q{SELECT hloom_configure('secret', reset => '{role}')});
lose($node, 'secret', q{'open'});
my ($open) = grep { $_->{key} } wait_for_heard($listener, 'secret', $SECRETS + 1);
is($open->{key}, 'open', 'no role any more: with the key');

# ---- nothing is told ---------------------------------------------------------------------------

# set_in_worker($setting, $value, $known): reloads until a loss shows that the worker knows
sub set_in_worker
{
	my ($setting, $value, $known) = @_;
	$node->append_conf('postgresql.conf', settings($setting => $value));
	$node->reload;
	wait_until("$setting = $value", $known);
	return;
}

set_in_worker(
	'hloom_lock.notify_lost' => 'off',
	sub {
		my $before = heard($listener);
		settle($log);
		return heard($listener) == $before;
	});
my $before = heard($listener);
lose($node, 'silent', q{'k' || i}, 5);
wait_for_logged($log, 'silent', 5);
settle($log);
is(scalar(logged($log, 'silent')), 5, 'notify_lost is off: logged');
is(counted($node, 'silent'), 5, 'and counted');
set_in_worker(
	'hloom_lock.notify_lost' => 'on',
	sub {
		settle($log);
		return heard($listener) > $before;
	});
is(scalar(heard($listener, 'silent')), 0, 'and never told');

# ---- many at once ------------------------------------------------------------------------------

my $MANY = rounds(500);
my $fences = $node->safe_psql(
	'postgres', "SELECT string_agg(fence::text, ' ' ORDER BY i) FROM generate_series(1, $MANY) AS i,
	hloom_try_acquire('many', lpad(i::text, 512, '\"')) AS h
	WHERE hloom_extend(h, '1 ms') IS NOT NULL");
wait_for_logged($log, 'many', $MANY);
settle($log, $listener);
@heard = heard($listener, 'many');
is(scalar(@heard), $MANY, 'many at once: each is told once');
my %fence_of = (map { $_->{key} =~ s/"//gr => $_->{fence} } @heard);
is(join(' ', map { $fence_of{$_} || '-' } 1 .. $MANY), $fences, 'with its fence');
my @lengths = sort { $b <=> $a } map { length } payloads($listener);
cmp_ok($lengths[0], '<=', 7900, "the longest message has $lengths[0] bytes");
cmp_ok($lengths[0], '>', 5000, 'a message tells as many as it can');
is(scalar(logged($log, 'many')), $MANY, 'each is logged once');
%keys = map { $_->{key} => 1 } logged($log, 'many');
is(scalar(keys %keys), $MANY, 'and all of them');
is(counted($node, 'many'), $MANY, 'and all are counted');

# ---- nobody is connected -----------------------------------------------------------------------

# Seen from another database
sub wait_elsewhere
{
	my ($sql) = @_;
	$node->poll_query_until('template1', $sql) or die "timed out: $sql";
	return;
}

my $is_here = q{FROM pg_stat_activity WHERE datname = 'postgres'};
ask($holder, take('deserted', 'client', "lease => '4 s', owner => '$me'"));
$end = ask($holder, q{SELECT expires_at FROM hloom_leases WHERE namespace = 'deserted'});
$_->quit for $holder, $listener->{session};
wait_elsewhere("SELECT count(*) = 0 $is_here");
is(scalar(logged($log, 'deserted')), 0, 'the worker has left, and the lease has not ended');
# It ends while nobody asks in its database.
wait_elsewhere("SELECT now() > timestamptz '$end' + interval '500 ms'");
is(scalar(logged($log, 'deserted')), 0, 'nobody is connected: no report');
is($node->safe_psql('template1', "SELECT count(*) $is_here"), 0, 'and no worker');

# Who connects has listened before the worker comes.
my $launcher = $node->safe_psql('template1',
	q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'hloom_lock launcher'});
kill 'STOP', $launcher or die "cannot stop process $launcher: $!";
$listener = listener($node);
kill 'CONT', $launcher;
wait_for_logged($log, 'deserted', 1);
is(names_of(wait_for_heard($listener, 'deserted', 1)) =~ /^client:\d+:expired$/,
	1, 'the next client hears of it');

# ---- the server is down ------------------------------------------------------------------------

listener_asks($listener, take('down', "k$_", "lease => '2 s', owner => '$me'")) for 1 .. 3;
$end = $node->safe_psql('postgres', 'SELECT max(expires_at) FROM hloom_leases');
$listener->{session}->quit;
# From now on the table is not searched unless somebody asks, but once by each worker.
$node->append_conf('postgresql.conf', settings('hloom_lock.reap_interval' => '1h'));
$node->stop;
is(scalar(logged($log, 'down')), 0, 'the server is down, and the leases have not ended');
$node->start;
wait_elsewhere("SELECT now() > timestamptz '$end'");
$listener = listener($node);
is(counted($node, 'down'), 0, 'nothing was done in the database: no report');
listener_asks($listener, take('down', 'first', "owner => '$me'"));
@heard = wait_for_heard($listener, 'down', 3);
is(names_of(@heard) =~ s/:\d+//gr, 'k1:expired k2:expired k3:expired', 'then all are told');
is(scalar(logged($log, 'down')), 3, 'and logged');
is(counted($node, 'down'), 3, 'and counted');

# ---- taken over, and hloom_reap ----------------------------------------------------------------

$holder = session($node, 'holder');
my @fences;
for my $key ('taken', 'left')
{
	(undef, $fence) = split /\|/, ask($holder, take('over', $key, "owner => '$me'"));
	push @fences, $fence;
	ask($holder, "SELECT hloom_extend('over', '$key', '$me', '1 ms')");
}
ask($holder, q{SELECT hloom_configure('over-memory', provider => 'memory')});
for my $key (1 .. 3)
{
	ask($holder, take('over-memory', $key, "owner => '$me'"));
	ask($holder, "SELECT hloom_extend('over-memory', '$key', '$me', '1 ms')");
}
wait_for_sql($node, q{SELECT count(*) = 0 FROM hloom_locks WHERE namespace LIKE 'over%'});
is(counted($node, $_), 0, "$_ is not searched") for qw(over over-memory);
like(ask($holder, take('over', 'taken', "owner => '$you'")), qr/^\Q$you\E\|/, 'taken over');
is(counted($node, 'over'), 1, 'counted once');
@heard = wait_for_heard($listener, 'over', 1);
is(names_of(@heard), "taken:$fences[0]:expired", 'and told');
is(names_of(logged($log, 'over')), names_of(@heard), 'and logged');
is(ask($holder, 'SELECT hloom_reap()'), 4, 'hloom_reap removes what has ended, in memory, too');
is(counted($node, 'over'), 2, 'counted');
is(counted($node, 'over-memory'), 3, 'and those');
@heard = wait_for_heard($listener, 'over', 2);
is(names_of($heard[1]), "left:$fences[1]:expired", 'told');
settle($log, $listener);
is(scalar(heard($listener, 'over')), 2, 'each once');
is(names_of(logged($log, 'over')), names_of(@heard), 'and logged');
is(ask($holder, "SELECT hloom_release('over', 'taken', '$you')"),
	't', 'whose it is now is unharmed');

# A shorter interval counts from now on.
lose($node, 'interval', q{'k'});
wait_for_sql($node, q{SELECT count(*) = 0 FROM hloom_leases WHERE namespace = 'interval'});
is(counted($node, 'interval'), 0, 'reap_interval is long');
$node->append_conf('postgresql.conf', settings('hloom_lock.reap_interval' => '100ms'));
$node->reload;
is(scalar(wait_for_heard($listener, 'interval', 1)), 1, 'reap_interval is shorter: soon told');

# ---- whose it was ------------------------------------------------------------------------------

my $all = slurp_file($node->logfile, $log_start);
unlike($all, qr/\Q$me\E|\Q$you\E/, 'no owner token was logged');
ok(!grep({ /\Q$me\E|\Q$you\E/ } payloads($listener)), 'or told');
is( join("\n", grep { !/due to administrator command/ } error_lines($node, $log_start)),
	'', 'no errors');

$_->quit for $holder, $listener->{session};
$node->stop;
done_testing();
