# Clients come back around the moment when the worker leaves, because there was none for a while:
# whether they meet the old worker or bring another, their leases are renewed, those that they leave
# to end are counted and reported, each once, and at no time does a database have two workers.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $databases = 10;
my $rounds = rounds(60);

my $node = make_node('leaving', settings => { max_worker_processes => 20 });
my $looker = session($node, 'looker');
$node->safe_psql('postgres', 'CREATE DATABASE model');
$node->safe_psql('model', 'CREATE EXTENSION hloom_lock');
my @databases = map { "db$_" } 1 .. $databases;
ask($looker, "CREATE DATABASE $_ TEMPLATE model") for @databases;


# A client that leaves when its lease was renewed: what it finds, and who has renewed.
my $client = <<"EOS";
$WORKER_STATE;
SELECT count(*) FROM hloom_try_acquire('leaving', 'k', '3 s', scope => 'session',
	auto_extend => true);
SELECT count(*) FROM hloom_try_acquire('ended', 'k' || pg_backend_pid(), '2 s');
DO \$\$
DECLARE
	first timestamptz := (SELECT expires_at FROM hloom_leases
		WHERE namespace = 'leaving');
	now timestamptz;
BEGIN
	LOOP
		now := (SELECT expires_at FROM hloom_leases WHERE namespace = 'leaving');
		EXIT WHEN now > first;
		IF now IS NULL OR clock_timestamp() > first THEN
			RAISE 'the lease was not renewed: %',
				(SELECT worker FROM hloom_health() WHERE provider = 'table');
		END IF;
		PERFORM pg_sleep(0.02);
	END LOOP;
END \$\$;
$WORKER_STATE;
EOS

sub start_client
{
	my ($database) = @_;
	return start_sql($node, "\\connect $database\n$client");
}

# process_of($line): of the worker that hloom_health tells of
sub process_of
{
	my ($line) = @_;
	return $line =~ /^running: process (\d+),/ ? $1 : '';
}

# Workers of one database seen together, by the time of the first look.  One that has left may be
# seen until its process has ended, while the next one is there already.
my %together;
my @two_workers;

# look(): the databases that a worker's process is in
sub look
{
	my %workers;
	for my $line (
		split /\n/,
		ask($looker,
			"SELECT datname, pid FROM pg_stat_activity"
			  . " WHERE backend_type = 'hloom_lock worker' ORDER BY datname, pid"))
	{
		my ($database, $pid) = split /\|/, $line;
		push @{ $workers{$database} }, $pid;
	}
	my %now;
	for my $database (grep { @{ $workers{$_} } > 1 } keys %workers)
	{
		my $pair = join ' ', $database, @{ $workers{$database} };
		$now{$pair} = $together{$pair} || time;
		push @two_workers, $pair if time - $now{$pair} > 2;
	}
	%together = %now;
	return \%workers;
}

# The worker leaves one to two seconds after the client; most clients come then.
sub pause { return rand() < 0.25 ? rand(1) : 1 + rand(1.3); }

my %state = map { ($_ => { start_at => time, process => '', seen_at => 0 }) } @databases;
my ($started, $ended, $met, $brought, $crossed) = (0, 0, 0, 0, 0);
my (@left_before, @problems);
my $give_up = time + 30 + 20 * $rounds / $databases;
while ($ended < $rounds && time < $give_up)
{
	my $workers = look();
	for my $database (@databases)
	{
		my $state = $state{$database};
		$state->{seen_at} = time if $workers->{$database};
		if ($state->{run})
		{
			$state->{run}->{handle}->pump_nb;
			next if $state->{run}->{handle}->pumpable;
			my ($out, $err, $rc) = finish_sql(delete $state->{run});
			my ($before, $count, $other, $after) = split /\n/, $out;
			push @problems, "$database: $out $err" if $rc != 0 || "$count$other" ne '11';
			my $process = process_of($after || '');
			if ($state->{process} ne '' && $process eq $state->{process})
			{
				$met++;
			}
			elsif ($state->{process} ne '')
			{
				$brought++;
				if (process_of($before) eq '')
				{
					push @left_before, $state->{started_at} - $state->{left_at};
				}
				else
				{
					$crossed++;
				}
			}
			$state->{process} = $process;
			$state->{start_at} = time + pause();
			$ended++;
		}
		elsif ($started < $rounds && time >= $state->{start_at})
		{
			@{$state}{qw(left_at started_at)} = ($state->{seen_at}, time);
			$state->{run} = start_client($database);
			$started++;
		}
	}
	usleep(20_000);
}
is($ended, $rounds, "$rounds clients have come and gone");
is(join("\n", @problems), '', 'the lease of each of them was renewed');
note("$met have met the worker of the client before, $brought have brought another");
note("$crossed of these have still seen the old one");
@left_before = sort { $a <=> $b } @left_before;
note('seconds since the worker left: ', join ' ', map { sprintf '%.2f', $_ } @left_before);
cmp_ok($met, '>', 0, 'some have met the old worker') if $rounds >= 40;
cmp_ok($brought, '>', 0, 'some have come after it') if $rounds >= 40;

my %last = map { ($_ => start_client($_)) } @databases;
for my $database (@databases)
{
	my ($out, $err, $rc) = finish_sql($last{$database});
	is("$rc|$err", '0|', "$database: at the end a worker renews") or diag($out);
	look();
}
is(join(', ', @two_workers), '', 'and no database had two workers');

# Whoever comes brings the worker, also without a lease.
my $taken = $rounds + @databases;
my @stay = map { session($node, 'stays', $_) } @databases;

sub lost
{
	my $lost = 0;
	$lost += ask(
		$_, q{SELECT coalesce(sum(value), 0)::int FROM hloom_metrics
			WHERE namespace = 'ended' AND name = 'hostloom_lock_lost'}) for @stay;
	return $lost;
}

# logged(): lines of the log that tell of these losses
sub logged
{
	return scalar(() = slurp_file($node->logfile) =~ /"id": 3102, "namespace": "ended"/g);
}
wait_until('all leases that ended are counted', sub { return lost() >= $taken });
wait_until('and reported', sub { return logged() >= $taken });
is(lost(), $taken, 'each lease that ended is counted once');
is(logged(), $taken, 'and reported once');
$_->quit for @stay;
is(scalar(error_lines($node)), 0, 'no error in the log');

$looker->quit;
$node->stop;
done_testing();
