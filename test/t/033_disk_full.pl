# The lease table cannot grow: leases are granted as long as there is room, the log says so once,
# and growth goes on later.
#
# A disk that is really full takes a file system of its own, hence root; here the test module fails
# the growth with the error that a full disk raises.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = make_node('full');
plan skip_all => 'module hloom_test is not installed' if !need_test_module($node);
my $BLOCKS = 129;	# metapage and 128 buckets of a new table
my $table_size = 'SELECT pg_relation_size(\'hloom_leases\') / current_setting(\'block_size\')::int';

# grant($session, $from, $to): how many of these keys are granted, each in a statement of its own
sub grant
{
	my ($session, $from, $to) = @_;
	return ask($session, <<"SQL");
CREATE TEMP TABLE IF NOT EXISTS granted (n int);
TRUNCATE granted;
DO \$\$ BEGIN
	FOR n IN $from .. $to LOOP
		INSERT INTO granted SELECT n FROM hloom_try_acquire('full', 'key' || n);
	END LOOP;
END \$\$;
SELECT count(*) FROM granted
SQL
}

for my $action ('skip', 'error')
{
	$node->safe_psql('postgres', 'TRUNCATE hloom_leases');
	# Also forgets when growth failed before.
	$node->restart;
	my $session = session($node, 'full');
	is(ask($session, $table_size), $BLOCKS, "$action: a new table has $BLOCKS blocks");
	my $log_start = -s $node->logfile;
	ask($session, "SELECT hloom_test_set('grow', '$action')");
	is(grant($session, 1, 6000), 6000, "$action: every lease is granted while growth fails");
	my $log = slurp_file($node->logfile, $log_start);
	my @lines = $log =~ /LOG:  could not grow the lease table: (.*)/g;
	is(scalar(@lines), 1, "$action: one line in the log") or diag($log);
	like(
		$lines[0] || '',
		$action eq 'skip'
		? qr/growth of the lease table fails for a test/
		: qr/error at test point/,
		"$action: it tells why");
	is(scalar(error_lines($node, $log_start)), 0, "$action: and nothing at ERROR or above");
	is(ask($session, 'SELECT hloom_test_hits(\'grow\')'),
		1, "$action: after a failure growth is not tried for a while");
	is( ask($session, 'SELECT count(*), count(DISTINCT key) FROM hloom_leases'),
		'6000|6000', "$action: all of them are there");

	if ($action eq 'error')
	{
		$session->quit;
		next;
	}

	# The pause is the server's; another session keeps to it, too, and grows the table after it.
	my $other = session($node, 'other');
	my ($n, $missing) = (6000, 0);
	my $grown = wait_until(
		'growth goes on',
		sub {
			$n += 50;
			$missing += 50 - grant($other, $n - 49, $n);
			return ask($other, 'SELECT hloom_test_hits(\'grow\')') > 0;
		});
	is($missing, 0, "$action: grants go on all the time");
	ok($grown, "$action: growth is tried again");
	is( ask($other, 'SELECT count(*), count(DISTINCT key) FROM hloom_leases'),
		"$n|$n", "$action: nothing is lost or doubled by it");
	$_->quit for $session, $other;
}

done_testing();
