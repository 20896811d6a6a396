# What the rules written in Perl share.
package Lint;
use strict;
use warnings;
use Exporter 'import';
our @EXPORT = qw(complain done files slurp strip_c line_of call_at);

my $complaints = 0;

sub complain { print "@_\n"; $complaints++; return; }

sub done { exit($complaints ? 1 : 0); }

# The project's files whose names match.
sub files
{
	my ($pattern) = @_;
	open(my $list, '<', $ENV{HLOOM_FILES}) or die "run the rules with test/lint/run.sh\n";
	chomp(my @all = <$list>);
	return grep { /$pattern/ } @all;
}

sub slurp
{
	my ($file) = @_;
	open(my $in, '<:encoding(UTF-8)', $file) or die "$file: $!\n";
	local $/;
	return <$in> // '';
}

# C with comments and the insides of literals blanked: offsets and lines stay what they were.
sub strip_c
{
	my ($text) = @_;
	$text =~ s{(/\*.*?\*/|//[^\n]*)|"((?:[^"\\\n]|\\.)*)"|'((?:[^'\\\n]|\\.)*)'}{
		my $all = $&;
		my $keep = defined $1 ? '' : substr($all, 0, 1);
		my $blank = $keep ? substr($all, 1, -1) : $all;
		$blank =~ s/[^\n]/ /g;
		"$keep$blank$keep"}gse;
	return $text;
}

sub line_of
{
	my ($text, $offset) = @_;
	return 1 + (substr($text, 0, $offset) =~ tr/\n//);
}

# The call whose opening parenthesis is at the offset, up to the matching one.
sub call_at
{
	my ($text, $open) = @_;
	my $depth = 0;
	for (my $i = $open; $i < length $text; $i++)
	{
		my $c = substr($text, $i, 1);
		$depth++ if $c eq '(';
		$depth-- if $c eq ')';
		return substr($text, $open, $i - $open + 1) if $depth == 0;
	}
	return substr($text, $open);
}

1;
