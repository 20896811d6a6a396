# Leases of provider memory end with what they follow, or with the server, whichever way that ends,
# and fences go on growing.  Each database has its own.  Nothing that happens to the lease table
# disturbs them but DROP EXTENSION, and whoever waits for a key gets it as at the table.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomLoss;
use HloomTest;
use HloomWait;
use PostgreSQL::Test::Utils;
use Test::More;

# The clusters of the TAP tests stay down after a crash unless told otherwise.
my $node = make_node('memory', settings => { restart_after_crash => 'on' });
my $configure = q{SELECT count(*) FROM hloom_configure('m', provider => 'memory')};
$node->safe_psql('postgres', $configure);
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', "CREATE EXTENSION hloom_lock; $configure");

my $me = '11111111-1111-4111-8111-111111111111';
my $you = '22222222-2222-4222-8222-222222222222';
my $sleeper = sleeper();

sub mine
{
	my ($key, $rest) = @_;
	return take('m', $key, "owner => '$me'" . (defined $rest ? ", $rest" : ''));
}

# take_mine($session, $key [, $rest]): returns its fence
sub take_mine
{
	my ($session, $key, $rest) = @_;
	my $granted = ask($session, mine($key, $rest));
	die "the lease on $key was not granted" if $granted !~ /^\Q$me\E\|(\d+)$/;
	return $1;
}

# held([$database]): the keys held there at provider memory
sub held
{
	my ($database) = @_;
	return $node->safe_psql($database || 'postgres',
		q{SELECT coalesce(string_agg(key, ' ' ORDER BY key), '') FROM hloom_locks}
		  . q{ WHERE namespace = 'm' AND state <> 'reserved'});
}

# wait_for_held($keys): until these are
sub wait_for_held
{
	my ($keys) = @_;
	wait_until("'$keys' is held", sub { held() eq $keys });
	return;
}

sub pid_of
{
	my ($session) = @_;
	return ask($session, 'SELECT pg_backend_pid()');
}

sub names_of { return join(' ', map { $_->{key} } @_) }

# after($session, $interval): waits until the server's clock has gone on so much
sub after
{
	my ($session, $interval) = @_;
	my $then = ask($session, "SELECT clock_timestamp() + '$interval'");
	wait_for_sql($node, "SELECT clock_timestamp() > '$then'");
	return;
}

my $other = session($node, 'other');

# ---- what a lease follows ------------------------------------------------------------------------

is(ask($other, 'SELECT count(*) FROM hloom_leases'), 0, 'nothing is in the table');
my %ends = (
	quit => sub { $_[0]->quit },
	terminated => sub { ask($other, 'SELECT pg_terminate_backend(' . pid_of($_[0]) . ')') },
	'client killed' => sub { kill_client($_[0]) });
for my $end (sort keys %ends)
{
	my $session = session($node, 'holder');
	take_mine($session, 'lease');
	take_mine($session, 'session', q{scope => 'session'});
	ask($session, 'BEGIN');
	take_mine($session, 'transaction', q{scope => 'transaction'});
	take_mine($session, 'session2', q{scope => 'session'});
	ask($session, 'SELECT 1');
	is(held(), 'lease session session2 transaction', "$end: all are held before");
	is(ask($other, take('m', $_)), '', "$end: $_ is nobody else's") for 'session', 'transaction';
	$ends{$end}->($session);
	wait_for_held('lease');
	is(ask($other, "SELECT hloom_release('m', 'lease', '$me')"),
		't', "$end: scope lease is still its owner's");
}
is(ask($other, 'SELECT count(*) FROM hloom_leases'), 0, 'the table has seen nothing of it');

