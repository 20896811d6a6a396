#!/usr/bin/perl
# Every test has its expected output, and no output lost its test.
use strict;
use warnings;
use Lint;

my %test;
for my $file (files(qr{^test/(sql/.*\.sql|specs/.*\.spec)$}))
{
	my ($name) = $file =~ m{([^/]+)\.\w+$};
	complain("$file: $test{$name} has the same name") if $test{$name};
	$test{$name} = $file;
}
my %output;
for my $file (files(qr{^expected/.*\.out$}))
{
	my ($name) = $file =~ m{([^/]+)\.out$};
	# x_1.out is an alternative of x.out.
	$name =~ s/_\d$// unless $test{$name};
	$output{$name} = 1;
	complain("$file: there is no such test") unless $test{$name};
}
for my $name (sort keys %test)
{
	complain("$test{$name}: no expected/$name.out") unless $output{$name};
}
done();
