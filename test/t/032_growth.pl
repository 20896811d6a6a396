# The lease table grows from 128 buckets while clients work and a scan runs, and the server is
# stopped immediately twice meanwhile: no lease is lost or doubled, and the standby is equal.
#
# It grows to 1,000,000 leases.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HloomTest;
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

# Few enough loaders that the scans get their share of two processors.
my $LOADERS = 3;
my $WORKERS = 8;
my $FIXED = 3000;
my $CHUNK = 1000;

my $chunks = rounds(1000);
my $limit = $PostgreSQL::Test::Utils::timeout_default + $chunks;

my $primary = make_node(
	'primary',
	init => { allows_streaming => 1 },
	settings => {
		max_connections => 60,
		max_wal_size => '4GB',
		work_mem => '64MB',
		restart_after_crash => 'on',
	});
$primary->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'base', has_streaming => 1);
$standby->start;

# One chunk of leases for each call.  Their owners follow from the keys, so that a chunk repeated
# after a crash finds its own leases.  Only its last grant waits for the disk: WAL is one stream, so
# the chunk is durable with it.  Returns the sum of the fences.
$primary->safe_psql('postgres', <<"SQL");
CREATE FUNCTION load(chunk int) RETURNS numeric LANGUAGE plpgsql AS \$\$
DECLARE
	fences numeric;
	number int;
BEGIN
	SET LOCAL synchronous_commit = off;
	SELECT sum(h.fence), count(*) INTO fences, number
		FROM generate_series(chunk * $CHUNK, chunk * $CHUNK + $CHUNK - 1) n,
			LATERAL hloom_try_acquire('load', 'key' || n, owner => md5('key' || n)::uuid) h;
	IF number <> $CHUNK THEN
		RAISE 'chunk %: % leases', chunk, number;
	END IF;
	SET LOCAL synchronous_commit = on;
	PERFORM hloom_try_acquire('ack', 'chunk' || chunk, owner => md5('ack')::uuid);
	RETURN fences;
END \$\$;
SQL
my $load_fixed = "SELECT count(*) FROM generate_series(1, $FIXED) n,"
  . ' LATERAL hloom_try_acquire(\'fixed\', \'key\' || n)';

# ---- clients -------------------------------------------------------------------------------------

# Every result is checked by a division that fails.
my $work = $primary->basedir . '/work.sql';
append_to_file($work, <<'SQL');
\set key random(1, 200)
\sleep 2 ms
SELECT 1 / count(*) FROM hloom_try_acquire('work', concat(:client_id::int4, '.', :key::int4),
	owner => md5(:client_id::text)::uuid);
SELECT 1 / hloom_extend('work', concat(:client_id::int4, '.', :key::int4),
	md5(:client_id::text))::int;
SELECT 1 / hloom_is_held('work', concat(:client_id::int4, '.', :key::int4),
	md5(:client_id::text))::int;
SELECT 1 / hloom_release('work', concat(:client_id::int4, '.', :key::int4),
	md5(:client_id::text))::int;
SQL

sub start_workers
{
	return start('worker', 'pgbench', '-n', '-c', $WORKERS, '-T', '3600', '-f', $work,
		$primary->connstr('postgres'));
}

# What was acknowledged: chunk => sum of its fences.
my %acknowledged;

# start_loaders(\@chunks): a session for each share of the chunks; it prints what it was told
sub start_loaders
{
	my ($todo) = @_;
	my @runs;
	for my $i (0 .. $LOADERS - 1)
	{
		my @mine = grep { $_ % $LOADERS == $i } @$todo;
		next if !@mine;
		my $file = $primary->basedir . "/load$i.sql";
		unlink $file;
		append_to_file($file, join '', map { "SELECT $_, load($_);\n" } @mine);
		push @runs, start_script('loader', $file);
	}
	return @runs;
}

