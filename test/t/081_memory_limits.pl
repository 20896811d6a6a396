# Provider "memory" at its limits: where there is no room, whoever makes some takes only what has
# ended, in all databases, and loses and leaves nothing; a cancel, at whatever moment, leaves no
# lease that no client knows.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomLoad;
use HloomTest;
use HloomWait;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

my $CAPACITY = 100;
my $VICTIMS = 3;
my $STATEMENTS = 500;	# of each victim in one go

my $node = make_node(
	'limits',
	settings => {
		'hloom_lock.provider' => 'memory',
		'hloom_lock.memory_leases' => $CAPACITY,
		'max_connections' => 60
	});

# ---- no room -----------------------------------------------------------------------------------

# Clients of two databases take more short leases than there is room for beside those that are kept,
# and give back a few.  One that was late, LL003, was given back in time or lost.
my @databases = ('postgres', 'second');
$node->safe_psql('postgres', 'CREATE DATABASE second');
$node->safe_psql('second', 'CREATE EXTENSION hloom_lock');
for my $database (@databases)
{
	$node->safe_psql(
		$database, q{
-- taken: what a refusal tells of
CREATE UNLOGGED TABLE outcomes (outcome text, held bigint, taken int);
CREATE FUNCTION take() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	handle hloom_handle;
	outcome text;
	detail text;
	held bigint;
BEGIN
	BEGIN
		SELECT * INTO handle FROM hloom_try_acquire('room', floor(random() * 400)::text,
			random() * interval '40 ms' + interval '2 ms');
		outcome := CASE WHEN NOT FOUND THEN 'busy' ELSE 'left' END;
	EXCEPTION
		WHEN configuration_limit_exceeded THEN
			GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
			outcome := 'full';
		WHEN SQLSTATE 'LL003' THEN
			outcome := 'late';
	END;
	IF random() < 0.1 THEN
		held := (SELECT count(*) FROM hloom_locks);
	END IF;
	IF outcome = 'left' AND random() < 0.3 THEN
		outcome := CASE WHEN hloom_release(handle) THEN 'released' ELSE 'lost' END;
	END IF;
	INSERT INTO outcomes VALUES (outcome, held, substring(detail FROM '\d+')::int);
END $$});
}
my $kept = 0.9 * $CAPACITY;
$node->safe_psql('postgres', "SELECT count(*) FROM generate_series(1, $kept) AS i,"
	  . " hloom_acquire('kept', i::text, owner => md5(i::text)::uuid)");
my @loads =
  map { start_load($node, $_, 16, "SELECT take();\n", '-t', rounds(200)) } @databases;
end_load($loads[$_], "no error but 53400 in database $databases[$_]") for 0 .. $#loads;

my %sum;
my ($most, $early) = (0, 0);
for my $database (@databases)
{
	my $outcomes = $node->safe_psql($database, 'SELECT outcome, count(*) FROM outcomes GROUP BY 1');
	$sum{$1} += $2 while $outcomes =~ /^(\w+)\|(\d+)$/mg;
	my $held = $node->safe_psql($database, 'SELECT max(held) FROM outcomes');
	$most = $held if $held > $most;
	$early += $node->safe_psql($database,
		"SELECT count(*) FROM outcomes WHERE taken < $CAPACITY");
}
note(join ', ', map { "$_: $sum{$_}" } sort keys %sum);
cmp_ok($sum{full}, '>', 0, "$sum{full} were refused for want of room");
cmp_ok($early, '<=', 0.001 * $sum{full},
	"$early of them though others had just made room");
cmp_ok($sum{left}, '>', 2 * $CAPACITY, "$sum{left} leases were left to end");

# The view looks at one partition after the other.
cmp_ok($most, '<=', 1.1 * $CAPACITY, "at most $most were seen held in one database");
is( $node->safe_psql('postgres', 'SELECT count(*) FILTER (WHERE hloom_release('
		  . "'kept', i::text, md5(i::text)::uuid)) FROM generate_series(1, $kept) AS i"),
	$kept,
	'those that are kept are held until they are given back');
is_empty_memory($node, 'no room');

# Each that was not given back in time is counted once, whoever removed it.
for my $database (@databases)
{
	is( $node->safe_psql(
			$database, q{SELECT value BETWEEN count(*) FILTER (WHERE outcome IN ('left', 'lost'))
	AND count(*) FILTER (WHERE outcome IN ('left', 'lost', 'late'))
FROM outcomes, (SELECT sum(value) AS value FROM hloom_metrics
	WHERE name = 'hostloom_lock_lost') AS m GROUP BY value}),
		't',
		"database $database: what ended is counted");
}

# Whoever makes room in another database wakes nobody here, where the key of that name is held.
my ($holder, $other) = map { session($node, $_) } qw(holder other);
my $owner = (split /\|/, ask($holder, take('room', 'k')))[0];
my $waiter = start_waiter($node, $other, 'waiter',
	"SELECT fence > 0 FROM hloom_acquire('room', 'k', " . sleeper() . ')');
