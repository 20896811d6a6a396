# Who waits for which key, since and until when, for whom, and who may see it: hloom_waiters,
# hloom_blocking_pids() and what hloom_locks tells of waiters.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = make_node(
	'waiters',
	settings => { max_connections => 60, 'hloom_lock.max_key_length' => 1024 });
my $me = '11111111-1111-4111-8111-111111111111';

# Nothing but its end or the release of the key ends such a wait.
my $sleeper = q{retry => hloom_retry_interval(10, '1 hour')};

# begin_wait($application, $sql [, $database]): starts a script that waits, and waits until it is
# listed; returns it and the process
sub begin_wait
{
	my ($application, $sql, $database) = @_;
	$database ||= 'postgres';
	my $run = start_sql($node, "\\connect $database\n$sql;", $application);
	my $pid = wait_until(
		"$application waits",
		sub {
			$node->safe_psql($database,
				"SELECT pid FROM hloom_waiters WHERE application_name = '$application'");
		});
	return ($run, $pid);
}

# acquire($namespace, $key [, $rest])
sub acquire
{
	my ($namespace, $key, $rest) = @_;
	$rest ||= $sleeper;
	return "SELECT count(*) FROM hloom_acquire('$namespace', '$key', $rest)";
}

sub look
{
	my ($sql, $database) = @_;
	return $node->safe_psql($database || 'postgres', $sql);
}

# cancel(@pids): and until they are listed no more
sub cancel
{
	for my $pid (@_)
	{
		look("SELECT pg_cancel_backend($pid)");
		wait_for_sql($node, "SELECT count(*) = 0 FROM hloom_waiters WHERE pid = $pid");
	}
	return;
}

# ---- One key: order, times, whom one waits for.  What is not told yet when a wait begins, as
# gives_up_at is, is there a moment later.
my $holder = session($node, 'holder');
my $holder_pid = ask($holder, 'SELECT pg_backend_pid()');
my $end = ask($holder, take('queue', 'k', "owner => '$me', scope => 'session'")
	  . " \\; SELECT expires_at FROM hloom_leases") =~ s/.*\n//sr;

my ($first, $first_pid) = begin_wait('first',
	acquire('queue', 'k', "retry => hloom_retry_interval(10, '4 min'), max_wait => '10 min'"));
my ($second, $second_pid) = begin_wait('second',
	"SET lock_timeout = '20 min'; " . acquire('queue', 'k'));
my ($third, $third_pid) = begin_wait('third', acquire('queue', 'k'));
my ($fourth, $fourth_pid) = begin_wait('fourth',
	acquire('queue', 'k', "retry => hloom_retry_interval(1000000, '1000000 hours')"));

is( look("SELECT position, pid, application_name, role, namespace, key, holder_pid, holder_role,"
		  . " holder_until = '$end' FROM hloom_waiters ORDER BY position"),
	join("\n",
		map { join('|', @$_, 'postgres', 'queue', 'k', $holder_pid, 'postgres', 't') } (
			[ 1, $first_pid, 'first' ],
			[ 2, $second_pid, 'second' ],
			[ 3, $third_pid, 'third' ],
			[ 4, $fourth_pid, 'fourth' ])),
	'who waits, in the order of their coming, and who is in the way');
is( look('SELECT bool_and(now), bool_and(later) FROM (SELECT waiting_since <= clock_timestamp()'
		  . " AND waiting_since > clock_timestamp() - interval '1 hour' AS now, waiting_since >="
		  . ' coalesce(lag(waiting_since) OVER (ORDER BY position), waiting_since) AS later'
		  . ' FROM hloom_waiters) AS w'),
	't|t',
	'since when');
wait_for_sql($node, 'SELECT count(gives_up_at) = 3 FROM hloom_waiters');
is( look(q{SELECT bool_and(abs(extract(epoch FROM gives_up_at - waiting_since - bound)) < 60)
	FROM hloom_waiters JOIN (VALUES ('first', interval '10 min'), ('second', '20 min'),
		('third', '10 hours')) AS v (application_name, bound) USING (application_name)}),
	't',
	'max_wait, lock_timeout and the policy bound the wait');
