# Many losses, and a worker that lives long: each loss is counted, and the worker's memory does not
# grow with the number of losses, nor with the number of its turns.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomLoss;
use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = make_loss_node('scale', settings => { 'hloom_lock.reap_interval' => '100ms' });
my $log = follow($node);
my $holder = session($node, 'holder');

# worker(): process and turns of the worker
sub worker
{
	my ($pid, $turns) =
	  ask($holder, $WORKER_STATE) =~ /^running: process (\d+), (\d+) turns/;
	return ($pid, $turns);
}

# memory(): bytes the worker has allocated, from its own report
sub memory
{
	my ($pid) = worker();
	my $from = -s $node->logfile;
	ask($holder, "SELECT pg_log_backend_memory_contexts($pid)");
	my $bytes;
	wait_until(
		'the worker tells of its memory',
		sub {
			($bytes) = slurp_file($node->logfile, $from) =~
			  /\[$pid\].*LOG:  Grand total: (\d+) bytes/;
			return $bytes;
		});
	return $bytes;
}

# ---- many losses at a time ---------------------------------------------------------------------

# The first ones make it allocate what it keeps.
lose($node, 'first', q{'k' || i}, 500);
settle($log);
my $before = memory();
my $MANY = rounds(20000);
is( ask($holder,
		"SELECT count(*) FROM generate_series(1, $MANY) AS i,"
		  . q{ hloom_try_acquire('many', 'k' || i, '1 s')}),
	$MANY,
	'many leases');
wait_until('all are counted', sub { counted($node, 'many') >= $MANY });
settle($log);
is(counted($node, 'many'), $MANY, 'each loss is counted once');
my %keys = map { $_->{key} => 1 } my @logged = logged($log, 'many');
my $dropped = 0;
my $text = slurp_file($node->logfile, $log->{from});
$dropped += $1 while $text =~ /LockLeaseLost: (\d+) losses were counted but are not told/g;
is(scalar(keys %keys), scalar(@logged), 'none is logged twice');
is(@logged + $dropped, $MANY, 'each is logged, or told of as a number');
note("$dropped of $MANY were not logged one by one");
my $after = memory();
note("memory of the worker: $before bytes, then $after");
cmp_ok($after - $before, '<', 1024 * 1024, 'the worker has kept nothing of them');
is(ask($holder, 'SELECT hloom_reap()'), 0, 'nothing is left');
my $shown = $MANY < 5000 ? $MANY : 5000;
is( ask($holder, qq{SELECT count(*) >= $shown, count(*) < $shown + 4000,
	count(*) = count(DISTINCT (key, fence)) FROM hloom_losses}),
	't|t|t', 'as many as there is room for are shown, none twice');
is(ask($holder, 'SELECT namespace FROM hloom_losses ORDER BY noticed_at DESC LIMIT 1'),
	ask($holder, q{SELECT namespace FROM hloom_metrics WHERE name = 'hostloom_lock_lost'
		AND namespace LIKE 'marker%' ORDER BY length(namespace) DESC, namespace DESC LIMIT 1}),
	'the latest one, too');

# ---- many turns --------------------------------------------------------------------------------

# end_one_by_one($turns): until the worker has taken so many more turns; how many leases that took
my $taken = 0;

sub end_one_by_one
{
	my ($turns) = @_;
	my ($pid, $start) = worker();
	wait_until(
		"$turns turns",
		sub {
			# The server hears of the leases, and the worker of their ends, one after another.
			ask($holder, <<'SQL');
DO $$ BEGIN
	FOR i IN 1 .. 200 LOOP
		PERFORM hloom_extend(h, '1 ms') FROM hloom_try_acquire('turns', 'k' || i) AS h;
		PERFORM pg_sleep(0.001);
	END LOOP;
END $$
SQL
			$taken += 200;
			return (worker())[1] - $start >= $turns;
		});
	is((worker())[0], $pid, 'the same worker');
	return;
}

$node->append_conf('postgresql.conf', settings('hloom_lock.reap_interval' => '1ms'));
$node->reload;
end_one_by_one(100);
settle($log);
$before = memory();
my (undef, $turns) = worker();
end_one_by_one(rounds(2000));
settle($log);
$after = memory();
(undef, my $then) = worker();
$turns = $then - $turns;
note("$turns turns for $taken leases; memory of the worker: $before bytes, then $after");
cmp_ok(abs($after - $before), '<=', 64 * 1024, "memory is the same after $turns turns");
is(counted($node, 'turns'), $taken, 'each loss is counted once');
is(scalar(logged($log, 'turns')), $taken, 'and logged once');
is(join("\n", error_lines($node, $log->{from})), '', 'no errors');

$holder->quit;
$node->stop;
done_testing();
