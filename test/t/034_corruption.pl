# A scribbled page of the lease table is an error that names the block, or does no harm; never a
# crash, never a hang.  TRUNCATE is the way out.
#
# The server is stopped, bytes of the table's file are overwritten, the server is started, and then
# everything that reads or changes the table is tried.  HLOOM_SEED repeats a run of the random part.
use strict;
use warnings;
use FindBin;
use lib $FindBin::RealBin;
use HloomTest;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

my $PAGE = 8192;
my $TAIL = $PAGE - 48;
my $LEASES = 4000;

# Offsets in a page: header, special space, metapage, row.
my %HEADER = (lower => 12, upper => 14, special => 16);
my %FIELD = (
	fence => [ $TAIL, 'q' ], stamp => [ $TAIL + 16, 'L' ], bucket => [ $TAIL + 20, 'L' ],
	next => [ $TAIL + 32, 'L' ], ordinal => [ $TAIL + 36, 'L' ], kind => [ $TAIL + 40, 'S' ]);
my %META = (magic => 24, major => 28, maxbucket => 32, chunks => 36, first_free => 40, chunk => 48);
my %ROW = (
	hash => [ 0, 'L' ], flags => [ 4, 'C' ], mode => [ 5, 'C' ], scope => [ 6, 'C' ],
	ns_len => [ 7, 'C' ], key_len => [ 8, 'S' ], note_len => [ 10, 'S' ], app_len => [ 12, 'C' ],
	addr_len => [ 13, 'C' ], fence => [ 32, 'q' ], granted_at => [ 40, 'q' ],
	expires_at => [ 48, 'q' ], lease => [ 56, 'q' ], role => [ 72, 'L' ]);

my $node = make_node('scribble', init => { no_data_checksums => 1 });
plan skip_all => 'module hloom_test is not installed' if !need_test_module($node);
plan skip_all => 'needs pages without checksums'
  if $node->safe_psql('postgres', 'SHOW data_checksums') ne 'off';

# ---- a table with chains, and everything one can do with it --------------------------------------

# Leases of an owner each that follows from the key.  Growth is switched off, so that buckets have
# overflow pages.
$node->safe_psql('postgres', <<"SQL");
SELECT hloom_test_set('grow', 'skip');
SELECT count(*) FROM generate_series(1, $LEASES) n,
	LATERAL hloom_try_acquire('scribble', 'key' || n, owner => md5('key' || n)::uuid,
		note => repeat('n', 200));

-- Tries a call for many keys and tells which errors came how often.
CREATE FUNCTION probe(call text, keys int4range) RETURNS TABLE (state text, message text, times int)
LANGUAGE plpgsql AS \$\$
DECLARE
	n int;
BEGIN
	CREATE TEMP TABLE IF NOT EXISTS seen (s text, m text);
	TRUNCATE seen;
	FOR n IN lower(keys) .. upper(keys) - 1 LOOP
		DECLARE
			s text;
			m text;
		BEGIN
			EXECUTE call USING 'key' || n, md5('key' || n)::uuid;
		EXCEPTION WHEN OTHERS THEN
			GET STACKED DIAGNOSTICS s = RETURNED_SQLSTATE, m = MESSAGE_TEXT;
			INSERT INTO seen VALUES (s, m);
		END;
	END LOOP;
	RETURN QUERY SELECT seen.s, seen.m, count(*)::int FROM seen GROUP BY 1, 2 ORDER BY 1, 2;
END \$\$;
SQL
my $fence = $node->safe_psql('postgres', 'SELECT max(fence) FROM hloom_leases');
my $file = $node->data_dir . '/'
  . $node->safe_psql('postgres', 'SELECT pg_relation_filepath(\'hloom_leases\')');
my $new_keys = 'int4range(100000, 100600)';
my $old_keys = "int4range(1, $LEASES + 1)";

# What is tried, in this order; the last ones change most.
my @PROBES = (
	[ select => 'SELECT sum(length(l::text)) FROM hloom_leases l' ],
	[ is_held => "SELECT * FROM probe('SELECT hloom_is_held(''scribble'', \$1, \$2)', $old_keys)" ],
	[ extend => "SELECT * FROM probe('SELECT hloom_extend(''scribble'', \$1, \$2)', $old_keys)" ],
	[
		acquire => 'SELECT * FROM probe(\'SELECT hloom_try_acquire(\'\'scribble\'\', $1,'
		  . " owner => \$2, note => repeat(''m'', 250))', $new_keys)"
	],
	[
		renew => 'SELECT * FROM probe(\'SELECT hloom_try_acquire(\'\'scribble\'\', $1,'
		  . " owner => \$2)', $old_keys)"
	],
	[ analyze => 'ANALYZE hloom_leases' ],
	[ vacuum => 'VACUUM hloom_leases' ],
	[ release => "SELECT * FROM probe('SELECT hloom_release(''scribble'', \$1, \$2)', $old_keys)" ],
	[ 'second vacuum' => 'VACUUM hloom_leases' ],
	[ 'vacuum full' => 'VACUUM FULL hloom_leases' ]);

