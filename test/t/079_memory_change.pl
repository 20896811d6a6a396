# A namespace goes to provider "memory", or leaves it: no lease is left behind, nobody is granted
# one at the provider that is left, and a key never has two holders while providers change as often
# as they can.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomLoad;
use HloomTest;
use HloomWait;
use PostgreSQL::Test::Utils;
use Test::More;

my $CLIENTS = 6;
my $KEYS = 3;

my $node = make_node('change');
my $modular = need_test_module($node);
my $load = $modular ? q{LOAD 'hloom_test'} : 'SELECT 0';
my $admin = session($node, 'admin');
my $steady = session($node, 'steady');
my $other = session($node, 'other');
ask($_, $load) for $admin, $steady;

# set_provider($provider): of the namespace
sub set_provider
{
	my ($provider) = @_;
	return "SELECT FROM hloom_configure('change', provider => '$provider')";
}

# places(): the keys held now, each with where; those of the test module are in their own sessions
sub places
{
	return ask($admin, q{
SELECT string_agg(k.key || CASE WHEN l.key IS NULL THEN ' memory' ELSE ' table' END, ', '
	ORDER BY k.key)
FROM hloom_locks k LEFT JOIN hloom_leases l USING (namespace, key)
WHERE namespace = 'change'});
}

sub free
{
	ask($admin, q{SELECT hloom_force_release('change', key, 'test') FROM hloom_locks
		WHERE namespace = 'change'});
	return;
}

my @changes = (['memory', 'table'], ['table', 'memory']);
push @changes, ['memory', 'test'] if $modular;

# ---- a lease that is held ----------------------------------------------------------------------

for my $change (@changes)
{
	my ($from, $to) = @$change;
	my $name = "$from to $to";
	ask($admin, set_provider($from));
	my ($owner) = split /\|/, ask($steady, take('change', 'k'));
	my ($state, $message) = ask_error($admin, set_provider($to));
	is($state, '55006', "$name: refused while a lease is held");
	unlike($message, qr/\Q$owner\E/, "$name: the error does not tell the owner token");
	is((ask_error($admin, q{SELECT hloom_unconfigure('change')}))[0],
		'55006', "$name: nor does the row go")
	  if $from eq 'memory';
	is(places(), "k $from", "$name: the lease stays where it is");
	like(ask($steady, take('change', 'other')), qr/\d$/, "$name: and calls go on");
	free();

	# One that has ended does not count.
	ask($steady, "SELECT hloom_extend(h, '1 us') FROM hloom_acquire('change', 'short') AS h");
	is((ask_error($admin, set_provider($to)))[0], '', "$name: not when it has ended");
}

# ---- asked for during the change ---------------------------------------------------------------

# One who knows of all changes before, and one who knows of none, ask for a key each while the
# change is not committed.
for my $change (@changes)
{
	my ($from, $to) = @$change;
	my ($rounds, $well, $waited) = (2 * rounds(2), 0, 0);
	for my $round (1 .. $rounds)
	{
		ask($admin, set_provider($from));
		ask($steady, q{SELECT hloom_release(h) FROM hloom_try_acquire('change', 'before') AS h});
		ask($admin, 'BEGIN; ' . set_provider($to));
		send_query($steady, q{SELECT owner FROM hloom_acquire('change', 'a', '1 min')});
		my $fresh = start_sql(
			$node, "$load; SELECT count(*) FROM hloom_acquire('change', 'b', '1 min');"
			  . ($modular ? 'SELECT hloom_test_held()' : 'SELECT 0'),
			"fresh-$from-$round");
		wait_until('both wait', sub {
			ask($other, q{SELECT count(*) = 2 FROM pg_stat_activity
				WHERE application_name ~ '^(steady|fresh)'
				AND 'Extension' IN (wait_event, wait_event_type)}) eq 't' });
		$waited++ if places() eq '';
		my $commits = $round % 2;
		ask($admin, $commits ? 'COMMIT' : 'ROLLBACK');
		my ($owner, $err) = read_query($steady);
		my ($out, $fresh_err) = finish_sql($fresh);
		$out =~ s/^0\n//;
		my $at = $commits ? $to : $from;
		my $held = $modular ? ask($steady, 'SELECT hloom_test_held()') : 0;
		my $is = join '; ', $out =~ s/\n/, /r, $held, places();
		my $wanted = $at eq 'test' ? '1, 1; 1; ' : "1, 0; 0; a $at, b $at";
		if ($is eq $wanted && "$err$fresh_err" eq '') { $well++; }
		else { diag("$from to $to: $is instead of $wanted: $err$fresh_err"); }
		ask($steady, "SELECT hloom_release('change', 'a', '$owner')");
		free();
	}
	is($waited, $rounds, "$from to $to: until it is committed nobody is granted a lease");
	is($well, $rounds, "$from to $to: then only by the new provider, rolled back by the old one");
}

