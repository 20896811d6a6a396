# Through pgbouncer.  In transaction mode a lease of scope "lease" is its client's, whatever server
# connection serves the client next and whatever others do on the one that took it, and a lease of a
# transaction stays behind on none.  In session mode a session's leases end with the client although
# the server connection stays.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HloomPooler;
use HloomTest;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $me = '11111111-1111-4111-8111-111111111111';

# An error that names the process it was raised in
my $FAIL = q{('backend ' || pg_backend_pid())::int};

my $node = make_node('pooler');

# ---- looking, past the pooler --------------------------------------------------------------------

my $looker = session($node);

# leases($namespace): key, scope and fence of those there are
sub leases
{
	my ($namespace) = @_;
	return ask($looker,
		    "SELECT coalesce(string_agg(concat_ws(' ', key, scope, fence), ', ' ORDER BY key), '')"
		  . " FROM hloom_leases WHERE namespace = '$namespace'");
}

# orphans($namespace): what failed statements took: removed, was not there, could not be given back
sub orphans
{
	my ($namespace) = @_;
	return ask($looker,
		    "SELECT string_agg(value::text, ' ' ORDER BY outcome DESC) FROM hloom_metrics"
		  . " WHERE namespace = '$namespace' AND name = 'hostloom_lock_orphan_releases'");
}

start_pooler($node);

# ---- one server connection, two clients ----------------------------------------------------------

my $mine = client('one');
my $theirs = client('one');
my $backend = ask($mine, 'SELECT pg_backend_pid()');
is(ask($theirs, 'SELECT pg_backend_pid()'), $backend, 'one server connection serves both clients');

my $take = "SELECT fence FROM hloom_try_acquire('one', 'mine', owner => '$me')";
my @taken = (
	'' => "$take;",
	', in a transaction' => "BEGIN; $take; COMMIT;",
	', in a transaction rolled back' => "BEGIN; $take; ROLLBACK;",
	', in a transaction that fails later' => "BEGIN; $take; SELECT 1 / 0; ROLLBACK;");

# What the other client does next: SQLSTATE and statements; "\;" keeps two in one message.
my @next = (
	'succeeds' => [ '', 'SELECT 1' ],
	'fails' => [ '22012', 'SELECT 1 / 0' ],
	'does not parse' => [ '42601', 'SELEKT' ],
	'fails in a message of several statements' => [ '22012', 'SELECT 1 \; SELECT 1 / 0' ],
	'says ROLLBACK outside of a transaction' => [ '', 'ROLLBACK' ],
	'rolls back' => [ '', 'BEGIN; CREATE TABLE none (); ROLLBACK' ],
	'fails in a transaction' => [ '22012', 'BEGIN; SELECT 1 / 0; ROLLBACK' ],
	'fails at its COMMIT' => [ '23505', 'BEGIN; INSERT INTO late VALUES (1), (1); COMMIT' ],
	'rolls back to a savepoint' =>
	  [ '22012', 'BEGIN; SAVEPOINT a; SELECT 1 / 0; ROLLBACK TO a; COMMIT' ],
	'loses what it takes itself' =>
	  [ '22P02', "SELECT $FAIL FROM hloom_acquire('one', 'theirs')" ],
	'discards its session' => [ '', 'DISCARD ALL' ],
	'has nothing to give back' => [ '', 'SELECT hloom_release_session()' ]);

$node->safe_psql('postgres', 'CREATE TABLE late (id int UNIQUE DEFERRABLE INITIALLY DEFERRED)');
my $lost = 0;
for (my $i = 0; $i < @taken; $i += 2)
{
	for (my $j = 0; $j < @next; $j += 2)
	{
		my ($expected, $sql) = @{ $next[ $j + 1 ] };
		$mine->query($taken[ $i + 1 ]);
		my $before = leases('one');
		my ($state) = ask_error($theirs, $sql);
		my $after = leases('one');
		my $result = ask($mine,
			"SELECT pg_backend_pid(), hloom_is_held('one', 'mine', '$me');"
			  . " SELECT hloom_release('one', 'mine', '$me')");
		$lost++ if $sql =~ /theirs/;
		is("$state $result", "$expected $backend|t\nt",
			"a lease taken$taken[$i] is held after the other client $next[$j]");
		is($after, $before, '... and is the same');
		like($before, qr/^mine lease \d+$/, '... and was there');
	}
}
is(orphans('one'), "$lost 0 0", 'orphans were those the other client itself lost, and no more');
is(leases('one'), '', 'nothing is left');