my $wakeups = metric($other, 'wakeups');
for my $round (1 .. rounds(3))
{
	$node->safe_psql('second', take('room', 'k', q{lease => '200 ms'}));
	wait_until('it ends',
		sub { $node->safe_psql('second', 'SELECT count(*) FROM hloom_locks') eq '0' });
	ask_error($other, "SELECT count(*) FROM generate_series(1, 2 * $CAPACITY) AS i,"
		  . " hloom_try_acquire('fill', '$round-' || i, '1 s')");
}
is(metric($other, 'wakeups'), $wakeups, 'room made in another database wakes nobody here');
ask($holder, "SELECT hloom_release('room', 'k', '$owner')");
is((end_waiter($waiter))[0], 't', 'until the key is free');
$_->quit for $holder, $other;
$node->stop;

# ---- cancelled at random moments ---------------------------------------------------------------

# As 051_cancels.pl: three victims take keys, one session cancels whoever does, and stays away at
# the end of their scripts, which wait for advisory locks: 1 until the canceller is done, 2 until
# the leases have been looked at.
$node = make_node(
	'cancels',
	settings => { 'hloom_lock.provider' => 'memory' });
my ($gate, $canceller) = map { session($node, $_) } qw(gate canceller);
create_canceller($node, $VICTIMS);

# All victims ask for the common key, and wait for it a little.
my @kinds = (
	q{hloom_try_acquire('cancel', '%s')},
	q{hloom_acquire('cancel', '%s', '5 min')},
	q{hloom_acquire('cancel', '%s', scope => 'session')},
	q{hloom_try_acquire('cancel', '%2$s', max_wait => '2 ms', }
	  . q{retry => hloom_retry_interval(10, '1 ms'))});

# start_victim($name, $rows, $errors): its rows, key and fence, go to a file
sub start_victim
{
	my ($go, $victim) = @_;
	my $file = $node->basedir . "/victim-$go-$victim";
	my $sql = "\\o $file.rows\n";
	for my $i (1 .. $STATEMENTS)
	{
		my $work = $i % 2 ? '' : ", repeat('', length(pg_sleep(0.001)::text))";
		$sql .= "SELECT key, fence$work FROM "
		  . sprintf($kinds[ rand @kinds ], "$go-$victim-$i", "$go-$i") . ";\n";
	}

	# One cancel may still be under way to the first.
	$sql .= "\\o /dev/null\n" . "SELECT pg_advisory_lock_shared(1);\n" x 2;
	append_to_file("$file.sql", $sql . "SELECT pg_advisory_lock_shared(2);\n");
	local $ENV{PGAPPNAME} = "victim-$victim";
	my @command = (
		$node->installed_command('psql'), '-XAtq', '-d', $node->connstr('postgres'),
		'-v', 'VERBOSITY=verbose', '-f', "$file.sql");
	my $handle = IPC::Run::start(
		\@command, '<', '/dev/null', '>', '/dev/null', '2>', "$file.err",
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return { handle => $handle, file => $file };
}

# leases(): key|fence of those held
sub leases { return sort split /\n/, ask($gate, 'SELECT key, fence FROM hloom_locks'); }

my $WANTED = rounds(400);
my ($cancelled, $received, $go) = (0, 0, 0);
my %others;
while ($cancelled < $WANTED && $go++ < $WANTED)
{
	ask($gate, 'SELECT pg_advisory_lock(1), pg_advisory_lock(2)');
	my @victims = map { start_victim($go, $_) } 1 .. $VICTIMS;
	ask($canceller, 'CALL cancel_at_random()');
	ask($gate, 'SELECT pg_advisory_unlock(1)');
	wait_for_victims($node, $VICTIMS, 2);

	my @known = sort map { s/\|$//r } map { split /\n/, slurp_file("$_->{file}.rows") } @victims;
	$received += @known;
	my @held = leases();
	is("@held", "@known", "go $go: held are the leases whose rows the clients received");

	ask($gate, 'SELECT pg_advisory_unlock(2)');
	$_->{handle}->finish for @victims;
	my $errors = join '', map { slurp_file("$_->{file}.err") } @victims;
	for my $state ($errors =~ /(?:ERROR|FATAL|PANIC):  (\w{5}):/g)
	{
		if ($state eq '57014') { $cancelled++; }
		else { $others{$state}++; }
	}
	ask($gate, q{SELECT hloom_force_release('cancel', key, 'test') FROM hloom_locks
		WHERE freed_by NOT LIKE '%backend%'});
}
cmp_ok($cancelled, '>=', $WANTED, "$cancelled statements were cancelled");
is(join(' ', %others), '', 'there was no other error');

# outcome($name, $outcome): of the metric, so far
sub outcome
{
	my ($name, $outcome) = @_;
	return ask($gate, 'SELECT coalesce(sum(value), 0)::bigint FROM hloom_metrics'
		  . " WHERE name = 'hostloom_lock_$name' AND outcome = '$outcome'");
}
my $acquired = outcome('acquire_duration_seconds_count', 'acquired');
my ($released, $absent, $failed) =
  map { outcome('orphan_releases', $_) } qw(released absent failed);
my $after = $released + $absent;
is_empty_memory($node, 'cancelled');
is($failed, 0, 'no orphan is counted as failed');
cmp_ok($after, '>', 0, "cancelled after the grant: $after");
cmp_ok($cancelled - $after, '>', 0, 'and others before it');

$_->quit for $gate, $canceller;
$node->stop;
done_testing();
