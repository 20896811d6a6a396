# Losses are counted, reported where that is possible, and disturb nobody, whatever is in the way: a
# listener that does not read, notifications that cannot be sent or wait for somebody else's commit,
# more losses than are kept until they are told, no background worker, a damaged page.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomLoss;
use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

# A key of 512 characters; i is its number
my $LONG = q{lpad(i::text, 512, 'x')};
my $EVENT = 'LockCancellationCallbackFailed';
my $NOT_TOLD = qr/WARNING:  $EVENT: could not notify of lost leases: (.*)
.*DETAIL:  \{"event": "$EVENT", "id": 3107, "channel": "hloom_lost", .*\}\n/;
my $node = make_loss_node(
	'trouble',
	init => { allows_streaming => 1, no_data_checksums => 1 },
	settings => {
		'hloom_lock.reap_interval' => '100ms',
		# All that the launcher leaves is for one worker of ours.
		'max_worker_processes' => 2,
		'max_logical_replication_workers' => 0,
		'max_parallel_workers_per_gather' => 0,
		'max_slot_wal_keep_size' => '1GB' });
# A small queue, of 512 kB
$node->append_conf('postgresql.conf', settings('max_notify_queue_pages' => 64))
  if $node->pg_version >= 17;
$node->restart;
my $holder = session($node, 'holder');

# locks($what): whether leases are taken and given back
sub locks
{
	my ($what) = @_;
	is( ask($holder,
			'SELECT count(*) FROM generate_series(1, 50) AS i,'
			  . q{ hloom_try_acquire('locks', 'k' || i) AS h WHERE hloom_release(h)}),
		50,
		"$what: leases are taken and given back");
	return;
}

# are_reported($what, $log, $namespace, $count): logged and counted, each once
sub are_reported
{
	my ($what, $log, $namespace, $count) = @_;
	wait_for_logged($log, $namespace, $count);
	settle($log);
	my %keys = map { $_->{key} => 1 } my @logged = logged($log, $namespace);
	is(scalar(@logged) . ' ' . scalar(keys %keys), "$count $count", "$what: each loss is logged");
	is(counted($node, $namespace), $count, "$what: and counted");
	return;
}

# complaints($log): why it was said that losses could not be told
sub complaints
{
	my ($log) = @_;
	my @complaints = slurp_file($node->logfile, $log->{from}) =~ /$NOT_TOLD/g;
	return @complaints;
}

# ---- a listener that does not read -------------------------------------------------------------

my $log = follow($node);
my $stopped = listener($node);
my $open = listener($node);
my $listener = listener($node);
listener_asks($open, 'BEGIN; SELECT 1');
$stopped->{session}{run}->signal('STOP');
# More than a socket takes, and less than the queue below.
my $MANY = 600;
lose($node, 'deaf', $LONG, $MANY);
locks('a listener does not read');
are_reported('a listener does not read', $log, 'deaf', $MANY);
is(scalar(wait_for_heard($listener, 'deaf', $MANY)), $MANY, 'who reads hears all');
is(scalar(heard($open)), 0, 'in a transaction nothing is heard');
listener_asks($open, 'COMMIT');
is(scalar(wait_for_heard($open, 'deaf', $MANY)), $MANY, 'but after it');
$stopped->{session}{run}->signal('CONT');
is(scalar(wait_for_heard($stopped, 'deaf', $MANY)), $MANY, 'who reads late hears all');
is(scalar(complaints($log)), 0, 'nothing to complain of');
$stopped->{session}->quit;

# ---- notifications fail ------------------------------------------------------------------------

# fails($what, $namespace, $cause): losses that cannot be told, twice
$MANY = 1000;

sub fails
{
	my ($what, $namespace, $cause) = @_;
	for my $round (1, 2)
	{
		lose($node, "$namespace-$round", $LONG, $MANY);
		locks($what);
		are_reported($what, $log, "$namespace-$round", $MANY);
	}
	my @complaints = complaints($log);
	is(scalar(@complaints), 1, "$what: said once a minute");
	like($complaints[0] || '', $cause, "$what: why");
	return;
}

# new_worker(): one that has complained of nothing yet
sub new_worker
{
	$node->safe_psql('postgres',
		q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity}
		  . q{ WHERE backend_type = 'hloom_lock worker'});
	$log = follow($node);
	settle($log, $listener);
	return;
}

