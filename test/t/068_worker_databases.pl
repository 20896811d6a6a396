# The background worker is in nobody's way: databases are dropped, copied, renamed and closed, and
# the extension is dropped, created and updated, with leases in use a moment before or held
# meanwhile.  Where leases are held the worker goes on renewing them, or leaves and lets
# their holders know; and it never fills the server log.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $limit = "SET statement_timeout = '${PostgreSQL::Test::Utils::timeout_default}s'";
my $node = make_node(
	'databases',
	extension => 0,
	settings => {
		'log_line_prefix' => '%m [%p] %b ',
		# The postmaster tells of each worker it starts.
		'log_min_messages' => 'debug1',
	});

# Every database gets a function that waits for a condition, most get the extension.
$node->safe_psql('template1', <<"SQL");
CREATE FUNCTION await(condition text) RETURNS void LANGUAGE plpgsql $limit AS \$\$
DECLARE
	met boolean;
BEGIN
	LOOP
		EXECUTE 'SELECT ' || condition INTO met;
		EXIT WHEN met;
		PERFORM pg_sleep(0.01);
		PERFORM pg_stat_clear_snapshot();
	END LOOP;
END \$\$;
SQL
$node->safe_psql('postgres', 'CREATE DATABASE locks');
$node->safe_psql('locks', 'CREATE EXTENSION hloom_lock');

my $HAS_WORKER = '(SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database()'
  . " AND backend_type = ''hloom_lock worker'')";

# create_locks($database, ...): databases with the extension
sub create_locks
{
	my @runs = map { start_sql($node, "CREATE DATABASE $_ TEMPLATE locks") } @_;
	for my $run (@runs)
	{
		my ($out, $messages) = finish_sql($run);
		die $messages if $messages ne '';
	}
	return;
}

sub oid_of
{
	my ($database) = @_;
	return $node->safe_psql('postgres',
		"SELECT oid FROM pg_database WHERE datname = '$database'");
}

sub workers_in
{
	my ($database) = @_;
	return $node->safe_psql('postgres',
		    'SELECT count(*) FROM pg_stat_activity'
		  . " WHERE backend_type = 'hloom_lock worker' AND datname = '$database'");
}

# lines_about($pattern [, $from]): of the server log, from an offset on
sub lines_about
{
	my ($pattern, $from) = @_;
	return grep { /$pattern/ } split /\n/, slurp_file($node->logfile, $from || 0);
}

# starts_in($oid, $from): how often a worker was started in the database
sub starts_in
{
	my ($oid, $from) = @_;
	return scalar lines_about(
		"starting background worker process \"hloom_lock worker for database $oid\"", $from);
}

# use_locks($database): a client takes leases of all kinds, sees the worker at work and leaves in
# the middle of a transaction
sub use_locks
{
	my ($database) = @_;
	$node->safe_psql($database, <<"SQL");
SELECT count(*) FROM hloom_try_acquire('dbs', 'plain', '1 h', owner => gen_random_uuid());
SELECT count(*) FROM hloom_try_acquire('dbs', 'session', '1 min', scope => 'session');
SELECT count(*) FROM hloom_try_acquire('dbs', 'extended', '1 s', scope => 'session',
	auto_extend => true);
SELECT count(*) FROM hloom_try_acquire('dbs', 'short', '500 ms');
BEGIN;
SELECT count(*) FROM hloom_try_acquire('dbs', 'committed', scope => 'transaction');
COMMIT;
SELECT await('$HAS_WORKER');
BEGIN;
SELECT count(*) FROM hloom_try_acquire('dbs', 'transaction', '1 s', scope => 'transaction',
	auto_extend => true);
SQL
	return;
}

# keeps($session, $key, $lease): takes a lease that the server is to renew; returns its fence
sub keeps
{
	my ($session, $key, $lease, $rest) = @_;
	$rest = defined $rest ? ", $rest" : '';
	return ask($session,
		"SELECT fence FROM hloom_try_acquire('kept', '$key', '$lease', scope => 'session',"
		  . " auto_extend => true$rest)");
}

# is_renewed($session, $key, $name): the lease gets a later end
sub is_renewed
{
	my ($session, $key, $name) = @_;
	is( ask($session, <<"SQL"), 't', "$name: the lease is renewed");
SELECT expires_at AS ends FROM hloom_leases WHERE key = '$key' \\gset
SELECT await(format('(SELECT coalesce(max(expires_at) <> %L, true) FROM hloom_leases'
	' WHERE key = %L)', :'ends', '$key')) \\g /dev/null
SELECT count(*) = 1 FROM hloom_leases WHERE key = '$key' AND expires_at > :'ends';
SQL
	return;
}

