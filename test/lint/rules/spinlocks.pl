#!/usr/bin/perl
# Nothing that can raise, allocate or leave happens while a spinlock is held.
use strict;
use warnings;
use Lint;

for my $file (files(qr{^(src|test/modules)/.*\.c$}))
{
	my $code = strip_c(slurp($file));
	while ($code =~ /\bSpinLockAcquire\s*\(/g)
	{
		my $start = $-[0];
		my $line = line_of($code, $start);
		my $rest = substr($code, $start);
		if ($rest !~ /^(.*?)(\bSpinLockRelease\s*\(|^\})/ms || $2 eq '}')
		{
			complain("$file:$line: no SpinLockRelease in the same function");
			next;
		}
		my $held = $1;
		while ($held =~ /\b(palloc\w*|pstrdup|psprintf|MemoryContextAlloc\w*|ereport|elog|
				LWLockAcquire|CHECK_FOR_INTERRUPTS|return|goto)\b/gx)
		{
			complain("$file:" . line_of($code, $start + $-[0]) . ": $1 with a spinlock held");
		}
	}
}
done();
