# Statements of the extended protocol in a pipeline: each is one, though the client has not seen the
# result of the last when the next fails, and their transaction is one.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = make_node('pipeline');
$node->safe_psql('postgres', 'CREATE TABLE t (id int)');
my $owner = '11111111-1111-4111-8111-111111111111';

sub lease
{
	my ($key, $scope) = @_;
	return "hloom_try_acquire('pipeline', '$key', scope => '$scope', owner => '$owner')";
}

# pipeline(@statements): sends them together; returns what went wrong, '' when nothing did
sub pipeline
{
	my @statements = @_;
	my $file = $node->basedir . '/pipeline.sql';
	unlink $file;
	append_to_file($file, join("\n", '\startpipeline', map({ "$_;" } @statements), '\endpipeline'));
	my $mode = $statements[0] =~ /prepared/ ? 'prepared' : 'extended';
	my ($out, $err);
	IPC::Run::run(
		[
			$node->installed_command('pgbench'), '-n', '-t', 1, '-M', $mode, '-f', $file, '-d',
			$node->connstr('postgres')
		],
		'<', \'', '>', \$out, '2>', \$err,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
	return $1 if $err =~ /(division by zero|is lost)/;
	return $err =~ /ERROR/ ? $err : '';
}

sub held
{
	return $node->safe_psql('postgres',
		q{SELECT coalesce(string_agg(key, ' ' ORDER BY key), '') FROM hloom_leases
WHERE namespace = 'pipeline'});
}

sub fresh { return $node->safe_psql('postgres', 'TRUNCATE hloom_leases, t'); }

for my $how ('extended', 'prepared')
{
	my $first = "SELECT '$how', owner FROM " . lease('first', 'lease');
	fresh();
	is( pipeline($first, 'SELECT owner FROM ' . lease('second', 'transaction'),
			'INSERT INTO t VALUES (1)'),
		'', "$how: a pipeline");
	is(held(), 'first', 'what follows the transaction has ended with it');

	fresh();
	is( pipeline($first, 'SELECT owner FROM ' . lease('second', 'transaction'),
			'INSERT INTO t VALUES (1)',
			'SELECT 1 / (fence - fence) FROM ' . lease('third', 'lease'),
			'SELECT owner FROM ' . lease('fourth', 'lease')),
		'division by zero', "$how: a pipeline with a statement that fails");
	is(held(), 'first', 'gives back what that one took, and keeps what an earlier one returned');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 0, 'it was one transaction');

	fresh();
	is( pipeline($first, "SELECT hloom_guard('pipeline', 'first', '$owner')",
			'INSERT INTO t VALUES (1)', "SELECT hloom_release('pipeline', 'first', '$owner')"),
		'is lost', "$how: a pipeline that gives back what it depends on");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t'), 0, 'does not commit');
}

# A procedure that commits is the first statement or none, and its transaction ends with it.
for my $mode ('extended', 'prepared')
{
	my $call = "CALL hloom_acquire_wait('pipeline', 'first', '$owner', note => '$mode')";
	fresh();
	is(pipeline($call), '', "$mode: CALL hloom_acquire_wait in a pipeline");
	is(held(), 'first', 'holds its lease');

	fresh();
	is( pipeline($call, 'INSERT INTO t VALUES (1)', 'SELECT 1 / (count(*) - 1) FROM t'),
		'division by zero', "$mode: a statement after it fails");
	is(held(), 'first', 'its lease is held');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t'),
		0, 'what came after it was one transaction');

	{
		local $ENV{PGOPTIONS} = '-c default_transaction_isolation=serializable';
		is( pipeline($call,
				q{SELECT 1 / (current_setting('transaction_isolation') = 'serializable')::int}),
			'',
			"$mode: at the session's level of isolation");
	}

	fresh();
	like(
		pipeline("SELECT '$mode'", 'INSERT INTO t VALUES (1)', $call),
		qr/cannot be called (after another statement of a pipeline|inside a transaction block)/,
		"$mode: it is refused after another statement");
	is(held(), '', 'nothing is held');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM t'),
		0, 'and nothing was committed for it');
}

done_testing();