# succeeds($run, $name): the script has no error
sub succeeds
{
	my ($run, $name) = @_;
	my ($out, $messages, $status) = finish_sql($run);
	is("$status $messages", '0 ', "$name works");
	return;
}

# work_in($database => $name, ...): leases are granted there, and renewed
sub work_in
{
	my %name = @_;
	my %run = map { ($_ => start_sql($node, <<"SQL")) } keys %name;
\\c $_
SELECT expires_at AS ends FROM hloom_try_acquire('kept', 'works', '1 s', scope => 'session',
	auto_extend => true), hloom_leases l WHERE l.key = 'works' \\gset
SELECT await(format('(SELECT expires_at > %L FROM hloom_leases WHERE key = ''works'')', :'ends'));
SQL
	succeeds($run{$_}, "$name{$_}: renewing a lease there") for sort keys %name;
	return;
}

# all_work($sql, ...): the commands, which are run at the same time, have no error
sub all_work
{
	my @sql = @_;
	my @runs = map { start_sql($node, $_) } @sql;
	succeeds($runs[$_], $sql[$_]) for 0 .. $#sql;
	return;
}

# ---- DROP EXTENSION ------------------------------------------------------------------------------

# What happens afterwards is looked at further below, when some seconds have gone.
create_locks('bare');
my $bare_oid = oid_of('bare');
my $holder = session($node, 'holder', 'bare');
my $observer = session($node, 'observer', 'bare');
keeps($holder, 'cancelled', '4 s', "on_lost => 'cancel'");
keeps($observer, 'observed', '1 min');
is( ask($observer, <<'SQL'), '2000', 'a session with many leases');
SELECT count(*) FROM generate_series(1, 2000) i, hloom_try_acquire('many', i::text,
	scope => 'session');
SQL
ask($holder, "SELECT await('$HAS_WORKER')");
{
	my $drop = start_sql($node, <<'SQL', 'drop');
\c bare
SELECT await('(SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = ''holder'' AND'
	' query LIKE ''SELECT pg_sleep%'' AND state = ''active'')');
DROP EXTENSION hloom_lock;
SQL
	my ($state, $message) =
	  ask_error($holder, "SELECT pg_sleep($PostgreSQL::Test::Utils::timeout_default)");
	is($state, 'LL010', 'DROP EXTENSION: the statement that depends on a lease is cancelled')
	  or diag($message);
	succeeds($drop, 'DROP EXTENSION');
	is(ask($observer, 'SELECT 1'), '1', 'DROP EXTENSION: who observes its lease goes on');
	wait_until('the worker leaves', sub { workers_in('bare') eq '0' });
}
my $bare_from = -s $node->logfile;

# A database that never had the extension
$node->safe_psql('postgres', 'CREATE DATABASE never');
my $never = session($node, 'never', 'never');
ask($never, 'CREATE TABLE t (); DROP TABLE t');

# ---- databases dropped, copied and renamed -------------------------------------------------------

for my $round (1 .. rounds(3))
{
	my $again = $round > 1 ? ', made anew' : '';
	my %command = (
		dropped => 'DROP DATABASE dropped',
		copied => 'CREATE DATABASE copy TEMPLATE copied',
		renamed => 'ALTER DATABASE renamed RENAME TO other');
	my %run;

	create_locks(keys %command);
	for my $database (sort keys %command)
	{
		use_locks($database);
		$run{$database} = start_sql($node, $command{$database}, $database);
	}
	succeeds($run{$_}, "$command{$_}$again") for sort keys %command;

	# What follows a session has ended with it, what does not is held in the copy, too.
	my %origin = (copied => 'copied', copy => 'copied', other => 'renamed');
	for my $database (sort keys %origin)
	{
		my $origin = $origin{$database};
		is( $node->safe_psql($database, <<'SQL'), 'plain|0|1', "$command{$origin}: leases");
SELECT string_agg(key, ','), (SELECT count(*) FROM hloom_try_acquire('dbs', 'plain')),
	(SELECT count(*) FROM hloom_try_acquire('dbs', 'session'))
FROM hloom_leases WHERE key <> 'short';
SQL
	}
	create_locks('dropped');
	work_in(
		dropped => "$command{dropped}$again, made anew",
		copy => "$command{copied}$again",
		other => "$command{renamed}$again");
	all_work(map { "DROP DATABASE $_" } 'dropped', 'copy', 'other', 'copied');
}


# ---- DROP DATABASE WITH (FORCE) ------------------------------------------------------------------

