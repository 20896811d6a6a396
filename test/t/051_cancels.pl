# Statements that take a lease are cancelled at random moments: before the grant, inside the store
# between the changed page and its flush, and after the grant before the client hears of it.
# Afterwards exactly those leases are held whose rows the clients received.
#
# Three victims run scripts of statements, each on a new key or one for which the others ask as
# well.  One session cancels whoever runs such a statement, at random moments, for as long as they
# do.  Then it stays away, and the victims tell how many grants the store made in them; what the
# lock says of itself is in hloom_metrics.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HloomLoad;
use HloomTest;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

my $VICTIMS = 3;
my $STATEMENTS = 1500;	# of each victim in one go
my $WANTED = rounds(2000);

my $node = make_node('cancels', settings => { synchronous_commit => 'on' });
my $modular = need_test_module($node);
my $gate = session($node, 'gate');
my $canceller = session($node, 'canceller');
my $hits = $modular ? q{SELECT hloom_test_hits('granted');} : 'SELECT 0;';

# The end of a victim's script waits for locks: 1 until the canceller is done, 2 until the leases
# have been looked at.
create_canceller($node, $VICTIMS);

my %kind = (
	plain => sub { "hloom_try_acquire('cancel', '$_[0]')" },
	patient => sub { "hloom_acquire('cancel', '$_[0]', lease => '5 min')" },
	named => sub { "hloom_try_acquire('cancel', '$_[0]', owner => gen_random_uuid())" },
	session => sub { "hloom_acquire('cancel', '$_[0]', scope => 'session')" },
	# All victims ask for the same key, and wait for it a little.
	contended => sub {
		"hloom_acquire('cancel', '$_[1]', max_wait => '2 ms',"
		  . " retry => hloom_retry_interval(10, '1 ms'))";
	});

# statement($kind, $key, $common, $work): prints key|owner|fence of what it is granted; $work is
# done behind the grant
sub statement
{
	my ($kind, $key, $common, $work) = @_;
	return "SELECT key, owner, fence$work FROM " . $kind{$kind}->($key, $common) . ";\n"
	  if $kind ne 'procedure';
	return "\\unset owner\nCALL hloom_acquire_wait('cancel', '$key') \\gset\n"
	  . "\\if :{?owner}\n\\qecho $key|:owner|:fence\n\\endif\n";
}

# script($go, $victim, $rows): the statements in random order of kinds, every second with some work
# behind the grant, and the end.  The rows received go to a file.
sub script
{
	my ($go, $victim, $rows) = @_;
	my @kinds = ('procedure', sort keys %kind);
	# Counting begins with the first call.
	my $sql = "$hits\n\\o $rows\n";
	for my $i (1 .. $STATEMENTS)
	{
		$sql .= statement($kinds[ rand @kinds ], "$go-$victim-$i", "$go-$i",
			$i % 2 ? '' : ", repeat('', length(pg_sleep(0.001)::text))");
	}

	# One cancel may still be under way to the first.
	$sql .= "\\o /dev/null\nSELECT pg_advisory_lock_shared(1);\n" x 2;
	return $sql;
}

# The rest of a script: how many grants, and enough leases taken to remove the rows of those that
# were given back.
sub epilogue
{
	my ($go, $victim, $counts) = @_;
	return "\\o $counts\n$hits\n\\o /dev/null\n"
	  . "SELECT count(*) FROM generate_series(1, $STATEMENTS / 64 + 1) AS i,"
	  . " hloom_acquire('sweep', '$go-$victim-' || i);\n"
	  . "SELECT pg_advisory_lock_shared(2);\n";
}