is(look(q{SELECT gives_up_at IS NULL FROM hloom_waiters WHERE application_name = 'fourth'}),
	't', 'no end of the wait in sight is none');
is( look('SELECT application_name, hloom_blocking_pids(pid) FROM hloom_waiters ORDER BY position'),
	join("\n",
		"first|{$holder_pid}",
		"second|{$holder_pid,$first_pid}",
		"third|{$holder_pid,$first_pid,$second_pid}",
		"fourth|{$holder_pid,$first_pid,$second_pid,$third_pid}"),
	'whom they wait for');
is(look("SELECT hloom_blocking_pids($holder_pid)"), '{}', 'the holder waits for nobody');
is(look('SELECT key, state, waiters, holder_pid FROM hloom_locks'),
	"k|held|4|$holder_pid", 'hloom_locks counts them');
is( look("SELECT count(*) FROM hloom_waiters AS w WHERE w::text LIKE '%$me%'"),
	0, 'no owner token is told');

# The statement of the README: one look at the whole chain.
my $readme = slurp_file("$FindBin::RealBin/../../README.md");
my ($chain) = $readme =~ /```sql\n(\s*SELECT w\.namespace.*?)```/s;
ok($chain, 'the README has the statement') or $chain = 'SELECT 1;';
is( look("CREATE TEMP TABLE chain AS $chain"
		  . ' SELECT position, pid, waits_behind, holder_role, holder_state,'
		  . ' holder_waits_behind FROM chain ORDER BY position LIMIT 2'),
	"1|$first_pid|{$holder_pid}|postgres|idle|{}\n"
	  . "2|$second_pid|{$holder_pid,$first_pid}|postgres|idle|{}",
	'the statement of the README');

# ---- Who ends waiting is gone at once, and the others move up.
look("SELECT pg_cancel_backend($first_pid)");
my (undef, $err) = finish_sql($first);
is(state_of($err), '57014', 'the first one is cancelled');
is(look('SELECT position, application_name FROM hloom_waiters ORDER BY position'),
	"1|second\n2|third\n3|fourth", 'a cancelled one is gone');