# probe_all(): runs them in one session; returns name => [error, ...], an error being
# "SQLSTATE: message"; undef when the session did not end in time
sub probe_all
{
	my $sql = "SET statement_timeout = '10 s';\n\\set VERBOSITY verbose\n";
	$sql .= "\\echo -- $_->[0]\n$_->[1];\n" for @PROBES;
	my $out = '';
	my $ended = eval {
		IPC::Run::run(
			[
				$node->installed_command('psql'), '-XAtq',
				'-d', $node->connstr('postgres'), '-f', '-'
			],
			'<', \$sql, '>', \$out, '2>&1', IPC::Run::timeout(25));
		1;
	};
	return if !$ended;
	my (%result, $probe);
	for my $line (split /\n/, $out)
	{
		if ($line =~ /^-- (.*)/) { $result{ $probe = $1 } = []; }
		elsif ($line =~ /(?:ERROR|FATAL|PANIC):  (.*)/ || $line =~ /^(\w{5}\|.*)\|\d+$/)
		{
			(my $error = $1) =~ s/\|/: /;
			push @{ $result{$probe} }, $error;
		}
		elsif ($line =~ /server closed the connection|connection to server was lost/)
		{
			push @{ $result{$probe} }, $line;
		}
	}
	return \%result;
}

# ---- damage --------------------------------------------------------------------------------------

$node->stop;
my $pristine = slurp_file($file, 0);
my $blocks = length($pristine) / $PAGE;

sub field
{
	my ($data, $block, $name) = @_;
	my ($offset, $type) = @{ $FIELD{$name} };
	return unpack($type, substr($data, $block * $PAGE + $offset, 8));
}

# write_file($data): puts the file's content back in place
sub write_file
{
	my ($data) = @_;
	open my $handle, '>', $file or die "$file: $!";
	binmode $handle;
	print $handle $data or die "$file: $!";
	close $handle or die "$file: $!";
	return;
}

# put(\$data, block, offset, bytes)
sub put
{
	my ($data, $block, $offset, $bytes) = @_;
	substr($$data, $block * $PAGE + $offset, length $bytes) = $bytes;
	return;
}

my $log_start = -s $node->logfile;

# try_damage($name, $data): the probes on a damaged file, and TRUNCATE afterwards.  Returns the
# probes' results; fails where the server does not survive or an error is not as promised.
sub try_damage
{
	my ($name, $data) = @_;
	write_file($data);
	$node->start;
	my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
	my $result = probe_all();
	my @wrong;
	if (!defined $result)
	{
		push @wrong, 'a statement did not end: '
		  . $node->safe_psql('postgres',
			'SELECT query, wait_event_type, wait_event FROM pg_stat_activity'
			  . ' WHERE state = \'active\' AND pid <> pg_backend_pid()');
		$node->stop('immediate');
		$node->start;
		$result = {};
	}
	for my $probe (sort keys %$result)
	{
		push @wrong, map { "$probe: $_" }
		  grep { !/^XX001: .* block \d+/ } @{ $result->{$probe} };
	}
	my ($rc, $out, $err) = $node->psql(
		'postgres',
		"TRUNCATE hloom_leases; "
		  . "SELECT count(*) || ':' || bool_and(fence > $fence AND fence < 1::int8 << 53)"
		  . ' FROM generate_series(1, 300) n,'
		  . ' LATERAL hloom_try_acquire(\'scribble\', \'key\' || n);'
		  . ' SELECT count(*) FROM hloom_leases',
		timeout => 60);
	push @wrong, "after TRUNCATE: $out $err" if $rc != 0 || $out ne "300:true\n300";
	my $log = slurp_file($node->logfile, $log_start);
	push @wrong, "server log: $1" if $log =~ /^(.*(?:terminated by signal|PANIC|TRAP).*)$/m;
	push @wrong, 'the server was restarted'
	  if defined $result
	  && $result->{select}
	  && $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()') ne $started;
	# TRUNCATE made a new file.
	$file = $node->data_dir . '/'
	  . $node->safe_psql('postgres', 'SELECT pg_relation_filepath(\'hloom_leases\')');
	$log_start = -s $node->logfile;
	ok(!@wrong, "$name: errors name the block, nothing worse, TRUNCATE heals")
	  or diag(join "\n", @wrong > 12 ? (@wrong[ 0 .. 11 ], '...') : @wrong);
	$node->stop('fast');
	return $result;
}
# An overflow page that is its bucket's last, and its bucket's primary page; a row of it.
my ($overflow) = grep
{
	field($pristine, $_, 'kind') == 3 && field($pristine, $_, 'next') == 0xFFFFFFFF
} 1 .. $blocks - 1;
die 'the table has no overflow page' if !defined $overflow;
my ($primary) = grep
{
	field($pristine, $_, 'kind') == 2
	  && field($pristine, $_, 'bucket') == field($pristine, $overflow, 'bucket')
} 1 .. $blocks - 1;
my ($other) = grep { field($pristine, $_, 'kind') == 3 && $_ != $overflow } 1 .. $blocks - 1;

