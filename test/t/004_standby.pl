# A physical standby and a base backup have the same leases, page by page, and can take over.
#
# With wal_consistency_checking each record carries the page as the primary has it after the
# change, and replay ends with FATAL where it comes to another result.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomTest;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

my $ROWS = "SELECT count(*) || ' ' || md5(string_agg(l::text, E'\\n' ORDER BY namespace, key))"
  . ' FROM hloom_leases l';

my $primary = make_node(
	'primary',
	init => { allows_streaming => 1, extra => ['-k'] },
	settings => {
		'wal_consistency_checking' => 'generic',
		'max_connections' => 20,
		# Small, so that pages are written and read again, but enough for the load's pins.
		'shared_buffers' => '4MB',
		'max_wal_size' => '1GB',
		'wal_keep_size' => '1GB',
	});
# Keys before the standby exists, so that the copy has work to do, too
$primary->safe_psql('postgres',
	"SELECT count(*) FROM generate_series(1, 500) i, hloom_try_acquire('kept', 'k' || i)");
$primary->backup('standby');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'standby', has_streaming => 1);
$standby->start;

# Load: takes, renewals, extensions and releases of more keys than the first buckets hold, rows of
# all sizes, short leases that run out and whose places are used again.
my %scripts = (
	take => <<'SQL',
\set k random(1, 6000)
SELECT fence FROM hloom_try_acquire('load', 'k' || :k, '10min', owner => md5(:k::text)::uuid,
	note => repeat('x', :k % 256));
SQL
	short => <<'SQL',
\set k random(1, 6000)
SELECT fence FROM hloom_try_acquire('short', 'k' || :k, '2 s', note => repeat('y', :k % 256));
SQL
	extend => <<'SQL',
\set k random(1, 6000)
SELECT hloom_extend('load', 'k' || :k, md5(:k::text)::uuid, '20min');
SQL
	release => <<'SQL');
\set k random(1, 6000)
SELECT hloom_release('load', 'k' || :k, md5(:k::text)::uuid);
SQL
my %weights = (take => 6, short => 2, extend => 1, release => 1);

sub start_load
{
	my ($transactions) = @_;
	my @files;
	for my $name (sort keys %scripts)
	{
		my $file = $primary->basedir . "/$name.sql";
		append_to_file($file, $scripts{$name}) if !-e $file;
		push @files, '-f', "$file\@$weights{$name}";
	}
	my $load = { out => '', err => '' };
	$load->{handle} = IPC::Run::start(
		[
			$primary->installed_command('pgbench'), '-n', '-c', 4, '-t', $transactions, '-d',
			$primary->connstr('postgres'), @files
		],
		'<', \'', '>', \$load->{out}, '2>', \$load->{err},
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return $load;
}

sub end_load
{
	my ($load, $name) = @_;
	$load->{handle}->finish;
	is($load->{handle}->result(0), 0, "$name: no error") or diag($load->{err});
	return;
}

# A release is flushed when it suits the server, a commit at once.
sub catch_up
{
	my ($name) = @_;
	# Leases of the load that end between the two looks would make them differ.
	wait_for_sql($primary, "SELECT count(*) = 0 FROM hloom_leases WHERE namespace = 'short'");
	$primary->safe_psql('postgres', "SELECT pg_logical_emit_message(true, '', '')");
	$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));
	my $rows = $primary->safe_psql('postgres', $ROWS);
	is($standby->safe_psql('postgres', $ROWS), $rows, "$name: the standby has the same rows");
	return $rows;
}

my $size = $primary->safe_psql('postgres', "SELECT pg_relation_size('hloom_leases')");
end_load(start_load(rounds(6000)), 'load');
my $rows = catch_up('load');
note "$rows, "
  . $primary->safe_psql('postgres', "SELECT pg_relation_size('hloom_leases')")
  . " bytes, at first $size";
is( $primary->safe_psql('postgres', "SELECT pg_relation_size('hloom_leases') > $size"),
	't', 'the table grew under the load');

# What the maintenance commands log
for my $sql (
	'VACUUM hloom_leases',
	'VACUUM FULL hloom_leases',
	'TRUNCATE hloom_leases',
	"SELECT count(*) FROM generate_series(1, 3000) i, hloom_try_acquire('kept', 'k' || i)",
	'CHECKPOINT')
{
	$primary->safe_psql('postgres', $sql);
	catch_up($sql);
}

