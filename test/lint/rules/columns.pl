#!/usr/bin/perl
# At most 100 columns with a tab of four, no trailing blanks.
use strict;
use warnings;
use Lint;

for my $file (files(qr{(\.([ch]|sh|p[lm])|^Makefile|/Makefile|^\.ci/run)$}))
{
	my $number = 0;
	for my $line (split /\n/, slurp($file))
	{
		$number++;
		complain("$file:$number: trailing blanks") if $line =~ /[ \t]$/;
		1 while $line =~ s/^([^\t]*)\t/$1 . ' ' x (4 - length($1) % 4)/e;
		my $width = length $line;
		complain("$file:$number: $width columns") if $width > 100;
	}
}
done();