my @forced;
for my $round (1 .. rounds(3))
{
	create_locks('forced');
	push @forced, oid_of('forced');
	my @sessions = map { session($node, "forced $_", 'forced') } 1 .. 3;
	keeps($sessions[0], 'forced1', '1 s');
	keeps($sessions[1], 'forced2', '1 min', "on_lost => 'cancel'");
	ask($sessions[2],
		'BEGIN; ' . take('kept', 'forced3', "scope => 'transaction', auto_extend => true"));
	ask($sessions[0], "SELECT await('$HAS_WORKER')");
	is((sql_error($node, 'DROP DATABASE forced WITH (FORCE)'))[0],
		'', 'DROP DATABASE WITH (FORCE) works');
	for my $session (@sessions)
	{
		$session->{run}->signal('KILL');
		$session->{run}->finish;
	}
}

# An owner who is no superuser.
$node->safe_psql('postgres', 'CREATE ROLE proprietor LOGIN CREATEDB IN ROLE pg_read_all_stats');
for my $force ('', ' WITH (FORCE)')
{
	create_locks('owned');
	$node->safe_psql('postgres', 'ALTER DATABASE owned OWNER TO proprietor');
	local $ENV{PGUSER} = 'proprietor';
	my $session = session($node, 'owned', 'owned');
	delete local $ENV{PGUSER};
	keeps($session, 'owned', '1 s');
	ask($session, "SELECT await('$HAS_WORKER')");
	push @forced, oid_of('owned') if $force ne '';
	$session->quit if $force eq '';
	all_work("SET ROLE proprietor; DROP DATABASE owned$force");
	next if $force eq '';
	$session->{run}->signal('KILL');
	$session->{run}->finish;
}

# ---- databases that are closed -------------------------------------------------------------------

my %closed = (closed => 'ALLOW_CONNECTIONS false', limited => 'CONNECTION LIMIT 0');
create_locks(keys %closed);
for my $database (sort keys %closed)
{
	my $how = $closed{$database};
	my $session = session($node, 'inside', $database);
	$node->safe_psql('postgres', "ALTER DATABASE $database $how");
	keeps($session, 'closed', '1 s');
	is_renewed($session, 'closed', $how) for 1 .. 3;
	is(workers_in($database), '1', "$how: there is a worker");
	is(starts_in(oid_of($database)), 1, "$how: which was started once");
	$session->quit;
}
all_work(map { "DROP DATABASE $_" } sort keys %closed);

# ---- the lease table locked, rewritten, truncated ------------------------------------------------

# lock_out($database, $lock, $end): a lease that is renewed while a transaction locks the table for
# less than half of it
sub lock_out
{
	my ($database, $lock, $end) = @_;
	my $held = session($node, "held $database", $database);
	my $locker = session($node, "locker $database", $database);
	my $fence = keeps($held, 'locked', '6 s', "on_lost => 'cancel'");
	ask($held, "SELECT await('$HAS_WORKER')");
	ask($locker, "BEGIN; $lock");
	return { name => $lock, held => $held, locker => $locker, fence => $fence, end => $end };
}

{
	my $from = -s $node->logfile;
	create_locks('locked', 'truncated');
	my @locked = (
		lock_out('locked', 'LOCK TABLE hloom_leases IN ACCESS EXCLUSIVE MODE', 'COMMIT'),
		lock_out('truncated', 'TRUNCATE hloom_leases', 'ROLLBACK'));
	my $failed = 'LockExtendFailed: could not renew 1 lease: the lease table is locked';
	wait_until(
		'renewals fail',
		sub {
			my %worker = map { (/\[(\d+)\]/ ? $1 : '' => 1) } lines_about($failed, $from);
			return keys %worker == @locked;
		});
	for my $locked (@locked)
	{
		my $name = "$locked->{name}, $locked->{end}";
		ask($locked->{locker}, $locked->{end});
		is_renewed($locked->{held}, 'locked', $name);
		is(ask($locked->{held}, 'SELECT fence FROM hloom_leases'),
			$locked->{fence}, "$name: the same lease");
	}
	my @lines = lines_about($failed, $from);
	cmp_ok(scalar(@lines), '<=', 4 * @locked, 'while the table is locked: lines in the log');
	like(slurp_file($node->logfile, $from),
		qr/"event": "LockExtendFailed", "id": 3105/, 'with the number of the event');

	my ($locked, $truncated) = @locked;
	ask($locked->{locker}, 'VACUUM FULL hloom_leases');
	is_renewed($locked->{held}, 'locked', 'VACUUM FULL');
	is(ask($locked->{held}, 'SELECT fence FROM hloom_leases'),
		$locked->{fence}, 'VACUUM FULL: the same lease');
	ask($truncated->{locker}, 'TRUNCATE hloom_leases');
	is((ask_error($truncated->{held}, 'SELECT 1'))[0], 'LL010', 'TRUNCATE: the lease is lost');
	like(keeps($truncated->{held}, 'locked', '1 s'), qr/^\d+$/, 'TRUNCATE: and can be taken again');
	is_renewed($truncated->{held}, 'locked', 'TRUNCATE, taken again');
	for my $locked (@locked)
	{
		$locked->{$_}->quit for 'held', 'locker';
	}
}

