# The background worker renews leases while what they follow lives, and for no longer: through long
# statements, idle sessions and transactions, until the client is gone, max_hold is over or the
# table stays locked to the lease's end.  What the owner extends wins, the log tells what the owner
# should know and no owner token, and a renewal costs little.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $many = rounds(2000);
my $node = make_node(
	'renews',
	settings => {
		'log_line_prefix' => '%n %p ',
		'full_page_writes' => 'off',
		'hloom_lock.max_tracked_leases' => $many + 1000
	});

# Databases of their own for who locks the table, and for a setting
for my $database (qw(locked_early locked_late set_database))
{
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, 'CREATE EXTENSION hloom_lock');
}
$node->safe_psql(
	'postgres', q{
CREATE TABLE done ();
-- Watches a lease until it is gone: how often its end moved, and the last one.
CREATE FUNCTION watch(lock_key text, OUT moved int, OUT held interval, OUT last_end timestamptz,
	OUT gone_at timestamptz) LANGUAGE plpgsql AS $$
DECLARE
	lease record;
BEGIN
	moved := 0;
	LOOP
		SELECT * INTO lease FROM hloom_leases WHERE key = lock_key;
		EXIT WHEN NOT FOUND;
		moved := moved + (lease.expires_at <> coalesce(last_end, lease.expires_at))::int;
		last_end := lease.expires_at;
		held := last_end - lease.granted_at;
		PERFORM pg_sleep(0.005);
	END LOOP;
	gone_at := clock_timestamp();
END $$;
-- Extends leases of keys race-1, race-2, ... for one to three seconds when the worker is about to
-- renew them.  Nothing ends before it was promised to, or later than its last lease from now.
CREATE FUNCTION race(rounds int, mine uuid, OUT extended int, OUT renewed int)
LANGUAGE plpgsql AS $$
DECLARE
	row record;
	now_for interval;
	began timestamptz;
	ends timestamptz;
	remaining interval;
	promised timestamptz[];
BEGIN
	extended := 0;
	renewed := 0;
	FOR round IN 1 .. rounds LOOP
		SELECT key, split_part(key, '-', 2)::int AS number, expires_at - lease / 2 AS due INTO row
			FROM hloom_leases WHERE starts_with(key, 'race-') ORDER BY due LIMIT 1;
		PERFORM pg_sleep_until(row.due + random() * interval '40 ms');
		SELECT expires_at INTO ends FROM hloom_leases WHERE key = row.key;
		IF ends < promised[row.number] OR ends IS NULL THEN
			RAISE '% ends at %, not at %', row.key, ends, promised[row.number];
		END IF;
		renewed := renewed + (ends > promised[row.number] IS TRUE)::int;
		now_for := interval '1 s' + random() * interval '2 s';
		began := clock_timestamp();
		IF NOT hloom_extend('auto', row.key, mine, now_for) THEN
			RAISE '% is lost', row.key;
		END IF;
		remaining := hloom_remaining('auto', row.key, mine);
		SELECT expires_at INTO ends FROM hloom_leases WHERE key = row.key;
		IF remaining <= interval '0' OR remaining > now_for OR remaining IS NULL
			OR ends < began + now_for OR ends > clock_timestamp() + now_for
		THEN
			RAISE '% ends at %, remaining %, for % from %', row.key, ends, remaining, now_for,
				began;
		END IF;
		promised[row.number] := ends;
		extended := extended + 1;
	END LOOP;
	IF EXISTS (SELECT FROM hloom_leases WHERE starts_with(key, 'race-') AND
		(expires_at < promised[split_part(key, '-', 2)::int] OR
		expires_at > clock_timestamp() + lease))
	THEN
		RAISE 'a lease has another end';
	END IF;
END $$;
CREATE ROLE app LOGIN});

my $other = session($node, 'other');
my $owners = 0;

# new_owner(): an owner token nobody else has, and all of them look alike
sub new_owner { return sprintf('0badcafe-0000-4000-8000-%012d', ++$owners); }

