# Whatever makes a key free wakes who waits for it, once, and that one gets it under a higher fence;
# what does not make it free wakes nobody.  A key given back is kept for the one that was woken, but
# only for a moment.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomTest;
use HloomWait;
use Test::More;

my $me = '11111111-1111-4111-8111-111111111111';
my $node = make_node(
	'handover',
	init => { allows_streaming => 1 },
	settings => { synchronous_commit => 'local', max_connections => 40 });
my $other = session($node, 'other');
my $third = session($node, 'third');
my $sleeper = sleeper();

# Each case has a key of its own
my $case = 0;
my $key;

# lease($rest): takes it as the owner all cases have
sub lease
{
	my ($rest) = @_;
	return "SELECT fence FROM hloom_try_acquire('hand', '$key', $rest, owner => '$me')";
}

sub release { return "SELECT hloom_release('hand', '$key', '$me')"; }

# held(): whether the owner has it
sub held { return ask($other, "SELECT hloom_is_held('hand', '$key', '$me')") eq 't'; }

sub extend { return "SELECT hloom_extend('hand', '$key', '$me', '$_[0]')"; }

sub guard { return "SELECT hloom_guard('hand', '$key', '$me')"; }

# fence(): of the grant there is now, '' when there is none
sub fence
{
	return ask($other, "SELECT fence FROM hloom_leases WHERE key = '$key'");
}

# wait_for_key(): somebody waits for the key from now on
sub wait_for_key
{
	return start_waiter($node, $other, "waiter-$case",
		"SELECT fence FROM hloom_acquire('hand', '$key', $sleeper)");
}

# is_waiting($name): the key is still the holder's, and the waiter still waits
sub is_waiting
{
	my ($name, $fence) = @_;
	is( ask($other,
			"SELECT (SELECT fence FROM hloom_leases WHERE key = '$key'),"
			  . " (SELECT count(*) FROM pg_stat_activity"
			  . " WHERE application_name = 'waiter-$case' AND state = 'active')"),
		"$fence|1",
		"$name: not yet");
	return;
}

# after($interval): waits until the server's clock has gone on so much
sub after
{
	my ($interval) = @_;
	my $then = ask($other, "SELECT clock_timestamp() + '$interval'");
	wait_for_sql($node, "SELECT clock_timestamp() > '$then'");
	return;
}

# hand_over($name, begin => $code, before => $code, free => $code, wakeups => $n)
#
# begin gives the holder the key, before is what does not free it, free is what does; begin's result
# is their parameter.  So many wake-ups are due when it is told how many.
sub hand_over
{
	my ($name, %do) = @_;
	$key = sprintf('case-%d', ++$case);
	my $holder = $do{begin}->();
	my $fence = fence();
	my $waiter = wait_for_key();
	$do{before}->($holder) if defined $do{before};
	is_waiting($name, $fence) if !$do{ends};
	my $wakeups = metric($other, 'wakeups');
	$do{free}->($holder) if defined $do{free};
	my ($out, $err, $rc) = end_waiter($waiter);
	ok($out =~ /^\d+$/ && $out > $fence, "$name: the waiter gets the key") or diag("$out $err");
	is(metric($other, 'wakeups') - $wakeups, $do{wakeups}, "$name: as many wake-ups as needed")
	  if defined $do{wakeups};
	return $holder;
}

# holding($scope [, $begin]): a session that has taken the key
sub holding
{
	my ($scope, $begin) = @_;
	my $holder = session($node, "holder-$case");
	ask($holder, $begin) if defined $begin;
	ask($holder, lease("scope => '$scope'"));
	return $holder;
}

# running($sql): a statement that has the key and goes on until let_go
sub running
{
	my ($sql) = @_;
	ask($third, 'SELECT pg_advisory_lock(1)');
	my $run = start_sql($node, $sql, "holder-$case");
	wait_for_event($node, "holder-$case", 'advisory');
	return $run;
}

sub let_go
{
	my ($run) = @_;
	ask($third, 'SELECT pg_advisory_unlock(1)');
	finish_sql($run);
	return;
}

# ---- given back --------------------------------------------------------------------------------

my $holder = session($node, 'holder');
my %take = (begin => sub { ask($holder, lease("'10 min'")) });

hand_over('released', %take, free => sub { ask($holder, release()) }, wakeups => 1);
hand_over(
	'released by another connection', %take,
	free => sub { ask($third, release()) },
	wakeups => 1);
hand_over(
	'taken away', %take,
	free => sub { ask($third, "SELECT hloom_force_release('hand', '$key', 'test')") },
	wakeups => 1);

for my $truncate ('TRUNCATE hloom_leases', 'BEGIN; TRUNCATE hloom_leases; COMMIT')
{
	hand_over(
		$truncate, %take,
		before => sub { ask($third, 'BEGIN; TRUNCATE hloom_leases; ROLLBACK') },
		free => sub { ask($third, $truncate) },
		wakeups => 1);
}

# ---- the end of the lease ----------------------------------------------------------------------