# Nothing can be changed on the standby, nor asked for as if it could be relied on.
my $owner = '00000000-0000-4000-8000-000000000001';
for my $call (
	"hloom_try_acquire('ns', 'k')",
	"hloom_extend('ns', 'k', '$owner'::uuid)",
	"hloom_release('ns', 'k', '$owner'::uuid)",
	"hloom_is_held('ns', 'k', '$owner'::uuid)",
	"hloom_remaining('ns', 'k', '$owner'::uuid)")
{
	is((sql_error($standby, "SELECT * FROM $call"))[0], '25006', "standby: $call");
}

# What is configured on the primary is seen on the standby, by a session from before, too.
is( (sql_error($standby, "SELECT hloom_$_"))[0],
	'25006', "standby: hloom_$_")
  for "configure('ns')", "unconfigure('ns')";
my $looking = session($standby, 'looking');
is(ask($looking, "SELECT hloom_is_coordinated('ns')"), 't', 'standby: nothing configured');
$primary->safe_psql('postgres', "SELECT hloom_configure('ns', enabled => false)");
$primary->wait_for_catchup($standby, 'replay', $primary->lsn('flush'));
is(ask($looking, "SELECT hloom_is_coordinated('ns')"), 'f', 'standby: disabled by the primary');
$looking->quit;

# What needs no lease works there.
is( $standby->safe_psql(
		'postgres', 'SELECT hloom_retry_describe(hloom_retry_interval(3, \'1 s\'))'),
	'interval 1000 ms, 3 retries', 'standby: retry policies can be made');

# A base backup under load.  What was held when it began is in the restored server, unchanged.
my $KEPT = "SELECT count(*) || ' ' || md5(string_agg(l::text, E'\\n' ORDER BY key))"
  . " FROM hloom_leases l WHERE namespace = 'kept'";
my $kept = $primary->safe_psql('postgres', $KEPT);
my $load = start_load(rounds(2000));
wait_until(
	'the load has begun',
	sub {
		$primary->safe_psql('postgres',
			"SELECT count(*) > 100 FROM hloom_leases WHERE namespace = 'load'") eq 't';
	});
$primary->backup('restored');
$load->{handle}->pump_nb;
note 'the load is ' . ($load->{handle}->pumpable ? 'still running' : 'over');
end_load($load, 'load during the backup');
$rows = catch_up('load during the backup');

my $restored = PostgreSQL::Test::Cluster->new('restored');
$restored->init_from_backup($primary, 'restored');
$restored->start;
is($restored->safe_psql('postgres', $KEPT), $kept, 'restored backup: the leases are there');
is( $restored->safe_psql(
		'postgres', <<'SQL'), "t|t", 'restored backup: those of the load are sound');
SELECT count(*) = count(DISTINCT (namespace, key)),
	bool_and(namespace <> 'load'
		OR owner = md5(substr(key, 2))::uuid AND note = repeat('x', substr(key, 2)::int % 256))
FROM hloom_leases
SQL
is( $restored->safe_psql('postgres', "SELECT count(*) FROM hloom_try_acquire('kept', 'k1')"),
	'0', 'restored backup: a held key stays held');

# next_fences($node): gives all kept keys back and takes them again: how many, all fences higher
sub next_fences
{
	my ($node) = @_;
	return $node->safe_psql(
		'postgres', <<'SQL') =~ s/^(?:t|)\n//r;
CREATE TEMP TABLE old AS SELECT namespace, key, owner, fence FROM hloom_leases
	WHERE namespace = 'kept';
SELECT bool_and(hloom_release(namespace, key, owner)) FROM old;
SELECT count(*), bool_and(h.fence > old.fence)
	FROM old, hloom_try_acquire(old.namespace, old.key) h;
SQL
}
is(next_fences($restored), '3000|t', 'restored backup: the next fences are higher');
$restored->stop;

# Promotion.  The old primary is stopped cleanly, so both have everything.
$primary->stop;
$standby->promote;
is($standby->safe_psql('postgres', $ROWS), $rows, 'promoted: the leases are still held');
is( $standby->safe_psql('postgres', "SELECT count(*) FROM hloom_try_acquire('kept', 'k1')"),
	'0', 'promoted: a held key stays held');
is(next_fences($standby), '3000|t', 'promoted: the next fences are higher');
$standby->stop;

for my $node ($primary, $standby, $restored)
{
	my $name = $node->name;
	command_ok([ $node->installed_command('pg_checksums'), '--check', '-D', $node->data_dir ],
		"$name: the checksums are right");
	is_deeply([ grep { /inconsistent|PANIC|corrupt|invalid page/ } error_lines($node) ],
		[], "$name: nothing inconsistent");
}
done_testing();
