# While a guarded transaction commits nobody gets its key, however long that takes: the commits here
# wait for a synchronous standby that is not there, until it is not asked for any more.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomTest;
use Test::More;

my $me = '11111111-1111-4111-8111-111111111111';
my $them = '22222222-2222-4222-8222-222222222222';

my $node = make_node(
	'guard',
	init => { allows_streaming => 1 },
	settings => { synchronous_commit => 'local', 'hloom_lock.max_tracked_leases' => 100 });
$node->safe_psql('postgres', 'CREATE DATABASE second');
$node->safe_psql('second', 'CREATE EXTENSION hloom_lock');
$node->safe_psql('postgres', 'CREATE TABLE work (who text)');
my $other = session($node, 'other');
my $state;

sub commits_wait { return set_standby('absent'); }
sub commits_go_on { return set_standby(''); }

sub set_standby
{
	my ($name) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET synchronous_standby_names = '$name'");
	$node->reload;
	wait_for_sql($node, 'SHOW synchronous_standby_names', $name);
	return;
}

sub fresh
{
	commits_go_on();
	$node->safe_psql('postgres', 'TRUNCATE hloom_leases, work');
	commits_wait();
	return;
}

# commit($application, $begin): a transaction that depends on a lease, in its COMMIT
sub commit
{
	my ($application, $begin) = @_;
	my $run = start_sql(
		$node, "BEGIN;\n$begin;\nINSERT INTO work VALUES ('$application');\n"
		  . "SET LOCAL synchronous_commit = on;\nCOMMIT;\n", $application);
	wait_for_event($node, $application, 'SyncRep');
	return $run;
}

sub guard { return "SELECT hloom_guard('guard', 'k', '$me')"; }

sub lease
{
	my ($owner, $rest) = @_;
	return "SELECT count(*) FROM hloom_try_acquire('guard', 'k', $rest, owner => '$owner')";
}

# is_free(): whether another owner gets it
sub is_free
{
	my $take = "hloom_try_acquire('guard', 'k', owner => '$them')";
	return ask($other, "SELECT hloom_release(l) FROM $take AS l") eq 't';
}

my $held = "hloom_is_held('guard', 'k', '$me')";
my $extend = "hloom_extend('guard', 'k', '$me', '1 min')";
my $release = "hloom_release('guard', 'k', '$me')";
my $lost = q{SELECT coalesce(sum(value), 0) FROM hloom_metrics
	WHERE namespace = 'guard' AND name = 'hostloom_lock_lost'};

# The lease ends while the transaction commits.
fresh();
ask($other, lease($me, "'3 s'"));
my $run = commit('committer', guard());
wait_for_sql($node, "SELECT NOT $held");
is(ask($other, lease($them, "'1 min'")), 0, 'expired, in a commit: not granted to another owner');
is(ask($other, lease($me, "'1 min'")), 0, 'nor to its own');
is(ask($other, "SELECT $held, $extend, $release"), 'f|f|f', 'its owner does not hold it any more');
($state, my $message) = ask_error($other, "SELECT hloom_force_release('guard', 'k', 'test')");
my $pid = $node->safe_psql('postgres',
	q{SELECT pid FROM pg_stat_activity WHERE application_name = 'committer'});
is($state, '55006', 'it cannot be taken away');
like($message, qr/Process $pid is committing/, 'which names who commits');
is(ask($other, "SELECT state, remaining, freed_by, holder_pid FROM hloom_locks WHERE key = 'k'"),
	"committing|00:00:00|commit|$pid", 'hloom_locks shows why, and who commits');
ask($other, "SET lock_timeout = '100 ms'");
for my $command (
	'TRUNCATE hloom_leases',
	'VACUUM FULL hloom_leases',
	'DROP EXTENSION hloom_lock')
{
	is((ask_error($other, $command))[0], '55P03', "$command waits");
}
ask($other, 'RESET lock_timeout');
# What tidies up leaves it alone: VACUUM, reaping, and what makes room for others.
ask($other, 'VACUUM hloom_leases');
ask($other, 'SELECT hloom_reap()');
ask($other, "SELECT count(*) FROM generate_series(1, 5000) AS i, "
	  . "hloom_try_acquire('guard', 'other:' || i, '1 s')");
ask($other, 'VACUUM hloom_leases');
ask($other, "SELECT count(*) FROM generate_series(1, 5000) AS i, "
	  . "hloom_try_acquire('guard', 'third:' || i, '10 min')");
ok(!is_free(), 'VACUUM and the growth of the table leave it alone');
my $waiter = start_sql($node,
	"SELECT count(*) FROM hloom_acquire('guard', 'k', max_wait => '60 s',"
	  . " retry => hloom_retry_interval(1000000, '1 ms'));\n"
	  . 'SELECT count(*) FROM work;', 'waiter');
wait_for_event($node, 'waiter', 'Extension');
commits_go_on();
my ($out, $err, $rc) = finish_sql($run);
is($rc, 0, 'the commit succeeds') or diag($err);
($out, $err, $rc) = finish_sql($waiter);
is($out, "1\n1", 'who waits gets the key then, and sees what was written') or diag($err);

