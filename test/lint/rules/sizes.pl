#!/usr/bin/perl
# Files and functions stay short enough to be read in one go.
use strict;
use warnings;
use Lint;

my ($file_hard, $file_soft, $function_hard, $function_soft) = (700, 450, 80, 60);

for my $file (files(qr{^src/.*\.[ch]$}))
{
	my @lines = split /\n/, strip_c(slurp($file)), -1;
	my $count = @lines - 1;
	complain("$file: $count lines, at most $file_hard") if $count > $file_hard;
	print "note: $file has $count lines\n" if $count > $file_soft && $count <= $file_hard;
	my ($start, $name) = (0, '');
	for my $i (0 .. $#lines)
	{
		# pgindent puts the braces of a function, and of little else, into the first column.
		$name = $1 if $lines[$i] =~ /^(\w+)\s*\(/;
		$start = $i if $lines[$i] =~ /^\{/ && $lines[ $i - 1 ] =~ /\)\s*$/;
		next unless $lines[$i] =~ /^\}/ && $start;
		my $length = $i - $start + 1;
		complain("$file: $name() has $length lines, at most $function_hard")
		  if $length > $function_hard;
		print "note: $file: $name() has $length lines\n"
		  if $length > $function_soft && $length <= $function_hard;
		$start = 0;
	}
}
done();
