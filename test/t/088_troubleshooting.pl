# The statements of README.md, "When something is wrong", each with the symptoms it is for: it names
# who or what is to blame.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my ($section) = slurp_file("$FindBin::RealBin/../../README.md") =~
  /^### When something is wrong\n(.*?)^##/ms or die 'README.md has no such section';
my ($stuck, $contended, $lost, $nobody) = $section =~ /^```sql\n(.*?);\n^```/msg;
ok(defined $nobody, 'four statements');

my $me = '11111111-1111-4111-8111-111111111111';
my $node = make_node(
	'troubleshooting',
	init => { allows_streaming => 1 },
	settings => { synchronous_commit => 'local', synchronous_standby_names => 'absent' });
my $look = session($node, 'look');
my $other = session($node, 'other');
ask($look, 'CREATE TABLE work (note text)');

# columns($sql, @names): the rows of a statement, of each the columns asked for
sub columns
{
	my ($sql, @names) = @_;
	my $columns = join ', ', map { qq{"$_"} } @names;
	return ask($look, "SELECT $columns FROM ($sql) AS told");
}

sub pid_of
{
	my ($application) = @_;
	return ask($look,
		"SELECT pid FROM pg_stat_activity WHERE application_name = '$application'");
}

# ---- a key stays locked ------------------------------------------------------------------------

my $forgetful = session($node, 'forgetful');
ask($forgetful, q{BEGIN;
SELECT count(*)
FROM hloom_try_acquire('billing', 'invoice:1', scope => 'transaction', note => 'n')});
my $pid = pid_of('forgetful');
is( columns($stuck, qw(key state application holder_pid freed_by process note)),
	"invoice:1|held|forgetful|$pid|transaction end|idle in transaction|n",
	'stuck: a session that has forgotten its COMMIT');
like(columns($stuck, 'query'), qr/hloom_try_acquire/, 'and what it did last');
ask($look, "SELECT pg_terminate_backend($pid)");
wait_until('it is free', sub { columns($stuck, 'key') eq '' });
pass('terminating it frees the key');

my $gone = session($node, 'gone');
ask($gone, take('billing', 'invoice:1', "lease => '1 min', owner => '$me'"));
$gone->quit;
wait_until('its holder is gone', sub { pid_of('gone') eq '' });
is(columns($stuck, qw(state application holder_pid freed_by process)),
	'held|gone||its end|', 'stuck: the session is gone');

# ---- it is committing --------------------------------------------------------------------------

my $committer = start_sql($node,
	"BEGIN;\nSELECT hloom_guard('billing', 'invoice:1', '$me');\nINSERT INTO work VALUES ('a');\n"
	  . "SET LOCAL synchronous_commit = on;\nCOMMIT;\n", 'committer');
wait_for_event($node, 'committer', 'SyncRep');
$pid = pid_of('committer');
is(columns($stuck, qw(state holder_pid freed_by process wait_event query)),
	"committing|$pid|commit|active|SyncRep|COMMIT;",
	'committing: whose COMMIT it is, and for what that waits');
ask($look, q{ALTER SYSTEM SET synchronous_standby_names = ''});
ask($look, 'SELECT pg_reload_conf()');
is((finish_sql($committer))[2], 0, 'which is over when that is done');
is(columns($stuck, 'state'), 'held', 'then it is held as before');

# ---- contended ---------------------------------------------------------------------------------

# The holder waits for a lock of PostgreSQL's itself.
ask($look, "SELECT hloom_force_release('billing', 'invoice:1', 'test')");
ask($other, 'BEGIN; LOCK TABLE work');
my $holder = start_sql($node,
	"BEGIN;\nSELECT owner FROM hloom_acquire('billing', 'invoice:1', scope => 'transaction');\n"
	  . "SELECT count(*) FROM work;\nCOMMIT;\n", 'holder');
wait_until('it holds, and waits', sub {
	ask($look, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'holder'"
		  . " AND wait_event_type = 'Lock'") eq '1';
});
my $waiter = start_sql($node,
	q{SELECT count(*) FROM hloom_acquire('billing', 'invoice:1', max_wait => '1 min',
	retry => hloom_retry_interval(100, '10 s'))}, 'waiter');
wait_until('somebody waits for it', sub { columns($contended, 'position') eq '1' });
my ($blocker, $second, $locker) = map { pid_of($_) } qw(holder waiter other);
is( columns($contended,
		qw(key position pid application_name waits_behind holder_state holder_query
		  holder_waits_behind)),
	"invoice:1|1|$second|waiter|{$blocker}|active|SELECT count(*) FROM work;|{$locker}",
	'contended: who waits for whom, and who is at the end of it');
is(columns($stuck, 'waiters'), 1, 'the statement for stuck keys tells that somebody waits');
ask($other, 'COMMIT');
is((finish_sql($holder))[2], 0, 'the holder goes on');
is((finish_sql($waiter))[0], 1, 'the waiter gets it');

# ---- lost --------------------------------------------------------------------------------------

ask($look, 'SELECT hloom_metrics_reset(); TRUNCATE hloom_leases');
my $since = ask($look, 'SELECT clock_timestamp()');
ask($other, take('billing', 'invoice:1', "lease => '200 ms', owner => '$me'"));
my $next = session($node, 'next');
ask($next, q{SELECT count(*) FROM hloom_acquire('billing', 'invoice:1', max_wait => '1 min',
	retry => hloom_retry_interval(100, '10 s'))});
my $losses = "SELECT * FROM ($lost) AS told WHERE granted_at > '$since'";
is(columns($losses, qw(key reason holder_pid)), 'invoice:1|expired|' . pid_of('other'),
	'lost: whose it was, and why');
is(ask($look, "SELECT lease_end - granted_at, noticed_at >= lease_end FROM ($losses) AS told"),
	'00:00:00.2|t', 'from when until when');
ask($look, "SELECT hloom_force_release('billing', 'invoice:1', 'test')");
is(columns($losses, qw(reason holder_pid)),
	sprintf("taken away|%d\nexpired|%d", pid_of('next'), pid_of('other')), 'the latest first');
is(ask($look, q{SELECT value FROM hloom_metrics
	WHERE namespace = 'billing' AND name = 'hostloom_lock_lost'}), 2, 'each is counted');

# ---- nobody gets a lease -----------------------------------------------------------------------

ask($other, 'BEGIN; LOCK TABLE hloom_leases');
$pid = pid_of('other');
like(columns("$nobody WHERE provider = 'table'", qw(healthy detail)), qr/^f\|.*\b$pid\b/,
	'nobody: who locks the lease table');
ask($other, 'COMMIT');

$_->quit for $look, $other, $next;
$node->stop;
done_testing();