# start_victim($victim, $script, $errors): psql; what it says goes to a file, since a pipe would be
# full before somebody reads it
sub start_victim
{
	my ($victim, $script, $errors) = @_;
	append_to_file("$errors.sql", $script);
	local $ENV{PGAPPNAME} = "victim-$victim";
	my @command = (
		$node->installed_command('psql'), '-XAtq', '-d', $node->connstr('postgres'),
		'-v', 'VERBOSITY=verbose', '-f', "$errors.sql");
	return IPC::Run::start(\@command, '<', \'', '>', '/dev/null', '2>', $errors,
		IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
}

# metric($name, $outcome): of the namespace, so far
sub metric
{
	my ($name, $outcome) = @_;
	return $node->safe_psql('postgres',
		    'SELECT coalesce(sum(value), 0)::bigint FROM hloom_metrics'
		  . " WHERE namespace = 'cancel' AND name = '$name' AND outcome = '$outcome'");
}

# leases(): the leases held, as the victims' rows tell them
sub leases
{
	my $held = $node->safe_psql('postgres',
		q{SELECT key, owner, fence FROM hloom_leases WHERE namespace = 'cancel'});
	return map { $_ => 1 } split /\n/, $held;
}

sub some { return join ' ', @_[ 0 .. ($#_ > 4 ? 4 : $#_) ] }

my ($cancelled, $heard_of, $grants, $go) = (0, 0, 0, 0);
my (%kept, %others);
while ($cancelled < $WANTED && $go++ < $WANTED)
{
	ask($gate, 'SELECT pg_advisory_lock(1), pg_advisory_lock(2)');
	my (@victims, @rows, @counts, @errors);
	for my $victim (1 .. $VICTIMS)
	{
		my ($rows, $counts, $errors) =
		  map { $node->basedir . "/$_-$go-$victim" } qw(rows counts errors);
		push @rows, $rows;
		push @counts, $counts;
		push @errors, $errors;
		push @victims,
		  start_victim($victim, script($go, $victim, $rows) . epilogue($go, $victim, $counts),
			$errors);
	}
	ask($canceller, 'CALL cancel_at_random()');
	ask($gate, 'SELECT pg_advisory_unlock(1)');
	wait_for_victims($node, $VICTIMS, 2);

	my @received = map { split /\n/, slurp_file($_) } @rows;
	s/\|$// for @received;
	$heard_of += @received;
	$grants += slurp_file($_) for @counts;

	my %known = (%kept, map { $_ => 1 } @received);
	my %held = leases();
	is(some(grep { !$known{$_} } sort keys %held),
		'', "go $go: no lease without a client that knows it");
	is(some(grep { !$held{$_} } sort keys %known),
		'', "go $go: no client without the lease it knows of");

	ask($gate, 'SELECT pg_advisory_unlock(2)');
	$_->finish for @victims;
	for my $state (map { slurp_file($_) =~ /(?:ERROR|FATAL|PANIC):  (\w{5}):/g } @errors)
	{
		if ($state eq '57014') { $cancelled++; }
		else { $others{$state}++; }
	}

	# The leases of scope session are gone with their victims.
	wait_for_sql($node,
		q{SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name LIKE 'victim-%'});
	%kept = leases();
	is(some(grep { !$known{$_} } sort keys %kept), '', "go $go: nothing came back to life");
	is( $node->safe_psql(
			'postgres', q{SELECT count(*) FROM hloom_leases WHERE scope <> 'lease'}),
		'0',
		"go $go: what followed the victims is free");
}
cmp_ok($cancelled, '>=', $WANTED, "$cancelled statements were cancelled");
delete $others{'55P03'};
is(join(' ', %others), '', 'no error but cancel and a busy key');

my $acquired = metric('hostloom_lock_acquire_duration_seconds_count', 'acquired');

# "absent" is an orphan whose row was used for another lease before it was removed.
my ($released, $absent, $failed) =
  map { metric('hostloom_lock_orphan_releases', $_) } qw(released absent failed);
my $after = $released + $absent;
note("$acquired leases were acquired in $go goes, of the orphans $absent are counted as absent");
is($failed, '0', 'no orphan is counted as failed');
is($heard_of + $after, $acquired, 'each lease acquired was heard of or given back, and counted');

SKIP:
{
	skip 'no test module', 3 if !$modular;
	my $inside = $grants - $acquired;
	my $before = $cancelled - $inside - $after;
	note("cancelled before the grant: $before, inside the store: $inside, after it: $after");
	cmp_ok($before, '>', 0, "cancelled before the grant: $before");
	cmp_ok($inside, '>', 0, "cancelled inside the store: $inside");
	cmp_ok($after, '>', 0, "cancelled after the grant: $after");
}

$gate->quit;
$canceller->quit;
$node->stop;
done_testing();