hand_over('ended', begin => sub { ask($holder, lease("'3 s'")) }, ends => 1);
hand_over('shortened', %take, free => sub { ask($holder, extend('1 s')) });
hand_over('shortened to nothing', %take, free => sub { ask($holder, extend('1 us')) });
hand_over('taken again, for a shorter time', %take, free => sub { ask($holder, lease("'1 s'")) });
hand_over(
	'extended, then released',
	begin => sub { ask($holder, lease("'3 s'")) },
	before => sub {
		ask($holder, extend('10 min'));
		after('3.5 s');
	},
	free => sub { ask($holder, release()) },
	wakeups => 1);
hand_over(
	'reaped',
	begin => sub { ask($holder, lease("'3 s'")) },
	ends => 1,
	free => sub {
		wait_until('it ends', sub { !held() });
		ask($third, 'SELECT hloom_reap()');
	});

# ---- what the lease follows --------------------------------------------------------------------

my %session = (begin => sub { holding('session') });
my %transaction = (begin => sub { holding('transaction', 'BEGIN') });

hand_over('session: quit', %session, free => sub { $_[0]->quit }, wakeups => 1);
hand_over(
	'session: terminated', %session,
	free => sub {
		ask($third, 'SELECT pg_terminate_backend(' . process_of($third, "holder-$case") . ')');
	},
	wakeups => 1);
hand_over('session: client killed', %session, free => sub { kill_client($_[0]) }, wakeups => 1);
for my $end ('DISCARD ALL', 'SELECT hloom_release_session()')
{
	hand_over(
		"session: $end", %session,
		before => sub { ask($_[0], 'BEGIN; SELECT 1; ROLLBACK') },
		free => sub { ask($_[0], $end) },
		wakeups => 1)->quit;
}
for my $end ('COMMIT', 'ROLLBACK', 'ROLLBACK TO s')
{
	hand_over(
		"transaction: $end",
		begin => sub { holding('transaction', 'BEGIN; SAVEPOINT s') },
		before => sub { ask($_[0], 'SAVEPOINT t; SELECT 1; ROLLBACK TO t') },
		free => sub { ask($_[0], $end) },
		wakeups => 1)->quit;
}
hand_over(
	'transaction: an error', %transaction,
	free => sub { ask_error($_[0], 'SELECT 1 / 0') },
	wakeups => 1)->quit;
hand_over('transaction: quit', %transaction, free => sub { $_[0]->quit }, wakeups => 1);
hand_over(
	'transaction, on_lost cancel: COMMIT',
	begin => sub {
		my $session = session($node, "holder-$case");
		ask($session, 'BEGIN');
		ask($session, lease("scope => 'transaction', on_lost => 'cancel'"));
		return $session;
	},
	free => sub { ask($_[0], 'COMMIT') },
	wakeups => 1)->quit;

# ---- actions and statements --------------------------------------------------------------------

for my $scope ('lease', 'session', 'transaction')
{
	for my $outcome ('finishes', 'fails')
	{
		my $action = 'SELECT pg_advisory_xact_lock(1)';
		$action = 'SELECT 1 / length(pg_advisory_xact_lock(1)::text)' if $outcome eq 'fails';
		hand_over(
			"action, scope $scope: $outcome",
			begin => sub {
				running("SELECT hloom_execute_with_lock('hand', '$key', '$action',"
					  . " scope => '$scope')");
			},
			free => \&let_go,
			wakeups => 1);
	}
	hand_over(
		"scope $scope: the statement fails",
		begin => sub {
			running("SELECT 1 / length(pg_advisory_xact_lock(1)::text)"
				  . " FROM hloom_acquire('hand', '$key', scope => '$scope')");
		},
		free => \&let_go,
		wakeups => 1);
}

# ---- commits that depend on the lease ----------------------------------------------------------

# set_standby($name): while there is one, and it is absent, commits wait
sub set_standby
{
	my ($name) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET synchronous_standby_names = '$name'");
	$node->reload;
	wait_for_sql($node, 'SHOW synchronous_standby_names', $name);
	return;
}

# committing($lease): a transaction that depends on the lease, in its COMMIT
$node->safe_psql('postgres', 'CREATE TABLE work (who text)');

sub committing
{
	my ($lease) = @_;
	set_standby('absent');
	my $run = start_sql(
		$node, "BEGIN;\n$lease;\nINSERT INTO work VALUES ('$key');\n"
		  . "SET LOCAL synchronous_commit = on;\nCOMMIT;\n", "holder-$case");
	wait_for_event($node, "holder-$case", 'SyncRep');
	return $run;
}

sub commit_goes_on
{
	my ($run) = @_;
	set_standby('');
	finish_sql($run);
	return;
}

my %guarded = (
	begin => sub {
		ask($holder, lease("'10 min'"));
		return committing(guard());
	},
	free => \&commit_goes_on,
	wakeups => 1);
hand_over('guarded, released in the commit', %guarded, before => sub { ask($holder, release()) });
hand_over(
	'guarded, ended in the commit', %guarded,
	before => sub {
		ask($holder, extend('1 s'));
		wait_until('it ends', sub { !held() });
		ask($third, 'SELECT hloom_reap()');
		after('1.5 s');
	});
