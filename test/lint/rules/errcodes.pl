#!/usr/bin/perl
# A report a client sees has an errcode; elog() is for what cannot happen.
use strict;
use warnings;
use Lint;

for my $file (files(qr{^(src|test/modules)/.*\.c$}))
{
	my $text = slurp($file);
	my @lines = split /\n/, $text;
	my $code = strip_c($text);
	while ($code =~ /\b(ereport|ereport_domain|errsave)\s*(\()/g)
	{
		my ($open, $line) = ($-[2], line_of($code, $-[0]));
		my $call = call_at($code, $open);
		my ($level) = $call =~ /^\(\s*([^,]*),/;
		next unless defined $level;
		next if $level =~ /^\s*(LOG|LOG_SERVER_ONLY|COMMERROR|INFO|DEBUG[1-5])\s*$/;
		complain("$file:$line: report without errcode")
		  unless $call =~ /\berrcode(_for_\w+)?\s*\(|\bhloom_errcode\w*\s*\(/;
	}
	while ($code =~ /\belog\s*\(\s*(\w+)/g)
	{
		my ($level, $line) = ($1, line_of($code, $-[0]));
		next if $level =~ /^(LOG|DEBUG[1-5])$/;
		my $from = $line > 4 ? $line - 4 : 0;
		my $near = join "\n", @lines[ $from .. $line - 1 ];
		complain("$file:$line: elog($level) without a comment \"cannot happen\"")
		  unless $level =~ /^(ERROR|FATAL|PANIC)$/ && $near =~ /cannot happen/i;
	}
}
done();