# Nothing is in between, and the other client's error tells the process.
ask($mine, $take);
my ($state, $message) = ask_error($theirs, "SELECT $FAIL");
like($message, qr/"backend $backend"/, 'the other client fails in the process that took the lease');
is(ask($theirs, "SELECT hloom_is_held('one', 'mine', '$me')"), 't', '... which leaves the lease');

# Not the server connection's death either.
my $connected = qr/^S\|[^|]*\|one\|/m;
like(console('SHOW SERVERS'), $connected, 'the pooler is connected');
$node->safe_psql('postgres', "SELECT pg_terminate_backend($backend)");
wait_until('the pooler notices', sub { console('SHOW SERVERS') !~ $connected });
my $result = ask($mine, "SELECT hloom_release('one', 'mine', '$me'), pg_backend_pid()");
like($result, qr/^t\|/, 'a lease is held after its server connection was terminated');
isnt($result, "t|$backend", '... by the client that is served by another one');

# A client that vanishes in the middle of its transaction
my $vanishing = client('one');
ask($vanishing, "BEGIN; $take");
ask($vanishing,
	q{SELECT count(*) FROM hloom_try_acquire('one', 'transaction', scope => 'transaction')});
like(leases('one'), qr/^mine lease \d+, transaction transaction \d+$/, 'two leases are held');
$vanishing->quit;
wait_until('it is free', sub { leases('one') !~ /transaction/ });
pass('what followed the transaction of a client that is gone ends');
is(ask($theirs, "SELECT hloom_release('one', 'mine', '$me')"), 't', '... and the other stays');

# ---- a lease that follows a transaction ----------------------------------------------------------

# The other client waits for the server connection, and has it with the COMMIT.
$node->safe_psql('postgres', 'CREATE TABLE work (done int)');
my $follow = q{hloom_try_acquire('follow', 'k', scope => 'transaction')};
my ($owner, $fence);
for my $end ('COMMIT', 'ROLLBACK')
{
	ask($mine, 'TRUNCATE work');
	($backend, $owner, $fence) =
	  split /\|/, ask($mine, "BEGIN; SELECT pg_backend_pid(), owner, fence FROM $follow");
	ask($mine, 'INSERT INTO work VALUES (1)');
	my $held = leases('follow');
	my $waiter = start_client('one',
		"SELECT pg_backend_pid(), fence > $fence, owner <> '$owner', (SELECT count(*) FROM work)"
		  . " FROM $follow");
	wait_until('it waits', sub { console('SHOW POOLS') =~ /^one\|[^|]*\|\d+\|1\|/m });
	is(leases('follow'), $held, "a transaction's lease is held until $end");
	ask($mine, $end);
	my ($out, $err) = finish_sql($waiter);
	is($out,
		"$backend|t|t|" . ($end eq 'COMMIT' ? 1 : 0),
		'... and then the next client has another one, in the same process');
	is(leases('follow'), '', '... which ended with its statement');
	is(ask($mine, "SELECT hloom_is_held('follow', 'k', '$owner')"), 'f', '... and the first ended');
}

# It is joined by the client's own transaction only.
ask($mine, "SELECT count(*) FROM $follow");
($owner) = ask($theirs, "BEGIN; SELECT owner FROM $follow");
is(ask($theirs, "SELECT owner = '$owner' FROM $follow"), 't', 'a transaction joins its own lease');
ask($theirs, 'COMMIT');
is(ask($mine, "BEGIN; SELECT owner <> '$owner' FROM $follow; ROLLBACK"),
	't', '... and not that of the transaction before it in the same process');
is(leases('follow'), '', 'nothing is left');
is(orphans('follow'), '0 0 0', 'no orphan');

# ---- two server connections, one client ----------------------------------------------------------

my $roaming = client('two');
my @holders = (client('two'), client('two'));
my $last = ask($roaming, 'SELECT pg_backend_pid()');

# occupy($pid): a client with a transaction open on this server connection.  Which of the free ones
# it gets is the pooler's choice; when one is taken, the next client has the other.
sub occupy
{
	my ($pid) = @_;
	for my $holder (@holders)
	{
		next if ask($holder, 'BEGIN; SELECT pg_backend_pid()') ne $pid;
		ask($holders[0], 'COMMIT') if $holder != $holders[0];
		return $holder;
	}
	die "no server connection is that of process $pid";
}

