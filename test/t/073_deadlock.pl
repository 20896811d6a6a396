# Sessions that wait for each other, over leases, rows and advisory locks: one of them, and only
# one, gets 40P01, and the others get what they wait for.  Whoever merely waits never does, also not
# when 100,000 waits are searched while leases and locks change hands.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = make_node(
	'deadlock',
	settings => {
		deadlock_timeout => '100ms',
		log_lock_waits => 'on',
		max_connections => 60,
		max_prepared_transactions => 2
	});
$node->safe_psql(
	'postgres', q{CREATE ROLE plain;
CREATE ROLE secret_workers;
SELECT hloom_configure('secret', role => 'secret_workers');
CREATE TABLE rows (id int PRIMARY KEY, n int DEFAULT 0) WITH (fillfactor = 10);
INSERT INTO rows SELECT generate_series(1, 64);
GRANT ALL ON rows TO plain});

# Waits until somebody else ends the wait
my $patient = q{retry => hloom_retry_interval(1000000, '1 hour')};
my @sessions = map { session($node, "side $_") } 0 .. 3;
my @pids = map { ask($_, 'SELECT pg_backend_pid()') } @sessions;
my $deadlocks = 0;

# lease($key, $scope [, $namespace]), row($id), advisory($id): what a side takes or waits for
sub lease
{
	my ($key, $scope, $namespace) = @_;
	$namespace ||= 'dl';
	return "SELECT key FROM hloom_acquire('$namespace', '$key', scope => '$scope', $patient)";
}

sub row { return "UPDATE rows SET n = n + 1 WHERE id = $_[0]" }
sub advisory { return "SELECT pg_advisory_xact_lock($_[0])" }

# begin_sql($side, $sql): has the session begin, without waiting for its answer
sub begin_sql
{
	my ($side, $sql) = @_;
	my $session = $sessions[$side];
	$session->{stdout} = $session->{stderr} = '';
	$session->{stdin} .= "$sql;\n\\echo answered\n\\warn answered\n";
	$session->{run}->pump_nb while $session->{stdin} ne '';
	return;
}

sub has_answered
{
	my ($side) = @_;
	my $session = $sessions[$side];
	$session->{run}->pump_nb;
	return $session->{stdout} =~ /^answered$/m && $session->{stderr} =~ /^answered$/m;
}

sub wait_for_wait
{
	my ($side) = @_;
	wait_until(
		"side $side waits",
		sub {
			$node->safe_psql('postgres',
				    "SELECT wait_event_type IN ('Extension', 'Lock') FROM pg_stat_activity"
				  . " WHERE pid = $pids[$side]") eq 't';
		});
	return;
}

# unwind($count): as each side has its answer its transaction ends, so that the others get theirs.
# Returns the messages.
sub unwind
{
	my ($count) = @_;
	my @messages;
	wait_until(
		'all sides have an answer',
		sub {
			for my $side (grep { !defined $messages[$_] } 0 .. $count - 1)
			{
				next if !has_answered($side);
				$messages[$side] = $sessions[$side]{stderr} =~ s/^answered\n//mr;
				$sessions[$side]{stdout} = '';
				ask($sessions[$side],
					'ROLLBACK; SELECT hloom_release_session(); RESET ROLE; RESET deadlock_timeout');
			}
			return !grep { !defined $messages[$_] } 0 .. $count - 1;
		});
	return @messages;
}