# ---- ALTER EXTENSION UPDATE ----------------------------------------------------------------------

# extension_dir(): where the server finds the extension, when we may write there
sub extension_dir
{
	my $share = $node->config_data('--sharedir');
	my $show = "SELECT current_setting('%s', true)";
	my $destdir = $node->safe_psql('postgres', sprintf($show, 'extension_destdir'));
	my $path = $node->safe_psql('postgres', sprintf($show, 'extension_control_path'));
	my @dirs = map { "$_/extension" } grep { !/^\$/ } split(/:/, $path), "$destdir$share", $share;
	my ($dir) = grep { -e "$_/hloom_lock.control" } @dirs;
	return defined $dir && -w $dir ? $dir : undef;
}

SKIP:
{
	my $dir = extension_dir();
	skip 'the directory of the extension is not writable', 1 if !defined $dir;
	my $version = $node->safe_psql('locks',
		'SELECT extversion FROM pg_extension WHERE extname = \'hloom_lock\'');
	my $script = "$dir/hloom_lock--$version--${version}_updated.sql";
	create_locks('updated');
	my $held = session($node, 'held', 'updated');
	my $fence = keeps($held, 'updated', '1 s');
	is_renewed($held, 'updated', 'before ALTER EXTENSION UPDATE');
	append_to_file($script, "COMMENT ON TABLE hloom_leases IS 'updated';\n");
	my $run = eval {
		succeeds(
			start_sql(
				$node, "\\c updated\nALTER EXTENSION hloom_lock UPDATE TO '${version}_updated'"),
			'ALTER EXTENSION UPDATE');
		1;
	};
	unlink $script or die "cannot remove $script: $!";
	die $@ if !$run;
	is(ask($held, 'SELECT obj_description(\'hloom_leases\'::regclass)'),
		'updated', 'ALTER EXTENSION UPDATE: the script has run');
	is_renewed($held, 'updated', 'ALTER EXTENSION UPDATE') for 1 .. 2;
	is(ask($held, 'SELECT fence FROM hloom_leases'), $fence,
		'ALTER EXTENSION UPDATE: the same lease');
	$held->quit;
}

# ---- what came of the first ones -----------------------------------------------------------------

is(starts_in($_), 1, 'DROP DATABASE WITH (FORCE): no worker is started for it') for @forced;
is(starts_in(oid_of('never')), 0, 'without the extension: no worker is started');
is(starts_in($bare_oid, $bare_from), 0, 'DROP EXTENSION: no worker comes back');
ask($observer, 'CREATE EXTENSION hloom_lock');
is(ask($observer, 'SELECT hloom_release_session()'), '0', 'DROP EXTENSION: every lease is lost');
for my $session ($holder, $observer)
{
	my $key = $session == $holder ? 'cancelled' : 'observed';
	like(keeps($session, $key, '1 s'), qr/^\d+$/, 'CREATE EXTENSION: an old session takes a lease');
	is_renewed($session, $key, 'CREATE EXTENSION, an old session');
}
is(workers_in('bare'), '1', 'CREATE EXTENSION: a worker comes back');
like(ask($holder, $WORKER_STATE), qr/^running/, 'CREATE EXTENSION: health');
for my $session ($holder, $observer, $never)
{
	# Or the time since its last query counts.
	ask($session, 'SELECT 1');
	$session->quit;
}

my @ends = lines_about('hloom_lock (?:worker|launcher)\b.*(?:ERROR|FATAL|PANIC):  '
	  . '|LOG:  .*"hloom_lock .* exited');
my $usual = '"hloom_lock worker" (?:due to administrator command|.* exited with exit code 1)$';
is_deeply([ grep { !/$usual/ } @ends ], [], 'no error of a worker or the launcher in the log');
is(scalar(@ends), 2 * @forced, 'and two lines for each forced end');
cmp_ok(scalar(lines_about('hloom_lock (?:worker|launcher) +(?:LOG|WARNING)')),
	'<', 10 + 10 * rounds(3), 'lines about leases in the log');
$node->stop;
done_testing();