# The page item number $n (from 1): [offset, length]
sub item
{
	my ($block, $n) = @_;
	my $lp = unpack('L', substr($pristine, $block * $PAGE + 20 + 4 * $n, 4));
	return ($lp & 0x7FFF, $lp >> 17);
}

# The name of each damage, the block its error has to name (undef: it may do no harm), what it does.
my @damage = (
	[ 'metapage: magic', 0, sub { put($_[0], 0, $META{magic}, 'XXXX') } ],
	[ 'metapage: format', 0, sub { put($_[0], 0, $META{major}, pack('S', 2)) } ],
	[ 'metapage: maxbucket', 0, sub { put($_[0], 0, $META{maxbucket}, pack('L', 1 << 30)) } ],
	[ 'metapage: maxbucket and chunks', 0, sub {
		put($_[0], 0, $META{maxbucket}, pack('L', 128 * 2000 - 1));
		put($_[0], 0, $META{chunks}, pack('L', 2000));
	} ],
	[ 'metapage: chunk beyond the end', undef,
		sub { put($_[0], 0, $META{chunk}, pack('L', 1 << 20)) } ],
	[ 'metapage: chunk far beyond', undef,
		sub { put($_[0], 0, $META{chunk}, pack('L', 0xFFFFFF80)) } ],
	[ 'metapage: chunk shifted', undef, sub { put($_[0], 0, $META{chunk}, pack('L', 2)) } ],
	[ 'metapage: chunk at the metapage', 0, sub { put($_[0], 0, $META{chunk}, pack('L', 0)) } ],
	[ 'metapage: free page is the metapage', undef,
		sub { put($_[0], 0, $META{first_free}, pack('L', 0)) } ],
	[ 'metapage: free page is in use', undef,
		sub { put($_[0], 0, $META{first_free}, pack('L', $overflow)) } ],
	[ 'metapage: zeroed', 0, sub { put($_[0], 0, 0, "\0" x $PAGE) } ],
	[ 'metapage: random', 0, sub { put($_[0], 0, 0, random_bytes($PAGE)) } ],
);
for my $where ([ primary => $primary ], [ overflow => $overflow ])
{
	my ($what, $block) = @$where;
	my ($at, $length) = item($block, 2);
	my $field = sub {
		my ($name, $value, $expect) = @_;
		push @damage, [ "$what: $name $value", $expect, sub {
			put($_[0], $block, $FIELD{$name}[0], pack($FIELD{$name}[1], $value)) } ];
	};
	my $row = sub {
		my ($name, $value, $expect) = @_;
		push @damage, [ "$what: row's $name $value", $expect, sub {
			put($_[0], $block, $at + $ROW{$name}[0], pack($ROW{$name}[1], $value)) } ];
	};
	push @damage,
	  [ "$what: zeroed", $block, sub { put($_[0], $block, 0, "\0" x $PAGE) } ],
	  [ "$what: random", $block, sub { put($_[0], $block, 0, random_bytes($PAGE)) } ],
	  [ "$what: all ones", $block, sub { put($_[0], $block, 0, "\xFF" x $PAGE) } ];
	for my $name ($what eq 'primary' ? sort keys %HEADER : ())
	{
		push @damage, [ "$what: pd_$name $_", $block,
			do { my $v = $_; sub { put($_[0], $block, $HEADER{$name}, pack('S', $v)) } } ]
		  for 0, 0xFFFF;
	}
	# The same item over and over is sound in each of its entries, but not as a page.
	push @damage, [ "$what: many equal items", undef, sub {
		my $lp = substr($pristine, $block * $PAGE + 28, 4);
		my $upper = unpack('S', substr($pristine, $block * $PAGE + $HEADER{upper}, 2));
		my $count = int(($upper - 24) / 4);
		$count = 1000 if $count > 1000;
		put($_[0], $block, 24, $lp x $count);
		put($_[0], $block, $HEADER{lower}, pack('S', 24 + 4 * $count));
	} ],
	  [ "$what: items all over the page", undef, sub {
		put($_[0], $block, 24, substr($pristine, $block * $PAGE + 24, 4) x 20) } ],
	  [ "$what: item outside", $block,
		sub { put($_[0], $block, 28, pack('L', 8190 | 1 << 15 | 200 << 17)) } ],
	  [ "$what: item too short", $block,
		sub { put($_[0], $block, 28, pack('L', $at | 1 << 15 | 8 << 17)) } ],
	  [ "$what: dead item", $block, sub { put($_[0], $block, 28, pack('L', 3 << 15)) } ];
	$field->('kind', 77, $block);
	$field->('bucket', 5000, $block);
	$field->('next', $block, $block);
	$field->('next', 0, 0);
	$field->('next', $other, $other);
	$field->('next', $primary, $what eq 'overflow' ? $primary : $block);
	$field->('next', $blocks + 100, undef);
	$field->('next', 0xFFFFFFF0, undef);
	$field->('stamp', 1, $block) if $what eq 'primary' && field($pristine, $block, 'bucket') > 1;
	$field->('stamp', $_, undef) for 128, 255, 1 << 20, 0xFFFFFFFF;
	$field->('ordinal', 0, undef);
	$row->('key_len', 60000, $block);
	# The rest is looked at in the same way wherever the row is.
	next if $what eq 'overflow';
	$field->('fence', '9223372036854775807', undef);
	$field->('fence', '-9223372036854775808', undef);
	$row->('ns_len', 0, $block);
	$row->('note_len', 60000, $block);
	$row->('app_len', 200, $block);
	$row->('addr_len', 200, $block);
	$row->('addr_len', 1, undef);
	$row->('scope', 99, $block);
	$row->('mode', 99, undef);
	$row->('hash', 12345, undef);
	for my $name ('fence', 'granted_at', 'expires_at', 'lease')
	{
		$row->($name, '9223372036854775807', undef);
		$row->($name, '-9223372036854775807', undef);
	}
	$row->('role', 4294967295, undef);
}