my $session = session($node, 'holder');
for my $end ('COMMIT', 'ROLLBACK')
{
	ask($session, 'BEGIN');
	take_mine($session, 'before', q{scope => 'transaction'});
	take_mine($session, 'session', q{scope => 'session'});
	ask($session, 'SAVEPOINT s');
	take_mine($session, 'after', q{scope => 'transaction'});
	take_mine($session, 'lease');
	ask($session, 'ROLLBACK TO s');
	is(held(), 'before lease session', "$end: the savepoint's is free after ROLLBACK TO");
	ask($session, $end);
	is(held(), 'lease session', "$end: the transaction's is free after that");
	is(ask($session, 'SELECT hloom_release_session()'), 1, "$end: the session's is given back");
	ask($session, "SELECT hloom_release('m', 'lease', '$me')");
	is(held(), '', "$end: as is all");
}

# Leases of a statement that fails, of which nobody has heard
my ($state) = ask_error($session, q{SELECT 1 / (count(*) - 50) FROM generate_series(1, 50) AS i,
	hloom_try_acquire('m', 'orphan-' || i)});
is($state, '22012', 'a statement took leases and failed');
is(held(), '', 'they are given back');
wait_for_sql($node, q{SELECT sum(value) = 50 FROM hloom_metrics WHERE namespace = 'm'}
	  . q{ AND name = 'hostloom_lock_orphan_releases' AND outcome = 'released'});
pass('each is counted once');
is(counted($node, 'm'), 0, 'and nothing was lost');

# ---- databases -----------------------------------------------------------------------------------

my $there = session($node, 'there', 'other');
my $here_fence = take_mine($session, 'both');
my $there_fence = take_mine($there, 'both');
take_mine($there, 'there');
is(held() . '|' . held('other'), 'both|both there', 'each database sees its own');
is(ask($other, take('m', 'both')), '', 'the key is busy here');
is(ask($other, "SELECT hloom_release('m', 'there', '$me')"),
	'f', 'nothing there is given back here');
is(ask($there, "SELECT hloom_release('m', 'both', '$me')"), 't', 'given back there');
is(held() . '|' . held('other'), 'both|there', 'it is held here');
like(ask($there, take('m', 'both', "owner => '$you'")), qr/^\Q$you\E/, 'another owner there');
is(ask($session, "SELECT hloom_is_held('m', 'both', '$me')"), 't', 'does not matter here');
ask($other, q{SELECT hloom_force_release('m', 'both', 'test')});
is(held() . '|' . held('other'), '|both there', 'taken away here, it is held there');

# ---- who waits -----------------------------------------------------------------------------------

my %frees = (
	released => [ '', sub { ask($_[0], "SELECT hloom_release('m', 'k', '$me')") } ],
	shortened => [ '', sub { ask($_[0], "SELECT hloom_extend('m', 'k', '$me', '1 ms')") } ],
	ended => [ q{lease => '2 s'}, sub { } ],
	'transaction rolled back' => [ q{scope => 'transaction'}, sub { ask($_[0], 'ROLLBACK') } ],
	'session ended' => [ q{scope => 'session'}, sub { $_[0]->quit } ],
	terminated => [ q{scope => 'session'}, $ends{terminated} ]);
for my $free (sort keys %frees)
{
	my ($how, $code) = @{ $frees{$free} };
	my $holder = session($node, 'holder');
	ask($holder, 'BEGIN') if $free =~ /^transaction/;
	my $fence = take_mine($holder, 'k', $how ne '' ? $how : undef);
	my @waiters = map {
		start_waiter($node, $other, "waiter-$free-$_" =~ tr/ /-/r,
			    "SELECT fence FROM hloom_acquire('m', 'k', $sleeper, owner => '$you',"
			  . " scope => 'session');")
	} 1 .. ($free eq 'released' ? 3 : 2);
	$code->($holder);
	my @fences = map { (end_waiter($_))[0] } @waiters;
	my @sorted = sort { $a <=> $b } $fence, map { /^\d+$/ ? $_ : 0 } @fences;
	is("@fences", "@sorted[1 .. $#sorted]", "$free: those who wait get the key, in order");
	cmp_ok($fences[0] || 0, '>', $fence, "$free: under higher fences");
	kill_client($holder) if $free ne 'session ended';
	wait_for_held('');
}