hand_over(
	'transaction, on_lost cancel, ended in the commit',
	begin => sub { committing(lease("'3 s', scope => 'transaction', on_lost => 'cancel'")) },
	before => sub {
		wait_until('it ends', sub { !held() });
		after('1.5 s');
	},
	free => \&commit_goes_on,
	wakeups => 1);

# ---- renewed -----------------------------------------------------------------------------------

hand_over(
	'renewed, then quit',
	begin => sub {
		my $session = session($node, "holder-$case");
		ask($session, lease("'2 s', scope => 'session', auto_extend => true"));
		return $session;
	},
	before => sub { after('4 s') },
	free => sub { $_[0]->quit },
	wakeups => 1);

# ---- the key is kept for who was woken ---------------------------------------------------------

# The one who gives it back asks for it in the same message.  Its waiter is stopped, so that nothing
# but the reservation refuses that; and nobody is refused for longer.
my $them = '22222222-2222-4222-8222-222222222222';
my $rounds = rounds(10);
my ($refused, $granted, $handed) = (0, 0, 0);
for my $round (1 .. $rounds)
{
	$key = sprintf('case-%d', ++$case);
	ask($holder, lease("'10 min'"));
	my $waiter = wait_for_key();
	my $pid = process_of($other, "waiter-$case");
	stop_process($other, $pid);

	my $take = "FROM hloom_try_acquire('hand', '$key', owner => '$them')";
	my $then = ask($third, "SELECT clock_timestamp() + '5 s'");
	if ($round % 2)
	{
		$refused++ if ask($holder, release() . "\\;SELECT count(*) $take") eq "t\n0";
	}
	else
	{
		my $insist = $take =~ s/try_acquire/acquire/r =~ s/\)$/, max_wait => '0')/r;
		my ($state, $message) = ask_error($holder, release() . "\\;SELECT fence $insist");
		$refused++ if $state eq '55P03' && $message =~ /"reserved_for": $pid\b/;
	}
	my $in_time = '';
	wait_until('the key is granted',
		sub { ($in_time = ask($third, "SELECT clock_timestamp() < '$then' $take")) ne '' });
	$granted++ if $in_time eq 't';
	my $fence = fence();

	signal_process('CONT', $pid);
	ask($third, "SELECT hloom_release('hand', '$key', '$them')");
	my ($out, $err, $rc) = end_waiter($waiter);
	$handed++ if $out =~ /^\d+$/ && $out > $fence;
	diag($err) if $err ne '';
}
cmp_ok($refused, '>', 0, "a key just given back is kept for its waiter: $refused of $rounds");
is($granted, $rounds, 'not for long, if that one does not move');
is($handed, $rounds, 'which gets it the next time');

# ---- the extension is dropped ------------------------------------------------------------------

# Who waits is told, each, also when it is there again at once; not when the drop is rolled back.
my $drop = 'DROP EXTENSION hloom_lock';
for my $dropping ($drop, "BEGIN; $drop; CREATE EXTENSION hloom_lock; COMMIT")
{
	$key = sprintf('case-%d', ++$case);
	ask($holder, lease("'10 min'"));
	my @waiters = map {
		start_waiter($node, $other, "dropped-$case-$_",
			"SELECT fence FROM hloom_acquire('hand', '$key', $sleeper)")
	} 1 .. 3;
	my $wakeups = metric($other, 'wakeups');
	ask($third, "BEGIN; $drop; ROLLBACK");
	is(metric($other, 'wakeups'), $wakeups, 'rolled back, it wakes nobody');
	ask($third, $dropping);
	for my $waiter (@waiters)
	{
		# The function that called is gone as well, so what it says then is not ours to choose.
		my ($out, $err, $rc) = end_waiter($waiter);
		my $expected = $dropping eq $drop ? qr/^55000$/ : qr/^(?!57014)[0-9A-Z]{5}$/;
		like(state_of($err), $expected, "$dropping: who waits is told");
	}
	ask($third, 'CREATE EXTENSION IF NOT EXISTS hloom_lock');
	is(ask($other, 'SELECT count(*) FROM hloom_leases'), 0, 'and has got nothing');
}
# Nor does a lease that its session depends on survive it.
my $dependent = session($node, 'dependent');
ask($dependent,
	q{SELECT count(*) FROM hloom_acquire('hand', 'dependent', scope => 'session',}
	  . q{ on_lost => 'cancel')});
send_query($dependent, 'SELECT pg_sleep(40)');
wait_for_event($node, 'dependent', 'PgSleep');
ask($third, 'BEGIN; DROP EXTENSION hloom_lock; CREATE EXTENSION hloom_lock; COMMIT');
is(state_of((read_query($dependent))[1]), 'LL010', 'dropped: who depends on a lease is told');
$dependent->quit;

hand_over('created again', %take, free => sub { ask($holder, release()) }, wakeups => 1);

$_->quit for $holder, $other, $third;
$node->stop;
done_testing();
