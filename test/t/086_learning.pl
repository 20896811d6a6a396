# How one learns that a lease is lost: each means of README.md's table, in autocommit, in an open
# transaction and through a transaction pooler.
use strict;
use warnings;

use FindBin;
use lib $FindBin::RealBin;

use HloomPooler;
use HloomTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $me = '11111111-1111-4111-8111-111111111111';
my $node = make_node('learning');
start_pooler($node);
my $look = session($node, 'look');
ask($look, 'CREATE TABLE written (note text)');
my %client = (direct => session($node, 'direct'), pooled => client('one'));

# Somebody else whom the pooler serves with the same connection
my $neighbour = client('one');
is(ask($neighbour, 'SELECT pg_backend_pid()'), ask($client{pooled}, 'SELECT pg_backend_pid()'),
	'the clients of the pooler share a server connection');

my $keys = 0;

# lose($key, $expires): takes it away, or waits for its end
sub lose
{
	my ($key, $expires) = @_;
	if (!$expires)
	{
		is(ask($look, "SELECT hloom_force_release('l', '$key', 'test')"), 't', "$key: taken away");
		return;
	}
	wait_for_sql($node, "SELECT count(*) = 0 FROM hloom_leases WHERE key = '$key'");
	return;
}

# lease_of($expires): for a lease that is to end soon, or is to be taken away
sub lease_of { return $_[0] ? "lease => '400 ms'" : "lease => '5 min'"; }

# takes($key, $expires, $rest): the statement
sub takes
{
	my ($key, $expires, $rest) = @_;
	return "SELECT count(*) FROM hloom_try_acquire('l', '$key', owner => '$me', "
	  . lease_of($expires) . ($rest || '') . ')';
}

# ---- the answers -------------------------------------------------------------------------------

my %frame = (
	'autocommit' => [ '', '' ],
	'open transaction' => [ 'BEGIN', 'COMMIT' ],
	'snapshot' => [ 'BEGIN ISOLATION LEVEL REPEATABLE READ', 'COMMIT' ]);
for my $way (sort keys %client)
{
	for my $frame (sort keys %frame)
	{
		for my $expires (0, 1)
		{
			my $client = $client{$way};
			my $key = sprintf 'answer-%d', ++$keys;
			my $owned = "'l', '$key', '$me'";
			ask($client, $frame{$frame}[0]) if $frame{$frame}[0];
			ask($client, takes($key, $expires));
			lose($key, $expires);
			ask($neighbour, 'SELECT 1') if $way eq 'pooled' && $frame eq 'autocommit';
			is( ask($client, "SELECT hloom_is_held($owned), hloom_extend($owned),"
					  . " hloom_release($owned)"),
				'f|f|f', "$way, $frame: is_held, extend and release say false");
			ask($client, $frame{$frame}[1]) if $frame{$frame}[1];
		}
	}
}

# ---- guard -------------------------------------------------------------------------------------

for my $way (sort keys %client)
{
	my $client = $client{$way};
	for my $expires (0, 1)
	{
		my $key = sprintf 'guard-%d', ++$keys;
		my $guard = "SELECT hloom_guard('l', '$key', '$me')";
		ask($client, takes($key, $expires));
		ask($client, "BEGIN; $guard; INSERT INTO written VALUES ('$key')");
		lose($key, $expires);
		is((ask_error($client, 'COMMIT'))[0], 'LL010', "$way: COMMIT tells of the loss");
		is(ask($look, "SELECT count(*) FROM written WHERE note = '$key'"),
			0, "$way: and nothing is written");
		ask($client, 'ROLLBACK');
		ask($client, 'BEGIN');
		is((ask_error($client, $guard))[0], 'LL010', "$way: so does the guard itself");
		ask($client, 'ROLLBACK');
	}
}
my $alone = sprintf 'guard-%d', ++$keys;
ask($client{direct}, takes($alone));
my $guards = "SELECT hloom_guard('l', '$alone', '$me')";
my (undef, $message) = ask_error($client{direct}, $guards);
like($message, qr/WARNING:  25P01/, 'autocommit: a guard warns that it ends with its statement');
lose($alone);
is((ask_error($client{direct}, $guards))[0],
	'LL010', 'autocommit: it tells of a loss');

# ---- on_lost => 'cancel' -----------------------------------------------------------------------