# ---- the table is locked, or truncated -----------------------------------------------------------

# undisturbed($session, $name): all that can be done with a lease
sub undisturbed
{
	my ($session, $name) = @_;
	my @answers;
	push @answers, ask($session, mine('calls', q{lease => '1 min'})) =~ /^\Q$me\E/ ? 't' : 'f';
	push @answers, ask($session, take('m', 'calls')) eq '' ? 't' : 'f';
	push @answers, ask($session, "SELECT hloom_$_('m', 'calls', '$me')")
	  for 'is_held', 'extend', 'release', 'is_held';
	ask($session, 'BEGIN');
	take_mine($session, 'transaction', q{scope => 'transaction', on_lost => 'cancel'});
	ask($session, 'COMMIT');
	push @answers, ask($session, take('m', 'transaction', q{scope => 'session'})) ne '' ? 't' : 'f';
	push @answers, ask($session, 'SELECT hloom_release_session()');
	is("@answers", 't t t t t f t 1', $name);
	return;
}

$session->quit;
$session = session($node, 'session');
my $follower = follow($node);
# What was lost above may still have to be told.
settle($follower);
$follower = follow($node);
ask($session, q{SET lock_timeout = '10 s'});
my $blocker = session($node, 'blocker');
ask($blocker, 'BEGIN; LOCK TABLE hloom_leases IN ACCESS EXCLUSIVE MODE');
undisturbed($session, 'the table is locked: all calls work');
take_mine($session, 'renewed', q{lease => '1 s', scope => 'session', auto_extend => true});
my $before = counted($node, 'm');
ask($session, q{SELECT fence FROM hloom_try_acquire('m', 'lost', '1 s')});
after($other, '2 s');
is(ask($session, "SELECT hloom_is_held('m', 'renewed', '$me')"), 't', 'a lease is renewed');
wait_until('it is counted', sub { counted($node, 'm') == $before + 1 });
is(names_of(wait_for_logged($follower, 'm', 1)), 'lost', 'what is lost is reported');
my $late = session($node, 'late');
ask($late, q{SET lock_timeout = '10 s'});
undisturbed($late, 'who connects meanwhile is not disturbed either');
($state) = ask_error($late, take('table', 'k', q{lease => '300 ms'}));
is($state, 'LL003', 'while the table itself cannot be used');
ask($blocker, 'ROLLBACK');
$late->quit;

# The one that depends on a row of the table shows that the others could have noticed by then.
my $fence = take_mine($session, 'spared', q{scope => 'session', on_lost => 'cancel'});
take_mine($session, 'plain');
my $control = session($node, 'control');
ask($control,
	q{SELECT fence FROM hloom_try_acquire('table', 'k', scope => 'session', on_lost => 'cancel')});
ask($other, 'SELECT pg_advisory_lock(1)');
send_query($session, 'SELECT pg_advisory_xact_lock(1)');
wait_for_event($node, 'session', 'advisory');
send_query($control, 'SELECT pg_sleep(40)');
wait_for_event($node, 'control', 'PgSleep');
ask($blocker, 'TRUNCATE hloom_leases');
is(state_of((read_query($control))[1]), 'LL010', 'TRUNCATE: a lease of the table is lost');
is(held(), 'plain renewed spared', 'TRUNCATE: those in memory are not');
ask($other, 'SELECT pg_advisory_unlock(1)');
is((read_query($session))[1], '', 'TRUNCATE: whose statement depends on one goes on');
is(ask($other, take('m', 'spared')), '', 'TRUNCATE: nobody else gets it');
is(ask($session, "SELECT hloom_extend('m', 'spared', '$me')"), 't', 'TRUNCATE: its owner has it');
is(counted($node, 'm'), $before + 1, 'TRUNCATE: nothing is counted');
$control->quit;

# ---- the extension is dropped --------------------------------------------------------------------

