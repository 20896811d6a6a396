# Leases of scope transaction are given back after the commit is visible and its locks are gone: the
# next owner sees every row and every DDL of the last one and can lock the rows at once.  After a
# rollback it sees nothing of it, and can lock the rows, too.
#
# Two sessions work on one row in turns.  Who waits asks without a pause, so that it asks while the
# other is in the middle of its COMMIT.  The negative control does the same with leases
# that are released by hand just before the COMMIT.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = make_node('visibility');
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE counter (id text PRIMARY KEY, value bigint NOT NULL, made bigint, added bigint);
CREATE SEQUENCE at_work MINVALUE 0;	-- who took the lease last, known to all at once
CREATE TABLE turns (run text, worker int, fence bigint, asked_at timestamptz,
	granted_at timestamptz, ending_at timestamptz, ended text, wrong text);

-- What the row says was made is there, and nobody locks it.
CREATE PROCEDURE look_at_ddl(made bigint, added bigint) LANGUAGE plpgsql AS $$
BEGIN
	IF made IS NOT NULL THEN
		EXECUTE format('LOCK TABLE made_%s IN ACCESS EXCLUSIVE MODE NOWAIT', made);
	END IF;
	IF added IS NOT NULL THEN
		EXECUTE format('SELECT count(extra) FROM made_%s', added);
	END IF;
END $$;

-- A round: the lease, a look, an increment, sometimes DDL, and the end.  Each statement of a
-- procedure has a new snapshot.  One FOR UPDATE alone would read a newer row than its snapshot's.
CREATE PROCEDURE work(run text, worker int, rounds int, scope text) LANGUAGE plpgsql AS $$
DECLARE
	log turns[];
	turn turns;
	seen counter;
	locked bigint;
	mine uuid := gen_random_uuid();
BEGIN
	FOR round IN 1 .. rounds LOOP
		turn := ROW(run, worker, NULL, clock_timestamp(), NULL, NULL, NULL, NULL);
		SELECT fence INTO turn.fence FROM hloom_acquire('vis', run, scope => scope,
			owner => mine, max_wait => '30 s', retry => hloom_retry_immediate(1000000));
		turn.granted_at := clock_timestamp();
		PERFORM setval('at_work', worker);
		SELECT * INTO seen FROM counter WHERE id = run;
		BEGIN
			SELECT value INTO locked FROM counter WHERE id = run FOR UPDATE NOWAIT;
			IF locked <> seen.value THEN
				turn.wrong := 'stale';
			END IF;
			CALL look_at_ddl(seen.made, seen.added);
		EXCEPTION
			WHEN lock_not_available THEN turn.wrong := 'locked';
			WHEN undefined_table OR undefined_column THEN turn.wrong := 'no DDL';
		END;

		turn.ended := CASE WHEN turn.wrong IS NOT NULL THEN 'skipped'
			WHEN round % 3 = 0 THEN 'rollback' ELSE 'commit' END;
		IF turn.ended <> 'skipped' THEN
			UPDATE counter SET value = value + CASE turn.ended WHEN 'commit' THEN 1 ELSE 1000 END
			WHERE id = run;
			IF scope = 'transaction' AND round % 10 IN (0, 1) THEN
				EXECUTE format('CREATE TABLE made_%s (id int)', turn.fence);
				UPDATE counter SET made = turn.fence WHERE id = run;
			ELSIF scope = 'transaction' AND round % 10 IN (4, 5, 6)
				AND seen.made IS DISTINCT FROM seen.added THEN
				EXECUTE format('ALTER TABLE made_%s ADD COLUMN extra int', seen.made);
				UPDATE counter SET added = seen.made WHERE id = run;
			END IF;
		END IF;
		IF scope = 'lease' THEN
			PERFORM hloom_release('vis', run, mine);
		END IF;
		turn.ending_at := clock_timestamp();
		IF turn.ended = 'rollback' THEN
			ROLLBACK;
		ELSE
			COMMIT;
		END IF;
		log := log || turn;

		-- Alone, this session would take the lease again before the other can.
		WHILE round < rounds AND (SELECT last_value FROM at_work) = worker LOOP END LOOP;
	END LOOP;
	INSERT INTO turns SELECT * FROM unnest(log);