# Each as error or result, and the process, which is never that of the statement before.
my $key = "'two', 'mine', '$me'";
my $renewal = "hloom_acquire('two', 'mine', owner => '$me')";
my @steps = (
	'acquire' => [ 't', "SELECT fence > 0, pg_backend_pid() FROM $renewal" ],
	'is_held' => [ 't', "SELECT hloom_is_held($key), pg_backend_pid()" ],
	'extend' => [ 't', "SELECT hloom_extend($key), pg_backend_pid()" ],
	'another owner' =>
	  [ '0', q{SELECT count(*), pg_backend_pid() FROM hloom_try_acquire('two', 'mine')} ],
	'remaining' => [ 't', "SELECT hloom_remaining($key) > '0', pg_backend_pid()" ],
	'a renewal that fails' => [ '22P02', "SELECT $FAIL FROM $renewal" ],
	'is_held after it' => [ 't', "SELECT hloom_is_held($key), pg_backend_pid()" ],
	'a renewal' => [ 't', "SELECT fence > 0, pg_backend_pid() FROM $renewal" ],
	'a failure' => [ '22P02', "SELECT $FAIL" ],
	'release' => [ 't', "SELECT hloom_release($key), pg_backend_pid()" ],
	'is_held after release' => [ 'f', "SELECT hloom_is_held($key), pg_backend_pid()" ],
	'acquire again' => [ 't', "SELECT fence > 0, pg_backend_pid() FROM $renewal" ],
	'its release' => [ 't', "SELECT hloom_release($key), pg_backend_pid()" ]);
my %served;
for (my $i = 0; $i < @steps; $i += 2)
{
	my ($expected, $sql) = @{ $steps[ $i + 1 ] };
	my $holder = occupy($last);
	my $out = $roaming->query($sql);
	ask($holder, 'COMMIT');
	my ($got, $pid) = split /\|/, $out;
	if ($out eq '')
	{
		$got = state_of($roaming->{stderr});
		($pid) = $roaming->{stderr} =~ /"backend (\d+)"/;
		$roaming->{stderr} = '';
	}
	is($got, $expected, "$steps[$i], on another server connection than the statement before");
	isnt($pid, $last, "... which is process $pid");
	$served{$pid} = 1;
	$last = $pid;
}
is(scalar(keys %served), 2, 'two server connections served it');
is(orphans('two'), '0 0 0', 'no orphan');

# ---- the extended protocol -----------------------------------------------------------------------

$node->safe_psql(
	'postgres', q{CREATE TABLE steps (client int, step text, ok bool, pid int, taker int);
CREATE TABLE pids (pid int)});

my $errors = bench('one', 'take',
	"INSERT INTO pids SELECT pg_backend_pid()\n"
	  . "FROM hloom_try_acquire('one', 'mine', owner => '$me');\n",
	'-t', '1');
$backend = $node->safe_psql('postgres', 'SELECT pid FROM pids');
my $held = leases('one');
$errors = bench('one', 'fail', "SELECT $FAIL;\n", '-t', '1');
like($errors, qr/"backend $backend"/, 'extended: the other client fails in that process');
$errors = bench('one', 'rollback',
	"BEGIN;\nSELECT 1;\nROLLBACK;\nBEGIN;\nSELECT $FAIL;\n", '-t', '1');
like($errors, qr/"backend $backend"/, 'extended: and rolls back there');
like($held, qr/^mine lease \d+$/, 'extended: the lease was there');
is(leases('one'), $held, 'extended: and still is');
is(ask($mine, "SELECT hloom_release('one', 'mine', '$me')"), 't', 'extended: and is released');

# Eight clients on two server connections, while somebody fails on both all the time
my $failures = $node->basedir . '/failures';
append_to_file("$failures.sql", "SELECT $FAIL;\n" x 500_000);
my $failing;
{
	local $ENV{PGAPPNAME} = $APPLICATION;
	$failing = IPC::Run::start(
		[ $node->installed_command('psql'), '-Xq', '-d', pooled('two'), '-f', "$failures.sql" ],
		'<', \'', '>', "$failures.out", '2>', "$failures.err");
}
wait_until('somebody fails', sub { -s "$failures.err" });
my $rounds = rounds(40);
my $step = q{INSERT INTO steps VALUES (:client_id::int, '%s',
	hloom_%s('busy', 'k' || :client_id, :owner::uuid), pg_backend_pid(), :taker::int);
};
$errors = bench(
	'two', 'steps',
	q{SELECT owner, pg_backend_pid() AS taker FROM hloom_acquire('busy', 'k' || :client_id) \gset
}
	  . join('', map { sprintf $step, $_, $_ } 'is_held', 'extend', 'is_held', 'release'),
	'-c', '8', '-t', $rounds);