# collide([first, second], ...): each side takes its first; then each wants its second, in this
# order, or all at once.  Returns the messages.
sub collide
{
	my ($at_once, @sides) = @_;
	for my $side (0 .. $#sides)
	{
		ask($sessions[$side], "BEGIN; $sides[$side][0]");
	}
	for my $side (0 .. $#sides)
	{
		begin_sql($side, $sides[$side][1]);
		wait_for_wait($side) if !$at_once && $side < $#sides;
	}
	return unwind(scalar @sides);
}

sub victims { return grep { $_[$_] ne '' } 0 .. $#_ }

# is_one_victim($what, @messages): returns which side
sub is_one_victim
{
	my ($what, @messages) = @_;
	my @victims = victims(@messages);
	is(join(' ', map { state_of($messages[$_]) } @victims), '40P01', "$what: one victim")
	  or diag(join("\n", @messages));
	$deadlocks++;
	return $victims[0];
}

# counted(): deadlocks, in all namespaces
sub counted
{
	return $node->safe_psql('postgres',
		q{SELECT coalesce(sum(value), 0) FROM hloom_metrics}
		  . q{ WHERE name = 'hostloom_lock_deadlocks'});
}

sub json_lease
{
	my ($side, $key, $by) = @_;
	return qq({"pid": $pids[$side], "waits_for": "lease", "namespace": "dl", "key": "$key",)
	  . qq( "blocked_by": $pids[$by]});
}

sub json_lock
{
	my ($side, $by) = @_;
	return qq({"pid": $pids[$side], "waits_for": "lock", "blocked_by": $pids[$by]});
}

# like_cycle($what, $message, $key, @waits): the DETAIL, and no more than that
sub like_cycle
{
	my ($what, $message, $key, @waits) = @_;
	my $cycle = '"cycle": [' . join(', ', @waits) . ']';
	like(
		$message,
		qr/^psql:<stdin>:\d+: ERROR:  40P01: deadlock detected
DETAIL:  \{"namespace": "dl", "key": "$key", "waited_ms": \d+, "attempts": 1, \Q$cycle\E\}
HINT:  Take keys and rows in one order everywhere\.\n/,
		"$what: the message");
	return;
}

# ---- leases against leases -----------------------------------------------------------------------

for my $scopes ([qw(session session)], [qw(transaction transaction)], [qw(session transaction)],
	[qw(transaction session)])
{
	my $what = join(' against ', @$scopes);
	my @messages = collide(
		0,
		[ lease('k0', $scopes->[0]), lease('k1', $scopes->[0]) ],
		[ lease('k1', $scopes->[1]), lease('k0', $scopes->[1]) ]);
	my $victim = is_one_victim($what, @messages);
	my $other = 1 - $victim;
	like_cycle(
		$what, $messages[$victim], "k$other",
		json_lease($victim, "k$other", $other),
		json_lease($other, "k$victim", $victim));
}

my @ring = map { [ lease("k$_", 'session'), lease('k' . ($_ + 1) % 4, 'transaction') ] } 0 .. 3;
is_one_victim('a ring of four', collide(0, @ring));

# ---- leases against PostgreSQL's locks -----------------------------------------------------------

for my $lock ([ 'row', row(1) ], [ 'advisory lock', advisory(1) ])
{
	my $what = "lease against $lock->[0]";
	my @messages = collide(
		0,
		[ lease('k', 'transaction'), $lock->[1] ],
		[ $lock->[1], lease('k', 'session') ]);
	is(is_one_victim("$what, lease last", @messages), 1, "$what: who waits for the lease");
	like_cycle("$what, lease last", $messages[1], 'k', json_lease(1, 'k', 0), json_lock(0, 1));

	# The one that closes the circle waits for a lock and does not know of leases.
	@messages = collide(
		0,
		[ $lock->[1], lease('k', 'session') ],
		[ lease('k', 'transaction'), $lock->[1] ]);
	is(is_one_victim("$what, lease first", @messages), 0, "$what: who waits for the lease");
	like_cycle("$what, lease first", $messages[0], 'k', json_lease(0, 'k', 1), json_lock(1, 0));
}

is_one_victim(
	'two leases and a row',
	collide(
		0,
		[ lease('k0', 'transaction'), lease('k1', 'transaction') ],
		[ lease('k1', 'session'), row(1) ],
		[ row(1), lease('k0', 'session') ]));

my @messages = collide(
	0,
	[ lease('k', 'transaction'), row(1) ],
	[ row(1), row(2) ],
	[ row(2), lease('k', 'transaction') ]);
is(is_one_victim('a lease and two rows', @messages), 2, 'the one who waits for a lease');
like_cycle('a lease and two rows', $messages[2], 'k',
	json_lease(2, 'k', 0), json_lock(0, 1), json_lock(1, 2));

# ---- one session ---------------------------------------------------------------------------------

ask($sessions[0], q{SET deadlock_timeout = '1h'});
ask($sessions[0], lease('k', 'session'));
my ($state, $message) = ask_error($sessions[0], lease('k', 'session'));
is($state, '40P01', 'against itself: at once');
like(
	$message,
	qr/"cycle": \[\Q${\json_lease(0, 'k', 0)}\E\]\}/,
	'against itself: the message');
is(ask($sessions[0], 'SELECT hloom_release_session()'), '1', 'against itself: the lease is held');
ask($sessions[0], 'RESET deadlock_timeout');
$deadlocks++;

# ---- one victim, not two -------------------------------------------------------------------------

for my $sides (2, 4)
{
	my $single = 0;
	my $rounds = rounds(10);
	for (1 .. $rounds)
	{
		my @all = collide(
			1,
			map { [ lease("k$_", 'transaction'), lease('k' . ($_ + 1) % $sides, 'session') ] }
			  0 .. $sides - 1);
		my @victims = victims(@all);
		$single++ if @victims == 1 && state_of($all[ $victims[0] ]) eq '40P01';
		diag(join("\n", @all)) if @victims != 1;
	}
	is($single, $rounds, "$sides at once: one victim each time");
	$deadlocks += $rounds;
}

# ---- who may know --------------------------------------------------------------------------------

# Only the third one looks, and it may not use what the first one waits for.
ask($sessions[$_], q{SET deadlock_timeout = '1h'}) for 0, 1;
ask($sessions[2], 'SET ROLE plain');
@messages = collide(
	0,
	[ lease('k0', 'transaction'), lease('hidden', 'session', 'secret') ],
	[ lease('hidden', 'session', 'secret'), lease('k2', 'session') ],
	[ lease('k2', 'transaction'), lease('k0', 'session') ]);
is(is_one_victim('a namespace of others', @messages), 2, 'a namespace of others: who looks');
like_cycle(
	'a namespace of others', $messages[2], 'k0',
	json_lease(2, 'k0', 0),
	qq({"pid": $pids[0], "waits_for": "lease", "blocked_by": $pids[1]}),
	json_lease(1, 'k2', 2));
unlike($messages[2], qr/secret|hidden/, 'a namespace of others: is not named');

# ---- no deadlock ---------------------------------------------------------------------------------

# A lease of scope "lease" can be given back by anybody who knows its owner.
my $bounded = q{retry => hloom_retry_interval(4, '200 ms')};
@messages = collide(
	1,
	map {
		my $other = 1 - $_;
		[
			"SELECT key FROM hloom_try_acquire('dl', 's$_', '5 s')",
			"SELECT key FROM hloom_acquire('dl', 's$other', $bounded)"
		]
	} 0 .. 1);
is(join(' ', map { state_of($_) } @messages), '55P03 55P03', 'scope lease: the policy ends it');
$node->safe_psql('postgres', 'TRUNCATE hloom_leases');

# A chain: its end is idle in a transaction.  The others look several times.
my $log = -s $node->logfile;
ask($sessions[0], 'BEGIN; ' . lease('k0', 'transaction'));
ask($sessions[$_], lease("k$_", 'session')) for 1 .. 3;
begin_sql($_, lease('k' . ($_ - 1), 'session')) for 1 .. 3;
wait_until(
	'each has waited for long',
	sub {
		my $text = slurp_file($node->logfile, $log);
		return 3 == grep { $text =~ /process $pids[$_] still waiting for lease/ } 1 .. 3;
	});
my $later = $node->safe_psql('postgres', q{SELECT clock_timestamp() + '500 ms'});
wait_for_sql($node, "SELECT clock_timestamp() > '$later'");
is(join('', map { has_answered($_) ? 1 : 0 } 1 .. 3), '000', 'a chain: all wait');
begin_sql(0, 'COMMIT');
is(join('', unwind(4)), '', 'a chain: all get what they wait for');
my $text = slurp_file($node->logfile, $log);
for my $side (1 .. 3)
{
	my $key = 'k' . ($side - 1);
	my $by = $pids[ $side - 1 ];
	my $after = qr/ lease on key "$key" of namespace "dl" after \d+\.\d{3} ms\n/;
	my @still = $text =~ /process $pids[$side] still waiting for$after/g;
	my @then = $text =~ /process $pids[$side] acquired$after/g;
	is(scalar(@still) . scalar(@then), '11', 'log_lock_waits: twice');
	like(
		$text,
		qr/ still waiting for lease on key "$key" .*\n.*DETAIL:  \{.*"holder_pid": $by, /,
		'log_lock_waits: who is in the way');
}

# At its end is a transaction that no process has.
ask($sessions[0], "BEGIN; ${\row(3)}; PREPARE TRANSACTION 'prepared'");
ask($sessions[1], lease('k1', 'session'));
$log = -s $node->logfile;
begin_sql(1, row(3));
wait_for_wait(1);
begin_sql(2, lease('k1', 'session'));
wait_until('it has looked',
	sub { slurp_file($node->logfile, $log) =~ /process $pids[2] still waiting for lease/ });
ask($sessions[0], q{COMMIT PREPARED 'prepared'});
begin_sql(0, 'SELECT 1');
is(join('', unwind(3)), '', 'a prepared transaction is waited for');

# ---- no false alarm ------------------------------------------------------------------------------

is(counted(), $deadlocks, 'deadlocks are counted, once each');

# Two keys, the lower one first, and then a row: no order of events makes a circle.  The keys are
# few, so nearly each call waits, and each wait is searched when it is a millisecond old.
my $select = q{
\set a random(1, 7)
\set b random(:a + 1, 8)
\set r random(1, 4)
};
my $take = sub {
	my ($scope) = @_;
	return join '', map { lease($_, $scope, 'load') =~ s/'([ab])'/:$1::text/r . ";\n" } 'a', 'b';
};
my $update = "UPDATE rows SET n = n + 1 WHERE id = 10 * :r;\n";
my $transaction = $node->basedir . '/transaction.sql';
append_to_file($transaction, "$select BEGIN;\n" . $take->('transaction') . "${update}COMMIT;\n");
my $session = $node->basedir . '/session.sql';
append_to_file($session,
	$select . $take->('session') . "$update SELECT hloom_release_session();\n");

my $transactions = rounds(80_000);
$log = -s $node->logfile;

# metric($namespace, $name): summed up
sub metric
{
	my ($namespace, $name) = @_;
	return $node->safe_psql('postgres',
		    "SELECT coalesce(sum(value), 0) FROM hloom_metrics WHERE namespace = '$namespace'"
		  . " AND name = 'hostloom_lock_$name'");
}

my ($out, $err) = ('', '');
my $load;
{
	local $ENV{PGOPTIONS} = '-c deadlock_timeout=1ms -c log_min_error_statement=panic';
	$load = IPC::Run::start(
		[
			$node->installed_command('pgbench'), '-n', '-c', '24', '-j', '2',
			'-t', int($transactions / 24) + 1, '-f', $transaction, '-f', $session,
			$node->connstr('postgres')
		],
		'>', \$out, '2>', \$err, IPC::Run::timeout(600));
}
wait_until('the load waits', sub { metric('load', 'waits') > 100 });

# In the middle of all that, one that is none of it.
is_one_victim(
	'under load',
	collide(
		1,
		[ lease('k0', 'transaction'), lease('k1', 'transaction') ],
		[ lease('k1', 'session'), row(1) ],
		[ row(1), lease('k0', 'session') ]));
$load->finish;
is($load->result(0) . $err, '0', '24 clients') or diag($out);

my $waits = metric('load', 'waits');
$text = slurp_file($node->logfile, $log);
my $searched = () = $text =~ /still waiting for lease on key "\d" of namespace "load"/g;
cmp_ok($waits, '>=', $transactions / 2, "$waits waits");
cmp_ok($searched, '>=', $waits / 10, "of these, $searched were searched");
is(scalar(grep { /ERROR:  / } split /\n/, $text), 1, 'no other error');
is(metric('load', 'deadlocks'), '0', 'no deadlock');
is(counted(), $deadlocks, 'but for that one');

$node->stop;
done_testing();
