# A lease that was reported survives a crash.
#
# The server is stopped without asking, which loses all WAL that was not yet written to the kernel,
# so fsync = off is truthful here.  A restart is dear, so each of the stops comes after several
# grants.  The flush of a later grant would hide that an earlier one had none, therefore
#
# - the kinds take turns in coming last before the stop;
# - after each reply the server is asked how much WAL is not yet flushed: none;
# - the very last is a grant whose flush is switched off.  It is the negative control: it must be
#   gone after the restart, which also shows that nothing else flushed in the meantime.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomTest;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

my $ROUNDS = rounds(50);
my $KEYS_PER_STOP = 1;

# Everybody who writes WAL out without being asked is kept from it: the WAL writer as long as can
# be set, the background writer (a dirty page's WAL goes first), checkpoints.
my $node = make_node(
	'crash',
	init => { extra => ['-k'] },
	settings => {
		'wal_writer_delay' => '10s',
		'bgwriter_lru_maxpages' => 0,
		'checkpoint_timeout' => '1h',
	});
my $control = need_test_module($node);
$node->safe_psql('postgres', 'CREATE TABLE work (id text PRIMARY KEY)');

# Who first reads a page of the catalogue may prune it or set hint bits: WAL that nobody flushes.
# What is set without WAL would be lost with each stop, hence the checkpoint.
$node->safe_psql('postgres', $_) for 'VACUUM', 'CHECKPOINT';

# From the page header that an insert position may stand behind
my $UNFLUSHED = 'SELECT pg_current_wal_insert_lsn() - pg_current_wal_flush_lsn() > 40';

my %fence;	# of each key taken since the last stop

# What identifies a lease.  Its end in the table is the store's, not before the one reported.
my $LEASE = "SELECT owner || '|' || fence || '|' || expires_at FROM hloom_leases";

# Takes a lease, returns the check that it is there unchanged: query, expected
sub held
{
	my ($session, $key, $arguments) = @_;
	my $reported = ask($session, take('crash', $key, $arguments));
	($fence{$key}) = $reported =~ /(\d+)$/;
	my $lease = ask($session, "$LEASE WHERE key = '$key'");
	$lease =~ /^\Q$reported\E\|/ or die "'$lease' is not the lease reported, '$reported'";
	return ("$LEASE WHERE key = '$key'", $lease);
}

# Each kind does its work and returns its checks after the restart.
my %kinds = (
	autocommit => sub {
		my ($session, $key) = @_;
		return [ held($session, $key, "note => 'a note'") ];
	},
	'open transaction' => sub {
		my ($session, $key) = @_;
		ask($session, 'BEGIN');
		return [ held($session, $key) ];
	},
	'open transaction with an xid' => sub {
		my ($session, $key) = @_;
		ask($session, "BEGIN; INSERT INTO work VALUES ('open $key')");
		return [ held($session, $key) ],
		  [ "SELECT count(*) FROM work WHERE id = 'open $key'", '0' ];
	},
	'longer lease' => sub {
		my ($session, $key) = @_;
		held($session, $key, "lease => '10min', owner => md5('$key')::uuid");
		ask($session, "SELECT hloom_extend('crash', '$key', md5('$key')::uuid, '40min')") eq 't'
		  or die "no extension of $key";
		return [ "$LEASE WHERE key = '$key'", ask($session, "$LEASE WHERE key = '$key'") ],
		  [ "SELECT lease FROM hloom_leases WHERE key = '$key'", '00:40:00' ];
	},
	'row beside a lease' => sub {
		my ($session, $key) = @_;
		ask($session, "BEGIN; INSERT INTO work VALUES ('done $key')");
		$fence{$key} = ask($session,
			"SELECT fence FROM hloom_try_acquire('crash', '$key', owner => md5('$key')::uuid)");
		ask($session, "SELECT hloom_release('crash', '$key', md5('$key')::uuid)") eq 't'
		  or die "no release of $key";
		ask($session, 'COMMIT');
		return [ "SELECT count(*) FROM work WHERE id = 'done $key'", '1' ];
	});
my @kinds = sort keys %kinds;

