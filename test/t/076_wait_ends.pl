# How a wait ends, wherever in the list the waiter is and whatever it waits in: with the usual
# SQLSTATE, with the holder left alone, and with those behind it served in their order, as if it had
# never been there.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = make_node('ends');
my $holder = session($node, 'holder');
my $look = session($node, 'look');
my @others = map { session($node, "other-$_") } 1 .. 4;

# Sleeps so long that what ends it must end the sleep
my $sleeper = q{retry => hloom_retry_interval(10, '1 hour')};

# pass() waits for the key, notes when it came, and gives the key on; what it does in between takes
# no time, so that from gave_at of one to got_at of the next is the hand-over.
ask($holder, qq{CREATE TABLE turns (turn serial, who int, got_at timestamptz, gave_at timestamptz);
CREATE FUNCTION give(who int, h hloom_handle, got_at timestamptz) RETURNS boolean LANGUAGE plpgsql
AS \$\$ BEGIN
	INSERT INTO turns (who, got_at, gave_at) VALUES (who, got_at, clock_timestamp());
	RETURN hloom_release(h);
END \$\$;
CREATE FUNCTION pass(who int) RETURNS boolean LANGUAGE plpgsql AS \$\$
DECLARE
	h hloom_handle;
BEGIN
	h := hloom_acquire('ends', 'k', $sleeper);
	RETURN give(who, h, clock_timestamp());
END \$\$});

# count_of($metric): of namespace ends
sub count_of
{
	my ($metric, $session) = @_;
	return ask($session || $look, "SELECT coalesce(sum(value), 0) FROM hloom_metrics"
		  . " WHERE namespace = 'ends' AND name = 'hostloom_lock_$metric'");
}

# begin_wait($start): calls it, until one more waiter is in a list
sub begin_wait
{
	my ($start) = @_;
	my $before = count_of('waits');
	my $result = $start->();
	wait_until('a waiter is in the list', sub { count_of('waits') == $before + 1 });
	return $result;
}

# send_sql($session, $sql): goes on at once; reply($session) waits for the answer: SQLSTATE,
# messages, output
my ($sent, %early) = (0);

sub send_sql
{
	my ($session, $sql) = @_;
	my $banner = 'sent ' . ++$sent;
	$session->{stderr} = '';
	my $output = $session->query_until(qr/^$banner\n/m, "\\echo $banner\n$sql;\n");
	# What is answered at once is read together with the banner.
	$early{$session} = $output =~ s/^$banner\n//r;
	return;
}

sub reply
{
	my ($session) = @_;
	my $output = $early{$session} . $session->query('');
	$output =~ s/^\n|\n$//g;
	return (state_of($session->{stderr}), $session->{stderr}, $output);
}

# begin_sql($application, $sql): a psql that waits for a key; with the backend's pid
sub begin_sql
{
	my ($application, $sql) = @_;
	my $run = begin_wait(sub { start_sql($node, $sql, $application) });
	$run->{pid} = ask($look,
		"SELECT pid FROM pg_stat_activity WHERE application_name = '$application'");
	return $run;
}

# held(): the keys that are held, and how many of them the holder holds
sub held
{
	return ask($look, q{SELECT count(*), count(*) FILTER (WHERE holder_pid = }
		  . ask($holder, 'SELECT pg_backend_pid()') . q{) FROM hloom_leases});
}

sub take_key
{
	ask($holder, q{SELECT * FROM hloom_acquire('ends', 'k', owner => md5('h')::uuid)});
	return;
}

sub give_key
{
	return ask($holder, q{SELECT give(0, (SELECT ROW('ends', 'k', md5('h')::uuid, 0, '1 s', now(),
		true)::hloom_handle), now())});
}

# nobody_waits(): a release wakes nobody
sub nobody_waits
{
	my ($session) = @_;
	my $before = count_of('wakeups', $session);
	take_key();
	give_key();
	return count_of('wakeups', $session) == $before;
}

# in_order(@who): whether the key went from one to the next in this order.  Another one may come
# before when who was to be next has not moved for the time a key is kept, 100 ms.
sub in_order
{
	my (@who) = @_;
	my @turns = split /\n/, ask($look, q{SELECT who, got_at - lag(gave_at) OVER (ORDER BY turn)
		>= '100 ms' FROM turns ORDER BY turn});
	my @left = @who;
	for my $turn (@turns)
	{
		my ($who, $late) = split /\|/, $turn;
		next if $who == 0;
		my $first = @left && $left[0] == $who;
		diag("$who came before $left[0]") if !$first && @left;
		return 0 if !$first && ($late || '') ne 't';
		@left = grep { $_ != $who } @left;
	}
	return @turns == @who + 1 && !@left;
}