ok($failing->pumpable, 'extended: somebody fails all the time');
$failing->kill_kill(grace => 0);
my %failed_in = map { $_ => 1 } slurp_file("$failures.err") =~ /"backend (\d+)"/g;
is(scalar(keys %failed_in), 2, 'extended: ... on both server connections');
is( $node->safe_psql('postgres', 'SELECT count(*), bool_and(ok), count(DISTINCT pid) FROM steps'),
	4 * 8 * $rounds . '|t|2',
	'extended: every step of eight clients succeeds')
  or diag($errors);
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM steps WHERE pid <> taker'),
	'>', 0, 'extended: ... also on the connection that had not taken the lease');
is(leases('busy'), '', 'extended: nothing is left');
is(orphans('busy'), '0 0 0', 'extended: no orphan');
$_->quit for $mine, $theirs, $roaming, @holders;

# ---- session mode --------------------------------------------------------------------------------

like(console('SHOW CONFIG'), qr/^server_reset_query\|DISCARD ALL\|/m, 'the default reset');
my $session = q{hloom_try_acquire('whole', 'session', scope => 'session')};
my $first = client('whole');
$backend = ask($first, "SELECT pg_backend_pid() FROM $session");
ask($first, take('whole', 'stays'));
like(leases('whole'), qr/^session session \d+, stays lease \d+$/, 'a session has two leases');
($state) = ask_error($first, 'SELECT 1 / 0');
is($node->safe_psql('postgres', "SELECT count(*) FROM $session"),
	'0', 'the one that follows the session is held');
$first->quit;
my $second = client('whole');
is(ask($second, "SELECT pg_backend_pid() FROM $session"),
	$backend, 'the next client has it, in the same process');
$second->quit;
wait_until('it is free', sub { leases('whole') !~ /session/ });
is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE pid = $backend"),
	'1', 'it is free when that client is gone, and the server connection stays');
like(leases('whole'), qr/^stays lease \d+$/, 'the one of scope "lease" stays, too');
is(orphans('whole'), '0 0 0', 'no orphan');

# ---- on_lost => 'cancel' ----------------------------------------------------------------------

# Whose lease is lost is told; who comes after it on the same server connection is not.
my ($a, $b) = map { client('one') } 1 .. 2;
my $cancel = q{scope => 'transaction', on_lost => 'cancel'};
my $slept = 'SELECT pg_backend_pid() FROM pg_sleep(0.6)';
$backend = ask($a, 'SELECT pg_backend_pid()');
for my $end ('COMMIT', 'ROLLBACK')
{
	ask($a, 'BEGIN');
	ask($a, take('one', 'short', "lease => '300 ms', $cancel"));
	ask($a, $end);
	is(ask($b, $slept), $backend, "$end before the end: the next client's statement runs on");
}
ask($a, 'BEGIN');
ask($a, take('one', 'short', "lease => '300 ms', $cancel"));
($state) = ask_error($a, $slept);
is($state, 'LL010', 'lost in the transaction: its own statement is cancelled');
ask($a, 'ROLLBACK');
is(ask($b, $slept), $backend, 'and not the one of the next client');
ask($a, take('one', 'short', "lease => '300 ms'"));
is(ask($b, $slept), $backend, 'a lease of scope "lease" that ends cancels nobody');
# A guard is that of its transaction, on whatever connection the lease was taken.
ask($a, take('one', 'guarded', "owner => '$me'"));
ask($b, 'BEGIN');
is(ask($b, "SELECT hloom_guard('one', 'guarded', '$me')"), 't', 'a guard of another client');
ask($b, 'COMMIT');
ask($a, "SELECT hloom_release('one', 'guarded', '$me')");
is(ask($b, 'SELECT pg_backend_pid()'), $backend, 'ends with its transaction');
$_->quit for $a, $b;

$looker->quit;
stop_pooler();
$node->stop;
done_testing();