# No file can be made: pages that do not fit into memory cannot be written.  Somebody keeps the
# server from removing old ones, which it cannot do now and would not survive.
listener_asks($open, 'BEGIN; SELECT 1');
my $queue = $node->data_dir . '/pg_notify';
rename $queue, "$queue.away" or die "cannot rename $queue: $!";
mkdir $queue, 0500 or die "cannot make $queue: $!";
fails('NOTIFY fails', 'unwritten', qr/^could not access status of transaction/);
rmdir $queue or die "cannot remove $queue: $!";
rename "$queue.away", $queue or die "cannot rename $queue.away: $!";
listener_asks($open, 'COMMIT');
lose($node, 'heals', $LONG, 20);
is(scalar(wait_for_heard($listener, 'heals', 20)), 20, 'then losses are told again');

# The queue is full: somebody listens in a transaction that does not end.
SKIP:
{
	skip 'the queue of notifications has 8 GB before PostgreSQL 17', 9 if $node->pg_version < 17;
	new_worker();
	listener_asks($open, 'BEGIN; SELECT 1');
	fails('the queue is full', 'full', qr/^too many notifications in the NOTIFY queue/);
	listener_asks($open, 'COMMIT');
	lose($node, 'emptied', $LONG, 20);
	is(scalar(wait_for_heard($listener, 'emptied', 20)), 20, 'then losses are told again');
}
$open->{session}->quit;

# ---- another's commit is in the way of every notification ---------------------------------------

# A transaction that writes and notifies waits for a synchronous standby that never comes.  Nobody
# else does.
$node->safe_psql('postgres', q{ALTER DATABASE postgres SET synchronous_commit = 'local'});
ask($holder, q{SET synchronous_commit = 'local'});
new_worker();
$node->append_conf('postgresql.conf', settings('synchronous_standby_names' => 'nobody'));
$node->reload;
my $stuck;
wait_until(
	'a commit waits for the standby',
	sub {
		finish_sql($stuck) if $stuck;
		$stuck = start_sql(
			$node, q{SET synchronous_commit = on; BEGIN; NOTIFY other;}
			  . q{ SELECT pg_logical_emit_message(true, '', ''); COMMIT;}, 'stuck');
		my $event = wait_until(
			'it ends or waits',
			sub {
				$stuck->{handle}->pump_nb;
				return 'ended' if !$stuck->{handle}->pumpable;
				return $node->safe_psql('postgres', 'SELECT wait_event FROM pg_stat_activity'
					  . q{ WHERE application_name = 'stuck' AND wait_event = 'SyncRep'});
			});
		return $event eq 'SyncRep';
	});
for my $round (1 .. 2)
{
	lose($node, "stuck-$round", q{'k' || i}, 5);
	are_reported("NOTIFY waits $round", $log, "stuck-$round", 5);
	locks("NOTIFY waits $round");
}
like((complaints($log))[0] || '', qr/lock timeout/, 'NOTIFY waits: it is given up');
is(scalar(complaints($log)), 1, 'and said once');
$node->append_conf('postgresql.conf', settings('synchronous_standby_names' => ''));
$node->reload;
finish_sql($stuck);
wait_until(
	'losses are told again',
	sub {
		settle($log);
		return grep { $_->{namespace} =~ /^marker/ } heard($listener);
	});
pass('NOTIFY waits no more: losses are told again');
$listener->{session}->quit;

# ---- no worker for a while ---------------------------------------------------------------------

# Another database has the only one.
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION hloom_lock');
$holder->quit;
$node->restart;
my $other = session($node, 'other', 'other');
my $its_worker = q{SELECT worker ~ '^running' FROM hloom_health() WHERE provider = 'table'};
ask($other, take('other', 'k'));
wait_until('the other database has a worker', sub { ask($other, $its_worker) eq 't' });
$holder = session($node, 'holder');
$log = follow($node);
$listener = listener($node);
my $MORE = rounds(3000);
lose($node, 'more', $LONG, $MORE);
my $began = time;
wait_until(
	'all are gone',
	sub {
		ask($holder, 'SELECT hloom_reap()');
		return counted($node, 'more') >= $MORE;
	});
cmp_ok(time - $began, '<', 30, 'no worker: hloom_reap waits for none');
is(counted($node, 'more'), $MORE, 'all are counted');
locks('no worker');
wait_until('it is seen that there is no worker',
	sub { ask($holder, $WORKER_STATE) =~ /^missing: no background worker/ });
is(scalar(logged($log)), 0, 'nothing is reported');
is(ask($other, $its_worker), 't', 'the other database still has its worker');
$other->quit;
settle($log, $listener);
my @logged = logged($log, 'more');
my %keys = map { $_->{key} => 1 } @logged;
my $report = slurp_file($node->logfile, $log->{from});
my $dropped = 0;
$dropped += $1
  while $report =~ /WARNING:  LockLeaseLost: (\d+) losses were counted but are not told/g;