# What the stops found: per kind how many rounds, how many of them held
my (%rounds, %good, %last, %unflushed, @broken);
my ($controls, $lost) = (0, 0);
my (%fences, %higher);
my $stops = 0;

for (my $round = 0; $round < $ROUNDS; $round += $KEYS_PER_STOP)
{
	my @order = map { $kinds[ ($_ + $stops) % @kinds ] } 0 .. $#kinds;
	my (%sessions, @checks);
	%fence = ();
	my $stop = $stops++;

	for my $n (1 .. $KEYS_PER_STOP)
	{
		for my $kind (@order)
		{
			my $key = join('-', $kind =~ s/ /_/gr, $stop, $n);
			my $session = $sessions{$kind} ||= session($node, $kind);
			ask($session, 'ROLLBACK') if $n > 1 && $kind =~ /open/;
			push @checks, map { [ $kind, @$_ ] } $kinds{$kind}->($session, $key);
			$unflushed{$kind}++ if ask($session, $UNFLUSHED) ne 'f';
			$rounds{$kind}++;
		}
	}
	$last{ $order[-1] }++;

	if ($control)
	{
		my $session = $sessions{control} = session($node);
		ask($session, "SELECT hloom_test_set('flush', 'skip')");
		($fence{"control-$stop"}) = ask($session, take('crash', "control-$stop")) =~ /(\d+)$/;
		$controls++ if ask($session, $UNFLUSHED) eq 't';
	}
	$node->stop('immediate');
	$_->quit for values %sessions;
	$node->start;

	my $session = session($node);
	for my $check (@checks)
	{
		my ($kind, $sql, $expected) = @$check;
		my $found = ask($session, $sql);
		$good{$kind}++ if $found eq $expected;
		push @broken, "$kind: $sql: '$found', not '$expected'" if $found ne $expected;
	}
	$lost += ask($session, "SELECT count(*) = 0 FROM hloom_leases WHERE key = 'control-$stop'") eq
	  't' ? 1 : 0
	  if $control;

	# The next grant of each of the keys, whether its lease is held or was lost in the crash
	for my $key (sort keys %fence)
	{
		ask($session, "SELECT hloom_release(namespace, key, owner) FROM hloom_leases"
			  . " WHERE key = '$key'");
		my $kind = $key =~ /control/ ? 'lost' : 'reported';
		my $higher =
		  ask($session, "SELECT fence > $fence{$key} FROM hloom_try_acquire('crash', '$key')");
		$fences{$kind}++;
		$higher{$kind}++ if $higher eq 't';
	}
	$session->quit;
}

for my $kind (@kinds)
{
	is($unflushed{$kind} || 0, 0, "$kind: nothing left to flush when reported");
	ok($good{$kind} >= $rounds{$kind},
		"$kind: there after the crash in $rounds{$kind} rounds, last in " . ($last{$kind} || 0));
}
is_deeply(\@broken, [], 'nothing else than reported') or diag(join("\n", @broken));
is($higher{reported},
	$fences{reported}, "the next fence of a key is higher: $fences{reported} keys");

SKIP:
{
	skip 'no test switches', 3 if !$control;
	is($controls, $stops, 'without its flush a grant leaves WAL behind');
	is($higher{lost}, $fences{lost}, 'the next fence is higher than a lost one');
	# One may get through, when the WAL writer awakes just before the stop.
	ok($lost >= $stops * 0.8, "without its flush a grant is lost, in $lost of $stops stops");
}

# synchronous_commit = off, under load, with the WAL writer at its usual pace: grants may be lost,
# nothing may be damaged, and no fence may come again.
$node->append_conf('postgresql.conf', settings('wal_writer_delay' => '200ms'));
$node->reload;
$node->safe_psql('postgres', 'SELECT hloom_release(namespace, key, owner) FROM hloom_leases');

my $take = $node->basedir . '/take.sql';
my $release = $node->basedir . '/release.sql';
append_to_file($take, <<'SQL');
\set k random(1, 4000)
SELECT fence FROM hloom_try_acquire('off', 'key:' || :k, owner => md5(:k::text)::uuid,
	note => repeat('x', :k % 200));