END $$;
SQL

# work($run, $rounds, $scope): both sessions at the same time, then what was wrong
sub work
{
	my ($run, $rounds, $scope) = @_;
	$node->safe_psql('postgres', "INSERT INTO counter VALUES ('$run', 0)");
	my @workers =
	  map { start_sql($node, "CALL work('$run', $_, $rounds, '$scope')", "$run $_") } 1, 2;
	for my $worker (@workers)
	{
		my ($out, $err, $rc) = finish_sql($worker);
		is($err, '', "$run: the session came to its end");
	}
	return $node->safe_psql('postgres',
		"SELECT wrong, count(*) FROM turns WHERE run = '$run' AND wrong IS NOT NULL"
		  . ' GROUP BY 1 ORDER BY 1');
}

my $rounds = rounds(1000);
is(work('turns', $rounds, 'transaction'), '', "2 x $rounds turns: nothing was stale or locked");
is( $node->safe_psql(
		'postgres', q{SELECT value - (SELECT count(*) FROM turns WHERE ended = 'commit')
FROM counter WHERE id = 'turns'}),
	'0',
	'no update is lost, and nothing of a rollback is there');

# The test is worth nothing unless the one was asking while the other's transaction ended.
my $met = $node->safe_psql('postgres', <<'SQL');
SELECT ended_before, count(*) FROM (
	SELECT *, lag(ended) OVER w AS ended_before, lag(worker) OVER w AS worker_before,
		lag(ending_at) OVER w AS ending_before
	FROM turns WHERE run = 'turns' WINDOW w AS (ORDER BY fence)) t
WHERE worker <> worker_before AND ending_before BETWEEN asked_at AND granted_at
GROUP BY 1 ORDER BY 1
SQL
my %met = $met =~ /^(\w+)\|(\d+)$/mg;
for my $end ('commit', 'rollback')
{
	cmp_ok($met{$end} || 0,
		'>', $rounds / 50, "the other was waiting at a $end: " . ($met{$end} || 0));
}
my $ddl = $node->safe_psql('postgres',
	q{SELECT count(*) FROM pg_class WHERE relname LIKE 'made\_%'});
cmp_ok($ddl, '>', 0, "tables were made: $ddl");
cmp_ok(
	$node->safe_psql('postgres', q{SELECT count(*) FROM pg_attribute WHERE attname = 'extra'}),
	'>', 0, 'columns were added');
is($node->safe_psql('postgres', 'SELECT count(*) FROM hloom_leases'), '0', 'no lease is left');

# The control: a lease that goes before the COMMIT.
my $wrong = work('control', rounds(300), 'lease');
note("control: $wrong");
like($wrong, qr/\|[1-9]/, 'released before the COMMIT, the next one meets what is not committed');

# Several sessions with hloom_execute_with_lock, each in a transaction of its own
$node->safe_psql('postgres', <<'SQL');
INSERT INTO counter VALUES ('execute', 0);
CREATE FUNCTION increment() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	seen bigint;
BEGIN
	SELECT value INTO seen FROM counter WHERE id = 'execute';
	PERFORM FROM counter WHERE id = 'execute' FOR UPDATE NOWAIT;
	UPDATE counter SET value = seen + 1 WHERE id = 'execute';
END $$
SQL
my $script = $node->basedir . '/execute.sql';
append_to_file($script, <<'SQL');
SELECT hloom_execute_with_lock('vis', 'execute', 'SELECT increment()', max_wait => '60 s',
	retry => hloom_retry_interval(1000000, '1 ms'));
SQL
my ($clients, $times) = (6, rounds(200));
$node->command_ok(
	[
		'pgbench', '-n', '-c', $clients, '-j', 2, '-t', $times, '-f', $script, '-d', 'postgres'
	],
	"$clients sessions execute an action $times times each");
is( $node->safe_psql('postgres', q{SELECT value FROM counter WHERE id = 'execute'}),
	$clients * $times,
	'no increment is lost');
is($node->safe_psql('postgres', 'SELECT count(*) FROM hloom_leases'), '0', 'no lease is left');

$node->stop;
done_testing();
