# The fence of a key only grows, whatever happens to its lease, its table and its server; and a
# lease outlives a restart unchanged.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $KEYS = 40;

my $node = make_node(
	'restart',
	init => { extra => ['-k'] },
	settings => { 'restart_after_crash' => 'on', 'wal_writer_delay' => '10s' });
my $switches = need_test_module($node);

my $ROWS = "SELECT string_agg(l::text, E'\\n' ORDER BY namespace, key) FROM hloom_leases l";
my %highest;

# Whoever holds the keys gives them back.
my $GIVE_BACK =
  "SELECT count(hloom_release(namespace, key, owner)) FROM hloom_leases WHERE namespace = 'f'";

# fences_grow($after [, $lease]): takes all keys and compares with the highest fence each ever had
sub fences_grow
{
	my ($after, $lease) = @_;
	$lease = '10min' if !defined $lease;
	$node->safe_psql('postgres', $GIVE_BACK);
	my @rows = split /\n/,
	  $node->safe_psql('postgres',
		"SELECT key, h.fence FROM generate_series(1, $KEYS) i,"
		  . " hloom_try_acquire('f', 'k' || i, '$lease', note => 'a note') h");
	is(scalar @rows, $KEYS, "$after: every key can be taken");
	my @back;
	for (@rows)
	{
		my ($key, $fence) = split /\|/;
		push @back, "$key: $fence after $highest{$key}"
		  if exists $highest{$key} && $fence <= $highest{$key};
		$highest{$key} = $fence;
	}
	is_deeply(\@back, [], "$after: the fences grow");
	return;
}

# crash_restart($what, $code): runs what makes the server restart after a crash, waits for its end
sub crash_restart
{
	my ($what, $code) = @_;
	my $offset = -s $node->logfile;
	$code->();
	$node->wait_for_log(qr/reinitializing.*ready to accept connections/s, $offset);
	pass("$what: the server restarted");
	return;
}

fences_grow('first');
fences_grow('release');

fences_grow('short leases', '1 s');
wait_for_sql($node, 'SELECT count(*) = 0 FROM hloom_leases');
fences_grow('expiry');

# Growth: other keys make the table many times as long, the fences move with their buckets.
my $size = $node->safe_psql('postgres', "SELECT pg_relation_size('hloom_leases')");
is( $node->safe_psql(
		'postgres',
		"SET synchronous_commit = off; SELECT count(*) FROM generate_series(1, 20000) i,"
		  . " hloom_try_acquire('grow', 'k' || i, note => repeat('x', 100))"),
	'20000',
	'20000 keys');
cmp_ok($node->safe_psql('postgres', "SELECT pg_relation_size('hloom_leases')"),
	'>', 2 * $size, 'the table has grown');
fences_grow('growth');
$node->safe_psql('postgres',
	'SELECT count(hloom_release(namespace, key, owner)) FROM hloom_leases'
	  . " WHERE namespace = 'grow'");
$node->safe_psql('postgres', 'VACUUM hloom_leases');
fences_grow('VACUUM');

# A rewrite keeps the leases, TRUNCATE removes them.
my $rows = $node->safe_psql('postgres', $ROWS);
$node->safe_psql('postgres', 'VACUUM FULL hloom_leases');
is($node->safe_psql('postgres', $ROWS), $rows, 'VACUUM FULL: the leases stay');
fences_grow('VACUUM FULL');
$node->safe_psql('postgres', 'TRUNCATE hloom_leases');
is($node->safe_psql('postgres', $ROWS), '', 'TRUNCATE: no lease stays');
fences_grow('TRUNCATE');
$node->safe_psql('postgres', 'BEGIN; TRUNCATE hloom_leases; ROLLBACK');
fences_grow('TRUNCATE rolled back');
$node->safe_psql('postgres', 'DROP EXTENSION hloom_lock; CREATE EXTENSION hloom_lock');
fences_grow('DROP and CREATE EXTENSION');

# A clean restart: all is as before, the end of each lease to the microsecond.
for my $mode ('fast', 'smart')
{
	$rows = $node->safe_psql('postgres', $ROWS);
	$node->stop($mode);
	$node->start;
	is($node->safe_psql('postgres', $ROWS), $rows, "$mode restart: the leases are as before");
	is( $node->safe_psql('postgres', "SELECT count(*) FROM hloom_try_acquire('f', 'k1')"),
		'0', "$mode restart: a held key stays held");
	fences_grow("$mode restart");
}

# A lease that ends while the server is down is over when it is back.
{
	my $session = session($node);
	ask($session, take('down', 'k', "'2 s'"));
	my $end = ask($session, "SELECT expires_at FROM hloom_leases WHERE key = 'k'") || '-infinity';
	$session->quit;
	$node->restart;
	wait_for_sql($node, "SELECT clock_timestamp() > '$end'");
	is($node->safe_psql('postgres', "SELECT count(*) FROM hloom_try_acquire('down', 'k')"),
		'1', 'a lease that ended during a restart can be taken');
}

# Crashes: of the server, of a backend that holds a lease, of one in the middle of a grant.
for my $n (1 .. rounds(3))
{
	$rows = $node->safe_psql('postgres', $ROWS);
	$node->stop('immediate');
	$node->start;
	is($node->safe_psql('postgres', $ROWS), $rows, "crash $n: the leases are as before");
	fences_grow("crash $n");
}

for my $n (1 .. rounds(2))
{
	my $session = session($node);
	my ($fence) = ask($session, take('kill', "k$n")) =~ /(\d+)$/;
	my $pid = ask($session, 'SELECT pg_backend_pid()');
	$rows = $node->safe_psql('postgres', $ROWS);
	crash_restart("kill $n", sub { kill('KILL', $pid) == 1 or die "no backend $pid" });
	$session->quit;
	is($node->safe_psql('postgres', $ROWS), $rows, "kill $n: the leases are as before");
	is( $node->safe_psql(
			'postgres', "SELECT fence FROM hloom_leases WHERE (namespace, key) = ('kill', 'k$n')"),
		$fence, "kill $n: the killed session's lease is there");
	fences_grow("kill $n");
}

SKIP:
{
	skip 'no test switches', 5 if !$switches;
	# The row is changed, nothing is flushed and nobody was told.
	my $run;
	$rows = $node->safe_psql('postgres', $ROWS);
	crash_restart('crash in a grant',
		sub {
			$run = start_sql($node,
				"SELECT hloom_test_set('granted', 'crash');" . take('granted', 'k') . ';');
		});
	my ($out, $messages, $status) = finish_sql($run);
	is("$out|$status", '|2', 'crash in a grant: nothing was reported');
	is($node->safe_psql('postgres', "$ROWS WHERE namespace <> 'granted'"),
		$rows, 'crash in a grant: the other leases are as before');
	fences_grow('crash in a grant');
}

# Restarts in quick succession must not take the fences so far ahead that a new table's begin below.
for my $n (1 .. 5)
{
	$node->stop('immediate');
	$node->start;
	fences_grow("quick restart $n");
}
$node->safe_psql('postgres', 'DROP EXTENSION hloom_lock; CREATE EXTENSION hloom_lock');
fences_grow('a new table after quick restarts');

$node->stop;
command_ok([ $node->installed_command('pg_checksums'), '--check', '-D', $node->data_dir ],
	'the checksums are right');
done_testing();