ask($blocker, 'BEGIN; DROP EXTENSION hloom_lock; ROLLBACK');
is(held(), 'plain renewed spared', 'DROP EXTENSION rolled back: all are held');
for my $command ('DROP EXTENSION hloom_lock', 'TRUNCATE hloom_leases')
{
	ask($blocker, "BEGIN; $command");
	($state) = ask_error($blocker, q{PREPARE TRANSACTION 'p'});
	is($state, '0A000', "$command: nobody would hear of a prepared one");
	is(held(), 'plain renewed spared', "$command: all are held");
}
my $waiter = start_waiter($node, $other, 'drop',
	"SELECT fence FROM hloom_acquire('m', 'spared', $sleeper, owner => '$you');");
send_query($session, 'SELECT pg_sleep(40)');
wait_for_event($node, 'session', 'PgSleep');
ask($blocker, 'DROP EXTENSION hloom_lock');
is(state_of((read_query($session))[1]),
	'LL010', 'DROP EXTENSION: whose statement depends on one is told');
my (undef, $message) = end_waiter($waiter);
like($message, qr/55000: extension "hloom_lock" is not created/, 'and who waits for one');
ask($blocker, "CREATE EXTENSION hloom_lock; $configure");
is(held(), '', 'created again: no lease is left');
is(held('other'), 'both there', 'but those of another database');
is(ask($session, "SELECT hloom_release('m', 'plain', '$me')"), 'f', 'nothing to give back');
for my $key ('spared', 'plain', 'renewed')
{
	my ($owner, $new) = split /\|/, ask($other, take('m', $key, "owner => '$you'"));
	cmp_ok($new || 0, '>', $key eq 'spared' ? $fence : 0, "created again: $key is free");
}
is(ask($session, mine('spared')), '', 'and somebody else\'s, once it is taken');
ask($blocker, 'DROP EXTENSION hloom_lock; CREATE EXTENSION hloom_lock;' . $configure);
undisturbed($session, 'created again: all calls work');
is(held(), '', 'nothing is left of what others took');

# ---- the server ends -----------------------------------------------------------------------------

my %server_ends = (
	'fast restart' => sub { $node->stop('fast'); $node->start },
	'immediate stop' => sub { $node->stop('immediate'); $node->start },
	'kill -9' => sub {
		my $from = -s $node->logfile;
		signal_process('KILL', $_[0]);
		wait_until('the server is up again',
			sub { slurp_file($node->logfile, $from) =~ /ready to accept connections/ });
	});
for my $end (sort keys %server_ends)
{
	my @sessions = map { session($node, $_) } 'one', 'two';
	take_mine($sessions[0], 'session', q{scope => 'session'});
	my $old = take_mine($sessions[1], 'lease');
	ask($sessions[1], 'BEGIN');
	take_mine($sessions[1], 'transaction', q{scope => 'transaction', auto_extend => true});
	ask($sessions[0], take('table', 'k', "owner => '$me'"));
	is(held(), 'lease session transaction', "$end: all are held before");
	$server_ends{$end}->(pid_of($sessions[0]));
	is(held() . held('other'), '', "$end: all are gone");
	is( $node->safe_psql('postgres', "SELECT hloom_is_held('m', 'lease', '$me'),"
			  . " hloom_release('m', 'lease', '$me'), hloom_is_held('table', 'k', '$me')"),
		'f|f|t', "$end: and those of the table are not");
	$other = session($node, 'other');
	my (undef, $new) = split /\|/, ask($other, take('m', 'lease', "owner => '$you'"));
	cmp_ok($new || 0, '>', $old, "$end: the fence grows");
	is(ask($other, take('m', $_)) ne '', 1, "$end: $_ is free") for 'session', 'transaction';
	ask($other,
		q{SELECT hloom_force_release('m', key, 'test') FROM hloom_locks WHERE namespace = 'm'});
	kill_client($_) for @sessions, $other;
}
is(held(), '', 'nothing is held in the end');

kill_client($_) for $session, $blocker, $there;
$node->stop;
done_testing();