# ---- as often as it can ------------------------------------------------------------------------

# Clients take and give back a few keys without pause; every second one waits for its key.  The
# advisory lock shows whether two are inside.  Each change looks for leases at the provider it
# leaves before it commits; one of four is rolled back.  After every second one it waits for a turn.
#
# At the provider it goes to there may be one, of a claim that began before the last change and is
# given back before anybody hears of it.
ask($admin, set_provider('memory'));
$node->safe_psql(
	'postgres', q{
CREATE UNLOGGED TABLE turns (asked timestamptz, granted timestamptz, alone bool);
CREATE UNLOGGED TABLE flips (at timestamptz, left_there bigint);
CREATE SEQUENCE made;
CREATE FUNCTION turn(client int, k int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	asked timestamptz := clock_timestamp();
	granted timestamptz;
	handle hloom_handle;
	alone bool;
BEGIN
	SELECT * INTO handle FROM hloom_try_acquire('change', 'key-' || k, '1 min',
		max_wait => CASE WHEN client % 2 = 0 THEN interval '2 s' END);
	granted := clock_timestamp();
	IF NOT FOUND THEN
		RETURN;
	END IF;
	alone := pg_try_advisory_lock(k);
	INSERT INTO turns VALUES (asked, granted, alone);
	IF alone THEN
		PERFORM pg_advisory_unlock(k);
	END IF;
	PERFORM nextval('made');
	IF NOT hloom_release(handle) THEN
		RAISE 'the lease is lost';
	END IF;
END $$;
CREATE PROCEDURE flip(wanted int, INOUT refused int, INOUT rolled_back int) LANGUAGE plpgsql
AS $$
DECLARE
	done int := 0;
	is_at text := 'memory';
	next text;
	leases bigint;
	before bigint;
BEGIN
	WHILE done < wanted LOOP
		next := CASE is_at WHEN 'memory' THEN 'table' ELSE 'memory' END;
		BEGIN
			PERFORM hloom_configure('change', provider => next);
			SELECT count(*) INTO leases FROM hloom_locks k LEFT JOIN hloom_leases l
				USING (namespace, key)
				WHERE namespace = 'change' AND state <> 'reserved'
					AND (l.key IS NULL) = (is_at = 'memory');
			IF random() < 0.25 THEN
				RAISE no_data_found;
			END IF;
			INSERT INTO flips VALUES (clock_timestamp(), leases);
			before := (SELECT last_value FROM made);
			is_at := next;
			done := done + 1;
		EXCEPTION
			WHEN object_in_use THEN refused := refused + 1;
			WHEN no_data_found THEN rolled_back := rolled_back + 1;
		END;
		COMMIT;
		WHILE done % 2 = 1 AND (SELECT last_value FROM made) = before LOOP
			PERFORM pg_sleep(0.0002);
		END LOOP;
	END LOOP;
END $$});
my $log_start = -s $node->logfile;
my $load_run = start_load(
	$node, 'postgres', $CLIENTS, "SELECT turn(:client_id, (random() * $KEYS)::int);\n", '-T', 3600);
wait_for_sql($node, 'SELECT count(*) > 0 FROM turns');
my $flips = rounds(400);
my ($refused, $rolled_back) = split /\|/, ask($admin, "CALL flip($flips, 0, 0)");
stop_load($load_run);

my ($turns, $overlaps) =
  split /\|/, ask($admin, 'SELECT count(*), count(*) FILTER (WHERE NOT alone) FROM turns');
my ($met, $between) = split /\|/, ask($admin, q{
SELECT count(*) FILTER (WHERE EXISTS
		(SELECT FROM turns WHERE asked < at AND granted > at)),
	count(*) FILTER (WHERE EXISTS (SELECT FROM turns WHERE granted > at AND granted < next))
FROM (SELECT at, lead(at) OVER (ORDER BY at) AS next FROM flips) AS f});
note("$turns turns; $flips changes, $rolled_back rolled back, $refused refused;"
	  . " $met while somebody asked, a lease was granted after $between");
is($overlaps, 0, 'never two holders of a key');
is(ask($admin, 'SELECT count(*), sum(left_there) FROM flips'), "$flips|0",
	'no change leaves a lease behind');
cmp_ok($met, '>=', $flips / 10, "somebody asked during $met of $flips changes");
cmp_ok($between, '>=', $flips / 4, "leases were granted after $between of them");
cmp_ok($refused, '>', 0, "$refused were refused, since leases were held");
is_empty_memory($node, 'at the end');
is(places(), '', 'nor is anything in the table');
my @errors = grep { !/connection to client lost/ } error_lines($node, $log_start);
is(scalar(@errors), 0, 'no error is logged') or diag(join "\n", @errors[ 0 .. 4 ]);

$_->quit for $admin, $steady, $other;
$node->stop;
done_testing();
