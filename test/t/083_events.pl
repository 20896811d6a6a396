# Each event is in the server's log at its level, under its name and number, with a DETAIL that is
# JSON whatever key, role and reason contain, and with no owner token.  Who holds a lease that is
# taken away by force is told as of any loss, and the log has who did it, from whom and why.
use strict;
use warnings;
use utf8;

use FindBin;
use lib $FindBin::RealBin;

use HloomLoss;
use HloomTest;
use JSON::PP ();
use PostgreSQL::Test::Utils;
use Test::More;

my %EVENT = (
	LockingDisabled => [ 3100, 'WARNING' ],
	LockDerivedMaxWait => [ 3101, 'LOG' ],
	LockLeaseLost => [ 3102, 'WARNING' ],
	LockHoldThreshold => [ 3103, 'WARNING' ],
	LockReleaseFailed => [ 3104, 'WARNING' ],
	LockExtendFailed => [ 3105, 'WARNING' ],
	LockAutoExtendStopped => [ 3106, 'LOG' ],
	LockCancellationCallbackFailed => [ 3107, 'WARNING' ],
	LockOrphanRelease => [ 3108, 'DEBUG' ],
	LockCheckFailed => [ 3190, 'WARNING' ],
	LockForceRelease => [ 3191, 'LOG' ]);
