# What PostgreSQL does to a table from outside: dump and restore, copies of a database, logical
# replication, a server that does not preload the library, another tablespace, wal_level = minimal.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $owner = '11111111-1111-4111-8111-111111111111';
my $mine = "'env', 'mine', '$owner'";
my $works = 'SELECT count(*) FROM hloom_try_acquire(\'env\', \'new\')';
my $keys = 'SELECT string_agg(key, \',\' ORDER BY key) FROM hloom_leases';

# The publisher has to write logical WAL; nothing else here minds.
my $node = make_node(
	'env',
	init => { allows_streaming => 'logical' },
	settings => { allow_in_place_tablespaces => 'on', max_wal_senders => 10 });
$node->safe_psql('postgres', take('env', 'mine', "owner => '$owner'"));
my $fence = $node->safe_psql('postgres', 'SELECT max(fence) FROM hloom_leases');

# ---- pg_dump -------------------------------------------------------------------------------------

for my $how ('', '--schema-only')
{
	my $db = 'restored' . ($how ? '_schema' : '');
	my $file = $node->basedir . "/$db.sql";
	$node->command_ok(
		[ 'pg_dump', '-d', $node->connstr('postgres'), '-f', $file, $how ? $how : () ],
		"pg_dump $how");
	$node->safe_psql('postgres', "CREATE DATABASE $db");
	$node->command_ok(
		[ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($db), '-f', $file ],
		"pg_dump $how: restored");
	is($node->safe_psql($db, 'SELECT count(*) FROM hloom_leases'), '0', "pg_dump $how: no leases");
	is($node->safe_psql($db, $works), '1', "pg_dump $how: a lease can be taken");
	cmp_ok($node->safe_psql($db, 'SELECT max(fence) FROM hloom_leases'),
		'>', $fence, "pg_dump $how: with a higher fence than before");
}

# The options of namespaces are no leases: they are carried, and a session that has read the empty
# table before sees them.  A role of the name need not be there.
$node->safe_psql('postgres', 'CREATE ROLE dumped_role');
$node->safe_psql('postgres', <<'SQL');
SELECT hloom_configure('dumped', max_key_length => 100, max_lease => '45 min',
	retry => hloom_retry_exponential(5, '10 ms', '1 s'));
SELECT hloom_configure('private', role => 'dumped_role');
SQL
$node->safe_psql('postgres', 'DROP ROLE dumped_role');
my $options = 'SELECT string_agg(n::text, \',\' ORDER BY namespace) FROM hloom_namespaces n';
my $dumped = $node->safe_psql('postgres', $options);
my $describe = 'SELECT string_agg(part, \',\') FROM hloom_describe(\'dumped\')'
  . ' WHERE decided_by = \'hloom_namespaces\'';
my $archive = $node->basedir . '/options.dump';
$node->command_ok([ 'pg_dump', '-Fc', '-d', $node->connstr('postgres'), '-f', $archive ],
	'pg_dump -Fc with options');
$node->safe_psql('postgres', 'CREATE DATABASE configured');
$node->safe_psql('configured', 'CREATE EXTENSION hloom_lock');
my $connected = session($node, 'connected', 'configured');
for my $how ([], [ '--data-only', '--disable-triggers' ])
{
	ask($connected, 'BEGIN ISOLATION LEVEL REPEATABLE READ');
	is(ask($connected, $describe), 'role', "pg_restore @$how: nothing configured before");
	$node->command_ok([ 'pg_restore', @$how, '-d', $node->connstr('configured'), $archive ],
		"pg_restore @$how");
	is($node->safe_psql('configured', $options), $dumped, "pg_restore @$how: the rows are there");
	is( ask($connected, $describe),
		'namespace,max_lease,retry,max_wait,max_key_length,role',
		"pg_restore @$how: a session in a transaction sees them");
	is((ask_error($connected, 'SELECT hloom_is_coordinated(\'private\')'))[0],
		'42704', "pg_restore @$how: a role that is not there is an error of its namespace");
	ask($connected, 'ROLLBACK');
	$node->safe_psql('configured', 'TRUNCATE hloom_namespaces');
}
$connected->quit;
$node->safe_psql('postgres', 'DROP DATABASE configured');

# ---- another provider ----------------------------------------------------------------------------

# A namespace with leases does not get another provider, however that comes about.
$node->safe_psql('postgres', 'SELECT hloom_configure(\'dumped\', provider => \'table\')');
$node->safe_psql('postgres', take('dumped', 'held', "owner => '$owner'"));
$node->append_conf('postgresql.conf', 'hloom_lock.provider = \'elsewhere\'');
$node->reload;
wait_for_sql($node, 'SELECT current_setting(\'hloom_lock.provider\') = \'elsewhere\'');
for my $call ('hloom_configure(\'dumped\', reset => \'{provider}\')',
	'hloom_unconfigure(\'dumped\')')
{
	my ($state, $message) = sql_error($node, "SELECT $call");
	is($state, '55006', "with a lease: $call");
	like($message, qr/DETAIL:  1 lease is held at provider "table"/, 'which tells of the lease');
}
is( $node->safe_psql('postgres', <<'SQL'), '7200', 'with a lease: other options can be changed');
SELECT extract(epoch FROM max_hold)::int FROM hloom_configure('dumped', max_hold => '2 h');
SQL
$node->safe_psql('postgres', "SELECT hloom_release('dumped', 'held', '$owner')");
is($node->safe_psql('postgres', 'SELECT hloom_unconfigure(\'dumped\')'),
	't', 'without a lease it can be changed');