is(scalar(keys %keys), scalar(@logged), 'then a worker comes, and none is logged twice');
is(@logged + $dropped, $MORE, 'all are logged, or told of as a number');
cmp_ok($dropped, '>', 0, 'more than are kept');
cmp_ok(scalar(@logged), '>', 400, 'many are kept');
is(scalar(heard($listener, 'more')), scalar(@logged), 'those are told, too');
is(counted($node, 'more'), $MORE, 'and all are counted as before');
my @shortage = $report =~ /could not start a hloom_lock worker/g;
is(scalar(@shortage), 1, 'that there was no worker is said once');
$_->quit for $holder, $listener->{session};

# ---- no worker at all --------------------------------------------------------------------------

$node->append_conf('postgresql.conf', settings('max_worker_processes' => 1));
$node->restart;
$log = follow($node);
$holder = session($node, 'holder');
lose($node, 'few', q{'k' || i}, 5);
wait_for_sql($node, q{SELECT count(*) = 0 FROM hloom_leases WHERE namespace = 'few'});
is(counted($node, 'few'), 0, 'no worker at all: the table is not searched');
lose($node, 'never', $LONG, $MORE);
wait_for_sql($node, q{SELECT count(*) = 0 FROM hloom_leases WHERE namespace = 'never'});
# Some had to make room for others.
my $gone = counted($node, 'few') + counted($node, 'never');
$began = time;
is(ask($holder, 'SELECT hloom_reap()') + $gone, 5 + $MORE, 'hloom_reap removes all');
cmp_ok(time - $began, '<', 30, 'and waits for nobody');
is(counted($node, 'never'), $MORE, 'all are counted');
is(ask($holder, 'SELECT hloom_reap()'), 0, 'once');
locks('no worker at all');
is(scalar(logged($log)), 0, 'nothing is reported');
is(join("\n", error_lines($node, $log->{from})), '', 'no errors');
$holder->quit;

# ---- a damaged page ----------------------------------------------------------------------------

$node->append_conf('postgresql.conf', settings('max_worker_processes' => 8));
my $BLOCK = 40;
my $file = $node->data_dir . '/'
  . $node->safe_psql('postgres',
	q{TRUNCATE hloom_leases; SELECT pg_relation_filepath('hloom_leases')});
$node->stop;
open(my $fh, '+<:raw', $file) or die "cannot open $file: $!";
seek($fh, $BLOCK * 8192, 0) && print {$fh} "\xFF" x 8192 or die "cannot write $file: $!";
close($fh) or die "cannot write $file: $!";
$node->start;
$log = follow($node);

# Whether leases are to be had of the keys k1 to k300; they end soon
my $taken = $node->safe_psql('postgres', <<'SQL');
CREATE TABLE taken (key text);
DO $$ BEGIN
	FOR i IN 1 .. 300 LOOP
		BEGIN
			PERFORM hloom_extend(h, '1 ms') FROM hloom_try_acquire('damage', 'k' || i) AS h;
			INSERT INTO taken VALUES ('k' || i);
		EXCEPTION WHEN data_corrupted THEN NULL;
		END;
	END LOOP;
END $$;
SELECT count(*) FROM taken
SQL
cmp_ok($taken, '>', 200, 'a damaged page: most keys are not concerned');
cmp_ok($taken, '<', 300, 'others are');
$listener = listener($node);
$began = time;
is(scalar(wait_for_logged($log, 'damage', $taken)), $taken, 'all that end are reported');
# Each of these needs a pass over the table, which come at longer and longer intervals.
for my $round (1 .. 3)
{
	lose($node, "damage-$round", q{'k' || (SELECT min(substr(key, 2)::int) FROM taken)});
	is(scalar(wait_for_logged($log, "damage-$round", 1)), 1, "round $round is reported");
}
my $seconds = time - $began + 1;
my @errors = grep { !/due to administrator command/ } error_lines($node, $log->{from});
is(join("\n", grep { !/block $BLOCK/ } @errors), '', 'the errors name the block');
cmp_ok(scalar(@errors), '>', 0, 'it is logged');
my $most = 3 + log($seconds) / log(2);
cmp_ok(scalar(@errors), '<=', $most, "but not often: in $seconds seconds");
is(counted($node, 'damage'), $taken, 'all are counted, once');

$listener->{session}->quit;
$node->stop;
done_testing();