my $long = "SELECT pg_sleep($PostgreSQL::Test::Utils::timeout_default)";
for my $way (sort keys %client)
{
	for my $expires (0, 1)
	{
		# In autocommit a lease that follows the transaction ends with the statement that took it.
		my $key = sprintf 'cancel-%d', ++$keys;
		my $action = "SELECT hloom_execute_with_lock('l', '$key', \$\$$long\$\$, owner => '$me', "
		  . lease_of($expires) . ", on_lost => 'cancel')";
		my $run = $way eq 'pooled' ? start_client('two', $action) : start_sql($node, $action);
		if (!$expires)
		{
			wait_until('the action runs', sub {
				ask($look, "SELECT count(*) FROM hloom_locks WHERE key = '$key'") eq '1';
			});
			lose($key);
		}
		like((finish_sql($run))[1], qr/LL010/, "$way, autocommit: the action ends");

		for my $idle (0, 1)
		{
			$key = sprintf 'cancel-%d', ++$keys;
			my $client = $client{$way};
			ask($client, 'BEGIN');
			ask($client, "INSERT INTO written VALUES ('$key')");
			ask($client, takes($key, $expires, ", scope => 'transaction', on_lost => 'cancel'"));
			lose($key, $expires) if $idle || !$expires;
			is((ask_error($client, $idle ? 'SELECT 1' : $long))[0], 'LL010',
				"$way, open transaction: "
				  . ($idle ? 'the next statement is refused' : 'a statement ends'));
			ask_error($client, 'COMMIT');
			is(ask($look, "SELECT count(*) FROM written WHERE note = '$key'"),
				0, "$way: and nothing is committed");
		}
	}
}

# Of a session: the next statement is refused, once.
for my $expires (0, 1)
{
	my $client = $client{direct};
	my $key = sprintf 'session-%d', ++$keys;
	ask($client, takes($key, $expires, ", scope => 'session', on_lost => 'cancel'"));
	lose($key, $expires);
	is((ask_error($client, 'SELECT 1'))[0], 'LL010', 'session: the next statement is refused');
	is(ask($client, 'SELECT 1'), 1, 'session: once');
	$key = sprintf 'session-%d', ++$keys;
	ask($client, 'BEGIN');
	ask($client, takes($key, 1, ", scope => 'session', on_lost => 'cancel'"));
	is((ask_error($client, $long))[0], 'LL010', 'session, open transaction: a statement ends');
	ask($client, 'ROLLBACK');
}

# Through the pooler the session is nobody's: whoever is served by it next gets the error.
ask($client{pooled}, takes('nobody', 0, ", scope => 'session', on_lost => 'cancel'"));
lose('nobody');
is((ask_error($neighbour, 'SELECT 1'))[0], 'LL010', 'session, pooled: another client is told');
is(ask($client{pooled}, 'SELECT 1'), 1, 'session, pooled: and not the one that took it');

# ---- LISTEN ------------------------------------------------------------------------------------

# hears($client, $key, $sql): whether it is told of that loss with its next statement
sub hears
{
	my ($client, $key, $sql) = @_;
	return ask($client, $sql || 'SELECT 1') =~ /Asynchronous notification "hloom_lost".*"$key"/s;
}

ask($_, 'LISTEN hloom_lost') for values %client;
ask($look, takes('told', 1));
wait_until('the loss is told', sub { hears($client{direct}, 'told') });
pass('autocommit: a notification comes');
ok(!hears($client{pooled}, 'told'), 'pooled: LISTEN succeeds, and nothing comes');
ask($client{direct}, 'BEGIN');
my $witness = session($node, 'witness');
ask($witness, 'LISTEN hloom_lost');
ask($look, takes('later', 1));
wait_until('the loss is told to others', sub { hears($witness, 'later') });
ok(!hears($client{direct}, 'later'), 'open transaction: not before its end');
ok(hears($client{direct}, 'later', "COMMIT;\nSELECT 1"), 'open transaction: but with it');

# ---- for operators -----------------------------------------------------------------------------

is(ask($look, q{SELECT reason, holder_pid = pg_backend_pid() FROM hloom_losses WHERE key = 'told'}),
	'expired|t', 'the view of losses tells');
like(slurp_file($node->logfile), qr/LockLeaseLost: the lease on key "told"/, 'and the log');

$_->quit for $look, $neighbour, $witness, values %client;
stop_pooler();
$node->stop;
done_testing();