# A lease that its transaction gives back is not lost, however long the commit takes; one that
# nobody gives back is, after that.
for my $case (
	[ 'of the transaction', 0, "scope => 'transaction', on_lost => 'cancel'" ],
	[ 'guarded', 1, "scope => 'lease'" ])
{
	my ($name, $losses, $options) = @$case;
	fresh();
	ask($other, 'SELECT hloom_reap()');
	my $before = ask($other, $lost);
	$run = commit('committer',
		lease($me, "'2 s', $options") . ($losses ? ";\n" . guard() : ''));
	wait_for_sql($node, "SELECT NOT $held");
	ask($other, 'SELECT hloom_reap()');
	ok(!is_free(), "$name: reaping leaves it alone");
	is(ask($other, $lost), $before, "$name: it is not lost while the transaction commits");
	commits_go_on();
	finish_sql($run);
	ok(is_free(), "$name: the outcome frees it");
	ask($other, 'SELECT hloom_reap()');
	is(ask($other, $lost) - $before, $losses, "$name: $losses are lost");
}

# Given back by its owner meanwhile.
fresh();
ask($other, lease($me, "'10 min'"));
$run = commit('committer', guard());
is(ask($other, "SELECT $release, $release, $held, $extend"), 't|f|f|f',
	'the owner gives it back while the transaction commits');
ok(!is_free(), 'that takes effect with the outcome');
is(ask($other, lease($me, "'1 min'")), 0, 'for its owner, too');
commits_go_on();
finish_sql($run);
# Who needs its room in shared memory, in another database, does not bring it back.
my $second = session($node, 'second', 'second');
for my $n (1 .. 2)
{
	my ($full) = ask_error($second, "SELECT count(*) FROM generate_series(1, 200) AS i,"
		  . " hloom_try_acquire('guard', 'room-$n:' || i, scope => 'session')");
	is($full, '53400', 'another database uses all the room');
}
$second->quit;
ok(is_free(), 'then the key is free');

# The session it follows ends meanwhile.
fresh();
my $session = session($node, 'session');
ask($session, lease($me, "'10 min', scope => 'session'"));
$run = commit('committer', guard());
($state) = ask_error($session, lease($me, "'1 min', scope => 'session', max_wait => '300 ms',"
	  . " retry => hloom_retry_interval(3, '50 ms')") =~ s/try_acquire/acquire/r);
is($state, '55P03', 'it is not renewed, and its session does not wait for itself');
$session->quit;
wait_for_sql($node,
	"SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name = 'session'");
ok(!is_free(), 'the end of its session takes effect with the outcome');
commits_go_on();
finish_sql($run);
ok(is_free(), 'then the key is free');

# Two transactions depend on it; the wait of one is cut short, by a cancel or by termination, which
# its commit survives.
for my $cut ('pg_cancel_backend', 'pg_terminate_backend')
{
	fresh();
	ask($other, lease($me, "'10 min'"));
	my @runs = map { commit("committer-$_", guard()) } 1 .. 2;
	ask($other, "SELECT $release");
	$node->safe_psql('postgres',
		"SELECT $cut(pid) FROM pg_stat_activity WHERE application_name = 'committer-1'");
	($out, $err, $rc) = finish_sql($runs[0]);
	like($err, qr/wait for synchronous replication/, "$cut: the wait is cut short");
	ok(!is_free(), 'another commit still depends on the lease');
	commits_go_on();
	finish_sql($runs[1]);
	ok(is_free(), 'free with the last outcome');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM work'), 2, 'both have committed');
}

# A lease that follows the transaction ends with it, expired or not, and its loss never cuts the
# wait of a commit short.
for my $lease ('3 s', '10 min')
{
	fresh();
	$run = commit('committer', lease($me, "'$lease', scope => 'transaction', on_lost => 'cancel'"));
	wait_for_sql($node, "SELECT NOT $held") if $lease eq '3 s';
	# The watching of the lease looks once a second at least.
	my $start = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
	wait_for_sql($node, "SELECT clock_timestamp() > '$start'::timestamptz + interval '1.5 s'");
	ok(!is_free(), "on_lost cancel, $lease: the key is locked until the outcome");
	commits_go_on();
	($out, $err, $rc) = finish_sql($run);
	is("$rc|$err", '0|', 'the commit went its way');
	ok(is_free(), 'then the key is free');
}

# A transaction whose COMMIT is refused leaves the other lease it depends on as it was.
fresh();
ask($other, lease($me, "'10 min'"));
ask($other, lease($me, "'10 min'") =~ s/'k'/'second'/r);
($state) = sql_error($node,
	'BEGIN; ' . guard() . '; ' . guard() =~ s/'k'/'second'/r
	  . "; SELECT hloom_release('guard', 'second', '$me'); COMMIT;");
is($state, 'LL010', 'one of two guards fails');
is(ask($other, "SELECT state FROM hloom_locks WHERE key = 'k'"), 'held', 'the other lease is held');
is(ask($other, "SELECT $release"), 't', 'and can be given back');
ok(is_free(), 'and taken');

# What a provider from a library raises at the commit is told as its other failures are.
SKIP:
{
	skip 'the test module is not installed', 3 if !need_test_module($node);
	($state, $err) = sql_error($node, <<"EOS");
SELECT hloom_test_fail('none');
SELECT FROM hloom_configure('library', provider => 'test');
SELECT FROM hloom_acquire('library', 'k', owner => '$me');
BEGIN;
SELECT hloom_guard('library', 'k', '$me');
INSERT INTO work VALUES ('library');
SELECT hloom_test_fail('foreign');
COMMIT;
EOS
	is($state, 'LL004', 'an error of another kind at the commit');
	like($err, qr/DETAIL:  \{.*"cause": "test provider met an error of another kind"\}/,
		'with its words');
	is(ask($other, "SELECT count(*) FROM work WHERE who = 'library'"), '0', 'nothing is written');
}

$other->quit;
done_testing();