# What ends a wait: the SQLSTATE, settings, and what somebody else does to the one that waits
my %end = (
	cancel => { state => '57014', act => 'pg_cancel_backend' },
	terminate => { state => '57P01', act => 'pg_terminate_backend', gone => 1 },
	'statement_timeout' => { state => '57014', set => q{SET statement_timeout = '500 ms';} },
	'lock_timeout' => { state => '55P03', set => q{SET lock_timeout = '1 s';} },
	'a vanished client' => { state => '', act => 'kill', gone => 1 });
$end{transaction_timeout} =
  { state => '25P04', set => q{SET transaction_timeout = '700 ms';}, gone => 1 }
  if $node->pg_version >= 17;

my %form = (
	hloom_acquire => "SELECT count(*) FROM hloom_acquire('ends', 'k', $sleeper)",
	hloom_try_acquire =>
	  "SELECT count(*) FROM hloom_try_acquire('ends', 'k', max_wait => '2 hours', $sleeper)",
	hloom_execute_with_lock =>
	  "SELECT hloom_execute_with_lock('ends', 'k', 'SELECT 1', $sleeper)");

# script($end, $form, $block): waits, and tells afterwards that the session is as before
sub script
{
	my ($end, $form, $block) = @_;
	return "\\set ON_ERROR_STOP off\n"
	  . ($end->{set} || '') . "\n"
	  . ($block ? "\\set AUTOCOMMIT off\nSELECT 1 AS work;\n" : '')
	  . "SELECT clock_timestamp() AS began \\gset\n$form;\n"
	  . ($block ? "ROLLBACK;\n" : '')
	  . "SELECT 'waited', clock_timestamp() - :'began' >= '900 ms';\n";
}

sub end_it
{
	my ($victim, $act) = @_;
	return if !defined $act;
	if ($act eq 'kill')
	{
		$victim->{handle}->kill_kill(grace => 0);
		return;
	}
	ask($look, "SELECT $act($victim->{pid})");
	return;
}

# end_one($name, $form, $place, $block): of five waiters the one in this place ends.  Returns what
# went wrong.
my $run = 0;

