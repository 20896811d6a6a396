#!/usr/bin/perl
# The scripts take over nobody else's objects, run from CREATE EXTENSION only, explain themselves.
use strict;
use warnings;
use Lint;

my @scripts = files(qr{^sql/hloom_lock--.*\.sql$});
complain("no script in sql/") unless @scripts;
for my $file (@scripts)
{
	my $text = slurp($file);
	my $verb = $file =~ /--.*--/ ? 'ALTER' : 'CREATE';
	$verb .= ' EXTENSION hloom_lock';
	$text =~ s{/\*.*?\*/}{my $c = $&; $c =~ s/[^\n]//g; $c}gse;
	# Literals are matched first, they may hold two dashes.
	$text =~ s{('(?:[^']|'')*')|--[^\n]*}{$1 // ''}ge;
	my ($first) = $text =~ /^\s*(\S[^\n]*)/;
	complain("$file: does not begin with \\echo Use \"$verb\" … \\quit")
	  unless defined $first && $first =~ /^\\echo Use "\Q$verb\E.*" to load this file\. \\quit$/;
	for my $bad (qr/\bCREATE\s+OR\s+REPLACE\b/i, qr/\bIF\s+NOT\s+EXISTS\b/i)
	{
		complain("$file:" . line_of($text, $-[0]) . ": $&") while $text =~ /$bad/g;
	}
	my (%created, %commented);
	my $name = qr/(?:[\w@"]+\.)?"?(\w+)"?/;
	$created{ lc "$1 $2" }++ while $text =~ /\bCREATE\s+(FUNCTION|PROCEDURE)\s+$name\s*\(/gi;
	$created{ lc "$1 $2" }++
	  while $text =~ /\bCREATE\s+(VIEW|TABLE|TYPE|DOMAIN|ROLE|OPERATOR\s+CLASS)\s+$name/gi;
	$created{ lc "access method $1" }++ while $text =~ /\bCREATE\s+ACCESS\s+METHOD\s+$name/gi;
	$commented{ lc "$1 $2" }++
	  while $text =~ /\bCOMMENT\s+ON\s+(FUNCTION|PROCEDURE|VIEW|TABLE|TYPE|DOMAIN)\s+$name/gi;
	$commented{ lc "access method $1" }++
	  while $text =~ /\bCOMMENT\s+ON\s+ACCESS\s+METHOD\s+$name/gi;
	for my $object (sort keys %created)
	{
		my $have = $commented{$object} // 0;
		complain("$file: $object: $created{$object} created, $have with COMMENT ON")
		  if $have < $created{$object};
	}
}
done();