# renewed($key, $lease [, $rest]): the SQL that takes a lease that is renewed
sub renewed
{
	my ($key, $lease, $rest) = @_;
	$rest = $rest ? ", $rest" : '';
	return "SELECT fence FROM hloom_try_acquire('auto', '$key', '$lease', auto_extend => true"
	  . ($rest =~ /scope/ ? '' : ", scope => 'session'")
	  . "$rest)";
}

# told($event, $key): the reports in the log about the key: [ time, its JSON ]
sub told
{
	my ($event, $key) = @_;
	my @found;
	for my $line (split /\n/, slurp_file($node->logfile))
	{
		push @found, [ $1, $2 ]
		  if $line =~ /^(\S+) \d+ DETAIL:  (\{"event": "\Q$event\E".*"key": "\Q$key\E".*)/;
	}
	return @found;
}

# failed_at($pid): when this worker complained that it could not renew
sub failed_at
{
	my ($pid) = @_;
	my @times = slurp_file($node->logfile) =~ /^(\S+) $pid WARNING: .*LockExtendFailed/mg;
	return @times;
}

sub number_of
{
	my @found = told(@_);
	return scalar @found;
}

# column($key, $expression): of the lease; '' when there is none
sub column
{
	my ($key, $expression) = @_;
	return ask($other, "SELECT $expression FROM hloom_leases WHERE key = '$key'");
}

# wait_for($key, $condition): until the lease is so
sub wait_for
{
	my ($key, $condition) = @_;
	return wait_until("$key: $condition",
		sub { column($key, "CASE WHEN $condition THEN 'so' END") eq 'so' });
}

# is_free($key): in one attempt
sub is_free
{
	my ($key) = @_;
	return ask($other,
		"SELECT hloom_release(h) FROM hloom_try_acquire('auto', '$key', scope => 'session') AS h")
	  eq 't';
}

sub wait_until_gone
{
	my ($pid) = @_;
	wait_until("process $pid ends",
		sub { ask($other, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") eq '0' });
	return;
}

sub pid_of
{
	my ($application) = @_;
	return ask($other,
		"SELECT pid FROM pg_stat_activity WHERE application_name = '$application'");
}

# kill_client($run): kill -9 of the psql of start_sql
sub kill_client
{
	my ($run) = @_;
	$run->{handle}->signal('KILL');
	$run->{handle}->finish;
	return;
}

# ---- what takes its time -----------------------------------------------------------------------
#
# Each of these starts something, and returns what looks at the outcome; that may return what looks
# at the rest later.

# A lease of two seconds and a statement that takes longer, while somebody else wants the key.
sub long_statement
{
	my $seconds = rounds(10);
	$seconds = 6 if $seconds < 6;
	$seconds = 30 if $seconds > 30;
	my $me = new_owner();
	my $mine = "'auto', 'long', '$me'";
	my $holder = start_sql(
		$node,
		renewed('long', '2 s', "owner => '$me'") . qq{ \\gset
SELECT pg_sleep($seconds);
INSERT INTO done DEFAULT VALUES;
SELECT pg_advisory_lock(1);
SELECT hloom_is_held($mine), (SELECT fence = :fence FROM hloom_leases WHERE key = 'long'),
	hloom_extend($mine), hloom_release($mine);}, 'long');
	wait_for_event($node, 'long', 'PgSleep');
	my $poller = start_sql(
		$node, q{
SELECT pg_advisory_lock(1);
DO $$
DECLARE
	polls int := 0;
BEGIN
	WHILE NOT EXISTS (TABLE done) LOOP
		IF EXISTS (SELECT FROM hloom_try_acquire('auto', 'long')) THEN
			RAISE 'granted';
		END IF;
		polls := polls + 1;
		PERFORM pg_sleep(0.002);
	END LOOP;
	RAISE INFO 'polls: %', polls;
END $$;}, 'poller');
	wait_for_event($node, 'poller', 'PgSleep');
	return sub {
		my ($out, $err) = finish_sql($holder);
		is($out =~ s/^\n*//r, 't|t|t|t', 'long statement: held to its end, with the same fence')
		  or diag($err);
		($out, $err) = finish_sql($poller);
		is(state_of($err), '', 'long statement: nobody else gets the key');
		cmp_ok($err =~ /polls: (\d+)/ ? $1 : 0, '>', 100, 'long statement: who asks often');
		ok(is_free('long'), 'long statement: free once it is released');
	};
}

# The client is killed in a statement, and core looks whether it is there.
sub noticed_client
{
	my $run = start_sql(
		$node,
		"SET client_connection_check_interval = '200 ms';\n"
		  . renewed('noticed', '2 s')
		  . ";\nSELECT pg_sleep(600);",
		'noticed');
	wait_for_event($node, 'noticed', 'PgSleep');
	return sub {
		wait_for('noticed', "expires_at > granted_at + '2 s'");
		my $killed_at = time;
		kill_client($run);
		wait_until('the key of a client that is gone is free', sub { is_free('noticed') });
		cmp_ok(time - $killed_at, '<', 2 + 3, 'client killed: free within the lease');
		is(pid_of('noticed'), '', 'client killed: its session has ended');
	};
}

# The client is killed in a statement, and nobody looks before that ends.
sub unnoticed_client
{
	my $run = start_sql(
		$node,
		"SET client_connection_check_interval = 0;\n"
		  . renewed('unnoticed', '2 s')
		  . ";\nSELECT pg_sleep(7);",
		'unnoticed');
	wait_for_event($node, 'unnoticed', 'PgSleep');
	my $pid = pid_of('unnoticed');
	my $started = ask($other, "SELECT query_start FROM pg_stat_activity WHERE pid = $pid");
	my $watch = start_sql($node, "SELECT gone_at - '$started' >= '7 s', moved >= 3"
		  . " FROM watch('unnoticed');", 'watch unnoticed');
	wait_for_event($node, 'watch unnoticed', 'PgSleep');
	kill_client($run);
	return sub {
		my ($out, $err) = finish_sql($watch);
		is($out, 't|t', 'client killed unseen: renewed until the statement ends') or diag($err);
		wait_until_gone($pid);
		ok(is_free('unnoticed'), 'client killed unseen: free then');
	};
}

# Sessions that do nothing at all.
sub idle
{
	my %session = map { ($_ => session($node, $_)) } qw(idle block transaction rollback);
	my %pid = map { ($_ => ask($session{$_}, 'SELECT pg_backend_pid()')) } keys %session;
	my $me = new_owner();
	ask($session{idle}, renewed('idle', '2 s', "owner => '$me'"));
	ask($session{$_}, 'BEGIN') for qw(block transaction rollback);
	ask($session{block}, renewed('block', '2 s', "owner => '$me'"));
	ask($session{$_}, renewed($_, '2 s', "owner => '$me', scope => 'transaction'"))
	  for qw(transaction rollback);
	return sub {
		for my $key (sort keys %session)
		{
			wait_for($key, "expires_at > granted_at + '6 s'");
			is(ask($other, "SELECT hloom_is_held('auto', '$key', '$me')"),
				't', "$key: kept while nothing happens");
			# What frees them is not their end.
			is(ask($other, "SELECT hloom_extend('auto', '$key', '$me', '10 min')"),
				't', "$key: a last time for long");
		}
		ask($session{transaction}, 'COMMIT');
		ok(is_free('transaction'), 'transaction: free after COMMIT');
		ask($session{rollback}, 'ROLLBACK');
		ok(is_free('rollback'), 'rollback: free after ROLLBACK');
		for my $key (qw(idle block))
		{
			ask($other, "SELECT pg_terminate_backend($pid{$key})");
			wait_until_gone($pid{$key});
			ok(is_free($key), "$key: free once its session is terminated");
		}
		# They have ended, which psql does not notice until it asks.
		for my $session (values %session)
		{
			$session->{run}->signal('KILL');
			$session->{run}->finish;
		}
	};
}

# A lease that may get five seconds old.
sub limited
{
	ask($other, "SELECT hloom_configure('limited', max_hold => '5 s')");
	my $run = start_sql(
		$node,
		"SELECT fence FROM hloom_try_acquire('limited', 'limited', '2 s', scope => 'session',"
		  . " auto_extend => true, on_lost => 'cancel');\nSELECT pg_sleep(600);",
		'limited');
	wait_for_event($node, 'limited', 'PgSleep');
	my $granted = column('limited', 'granted_at');
	my $watch = start_sql($node, "SELECT held, moved >= 3 FROM watch('limited');");
	return sub {
		my ($out, $err) = finish_sql($run);
		is(state_of($err), 'LL010', 'max_hold: the statement is cancelled') or diag($err);
		($out, $err) = finish_sql($watch);
		is($out, '00:00:05|t', 'max_hold: renewed, and no longer') or diag($err);
		wait_until('the loss is logged', sub { told('LockLeaseLost', 'limited') });
		my @stopped = told('LockAutoExtendStopped', 'limited');
		my @lost = told('LockLeaseLost', 'limited');
		is(scalar @stopped, 1, 'max_hold: the log tells once that it is over');
		like($stopped[0][1], qr/"id": 3106,.*"max_hold_ms": 5000,/, 'max_hold: how old it may get');
		is(scalar @lost, 1, 'max_hold: and once that it is lost');
		like($lost[0][1], qr/"id": 3102,.*"reason": "expired"/, 'max_hold: why');
		cmp_ok($stopped[0][0], '<', $lost[0][0], 'max_hold: one after the other');
		is(number_of('LockHoldThreshold', 'limited'), 1, 'max_hold: with a warning in between');
		my ($end) = $lost[0][1] =~ /"expired_at": "([^"]*)"/;
		is(ask($other, "SELECT '$end'::timestamptz - '$granted'"),
			'00:00:05', 'max_hold: its end was exactly then');
	};
}

# locked($database): a lease of eight seconds, and somebody who locks the table afterwards
sub locked
{
	my ($database) = @_;
	my $is = { name => $database, me => new_owner() };
	$is->{$_} = session($node, "$_ $database", $database) for qw(holder locker);
	ask($is->{holder}, renewed($database, '8 s', "owner => '$is->{me}'"));
	ask($is->{locker}, 'BEGIN; LOCK TABLE hloom_leases IN SHARE MODE');
	($is->{granted}, $is->{first_end}) = split /\|/,
	  ask($is->{locker}, 'SELECT extract(epoch FROM granted_at), expires_at FROM hloom_leases');
	$is->{worker} = wait_until(
		'a worker of the database',
		sub {
			ask($other, "SELECT pid FROM pg_stat_activity WHERE datname = '$database'"
				  . " AND backend_type = 'hloom_lock worker'");
		});
	return $is;
}

# quit_locked($is, $losses): so many were told of, to the end
sub quit_locked
{
	my ($is, $losses) = @_;
	is(number_of('LockLeaseLost', $is->{name}), $losses, "$is->{name}: losses told of: $losses");
	$is->{$_}->quit for qw(holder locker);
	return;
}

# Unlocked before the lease ends: one of the later attempts succeeds.
sub locked_early
{
	my $is = locked('locked_early');
	my $mine = "'auto', 'locked_early', '$is->{me}'";
	return sub {
		wait_until('two renewals have failed', sub { failed_at($is->{worker}) >= 2 });
		ask($is->{locker}, 'COMMIT');
		wait_until(
			'a renewal succeeds',
			sub {
				ask($is->{locker},
					"SELECT expires_at > '$is->{first_end}' FROM hloom_leases") eq 't';
			});
		is(ask($is->{locker}, "SELECT clock_timestamp() < '$is->{first_end}'"),
			't', 'locked for a while: renewed before its end');
		wait_until('its first end is over',
			sub { ask($is->{locker}, "SELECT clock_timestamp() > '$is->{first_end}'") eq 't' });
		is(ask($is->{holder}, "SELECT hloom_is_held($mine), hloom_extend($mine)"),
			't|t', 'locked for a while: held afterwards');
		is(ask($is->{holder}, "SELECT hloom_release($mine)"), 't', 'locked for a while: released');
		quit_locked($is, 0);
	};
}

# Unlocked after that: it is lost.
sub locked_late
{
	my $is = locked('locked_late');
	my $mine = "'auto', 'locked_late', '$is->{me}'";
	return sub {
		wait_until(
			'the lease is over',
			sub {
				ask($is->{locker}, "SELECT clock_timestamp() > '$is->{first_end}'") eq 't';
			});
		# At half, and half of what is left, but a twentieth after each other at least.
		my @times = map { $_ - $is->{granted} } failed_at($is->{worker});
		my @nominal = (4, 6, 7, 7.5, 7.9, 8);
		note("failed after @times");
		cmp_ok(scalar @times, '>=', 3, 'locked to the end: tried again');
		cmp_ok(scalar @times, '<=', scalar @nominal, 'locked to the end: and not all the time');
		for my $i (0 .. $#times)
		{
			cmp_ok($times[$i], '>', $nominal[$i] - 0.002, "locked to the end: attempt $i");
			cmp_ok($times[$i], '<', $nominal[$i] + 1, "locked to the end: attempt $i in time");
		}
		ask($is->{locker}, 'COMMIT');
		is(ask($is->{holder}, "SELECT hloom_is_held($mine), hloom_extend($mine),"
			  . " hloom_remaining($mine) IS NULL"),
			'f|f|t', 'locked to the end: lost');
		wait_until('the loss is logged', sub { told('LockLeaseLost', 'locked_late') });
		like((told('LockLeaseLost', 'locked_late'))[0][1],
			qr/"reason": "expired"/, 'locked to the end: expired');
		# The holder lives, the table is there, and a lease's time passes.
		my $after = ask($is->{locker}, q{SELECT clock_timestamp() + '4 s'});
		return sub {
			wait_until('time passes',
				sub { ask($is->{locker}, "SELECT clock_timestamp() > '$after'") eq 't' });
			is(ask($is->{locker}, 'SELECT count(*) FROM hloom_leases'),
				'0', 'locked to the end: not revived');
			quit_locked($is, 1);
		};
	};
}

# Warnings when four fifths are over.
sub thresholds
{
	my $session = session($node, 'thresholds');
	my $me = new_owner();
	my (%lease, %since);
	for my $key ('plain', 'extended')
	{
		ask($session,
			"SELECT FROM hloom_try_acquire('auto', '$key', '6 s', scope => 'session',"
			  . " owner => '$me')");
		$lease{$key} = 6;
		$since{$key} = column($key, 'extract(epoch FROM granted_at)');
	}
	ask($session, 'BEGIN');
	ask($session, "SELECT FROM hloom_try_acquire('auto', 'early', '2 s', scope => 'transaction')");
	ask($session, 'COMMIT');
	return sub {
		wait_for('extended', "clock_timestamp() > granted_at + '2 s'");
		is(ask($other, "SELECT hloom_extend('auto', 'extended', '$me', '7 s')"), 't', 'extended');
		$lease{extended} = 7;
		$since{extended} = column('extended', 'extract(epoch FROM expires_at - lease)');
		return sub {
			for my $key (sort keys %lease)
			{
				my $lease = $lease{$key};
				wait_until("$key is lost", sub { told('LockLeaseLost', $key) });
				my @told = told('LockHoldThreshold', $key);
				is(scalar @told, 1, "$key: warned of once");
				like($told[0][1], qr/"id": 3103,.*"lease_ms": ${lease}000,/, "$key: of this lease");
				cmp_ok($told[0][0], '>', $since{$key} + 0.8 * $lease - 0.002,
					"$key: not before 80 % are over");
				cmp_ok($told[0][0], '<', $since{$key} + $lease, "$key: before it ends");
				is(number_of('LockLeaseLost', $key), 1, "$key: lost once");
			}
			$session->quit;
		};
	};
}

# The setting, of a role and of a database.
sub by_setting
{
	$node->safe_psql('postgres', $_)
	  for 'ALTER ROLE app SET hloom_lock.auto_extend = on',
	  'ALTER DATABASE set_database SET hloom_lock.auto_extend = on';
	my %session;
	{
		local $ENV{PGUSER} = 'app';
		$session{role} = session($node, 'set_role');
	}
	$session{database} = session($node, 'set_database', 'set_database');
	for my $is (sort keys %session)
	{
		ask($session{$is}, "SELECT FROM hloom_try_acquire('set-$is', $_)")
		  for "'session', '2 s', scope => 'session'", "'lease', '2 s'",
		  "'no', '2 s', scope => 'session', auto_extend => false";
	}
	my %look = (role => $other, database => $session{database});
	my %seen = map {
		($_ => ask($look{$_},
				q{SELECT string_agg(key || ' ' || auto_extend, ', ' ORDER BY key)}
				  . " FROM hloom_leases WHERE namespace = 'set-$_'"))
	} keys %session;
	return sub {
		for my $is (sort keys %session)
		{
			is($seen{$is}, 'lease false, no false, session true', "set for a $is");
			wait_until(
				'one is renewed, the others have ended',
				sub {
					ask($look{$is},
						q{SELECT array_agg(key) = '{session}'}
						  . " AND min(expires_at - granted_at) > '4 s'"
						  . " FROM hloom_leases WHERE namespace = 'set-$is'") eq 't';
				});
			$session{$is}->quit;
		}
	};
}

# The owner extends a lease itself, in its own session and in another one.
sub by_hand
{
	my $session = session($node, 'by hand');
	my $me = new_owner();
	my $mine = "'auto', 'by_hand', '$me'";
	ask($session, renewed('by_hand', '2 s', "owner => '$me'"));
	return sub {
		for my $is ([ 'longer', $session, 4 ], [ 'shorter elsewhere', $other, 1 ],
			[ 'longer elsewhere', $other, 3 ], [ 'shorter', $session, 2 ])
		{
			my ($name, $from, $lease) = @$is;
			ask($from, "SELECT hloom_extend($mine, '$lease s')") eq 't' or die 'lost';
			my ($is_so, $end) = split /\|/,
			  column('by_hand', "lease = '$lease s' AND clock_timestamp() - (expires_at - lease)"
				  . " BETWEEN '0' AND '1 s', expires_at");
			is($is_so, 't', "$name: lasts from now");
			wait_for('by_hand', "expires_at > '$end'");
			is( column('by_hand',
					"lease = '$lease s' AND expires_at - lease BETWEEN"
					  . " timestamptz '$end' - lease / 2 AND clock_timestamp()"),
				't',
				"$name: renewed for so long, at half");
		}
		is(ask($session, "SELECT hloom_release($mine)"), 't', 'extended by hand: released');
		is(number_of('LockHoldThreshold', 'by_hand'), 0, 'extended by hand: no warning');
		is(number_of('LockLeaseLost', 'by_hand'), 0, 'extended by hand: not lost');
	};
}

# Extensions and renewals at the same moments
sub race
{
	my $session = session($node, 'race');
	my $me = new_owner();
	my $keys = rounds(40);
	my $rounds = rounds(300);
	ask($session,
		"SELECT count(*) FROM generate_series(1, $keys) AS i, hloom_try_acquire('auto',"
		  . " 'race-' || i, '2 s', scope => 'session', auto_extend => true, owner => '$me')");
	my $run = start_sql($node, "SELECT * FROM race($rounds, '$me');", 'race');
	return sub {
		my ($out, $err) = finish_sql($run);
		my ($extended, $renewed) = split /\|/, $out;
		is($extended, $rounds, 'race: each extension did what it says') or diag($err);
		note("race: $rounds extensions, $renewed renewals");
		cmp_ok($renewed, '>', 0, 'race: with renewals in between');
		is(ask($other, q{SELECT count(*) FROM hloom_leases WHERE starts_with(key, 'race-')}),
			$keys, 'race: all are held');
		is(ask($session, 'SELECT hloom_release_session()'), $keys, 'race: and given back');
		unlike(slurp_file($node->logfile), qr/(?:LockLeaseLost|Stopped).*race-/, 'race: none lost');
		$session->quit;
	};
}

# ---- and all of it -----------------------------------------------------------------------------

# Last comes what waits for something in the next seconds, and is looked at first.
my @parts = reverse map { $_->() } (
	\&long_statement, \&limited, \&unnoticed_client, \&idle,
	\&by_setting, \&noticed_client, \&race, \&by_hand,
	\&locked_late, \&locked_early, \&thresholds);
while (my $part = shift @parts)
{
	my $rest = $part->();
	push @parts, $rest if ref $rest;
}

# ---- many --------------------------------------------------------------------------------------

my @holders = map { session($node, "many $_") } 1 .. 4;
for my $i (0 .. $#holders)
{
	ask($holders[$i],
		"SELECT count(*) FROM generate_series(1, $many) AS i, hloom_try_acquire('auto',"
		  . " 'many-' || i, '3 s', scope => 'session', auto_extend => true) WHERE i % 4 = $i");
}
my $all = q{FROM hloom_leases WHERE starts_with(key, 'many-')};
my $fences = ask($other, "SELECT count(*), sum(fence) $all");
like($fences, qr/^$many\|/, "many: $many leases");
wait_until('each was renewed',
	sub { ask($other, "SELECT min(expires_at - granted_at) > '3 s' $all") eq 't' });
my ($from, $from_lsn) = split /\|/,
  ask($other, 'SELECT extract(epoch FROM clock_timestamp()), pg_current_wal_lsn()');
my ($to, $to_lsn, $bytes) = split /\|/, wait_until(
	'nine seconds pass',
	sub {
		ask($other,
			'SELECT extract(epoch FROM clock_timestamp()), pg_current_wal_lsn(),'
			  . " pg_current_wal_lsn() - '$from_lsn'"
			  . " WHERE extract(epoch FROM clock_timestamp()) > $from + 9");
	});
is(ask($other, "SELECT count(*), sum(fence) $all"), $fences, 'many: all are held');
unlike(slurp_file($node->logfile), qr/"key": "many-/, 'many: and the log tells of none');

# Nobody but the lease table writes records of this kind.
my ($stats, $errors) = run_command(
	[
		$node->installed_command('pg_waldump'), '--stats',
		'--path', $node->data_dir . '/pg_wal',
		'--start', $from_lsn, '--end', $to_lsn
	]);
my $renewals = $stats =~ /^Generic\s+(\d+)/m ? $1 : 0;
note(sprintf('many: %d renewals in %.1f s, %.1f bytes each', $renewals, $to - $from,
		$bytes / ($renewals || 1)));
cmp_ok($renewals, '<=', $many * (($to - $from) / 1.5 + 1), 'many: renewed at half, no sooner')
  or diag($stats, $errors);
cmp_ok($renewals, '>=', $many * (($to - $from) / 2.5 - 1), 'many: nor much later');
cmp_ok($bytes, '<=', 200 * $renewals, 'many: a renewal is small');
$_->quit for @holders;
wait_until('all are given back', sub { ask($other, "SELECT count(*) $all") eq '0' });

# ---- the log -----------------------------------------------------------------------------------

is(number_of('LockHoldThreshold', $_), 0, "$_: no warning")
  for qw(early long idle block transaction rollback noticed unnoticed);
is(number_of('LockLeaseLost', $_), 0, "$_: not lost")
  for qw(early long idle block transaction rollback noticed unnoticed);
# Of this database: plain, extended, limited, and two of set-role
is(ask($other, q{SELECT sum(value) FROM hloom_metrics WHERE name = 'hostloom_lock_lost'}),
	'5', 'what was lost is counted once');
unlike(slurp_file($node->logfile), qr/[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-|[0-9a-f]{32}/,
	'no owner token');

$other->quit;
$node->stop;
done_testing();