sub end_one
{
	my ($name, $form, $place, $block) = @_;
	my ($end, $victim, @bad) = ($end{$name});
	ask($look, 'TRUNCATE turns');
	take_key();
	for my $i (1 .. 5)
	{
		my $other = $i < $place ? $i : $i - 1;
		$victim = begin_sql('victim-' . ++$run, script($end, $form{$form}, $block))
		  if $i == $place;
		begin_wait(sub { send_sql($others[ $other - 1 ], "SELECT pass($other)") })
		  if $i != $place;
	}
	end_it($victim, $end->{act});
	my ($out, $err, $rc) = $end->{state} eq '' ? ('', '', 0) : finish_sql($victim);
	wait_until('the backend is gone',
		sub { ask($look, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $victim->{pid}")
			eq 't' });
	push @bad, "SQLSTATE: $err" if state_of($err) ne $end->{state};
	push @bad, "afterwards: $out" if !$end->{gone} && $out !~ /^waited\|[tf]$/m;
	push @bad, "waited too short: $out" if $name eq 'lock_timeout' && $out !~ /^waited\|t$/m;
	push @bad, 'held: ' . held() if held() ne '1|1';
	push @bad, 'the holder lost the key' if give_key() ne 't';
	for my $other (@others)
	{
		my ($state, $message, $output) = reply($other);
		push @bad, "other: $message $output" if $state ne '' || $output ne 't';
	}
	push @bad, 'order: ' . ask($look, 'TABLE turns') if !in_order(1 .. 4);
	push @bad, 'held at the end: ' . held() if held() ne '0|0';
	push @bad, 'somebody is left in the list' if !nobody_waits();
	return @bad;
}

my %place = (oldest => 1, 'in the middle' => 3, last => 5);
for my $name (sort keys %end)
{
	for my $form (sort keys %form)
	{
		my @bad;
		for my $place (sort keys %place)
		{
			# In a transaction block every second time, or always.
			my @blocks = rounds(1) > 1 ? (0, 1) : ($run % 2);
			push @bad, map { "$place: $_" } end_one($name, $form, $place{$place}, $_) for @blocks;
		}
		is(join("\n", @bad), '', "$name: $form, oldest, in the middle and last of five");
	}
}

# A timeout of idle sessions is none of waiting ones.
take_key();
my ($state, $message) = sql_error($node,
	q{SET idle_session_timeout = '1500 ms'; SET idle_in_transaction_session_timeout = '1500 ms';}
	  . qq{SET lock_timeout = '3 s'; $form{hloom_acquire}});
is($state, '55P03', 'idle_session_timeout does not end a wait');

# lock_timeout ends attempts that have no delay between them, too.
($state, $message) = sql_error($node,
	q{SET lock_timeout = '20 ms'; SELECT * FROM hloom_acquire('ends', 'k',}
	  . q{ retry => hloom_retry_immediate(1000000))});
is($state, '55P03', 'lock_timeout, immediate retries: 55P03');
like($message, qr/canceling statement due to lock timeout/, 'lock_timeout, immediate retries');

# Caught in PL/pgSQL: the transaction goes on, nothing waits, and the key can be had in it.
my %caught = (query_canceled => 'statement_timeout', lock_not_available => 'lock_timeout');
for my $condition (sort keys %caught)
{
	my $waiter = $others[0];
	ask($waiter, 'BEGIN; CREATE TABLE kept (a int)');
	ask($waiter, "SET LOCAL $caught{$condition} = '200 ms'");
	send_sql($waiter, qq{DO \$\$ BEGIN
		PERFORM hloom_acquire('ends', 'k', $sleeper);
	EXCEPTION WHEN $condition THEN RAISE INFO 'caught'; END \$\$});
	($state, $message) = reply($waiter);
	like($message, qr/INFO:.*caught/, "$condition: caught");
	ask($waiter, "SET LOCAL $caught{$condition} = 0");
	is(give_key(), 't', "$condition: the holder held the key");
	ok(nobody_waits(), "$condition: the list is left while the transaction goes on");
	take_key();
	begin_wait(sub { send_sql($waiter, $form{hloom_execute_with_lock}) });
	is(give_key(), 't', "$condition: the holder gives the key back");
	($state, $message, my $out) = reply($waiter);
	is("$state|$out", '|1', "$condition: a new wait in the same transaction");
	is(held(), '1|0', "$condition: the key is the transaction's");
	ask($waiter, 'COMMIT; DROP TABLE kept');
	is(held(), '0|0', "$condition: until its end");
	take_key();
}

# ROLLBACK TO SAVEPOINT after a wait that failed, and a new wait
{
	my $waiter = $others[0];
	my $pid = ask($waiter, 'SELECT pg_backend_pid()');
	ask($waiter, 'BEGIN; SELECT 1; SAVEPOINT s');
	for my $round (1 .. 3)
	{
		begin_wait(sub { send_sql($waiter, $form{hloom_acquire}) });
		ask($look, "SELECT pg_cancel_backend($pid)");
		($state) = reply($waiter);
		is($state, '57014', "savepoint: cancelled wait $round");
		ask($waiter, 'ROLLBACK TO SAVEPOINT s');
	}
	begin_wait(sub { send_sql($waiter, take('ends', 'k', "max_wait => '2 hours', $sleeper")) });
	give_key();
	($state, $message, my $out) = reply($waiter);
	like($out, qr/^[0-9a-f-]{36}\|\d+$/, 'savepoint: the next wait gets the key');
	ask($waiter, 'COMMIT');
	is(held(), '1|0', 'savepoint: and keeps it');
	ask($look, 'TRUNCATE hloom_leases');
	ok(nobody_waits(), 'savepoint: nobody is left in the list');
}

# In a cursor's FETCH, and in a function that a trigger calls: cancelled, and served
ask($look, qq{CREATE TABLE guarded (a int);
CREATE FUNCTION locked() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN
	PERFORM hloom_acquire('ends', 'k', $sleeper, scope => 'transaction');
	RETURN new;
END \$\$;
CREATE TRIGGER locked BEFORE INSERT ON guarded FOR EACH ROW EXECUTE FUNCTION locked()});
my %inside = (
	'a FETCH' => [
		"DECLARE c CURSOR FOR SELECT key FROM hloom_acquire('ends', 'k', $sleeper,"
		  . " scope => 'transaction')",
		'FETCH c', 'k' ],
	'a trigger' => [ 'SELECT 1', 'INSERT INTO guarded VALUES (1) RETURNING a', '1' ]);
for my $what (sort keys %inside)
{
	my ($before, $sql, $expected) = @{ $inside{$what} };
	my $waiter = $others[1];
	my $pid = ask($waiter, 'SELECT pg_backend_pid()');
	take_key();
	ask($waiter, "BEGIN; $before");
	begin_wait(sub { send_sql($waiter, $sql) });
	ask($look, "SELECT pg_cancel_backend($pid)");
	($state) = reply($waiter);
	is($state, '57014', "in $what: cancelled");
	give_key();
	ok(nobody_waits(), "in $what: nobody is left in the list");
	ask($waiter, 'ROLLBACK');
	take_key();
	ask($waiter, "BEGIN; $before");
	begin_wait(sub { send_sql($waiter, $sql) });
	give_key();
	($state, $message, my $out) = reply($waiter);
	is("$state|$out", "|$expected", "in $what: served");
	is(held(), '1|0', "in $what: held");
	ask($waiter, 'COMMIT');
	is(held(), '0|0', "in $what: until COMMIT");
}

# In a parallel worker, by a function with a wrong mark: refused.
my $parallel = $node->pg_version >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';
take_key();
($state, $message) = sql_error($node, qq{CREATE FUNCTION liar() RETURNS bigint LANGUAGE plpgsql
PARALLEL SAFE AS \$\$ BEGIN RETURN (SELECT count(*) FROM hloom_acquire('ends', 'k', $sleeper));
END \$\$;
SET $parallel = on;
SELECT liar()});
is($state, '25000', 'in a parallel worker: refused');
like($message, qr/parallel/, 'in a parallel worker: the message tells it');
is(held(), '1|1', 'in a parallel worker: the holder holds');

# The session becomes somebody else, who is dropped meanwhile, and has all kinds of names.
{
	my $waiter = $others[2];
	my @names = ('', 'x' x 63, "\x{c3}\x{a4}" x 40, q{quote''d});
	ask($look, 'CREATE ROLE passing');
	ask($waiter, 'SET ROLE passing');
	my $served = 0;
	for my $name (@names)
	{
		ask($waiter, "SET application_name = '$name'");
		begin_wait(sub { send_sql($waiter, take('ends', 'k', "max_wait => '2 hours', $sleeper")) });
		ask($look, 'DROP ROLE passing') if $name eq $names[-1];
		give_key();
		($state, $message, my $out) = reply($waiter);
		$served++ if $state eq '' && $out =~ /\|\d+$/;
		diag($message) if $message ne '';
		ask($look, 'SELECT count(*) FROM hloom_locks; TRUNCATE hloom_leases');
		take_key();
	}
	is($served, scalar @names, 'a waiter of any name, and of a role that is dropped: served');
	ask($waiter, 'RESET ROLE');
	give_key();
}

# The same namespace and key in another database is another lock.
{
	ask($look, 'CREATE DATABASE elsewhere');
	my $there = session($node, 'there', 'elsewhere');
	my $waits_there = session($node, 'waits-there', 'elsewhere');
	ask($there, 'CREATE EXTENSION hloom_lock');
	my $owner = ask($there, q{SELECT owner FROM hloom_acquire('ends', 'k')});
	take_key();
	send_sql($waits_there,
		qq{SELECT h.key, hloom_release(h) FROM hloom_acquire('ends', 'k', $sleeper) AS h});
	wait_until('a waiter there', sub { count_of('waits', $there) == 1 });
	begin_wait(sub { send_sql($others[0], 'SELECT pass(1)') });
	is(give_key(), 't', 'two databases: released in one');
	is((reply($others[0]))[2], 't', 'two databases: its waiter is served');
	is(count_of('wakeups', $there), 0, 'two databases: nobody is woken in the other');
	my $before = count_of('wakeups');
	is(ask($there, "SELECT hloom_release('ends', 'k', '$owner')"),
		't', 'two databases: released in the other');
	is((reply($waits_there))[2], 'k|t', 'two databases: its waiter is served, too');
	is(count_of('wakeups', $there) . '|' . (count_of('wakeups') - $before),
		'1|0', 'two databases: by its own release');
	$_->quit for $there, $waits_there;
}

# The end of patience.  The waiter is woken now and then, but stopped until somebody else has the
# key: what it tries then does not prolong the wait.
my $patience = q{max_wait => '2 s', retry => hloom_retry_interval(100, '300 ms')};
my $told = qq{DO \$\$
DECLARE
	line text;
	began timestamptz := clock_timestamp();
BEGIN
	PERFORM hloom_acquire('ends', 'k', $patience);
EXCEPTION WHEN lock_not_available THEN
	GET STACKED DIAGNOSTICS line = PG_EXCEPTION_DETAIL;
	RAISE INFO 'attempts % waited %', line::jsonb->>'attempts', line::jsonb->>'waited_ms';
END \$\$};
for my $beaten (0, 1)
{
	take_key();
	my $what = $beaten ? 'patience ends, woken and beaten' : 'patience ends';
	my $times = 0;
	my $waiter = begin_sql("patient-$beaten", $told);
	for (my $round = 0; $beaten && $round < 4; $round++)
	{
		last if ask($look, "SELECT count(*) FROM pg_stat_activity WHERE pid = $waiter->{pid}"
			  . " AND state = 'active'") eq '0';
		stop_process($look, $waiter->{pid});
		give_key();
		wait_until('somebody else has the key',
			sub { ask($holder, q{SELECT count(*) FROM hloom_try_acquire('ends', 'k',
				owner => md5('h')::uuid)}) eq '1' });
		signal_process('CONT', $waiter->{pid});
		$times++;
	}
	my ($out, $err) = finish_sql($waiter);
	my ($attempts, $waited) = $err =~ /attempts (\d+) waited (\d+)/;
	ok(defined $attempts && $attempts >= 2, "$what: after some attempts");
	ok(defined $waited && $waited >= 1000 && $waited < 3500, "$what: in time") or diag($err);
	note("beaten $times times, attempts $attempts, waited $waited ms") if defined $attempts;
	is( ask($others[0], "SELECT count(*) FROM hloom_try_acquire('ends', 'k', $patience)"),
		'0', "$what: no row") if !$beaten;
	is(held(), '1|1', "$what: the holder holds");
	give_key();
	ok(nobody_waits(), "$what: nobody is left in the list");
}

# Cancelled or terminated at the moment of the release: the next one is served all the same.
my $next = 0;
for my $round (1 .. rounds(20))
{
	take_key();
	my $victim = begin_sql("racing-$round", $form{hloom_execute_with_lock});
	begin_wait(sub { send_sql($others[0], 'SELECT pass(1)') });
	my $act = $round % 2 ? 'pg_cancel_backend' : 'pg_terminate_backend';
	send_sql($look, "SELECT $act($victim->{pid})") if $round % 4 < 2;
	send_sql($holder, q{SELECT hloom_release('ends', 'k', md5('h')::uuid)});
	send_sql($look, "SELECT $act($victim->{pid})") if $round % 4 >= 2;
	my ($released, undef, $done) = reply($holder);
	reply($look);
	my ($served, $why, $out) = reply($others[0]);
	finish_sql($victim);
	$next++ if $done eq 't' && "$served|$out" eq '|t';
	diag($why) if $why ne '';
}
is($next, rounds(20), 'ended at the moment of the release: the next one is served');
wait_until('nothing is held', sub { held() eq '0|0' });
ok(nobody_waits(), 'ended at the moment of the release: nobody is left in the list');

# A fast shutdown ends them all.
take_key();
my @all = map { begin_sql("shutdown-$_", $form{$_}) } sort keys %form;
push @all, begin_sql('shutdown-block', "BEGIN; SELECT 1; $form{hloom_acquire}");
$_->quit for $holder, $look, @others;
$node->stop('fast');
is(join(' ', map { state_of((finish_sql($_))[1]) } @all),
	'57P01 57P01 57P01 57P01', 'fast shutdown: 57P01');
$node->start;
is( $node->safe_psql(
		'postgres', q{SELECT namespace, key, owner = md5('h')::uuid FROM hloom_leases}),
	'ends|k|t', 'fast shutdown: only the holder is left');
is($node->safe_psql('postgres', q{SELECT hloom_release('ends', 'k', md5('h')::uuid);
	SELECT coalesce(sum(value), 0) FROM hloom_metrics WHERE name = 'hostloom_lock_wakeups'}),
	"t\n0", 'fast shutdown: nobody waits afterwards');

$node->stop;
done_testing();