# Written as bytes, since psql gets them so
my $KEY = q{it's"a"\\u0041\\,100%s,Grüße,🔒};
my $json = JSON::PP->new->utf8;
my $node = make_loss_node('events',
	settings => { 'log_min_messages' => 'debug1', 'hloom_lock.reap_interval' => '100ms' });
my $log_start = -s $node->logfile;
my $holder = session($node, 'holder');
my $other = session($node, 'other');
my $listener = listener($node);

# The tokens are in no statement's text.
ask($other, 'CREATE TABLE owners (n int, owner uuid);'
	  . ' INSERT INTO owners SELECT n, gen_random_uuid() FROM generate_series(1, 20) AS n;'
	  . ' CREATE FUNCTION mine(int) RETURNS uuid LANGUAGE sql STABLE'
	  . ' AS $$SELECT owner FROM owners WHERE n = $1$$');

sub quoted
{
	my ($text) = @_;
	$text =~ s/'/''/g;
	utf8::encode($text);
	return "'$text'";
}

# events([ $event [, $key ]]): what was logged: level, message and the fields of the JSON; dies of
# one that is none
sub events
{
	my ($event, $key) = @_;
	my @events;
	my $log = slurp_file($node->logfile, $log_start);
	while ($log =~ /\b(WARNING|LOG|DEBUG):  (Lock[A-Za-z]+): (.*)\n(.*)/g)
	{
		my ($level, $name, $message, $next) = ($1, $2, $3, $4);
		die "no DETAIL: $message" if $next !~ /DETAIL:  (.*)/;
		my $detail = $json->decode($1);
		push @events, { level => $level, name => $name, message => $message, %$detail };
	}
	return grep {
		(!defined $event || $_->{name} eq $event)
		  && (!defined $key || defined $_->{key} && $_->{key} eq $key)
	} @events;
}

# logged_event($event [, $key]): waits until it was logged, and returns the first
sub logged_event
{
	my ($event, $key) = @_;
	my @found;
	wait_until("$event is logged", sub { @found = events($event, $key) });
	return $found[0];
}

# has_fields($event, fields): those besides level, name and message
sub has_fields
{
	my ($event, @fields) = @_;
	my @has = grep { !/^(?:level|name|message)$/ } sort keys %$event;
	is("@has", join(' ', sort 'event', 'id', @fields), "$event->{name}: fields");
	return;
}

# locked($code): runs it while the table is locked by somebody else
sub locked
{
	my ($code) = @_;
	ask($other, 'BEGIN; LOCK TABLE hloom_leases IN ACCESS EXCLUSIVE MODE');
	$code->();
	ask($other, 'COMMIT');
	return;
}

# ---- configuration -----------------------------------------------------------------------------

ask($other, q{SELECT hloom_configure('off', enabled => false)});
ask($holder, take('off', 'k', 'owner => mine(1)'));
has_fields(logged_event('LockingDisabled'), 'namespace');
ask($other, q{SELECT hloom_configure('policy', retry => hloom_retry_linear(10, '50 ms'))});
my $event = logged_event('LockDerivedMaxWait');
has_fields($event, 'namespace', 'retry', 'max_wait_ms');
is("$event->{namespace}, $event->{retry}, $event->{max_wait_ms}",
	'policy, linear step 50 ms, 10 retries, 2750', 'what is derived');

# ---- time goes by ------------------------------------------------------------------------------

ask($holder, q{SELECT hloom_configure('short', max_hold => '2 s')});
my (undef, $fence) = split /\|/,
  ask($holder, take('e', quoted($KEY) =~ s/^'|'$//gr, q{owner => mine(2), lease => '1500 ms',}
	  . q{ scope => 'session'}));
ask($holder, take('short', 'renewed', q{owner => mine(3), lease => '1 s', auto_extend => true,}
	  . q{ scope => 'session'}));
$event = logged_event('LockHoldThreshold', $KEY);
has_fields($event, 'namespace', 'key', 'lease_ms', 'lease_end');
is($event->{lease_ms}, 1500, 'of this lease');
$event = logged_event('LockLeaseLost', $KEY);
has_fields($event, 'namespace', 'key', 'fence', 'reason', 'expired_at');
is("$event->{fence} $event->{reason}", "$fence expired", 'that lease, and why');
$event = logged_event('LockAutoExtendStopped', 'renewed');
has_fields($event, 'namespace', 'key', 'max_hold_ms', 'lease_end');
is($event->{max_hold_ms}, 2000, 'max_hold');
logged_event('LockLeaseLost', 'renewed');

# ---- the table is locked -----------------------------------------------------------------------

ask($holder, take('e', 'kept', 'owner => mine(4)'));
ask($holder, take('e', 'long', q{owner => mine(5), lease => '6 s', auto_extend => true,}
	  . q{ scope => 'session'}));
ask($holder, q{SET lock_timeout = '100ms'});
locked(
	sub {
		ask($holder, q{SELECT hloom_extend('e', 'kept', mine(4), '1 min')});
		# The same in text, without dashes
		ask($holder, q{SELECT hloom_release('e', 'kept', replace(mine(4)::text, '-', ''))});
		has_fields(logged_event($_, 'kept'), 'namespace', 'key', 'waited_ms', 'attempts')
		  for 'LockExtendFailed', 'LockReleaseFailed';
		my ($state, $message) = ask_error($holder, q{SELECT hloom_is_held('e', 'kept', mine(4))});
		is($state, 'LL003', 'an error of the holder');
		wait_until('a renewal fails', sub { events('LockExtendFailed') > 1 });
	});
ask($holder, 'RESET lock_timeout');
($event) = grep { !exists $_->{key} } events('LockExtendFailed');
has_fields($event, 'leases', 'fences', 'cause');
is("$event->{leases} $event->{cause}", '1 the lease table is locked', 'of how many, and why');
is(ask($holder, "SELECT count(*) FROM hloom_leases WHERE fence = $event->{fences}[0]"),
	1, 'and of which');

# Whether a lease lasted as long as its action cannot be known.
ask($listener->{session}, 'SELECT pg_advisory_lock(1)');
my $action = start_sql($node, <<'SQL', 'action');
SET hloom_lock.default_lease = '300 ms';
SELECT hloom_execute_with_lock('e', 'checked', 'SELECT pg_advisory_xact_lock(1)',
	owner => mine(6), lease => '5 min');
SQL
wait_for_event($node, 'action', 'advisory');
locked(
	sub {
		ask($listener->{session}, 'SELECT pg_advisory_unlock(1)');
		has_fields(logged_event('LockCheckFailed', 'checked'),
			'namespace', 'key', 'waited_ms', 'attempts');
	});
my ($out, $err, $rc) = finish_sql($action);
is("$out $rc", '1 0', 'and the action has its result') or diag($err);

# ---- a cancel that ends otherwise --------------------------------------------------------------

ask($holder, take('e', 'masked', q{owner => mine(7), lease => '500 ms', scope => 'session',}
	  . q{ on_lost => 'cancel'}));
my ($state, $message) = ask_error($holder, <<'SQL');
DO $$ BEGIN
	PERFORM pg_sleep(60);
EXCEPTION WHEN query_canceled THEN
	RAISE E'cleaning up "failed"\n\\' USING ERRCODE = 'XX123';
END $$
SQL
is($state, 'XX123', 'an error takes the place of the cancel');
$event = logged_event('LockCancellationCallbackFailed', 'masked');
has_fields($event, 'namespace', 'key', 'sqlstate', 'cause');
is("$event->{sqlstate} $event->{cause}", qq{XX123 cleaning up "failed"\n\\}, 'which one');
like($message, qr/WARNING:.*LockCancellationCallbackFailed/, 'the client is told');
($state) = ask_error($holder, 'SELECT 1');
is($state, 'LL010', 'and of the loss with its next statement');

# A statement that fails of itself at about that time keeps its error; only one that was cancelled
# before has the event.
my ($own, $warned) = (0, 0);
my $rounds = rounds(100);
for my $round (1 .. $rounds)
{
	ask($holder, q{SELECT count(*) FROM hloom_try_acquire('e', 'close', '10 ms', owner => mine(9),
		scope => 'session', on_lost => 'cancel')});
	($state, $message) = ask_error($holder, <<'SQL');
DO $$
BEGIN
	WHILE hloom_is_held('e', 'close', mine(9)) LOOP
	END LOOP;
	RAISE SQLSTATE 'XX124';
EXCEPTION WHEN query_canceled THEN
	RAISE SQLSTATE 'XX124';
END $$
SQL
	# The lease may have ended before the statement began.
	$own++ if $state eq 'XX124' || $state eq 'LL010';
	diag("$state: $message") if $state !~ /^(?:XX124|LL010)$/;
	$warned++ if $message =~ /LockCancellationCallbackFailed/;
	ask_error($holder, 'SELECT 1');
}
is($own, $rounds, "its own error at the end of the lease stays what it is, $warned with a warning");

# ---- a grant nobody heard of -------------------------------------------------------------------

ask($other, q{SELECT hloom_configure('e-memory', provider => 'memory')});
for my $ns ('e', 'e-memory')
{
	($state) = ask_error($holder,
		"SELECT 1 / (fence - fence) FROM hloom_try_acquire('$ns', 'orphan-$ns',"
		  . ' owner => mine(8))');
	is($state, '22012', 'a statement fails after it took a lease');
	$event = logged_event('LockOrphanRelease', "orphan-$ns");
	has_fields($event, 'namespace', 'key', 'outcome');
	is("$event->{namespace} $event->{outcome}", "$ns released", 'it is given back');
}

# ---- by force ----------------------------------------------------------------------------------

ask($other, 'CREATE ROLE boss LOGIN SUPERUSER; CREATE ROLE "the ""chief""\\"; CREATE ROLE worker;'
	  . ' GRANT EXECUTE ON FUNCTION hloom_force_release(text, text, text) TO "the ""chief""\\";'
	  . ' GRANT SELECT ON owners TO worker');
my $boss = session($node, 'boss');
ask($boss, 'SET SESSION AUTHORIZATION boss; SET ROLE "the ""chief""\\"');
ask($holder, 'SET ROLE worker');
for my $ns ('e', 'e-memory')
{
	(undef, $fence) = split /\|/,
	  ask($holder, take($ns, 'forced', q{owner => mine(9), lease => '10 min', scope => 'session',}
		  . q{ on_lost => 'cancel'}));
	my $holder_pid = ask($holder, 'SELECT pg_backend_pid()');
	my $pid = ask($boss, 'SELECT pg_backend_pid()');
	my $reason = qq{it "hangs",\n2026-02-01 00:00:00 UTC [1] LOG:  forged\n\t\\u0041 %s ä'};
	is(ask($boss, "SELECT hloom_force_release('$ns', 'forced', " . quoted($reason) . ')'),
		't', "$ns: taken away");
	my ($event) = grep { $_->{namespace} eq $ns } events('LockForceRelease', 'forced');
	has_fields($event, qw(namespace key reason pid session_role current_role fence holder_pid
		  holder_role));
	is($event->{reason}, $reason, "$ns: why");
	is("$event->{pid} $event->{session_role} $event->{current_role}",
		qq{$pid boss the "chief"\\}, "$ns: who");
	is("$event->{fence} $event->{holder_pid} $event->{holder_role}",
		"$fence $holder_pid worker", "$ns: from whom");

	($state, $message) = ask_error($holder, 'SELECT pg_sleep(60)');
	is($state, 'LL010', "$ns: the holder's statement is cancelled");
	like($message, qr/was given back or taken away/, "$ns: and tells why");
	my @heard;
	wait_until("$ns: the loss is told",
		sub { @heard = grep { $_->{key} eq 'forced' } heard($listener, $ns) });
	is_deeply(
		\@heard,
		[ { namespace => $ns, key => 'forced', fence => $fence, reason => 'taken away' } ],
		"$ns: who listens is told");
	wait_until("$ns: the loss is logged",
		sub { grep { $_->{namespace} eq $ns } events('LockLeaseLost', 'forced') });
	($event) = grep { $_->{namespace} eq $ns } events('LockLeaseLost', 'forced');
	is("$event->{fence} $event->{reason}", "$fence taken away", "$ns: as any loss");
	my (undef, $next) = split /\|/, ask($other, take($ns, 'forced', 'owner => mine(10)'));
	cmp_ok($next, '>', $fence, "$ns: the next fence is higher");
}
is(ask($boss, q{SELECT hloom_force_release('e', 'nobody', 'no reason')}), 'f', 'nobody has it');
is(scalar(events('LockForceRelease')), 2, 'then nothing is logged');

# ---- owner tokens ------------------------------------------------------------------------------

# Bound by a client: losses, warnings, and an error with its STATEMENT
my $script = $node->basedir . '/bound.sql';
append_to_file($script, <<'SQL');
SELECT owner FROM hloom_acquire('bound', 'k', '1 min') \gset
INSERT INTO owners VALUES (0, :owner::uuid);
SELECT hloom_extend('bound', 'k', :owner::uuid, '1 ms');
SELECT hloom_execute_with_lock('bound', 'acts', 'SELECT hloom_release($1, $2, $3)',
	ARRAY['bound', 'acts', :owner::text], owner => :owner::uuid);
SELECT hloom_force_release('bound', 'acts', 'nobody');
SELECT hloom_release('bound', 'bad key', replace(:owner::text, '-', ''));
SQL
$node->command_checks_all(
	[
		'pgbench', '-n', '-M', 'extended', '-t', 1, '-f', $script, '-d', $node->connstr('postgres')
	],
	2,
	[],
	[qr/lock key has a white space/],
	'a client that binds, until its error');
logged_event('LockLeaseLost', 'k');
logged_event('LockLeaseLost', 'acts');
my $log = slurp_file($node->logfile, $log_start);
like($log, qr/STATEMENT:.*replace\(\$1::text/, 'its statement is in the log');
my @owners = split /\n/, ask($other, 'SELECT owner FROM owners');
cmp_ok(scalar(@owners), '>', 20, 'there are owners');
for my $form ([ 'in the log', sub { $_[0] } ], [ 'without dashes', sub { $_[0] =~ s/-//gr } ])
{
	my ($how, $change) = @$form;
	is(scalar(grep { index(lc $log, $change->($_)) >= 0 } @owners), 0, "no owner is $how");
}
unlike($log, qr/^\S+ \S+ UTC \[1\] LOG:  forged/m, 'a reason forges no line');

# ---- all of them -------------------------------------------------------------------------------

my %seen;
for my $event (events())
{
	$seen{ $event->{name} }{"$event->{id} $event->{level} $event->{event}"}++;
}
is(join(' ', sort keys %seen), join(' ', sort keys %EVENT), 'all events were seen');
for my $name (sort keys %EVENT)
{
	is(join(', ', keys %{ $seen{$name} }),
		"$EVENT{$name}[0] $EVENT{$name}[1] $name",
		"$name: number and level");
}

$_->quit for $holder, $other, $boss, $listener->{session};
$node->stop;
done_testing();