$node->append_conf('postgresql.conf', 'hloom_lock.provider = \'table\'');
$node->reload;
wait_for_sql($node, 'SELECT current_setting(\'hloom_lock.provider\') = \'table\'');

# ---- copies of a database ------------------------------------------------------------------------

for my $strategy ('wal_log', 'file_copy')
{
	my $db = "copy_$strategy";
	$node->safe_psql('postgres', "CREATE DATABASE $db TEMPLATE restored STRATEGY $strategy");
	is($node->safe_psql($db, $keys), 'new', "$strategy: the copy has the leases");
	is($node->safe_psql($db, $works), '0', "$strategy: they count");
	is( $node->safe_psql($db, 'SELECT count(*) FROM hloom_try_acquire(\'env\', \'other\')'),
		'1', "$strategy: others can be taken");
	is($node->safe_psql('restored', $keys), 'new', "$strategy: and not in the original");
}
$node->stop('immediate');
$node->start;
is($node->safe_psql("copy_$_", $keys), 'new,other', "$_: survives a crash")
  for 'wal_log', 'file_copy';

# ---- another tablespace --------------------------------------------------------------------------

$node->safe_psql('postgres', 'CREATE TABLESPACE elsewhere LOCATION \'\'');
my $old_session = session($node, 'old');
is(ask($old_session, "SELECT hloom_is_held($mine)"), 't', 'held in a session from before');
$node->safe_psql('postgres', 'ALTER TABLE hloom_leases SET TABLESPACE elsewhere');
is(ask($old_session, "SELECT hloom_is_held($mine)"), 't', 'SET TABLESPACE keeps the lease');
is(ask($old_session, "SELECT hloom_extend($mine)"), 't', 'SET TABLESPACE: it can be extended');
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', "SELECT hloom_is_held($mine)"),
	't', 'SET TABLESPACE: after a crash');
eval { $old_session->quit };

# ---- DROP and CREATE EXTENSION -------------------------------------------------------------------

$old_session = session($node, 'old', 'restored');
is(ask($old_session, $keys), 'new', 'a session looks at the table');
$node->safe_psql('restored', 'DROP EXTENSION hloom_lock');
is((ask_error($old_session, $keys))[0], '42P01', 'after DROP EXTENSION there is none');
$node->safe_psql('restored', 'CREATE EXTENSION hloom_lock');
is(ask($old_session, $works), '1', 'after CREATE EXTENSION the old session finds the new one');
is(ask($old_session, $keys), 'new', 'and what it took there');
is($node->safe_psql('restored', $works), '0', 'so does everybody else');
$old_session->quit;

# ---- logical replication -------------------------------------------------------------------------

my $subscriber = make_node('subscriber', init => { allows_streaming => 'logical' });
my $make = 'CREATE TABLE ordinary (id int PRIMARY KEY, t text)';
$node->safe_psql('postgres', "$make; INSERT INTO ordinary VALUES (1, 'before')");
$node->safe_psql('postgres', 'CREATE PUBLICATION everything FOR ALL TABLES');
$subscriber->safe_psql('postgres', $make);
$subscriber->safe_psql('postgres',
	"CREATE SUBSCRIPTION sub CONNECTION '" . $node->connstr . " dbname=postgres'"
	  . ' PUBLICATION everything');
is( $node->safe_psql(
		'postgres',
		'SELECT count(*) FROM pg_publication_tables WHERE tablename = \'hloom_leases\''),
	'1', 'the publication has the lease table');
wait_for_sql($subscriber,
	'SELECT count(*) >= 2 AND bool_and(srsubstate = \'r\') FROM pg_subscription_rel');
pass('the subscription becomes ready with leases held on the publisher');
$node->safe_psql('postgres', "INSERT INTO ordinary VALUES (2, 'after')");
$node->safe_psql('postgres', take('env', 'later'));
$node->wait_for_catchup('sub');
is($subscriber->safe_psql('postgres', 'SELECT string_agg(t, \',\' ORDER BY id) FROM ordinary'),
	'before,after', 'rows of ordinary tables arrive');
is($subscriber->safe_psql('postgres', 'SELECT count(*) FROM hloom_leases'), '0', 'leases do not');
is($subscriber->safe_psql('postgres', $works), '1', 'the subscriber takes leases of its own');
my $looking = session($subscriber, 'looking');
is(ask($looking, 'SELECT hloom_is_coordinated(\'applied\')'),
	't', 'nothing is configured on the subscriber');