# note_acknowledged(@runs): takes in complete lines only; returns how many chunks are known
sub note_acknowledged
{
	for my $run (@_)
	{
		$run->{handle}->pump_nb if $run->{handle}->pumpable;
		while ($run->{out} =~ s/^(\d+)\|(\d+)\n//) { $acknowledged{$1} = $2; }
	}
	return scalar keys %acknowledged;
}

# ---- scans ---------------------------------------------------------------------------------------

my ($scans, $bad_scans) = (0, 0);

# What was there before a scan began is in it, once: the fixed leases, and no fewer of the others
# than the scan before it saw (a tenth of them, or a scan would mostly sort).
my $scan_file = $primary->basedir . '/scan.sql';
append_to_file($scan_file, <<'SQL' x 2000);
SELECT count(*) FILTER (WHERE namespace = 'fixed'),
	count(DISTINCT key COLLATE "C") FILTER (WHERE namespace = 'fixed'),
	count(*) FILTER (WHERE namespace = 'load' AND key LIKE '%0'),
	count(DISTINCT key COLLATE "C") FILTER (WHERE namespace = 'load' AND key LIKE '%0')
FROM hloom_leases;
SQL

sub look_at_scans
{
	my ($out) = @_;
	my $seen = 0;
	while ($out =~ /^(\d+)\|(\d+)\|(\d+)\|(\d+)\n/mg)
	{
		$scans++;
		if ($1 != $FIXED || $2 != $FIXED || $3 != $4 || $3 < $seen)
		{
			$bad_scans++;
			diag("scan $scans after one of $seen: $1|$2|$3|$4");
		}
		$seen = $3;
	}
	return;
}

# start($application, $command...): a client, its output in out and err
sub start
{
	my ($application, @command) = @_;
	local $ENV{PGAPPNAME} = $application;
	my $run = { out => '', err => '' };
	$run->{handle} = IPC::Run::start(
		\@command, '>', \$run->{out}, '2>', \$run->{err}, IPC::Run::timeout($limit));
	return $run;
}

sub start_script
{
	my ($application, $file) = @_;
	return start($application, 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d',
		$primary->connstr('postgres'), '-f', $file);
}

# phase($until, $crash): load, work and scan until so many chunks are acknowledged; then stop the
# server at once, or let the loaders end and tell the others to go
sub phase
{
	my ($until, $crash) = @_;
	my @loaders = start_loaders([ grep { !defined $acknowledged{$_} } 0 .. $chunks - 1 ]);
	my @others = (start_workers(), start_script('scanner', $scan_file));
	my $started = time;
	wait_for_chunks($until, \@loaders, \@others, $started + $limit);
	if ($crash)
	{
		$primary->stop('immediate');
	}
	else
	{
		$_->{handle}->finish for @loaders;
		is(join('', map { $_->{err} } @loaders, @others), '', 'nothing went wrong in any client');
		$primary->safe_psql('postgres',
			'SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity'
			  . ' WHERE application_name IN (\'worker\', \'scanner\')');
	}
	eval { $_->{handle}->finish } for @loaders, @others;
	note_acknowledged(@loaders);
	unlike($others[0]->{err}, qr/division by zero/, 'no worker saw a wrong result');
	look_at_scans($others[1]->{out});
	note(
		sprintf(
			'%d chunks after %d s, %d scans',
			scalar(keys %acknowledged), time - $started, $scans));
	return;
}

sub wait_for_chunks
{
	my ($until, $loaders, $others, $end) = @_;
	while (note_acknowledged(@$loaders) < $until && grep { $_->{handle}->pumpable } @$loaders)
	{
		$_->{handle}->pumpable && $_->{handle}->pump_nb for @$others;
		die 'timed out: load' if time > $end;
		usleep(2_000);
	}
	return;
}

# check($when): every acknowledged lease is there, once, with the fence that was told
sub check
{
	my ($when) = @_;
	my $values = join ',', map { "($_, $acknowledged{$_})" } sort { $a <=> $b } keys %acknowledged;
	my $found = $primary->safe_psql('postgres', <<"SQL");
SELECT count(*), count(*) FILTER (WHERE number <> $CHUNK OR keys <> $CHUNK),
	count(*) FILTER (WHERE l.fences IS DISTINCT FROM a.fences)
FROM (VALUES $values) a (chunk, fences) LEFT JOIN (
	SELECT substr(key, 4)::int / $CHUNK AS chunk, count(*) AS number,
		count(DISTINCT key COLLATE "C") AS keys, sum(fence) AS fences
	FROM hloom_leases WHERE namespace = 'load' GROUP BY 1) l USING (chunk)
SQL
	my ($number, $wrong, $fences) = split /\|/, $found;
	is($number, scalar(keys %acknowledged), "$when: " . $number * $CHUNK . ' leases to be there');
	is($wrong, 0, "$when: none is lost or doubled");
	is($fences, 0, "$when: the fences are those that were told");
	is( $primary->safe_psql('postgres',
			'SELECT count(*), count(DISTINCT key) FROM hloom_leases WHERE namespace = \'fixed\''),
		"$FIXED|$FIXED", "$when: nor is any of the fixed ones");
	return;
}

is($primary->safe_psql('postgres', $load_fixed), $FIXED, "$FIXED leases to begin with");
for my $third (1, 2)
{
	phase($chunks * $third / 3, 1);
	my $known = keys %acknowledged;
	cmp_ok($known, '<', $chunks, "crash $third: after $known of $chunks chunks");
	$primary->start;
	check("crash $third");
}
phase($chunks, 0);
is(scalar(keys %acknowledged), $chunks, 'all is loaded');
check('at the end');
cmp_ok($scans, '>=', 3, "$scans scans while the table grew");
is($bad_scans, 0, 'each showed every lease from before it, once');

# How far it has grown: the metapage's maxbucket.
my $maxbucket = unpack 'L', pack 'H*', $primary->safe_psql('postgres',
	    'CHECKPOINT; SELECT encode(pg_read_binary_file(pg_relation_filepath(\'hloom_leases\'),'
	  . ' 32, 4), \'hex\')');
cmp_ok($maxbucket, '>', $chunks * $CHUNK / 60, "the table grew to $maxbucket buckets");

# ---- the standby ---------------------------------------------------------------------------------

my $sum = 'SELECT count(*), count(DISTINCT concat(namespace, key) COLLATE "C"),'
  . ' sum(hashtextextended(concat(namespace, key, owner, fence, expires_at), 0)::numeric)'
  . ' FROM hloom_leases';
$primary->wait_for_catchup($standby);
is($standby->safe_psql('postgres', $sum), $primary->safe_psql('postgres', $sum),
	'the standby has the same leases');
$standby->stop;

# ---- a crash within a split ----------------------------------------------------------------------

SKIP:
{
	skip 'module hloom_test is not installed', 6 if !need_test_module($primary);
	for my $round (1 .. 2)
	{
		my $all = "SELECT count(*), count(DISTINCT concat(namespace, key) COLLATE \"C\"),"
		  . ' sum(fence) FROM hloom_leases WHERE namespace <> \'split\'';
		my $before = $primary->safe_psql('postgres', $all);
		my ($out, $err) = finish_sql(
			start_sql(
				$primary,
				"SELECT hloom_test_set('split', 'crash');\n"
				  . join '', map { take('split', "key$round.$_") . ";\n" } 1 .. 20000));
		my $granted = () = $out =~ /^[0-9a-f-]{36}\|\d+$/mg;
		like($err, qr/server closed the connection|connection to server was lost/,
			"split $round: the server crashed within a split, after $granted grants");
		wait_until('recovery', sub { $primary->psql('postgres', 'SELECT 1') == 0 });
		is($primary->safe_psql('postgres', $all),
			$before, "split $round: nothing is lost or doubled");
		is( $primary->safe_psql(
				'postgres', "SELECT count(*) FROM hloom_leases WHERE key LIKE 'key$round.%'"),
			$granted,
			"split $round: nor is what was granted before it");
	}
}

done_testing();
