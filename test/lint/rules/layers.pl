#!/usr/bin/perl
# A file includes headers of its own layer or lower.
use strict;
use warnings;
use Lint;

my @table;
for my $line (split /\n/, slurp('test/lint/layers.txt'))
{
	next if $line =~ /^\s*(#|$)/;
	my ($layer, @patterns) = split ' ', $line;
	for my $pattern (@patterns)
	{
		(my $re = quotemeta $pattern) =~ s/\\\*/.*/g;
		push @table, [ qr/^$re$/, $layer ];
	}
}

sub layer
{
	my ($name) = @_;
	for my $row (@table)
	{
		return $row->[1] if $name =~ $row->[0];
	}
	return;
}

for my $file (files(qr{^src/[^/]+\.[ch]$}))
{
	my ($name) = $file =~ m{([^/]+)\.[ch]$};
	my $own = layer($name);
	complain("$file: not in test/lint/layers.txt"), next unless defined $own;
	my $text = slurp($file);
	while ($text =~ /^#include "([^"\/]+)\.h"/mg)
	{
		next unless -e "src/$1.h";
		my $other = layer($1);
		complain("$file (layer $own) includes $1.h (layer $other)")
		  if defined $other && $other > $own;
	}
}
done();