sub random_bytes
{
	my ($n) = @_;
	return join '', map { chr(int(rand(256))) } 1 .. $n;
}

my $seed = defined $ENV{HLOOM_SEED} ? $ENV{HLOOM_SEED} : time;
srand($seed);
note("HLOOM_SEED=$seed");

for my $damage (@damage)
{
	my ($name, $block, $apply) = @$damage;
	next if $ENV{HLOOM_DAMAGE} && $name !~ /$ENV{HLOOM_DAMAGE}/;
	my $data = $pristine;
	$apply->(\$data);
	my $result = try_damage($name, $data);
	next if !defined $block || !$result->{select};
	my @named = grep { /^XX001: .*\bblock $block\b/ } map { @$_ } values %$result;
	ok(scalar(@named), "$name: block $block was named");
}

# ---- random damage -------------------------------------------------------------------------------

# One to three scribbles anywhere, more often where the structure is than in the texts.
sub scribble
{
	my ($data) = @_;
	my $block = rand() < 0.1 ? 0 : int(rand($blocks));
	my $offset = (
		sub { int(rand(24)) }, sub { 24 + int(rand(200)) }, sub { $TAIL + int(rand(48)) },
		sub { int(rand($PAGE)) })[ int(rand(4)) ]->();
	my $length = ($block == 0 ? 4 : 1) + int(rand(rand() < 0.2 ? 2000 : 8));
	$length = $PAGE - $offset if $offset + $length > $PAGE;
	my $bytes = (
		sub { random_bytes($length) }, sub { "\0" x $length }, sub { "\xFF" x $length },
		# What stands at the same place of another page: sound, but not here.
		sub { substr($pristine, int(rand($blocks)) * $PAGE + $offset, $length) }
	)[ int(rand(4)) ]->();
	put($data, $block, $offset, $bytes);
	return "$length at $block/$offset";
}

if (!$ENV{HLOOM_DAMAGE} || 'random' =~ /$ENV{HLOOM_DAMAGE}/)
{
	my ($errors, $harmless) = (0, 0);
	for my $round (1 .. rounds(20))
	{
		my $data = $pristine;
		my @what = map { scribble(\$data) } 0 .. int(rand(3));
		my $result = try_damage("random $round, seed $seed, bytes " . join(', ', @what), $data);
		if (grep { @$_ } values %$result) { $errors++ }
		else { $harmless++ }
	}
	note("$errors rounds with errors, $harmless without");
	cmp_ok($errors, '>', 0, 'random damage was noticed');
}

done_testing();
