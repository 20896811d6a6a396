# Two owners of a key that race about the end of a lease never both commit what they guard with it.
#
# In each round the first takes a short lease, guards a transaction with it, writes, and commits
# within 10 ms of the end, before or after it.  The second takes the key as soon as it can and
# writes as well, unless it sees that the first one has committed.  Without the guard both commit:
# that is the control, which shows that the rounds are about the moment that matters.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomTest;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

my $PAIRS = 8;

my $primary = make_node(
	'race',
	init => { allows_streaming => 1 },
	settings => { max_connections => 60, 'hloom_lock.max_lease' => '1h' });
$primary->safe_psql('postgres', <<'SQL');
CREATE TABLE round (kind text, pair int, n int, finish timestamptz, after bool,
	PRIMARY KEY (kind, pair, n));
CREATE TABLE wrote (kind text, pair int, n int, who text);
CREATE INDEX ON wrote (kind, pair, n);
-- The first one: a lease of 20 to 50 ms, and when to commit
CREATE FUNCTION begin_round(k text, p int, i int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	handle hloom_handle;
	shift interval := (random() * 20 - 10) * interval '1 ms';
BEGIN
	SELECT * INTO STRICT handle FROM hloom_acquire(k, p || ':' || i,
		(20 + random() * 30) * interval '1 ms', owner => md5(p || ':' || i)::uuid);
	INSERT INTO round VALUES (k, p, i, handle.lease_end + shift, shift > '0');
END $$;
-- A lease that ended before it was durable began no round: neither waits for it
CREATE FUNCTION skip_round(k text, p int, i int) RETURNS void LANGUAGE sql AS $$
	INSERT INTO round VALUES (k, p, i) ON CONFLICT DO NOTHING
$$;
CREATE FUNCTION work(k text, p int, i int, guarded bool) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	at timestamptz := (SELECT finish FROM round WHERE (kind, pair, n) = (k, p, i));
BEGIN
	IF at IS NULL THEN
		RETURN;
	END IF;
	IF guarded THEN
		PERFORM hloom_guard(k, p || ':' || i, md5(p || ':' || i)::uuid);
	END IF;
	INSERT INTO wrote VALUES (k, p, i, 'first');
	PERFORM pg_sleep(extract(epoch FROM at - clock_timestamp() - interval '0.3 ms'));
END $$;
-- The second one.  Each look is a transaction, so it is current at every isolation level.
CREATE PROCEDURE follow(k text, p int, i int) LANGUAGE plpgsql AS $$
BEGIN
	WHILE NOT EXISTS (SELECT FROM round WHERE (kind, pair, n) = (k, p, i)) LOOP
		COMMIT;
		PERFORM pg_sleep(0.001);
	END LOOP;
	IF EXISTS (SELECT FROM round WHERE (kind, pair, n) = (k, p, i) AND finish IS NULL) THEN
		RETURN;
	END IF;
	WHILE NOT EXISTS (SELECT FROM hloom_try_acquire(k, p || ':' || i, '10 min')) LOOP
		COMMIT;
		PERFORM pg_sleep(0.0002);
	END LOOP;
	COMMIT;
	INSERT INTO wrote SELECT k, p, i, 'second' WHERE NOT EXISTS
		(SELECT FROM wrote WHERE (kind, pair, n, who) = (k, p, i, 'first'));
END $$;
SQL

# race($kind, $rounds, $guarded, $options): returns rounds with both, with the first only, with the
# second only
sub race
{
	my ($kind, $rounds, $guarded, $options) = @_;
	# A tenth more, for those that do not begin
	my $each = int((1.1 * $rounds + $PAIRS - 1) / $PAIRS);
	my @runs;
	local $ENV{PGOPTIONS} = $options;
	for my $pair (1 .. $PAIRS)
	{
		my %script = (first => '', second => '');
		for my $n (1 .. $each)
		{
			my $round = "'$kind', $pair, $n";
			$script{first} .=
				"BEGIN ISOLATION LEVEL READ COMMITTED;\nSELECT begin_round($round);\nCOMMIT;\n"
			  . "SELECT skip_round($round);\n"
			  . "BEGIN;\nSELECT work($round, $guarded);\nCOMMIT;\n";
			$script{second} .= "CALL follow($round);\n";
		}
		for my $who (sort keys %script)
		{
			my $file = $primary->basedir . "/$kind-$pair-$who.sql";
			my $run = { who => $who, err => '' };
			append_to_file($file, $script{$who});
			$run->{handle} = IPC::Run::start(
				[
					$primary->installed_command('psql'), '-XAtq',
					'-d', $primary->connstr('postgres'),
					'-v', 'VERBOSITY=sqlstate', '-f', $file
				],
				'<', \'', '>', '/dev/null', '2>', \$run->{err},
				IPC::Run::timeout(2 * rounds(1) * $PostgreSQL::Test::Utils::timeout_default));
			push @runs, $run;
		}
	}
	my %errors;
	for my $run (@runs)
	{
		$run->{handle}->finish;
		$errors{"$run->{who} $1"}++ while $run->{err} =~ /ERROR:  (\w{5})/g;
	}
	my $result = $primary->safe_psql('postgres', <<"SQL");
SELECT count(*) FILTER (WHERE f AND s), count(*) FILTER (WHERE f AND NOT s),
	count(*) FILTER (WHERE s AND NOT f), count(*) FILTER (WHERE after), count(*)
FROM (SELECT after, bool_or(who = 'first') AS f, bool_or(who = 'second') AS s
	FROM round LEFT JOIN wrote USING (kind, pair, n) WHERE kind = '$kind'
		AND finish IS NOT NULL
	GROUP BY kind, pair, n, after) AS outcome
SQL
	my ($both, $first, $second, $after, $all) = split /\|/, $result;
	note("$kind: $all rounds, $after aimed behind the end: first committed $first, second $second, "
		  . "both $both; errors: " . join(', ', map { "$_ $errors{$_}" } sort keys %errors));
	return ($both, $first, $second, $all, \%errors);
}

# check($kind, $options [, $rounds]): never both, and a fifth of the rounds on either side of the
# end
sub check
{
	my ($kind, $options, $rounds) = @_;
	$rounds ||= rounds(500);
	my ($both, $first, $second, $all, $errors) = race($kind, $rounds, 'true', $options);
	is($both, 0, "$kind: never both");
	cmp_ok($all, '>=', $rounds, "$kind: all rounds were made");
	cmp_ok($first, '>=', 0.2 * $all, "$kind: a fifth committed before the end");
	my ($lost, $other) = map { $errors->{"first $_"} || 0 } 'LL010', '40001';
	cmp_ok($lost, '>=', 0.2 * $all, "$kind: a fifth were refused");
	is($lost + $other, $all - $first, "$kind: with LL010, but for serialization failures");
	cmp_ok($second, '>', 0, "$kind: then the second committed");
	return;
}

my ($both) = race('control', rounds(200), 'false', '');
cmp_ok($both, '>', 0, 'without a guard both commit');

check('read-committed', '-c default_transaction_isolation=read\ committed');
check('repeatable-read', '-c default_transaction_isolation=repeatable\ read');
check('serializable', '-c default_transaction_isolation=serializable');
check('asynchronous', '-c synchronous_commit=off');
$primary->safe_psql('postgres', q{SELECT hloom_configure('memory', provider => 'memory')});
check('memory', '', rounds(200));

$primary->backup('standby');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'standby', has_streaming => 1);
$standby->start;
$primary->append_conf('postgresql.conf', settings(synchronous_standby_names => 'standby'));
$primary->reload;
wait_for_sql($primary,
	"SELECT count(*) = 1 FROM pg_stat_replication"
	  . " WHERE sync_state = 'sync' AND state = 'streaming'");
check('standby', '-c synchronous_commit=remote_apply');

done_testing();