$node->safe_psql('postgres', 'SELECT hloom_configure(\'applied\', enabled => false)');
$node->wait_for_catchup('sub');
is(ask($looking, 'SELECT hloom_is_coordinated(\'applied\')'),
	'f', 'options that arrive are seen by a session from before');
$looking->quit;
$subscriber->safe_psql('postgres', 'DROP SUBSCRIPTION sub');
$subscriber->stop;

# ---- not preloaded -------------------------------------------------------------------------------

is($node->safe_psql('template1', 'SELECT count(*) FROM pg_proc WHERE proname ~ \'^hloom\''),
	'0', 'preloaded without CREATE EXTENSION: no function is there');
is((sql_error($node, 'SELECT 1'))[0], '', 'and nothing is in the way');

$node->append_conf('postgresql.conf', 'shared_preload_libraries = \'\'');
$node->restart;
my %call = (
	hloom_try_acquire => $works,
	hloom_extend => "SELECT hloom_extend($mine)",
	hloom_release => "SELECT hloom_release($mine)");
for my $name (sort keys %call)
{
	my ($state, $message) = sql_error($node, $call{$name});
	is($state, '55000', "not preloaded: $name is refused");
	like($message, qr/HINT:.*shared_preload_libraries/, "not preloaded: $name says what to add");
}
is($node->safe_psql('postgres', $keys), 'later,mine', 'not preloaded: the table can be read');
is($node->safe_psql('postgres', 'SELECT hloom_retry_describe(hloom_retry_linear(10, \'50 ms\'))'),
	'linear step 50 ms, 10 retries', 'not preloaded: retry policies can be made');
is((sql_error($node, $_))[0], '', "not preloaded: $_")
  for 'VACUUM hloom_leases', 'ANALYZE hloom_leases', 'VACUUM', 'SELECT * FROM pg_stat_all_tables',
  'SELECT pg_database_size(current_database())', 'SELECT pg_total_relation_size(\'hloom_leases\')';
$node->command_ok(
	[ 'pg_dump', '-d', $node->connstr('postgres'), '-f', $node->basedir . '/late.sql' ],
	'not preloaded: pg_dump');
is($node->safe_psql('copy_wal_log', 'DROP EXTENSION hloom_lock; SELECT 1'),
	'1', 'not preloaded: DROP EXTENSION');
is($node->safe_psql('postgres', 'DROP DATABASE copy_file_copy; SELECT 1'),
	'1', 'not preloaded: DROP DATABASE');
$node->append_conf('postgresql.conf', 'shared_preload_libraries = \'hloom_lock\'');
$node->restart;
is($node->safe_psql('postgres', "SELECT hloom_is_held($mine)"),
	't', 'preloaded again: the lease is still held');
$node->stop;

# ---- wal_level = minimal -------------------------------------------------------------------------

# Without archiving a new file is not logged but synced at commit; replay has to leave it alone.
my $minimal = make_node(
	'minimal',
	settings => { wal_level => 'minimal', max_wal_senders => 0, wal_skip_threshold => 0 });
for my $rewrite ('TRUNCATE hloom_leases', 'VACUUM FULL hloom_leases',
	'BEGIN; TRUNCATE hloom_leases; TRUNCATE hloom_leases; COMMIT',
	'BEGIN; TRUNCATE hloom_leases; SAVEPOINT a; TRUNCATE hloom_leases; ROLLBACK TO a; COMMIT')
{
	$minimal->safe_psql('postgres',
		'SELECT count(*) FROM generate_series(1, 3000) n,'
		  . ' LATERAL hloom_try_acquire(\'minimal\', \'key\' || n)');
	my $before = $minimal->safe_psql('postgres', 'SELECT max(fence) FROM hloom_leases');
	$minimal->safe_psql('postgres', $rewrite);
	my $expected = $rewrite =~ /VACUUM/ ? 3001 : 1;
	# One grant after it, which is logged again, then a crash before any checkpoint.
	my $after = $minimal->safe_psql('postgres', take('minimal', 'after'));
	$minimal->stop('immediate');
	$minimal->start;
	is($minimal->safe_psql('postgres', 'SELECT count(*), count(DISTINCT key) FROM hloom_leases'),
		"$expected|$expected", "minimal, $rewrite: as it was after a crash");
	my ($last) = $after =~ /\|(\d+)/;
	cmp_ok($last, '>', $before, "minimal, $rewrite: the fence went on") if $expected == 1;
	is($minimal->safe_psql('postgres',
			'SELECT count(*), count(*) FILTER (WHERE fence > ' . $last . ')'
			  . ' FROM hloom_try_acquire(\'minimal\', \'again\' || random())'),
		'1|1', "minimal, $rewrite: and goes on after the crash");
	$minimal->safe_psql('postgres', 'TRUNCATE hloom_leases');
}
$minimal->stop;

done_testing();