is(look("SELECT hloom_blocking_pids($first_pid)"), '{}', 'and waits for nobody');
look("SELECT pg_terminate_backend($second_pid)");
wait_for_sql($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $second_pid");
finish_sql($second);
is(look('SELECT position, application_name FROM hloom_waiters ORDER BY position'),
	"1|third\n2|fourth", 'a terminated one is gone');
is(look('SELECT waiters FROM hloom_locks'), '2', 'and not counted');

# The key goes to the third, which is in the way of the fourth then; at its end to that one.
ask($holder, "SELECT hloom_release('queue', 'k', '$me')");
finish_sql($third);
wait_for_sql($node, 'SELECT holder_pid IS NULL FROM hloom_waiters');
is( look('SELECT position, application_name, holder_pid, holder_role, hloom_blocking_pids(pid)'
		  . ' FROM hloom_waiters'),
	'1|fourth||postgres|{}',
	'the one that got the key is in the way, and its process gone');
is(look('SELECT state, waiters, holder_pid FROM hloom_locks'),
	'held|1|', 'the same in hloom_locks');
cancel($fourth_pid);
finish_sql($fourth);
is(look('SELECT count(*) FROM hloom_waiters'), 0, 'nobody waits');
look('TRUNCATE hloom_leases');

# ---- A lease of scope lease whose taker is gone: nobody's process, still somebody's lease.
ask($holder, take('queue', 'k', "owner => '$me'"));
($first, $first_pid) = begin_wait('first', acquire('queue', 'k'));
($second, $second_pid) = begin_wait('second', acquire('queue', 'k'));
is(look('SELECT DISTINCT holder_pid FROM hloom_waiters'), $holder_pid, 'the taker is there');
$holder->quit;
wait_for_sql($node, 'SELECT count(holder_pid) = 0 FROM hloom_waiters');
is( look('SELECT position, w.holder_pid, w.holder_role, holder_until = expires_at,'
		  . ' hloom_blocking_pids(pid) FROM hloom_waiters AS w, hloom_leases ORDER BY position'),
	"1||postgres|t|{}\n2||postgres|t|{$first_pid}",
	'the taker is gone, its lease is not');
cancel($first_pid, $second_pid);
finish_sql($_) for $first, $second;

# Somebody can be in its own way, with a lease of that scope.
my ($own, $own_pid) = begin_wait('own',
	"SELECT FROM hloom_acquire('queue', 'own'); " . acquire('queue', 'own'));
is(look("SELECT holder_pid, hloom_blocking_pids(pid) FROM hloom_waiters"),
	"$own_pid|{$own_pid}", 'its own lease is in the way');
cancel($own_pid);
finish_sql($own);

# ---- Attempts that were refused
($first, $first_pid) = begin_wait('first',
	acquire('queue', 'k', "retry => hloom_retry_interval(1000000, '5 ms')"));
wait_for_sql($node, 'SELECT attempts > 3 FROM hloom_waiters');
my $attempts = look('SELECT attempts FROM hloom_waiters');
wait_for_sql($node, "SELECT attempts > $attempts FROM hloom_waiters");
pass('attempts are counted');
cancel($first_pid);
finish_sql($first);
look('TRUNCATE hloom_leases');

# ---- Many keys: each lease has its own waiters.
look(q{SELECT count(*) FROM generate_series(1, 200) AS i, hloom_acquire('many', 'k' || i)});
my @runs = map { [ begin_wait("many-$_", acquire('many', 'k' . ($_ % 5 + 98))) ] } 1 .. 12;
is( look(q{SELECT count(*), sum(waiters), bool_and(waiters = (SELECT count(*)
	FROM hloom_waiters AS w WHERE w.key = l.key)) FROM hloom_locks AS l}),
	'200|12|t',
	'each key has its waiters');
is( look(q{SELECT key, array_agg(application_name || '/' || position ORDER BY position)
	FROM hloom_waiters GROUP BY key ORDER BY substr(key, 2)::int}),
	join("\n",
		'k98|{many-5/1,many-10/2}', 'k99|{many-1/1,many-6/2,many-11/3}',
		'k100|{many-2/1,many-7/2,many-12/3}', 'k101|{many-3/1,many-8/2}',
		'k102|{many-4/1,many-9/2}'),
	'and they have their places');

# A table that is locked: what is known without it is told before long.
my $locker = session($node, 'locker');
ask($locker, 'BEGIN; LOCK TABLE hloom_leases');
is( look("SET statement_timeout = '30 s'; SELECT count(*), count(holder_pid), count(holder_role),"
		  . ' count(holder_until) FROM hloom_waiters'),
	'12|0|0|0',
	'a locked table: waiters without holders');
is(look("SELECT cardinality(hloom_blocking_pids($runs[11][1]))"), 2, 'and their queue');
ask($locker, 'ROLLBACK');
$locker->quit;
is(look('SELECT count(holder_until) FROM hloom_waiters'), 12, 'not locked any more');
cancel(map { $_->[1] } @runs);
finish_sql($_->[0]) for @runs;
look('TRUNCATE hloom_leases');

# ---- Who sees whom
look(q{CREATE ROLE team; CREATE ROLE ordinary LOGIN; CREATE ROLE member LOGIN IN ROLE team;
CREATE ROLE monitor LOGIN IN ROLE pg_monitor; CREATE ROLE stats LOGIN IN ROLE pg_read_all_stats;
CREATE ROLE data LOGIN IN ROLE pg_read_all_data;
SELECT hloom_configure('team', role => 'team');
SELECT count(*) FROM unnest(ARRAY['team', 'free']) AS ns, hloom_acquire(ns, 'k')});
my ($in_team, $in_team_pid) = begin_wait('in team', 'SET ROLE member; ' . acquire('team', 'k'));
my ($in_team2, $in_team2_pid) = begin_wait('in team 2', acquire('team', 'k'));
my ($in_free, $in_free_pid) = begin_wait('in free', 'SET ROLE ordinary; ' . acquire('free', 'k'));
my ($in_free2, $in_free2_pid) = begin_wait('in free 2', acquire('free', 'k'));
my %sees = (
	ordinary => "free/ordinary free/postgres|{}|{$in_free_pid}|free/2",
	member => "free/ordinary free/postgres team/member team/postgres|{$in_team_pid}|{$in_free_pid}"
	  . '|free/2 team/2');
$sees{monitor} = $sees{postgres} = $sees{member};
$sees{stats} = $sees{data} = $sees{ordinary};
for my $role (sort keys %sees)
{
	is( look("SET ROLE $role; SELECT (SELECT string_agg(namespace || '/' || role, ' '"
			  . ' ORDER BY namespace, role) FROM hloom_waiters),'
			  . " hloom_blocking_pids($in_team2_pid), hloom_blocking_pids($in_free2_pid),"
			  . " (SELECT string_agg(namespace || '/' || waiters, ' ' ORDER BY namespace)"
			  . ' FROM hloom_locks)'),
		$sees{$role},
		"$role sees its part");
}
look(q{SELECT hloom_configure('team', role => 'pg_monitor')});
is(look('SET ROLE member; SELECT DISTINCT namespace FROM hloom_waiters'),
	'free', 'another role for the namespace counts at once');
cancel($in_team_pid, $in_team2_pid, $in_free_pid, $in_free2_pid);
finish_sql($_) for $in_team, $in_team2, $in_free, $in_free2;
look('TRUNCATE hloom_leases');

# ---- Two databases, the other one with the longest keys there are
$node->safe_psql('postgres',
	q{CREATE DATABASE other ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0});
look('CREATE EXTENSION hloom_lock', 'other');
my $namespace = 'n' x 63;
my $long = 'repeat(chr(128274), 1023)';
my @long = ("$long || chr(128273)", "$long || chr(128274)");
look("SELECT count(*) FROM unnest(ARRAY[$_]) AS k, hloom_acquire('$namespace', k)", 'other')
  for @long;
look("SELECT count(*) FROM hloom_acquire('both', 'k')", $_) for 'postgres', 'other';
my @others;
push @others,
  [
	begin_wait("long-$_",
		"SELECT count(*) FROM hloom_acquire('$namespace', $long[$_], $sleeper)", 'other')
  ]
  for 0, 1;
my ($there, $there_pid) = begin_wait('there', acquire('both', 'k'), 'other');
is(look('SELECT count(*) FROM hloom_waiters'), 0, 'a wait in another database is not seen');
is(look("SELECT hloom_blocking_pids($there_pid)"), '{}', 'nor whom it waits for');
is(look('SELECT key, waiters FROM hloom_locks'), 'k|0', 'nor counted for a key of the same name');
my ($here, $here_pid) = begin_wait('here', acquire('both', 'k'));
is(look('SELECT application_name, position FROM hloom_waiters'), 'here|1', 'one waits here');
is( look(q{SELECT application_name, position FROM hloom_waiters WHERE key = 'k'}, 'other'),
	'there|1', 'and one there');
is( look("SELECT application_name, position, namespace = '$namespace', octet_length(key),"
		  . " key = CASE application_name WHEN 'long-0' THEN $long[0] ELSE $long[1] END,"
		  . ' holder_until IS NOT NULL FROM hloom_waiters'
		  . " WHERE key <> 'k' ORDER BY application_name",
		'other'),
	"long-0|1|t|4096|t|t\nlong-1|1|t|4096|t|t",
	'the longest keys are told whole');
is(look('SELECT DISTINCT waiters FROM hloom_locks', 'other'), 1, 'each has one waiter');
look("SELECT pg_cancel_backend($_)") for $there_pid, $here_pid, map { $_->[1] } @others;
finish_sql($_) for $there, $here, map { $_->[0] } @others;
is(look('SELECT count(*) FROM hloom_waiters', $_), 0, "nobody waits in $_") for 'postgres', 'other';
look('TRUNCATE hloom_leases');

# ---- A key that nobody holds, kept for a waiter that was woken, which is stopped here.  When the
# machine is slow that is over before it is seen; who is refused while it is must be seen once.
$holder = session($node, 'holder');
my ($seen, $refused, $granted, $rounds) = (0, 0, 0, rounds(5));
for my $round (1 .. 20 + $rounds)
{
	ask($holder, take('queue', 'kept', "owner => '$me'"));
	($first, $first_pid) = begin_wait('first', 'SET ROLE ordinary; ' . acquire('queue', 'kept'));
	($second, $second_pid) = begin_wait('second', acquire('queue', 'kept'));
	stop_process($holder, $_) for $first_pid, $second_pid;
	my $answer = ask($holder, "SELECT hloom_release('queue', 'kept', '$me') \\;"
		  . " SELECT count(*) FROM hloom_try_acquire('queue', 'kept', owner => '$me') \\;"
		  . ' SELECT state, holder, application, holder_pid, waiters, freed_by, held_for, fence,'
		  . " note, remaining > '0' AND remaining <= '100 ms' FROM hloom_locks \\;"
		  . " SELECT hloom_blocking_pids($first_pid), hloom_blocking_pids($second_pid),"
		  . ' (SELECT count(holder_until) FROM hloom_waiters)');
	my ($released, $tried, $kept, $blocking) = split /\n/, $answer;
	if ($kept =~ /^reserved/)
	{
		$seen++;
		$refused++ if "$released|$tried" eq 't|0';
		is($kept, "reserved|ordinary|first|$first_pid|2|its end||||t", 'what is told of a kept key')
		  if $seen == 1;
		is($blocking, "{}|{$first_pid}|0", 'and of those who wait for it') if $seen == 1;

		# It was not kept for ever.
		wait_for_sql($node, 'SELECT count(*) = 0 FROM hloom_locks');
		$granted += ask($holder,
			"SELECT count(*) FROM hloom_try_acquire('queue', 'kept', owner => '$me')");
	}
	signal_process('CONT', $_) for $first_pid, $second_pid;
	look("SELECT pg_cancel_backend($_)") for $first_pid, $second_pid;
	finish_sql($_) for $first, $second;
	look('TRUNCATE hloom_leases');
	last if $seen >= $rounds;
}
cmp_ok($seen, '>', 0, 'a kept key is seen');
is($refused, $seen, 'others are refused while it is kept');
is($granted, $seen, 'and granted afterwards');

# ---- A provider that does not answer is asked no more, and nothing is raised.
SKIP:
{
	skip 'no test module', 10 if !need_test_module($node);
	# Its leases are known to the process that took them only.
	my $load = q{LOAD 'hloom_test'};
	look(qq{$load; SELECT hloom_configure('tested', provider => 'test')});
	@runs = map {
		[
			begin_wait("tested-$_",
				"$load; SELECT hloom_test_hold('tested:lock:k$_'); " . acquire('tested', "k$_"))
		]
	} 1 .. 3;
	my $watcher = session($node, 'watcher');
	my $holders = 'SELECT count(*), count(holder_until), count(holder_role), count(holder_pid)'
	  . ' FROM hloom_waiters';
	is(ask($watcher, $holders), '3|0|0|0', 'a provider that is not known here');
	ask($watcher, $load);
	is(ask($watcher, $holders), '3|0|0|0', 'nobody holds these keys, as far as this session knows');
	ask($watcher, "SELECT hloom_test_hold('tested:lock:k' || i) FROM generate_series(1, 3) AS i");
	is(ask($watcher, $holders), '3|3|0|0', 'what a provider does not tell is NULL');
	for my $failure ('timeout', 'reply-timeout', 'unavailable', 'foreign')
	{
		ask($watcher, "SELECT hloom_test_fail('$failure')");
		is(ask($watcher, $holders), '3|0|0|0', "$failure: asked once");
	}
	# It lets interrupts in, so one second ends the first call.
	ask($watcher, q{SELECT hloom_test_delay('1 hour', 'holder')});
	my $began = ask($watcher, 'SELECT clock_timestamp()');
	is(ask($watcher, $holders), '3|0|0|0', 'hangs: asked once');
	is( ask($watcher,
			"SELECT clock_timestamp() - '$began' BETWEEN interval '1 s' AND interval '50 s'"),
		't', 'hangs: for a second');
	ask($watcher, q{SELECT hloom_test_delay('0')});
	is(ask($watcher, $holders), '3|3|0|0', 'asked again by the next statement');
	$watcher->quit;
	cancel(map { $_->[1] } @runs);
	finish_sql($_->[0]) for @runs;
}

$holder->quit;
$node->stop;
done_testing();