SQL
append_to_file($release, <<'SQL');
\set k random(1, 4000)
SELECT hloom_release('off', 'key:' || :k, md5(:k::text)::uuid);
SQL

my $SANE = <<'SQL';
SELECT count(*) = count(DISTINCT key), count(*) <= 4000,
	bool_and(owner = md5(substr(key, 5))::uuid AND fence > 0
		AND note = repeat('x', substr(key, 5)::int % 200) AND expires_at > granted_at)
FROM hloom_leases WHERE namespace = 'off' AND key <> 'fence'
SQL

for my $stop (1 .. rounds(3))
{
	my ($out, $err) = ('', '');
	my $load = do
	{
		local $ENV{PGOPTIONS} = '-c synchronous_commit=off';
		IPC::Run::start(
			[
				$node->installed_command('pgbench'), '-n', '-c', 4, '-T', 60, '-d',
				$node->connstr('postgres'), '-f', "$take\@3", '-f', "$release\@1"
			],
			'<', \'', '>', \$out, '2>', \$err,
			IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	};
	my $session = session($node);
	ask($session, 'SET synchronous_commit = off');
	wait_until('leases of the load',
		sub {
			$load->pump_nb;
			die "the load ended: $err" if !$load->pumpable;
			return ask($session,
				"SELECT count(*) > 1000 FROM hloom_leases WHERE namespace = 'off'") eq 't';
		});
	# A flush, so that there is something to look at afterwards; what comes behind it may be lost.
	ask($session, 'SET synchronous_commit = on; ' . take('on', "stop-$stop"));
	ask($session, 'SET synchronous_commit = off');
	my $fence = ask($session, "SELECT fence FROM hloom_try_acquire('off', 'fence', '1s')");
	$node->stop('immediate');
	$session->quit;
	$load->finish;
	isnt($load->result(0), 0, "stop $stop came into the load");
	$node->start;

	is($node->safe_psql('postgres', $SANE), 't|t|t', 'all leases are sound');

	# The lease on "fence" ends in this second.
	my $count = "SELECT count(*) FROM hloom_leases WHERE key <> 'fence'";
	my $before = $node->safe_psql('postgres', $count);
	ok($before > 0, 'leases are left');
	$node->safe_psql('postgres', 'VACUUM hloom_leases');
	is($node->safe_psql('postgres', $count), $before, 'as many after VACUUM');
	is( $node->safe_psql(
			'postgres',
			"SELECT hloom_release('off', key, owner) FROM hloom_leases WHERE key = 'fence';"
			  . "SELECT fence > $fence FROM hloom_try_acquire('off', 'fence')") =~ s/^t\n//r,
		't',
		'a fence that may be lost does not come again');
	$node->safe_psql('postgres',
		"SELECT hloom_release(namespace, key, owner) FROM hloom_leases WHERE namespace = 'off'");
}

# Grants that are followed by silence.  A few are flushed by the WAL writer, which is told of them
# unless another page of WAL has begun since it was last told; the others by whoever writes WAL
# next, at the latest by the background writer's snapshot, some 25 seconds after the last.
$node->append_conf('postgresql.conf', settings('wal_level' => 'replica'));
$node->restart;
for my $grants (100)
{
	my $session = session($node);
	ask($session, 'SET synchronous_commit = off');
	ask($session, take('silence', "$grants-$_")) for 1 .. $grants;
	wait_until("$grants grants are flushed", sub { ask($session, $UNFLUSHED) eq 'f' }, 60);
	my $leases = ask($session, "$LEASE WHERE namespace = 'silence' ORDER BY key");
	$node->stop('immediate');
	$session->quit;
	$node->start;
	is($node->safe_psql('postgres', "$LEASE WHERE namespace = 'silence' ORDER BY key"),
		$leases, "$grants grants and silence: there after a crash");
}

$node->stop;
command_ok([ $node->installed_command('pg_checksums'), '--check', '-D', $node->data_dir ],
	'the checksums are right');
is_deeply([ grep { /PANIC|corrupt|invalid (row|page)/ } error_lines($node) ],
	[], 'no damage in the log');

done_testing();
