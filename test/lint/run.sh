#!/bin/bash
# Runs the rules of test/lint/rules, all or those named: "ok|FAIL|skip RULE SECONDS [NOTE]" each,
# below it what the rule said.  "--list" prints their names.  README.md says what each is for.
#
# A rule is a program that is started in the source's top directory and says what is wrong.  Its
# status is 0 when all is well, 77 when the tool it needs is not installed.
set -u
cd "$(dirname "$0")/../.." || exit 1

rules=()
for f in test/lint/rules/*; do
	[[ -x $f ]] && rules+=("$(basename "${f%.*}")")
done
if [[ ${1:-} == --list ]]; then
	printf '%s\n' "${rules[@]}"
	exit
fi
[[ $# -eq 0 ]] || rules=("$@")

if [[ -z ${PG_CONFIG:-} ]]; then
	PG_CONFIG=pg_config
	for f in /usr/lib/postgresql/1[5-8]/bin/pg_config; do
		[[ -e $("$f" --includedir-server 2>/dev/null)/postgres.h ]] && PG_CONFIG=$f
	done
fi
export PG_CONFIG
export PERL5LIB=$PWD/test/lint${PERL5LIB:+:$PERL5LIB}
HLOOM_LINT_TMP=$(mktemp -d) || exit 1
export HLOOM_LINT_TMP
trap 'rm -rf "$HLOOM_LINT_TMP"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Git does not read a checkout that belongs to somebody else, unless told.
git_files() { git -c safe.directory='*' ls-files -co --exclude-standard 2>/dev/null; }
git_files >"$HLOOM_LINT_TMP/files"
[[ -s $HLOOM_LINT_TMP/files ]] ||
	find . -type f ! -path './.git/*' ! -name '*.o' ! -name '*.so' | sed 's,^\./,,' \
		>"$HLOOM_LINT_TMP/files"
# A file deleted and not yet committed is listed, too.
while IFS= read -r f; do [[ -f $f ]] && echo "$f"; done <"$HLOOM_LINT_TMP/files" | sort \
	>"$HLOOM_LINT_TMP/present"
export HLOOM_FILES=$HLOOM_LINT_TMP/present

failed=0
for rule in "${rules[@]}"; do
	program=$(compgen -G "test/lint/rules/$rule.*" | head -n 1)
	start=$(date +%s%N)
	status=0
	if [[ -z $program ]]; then
		echo "no such rule" >"$HLOOM_LINT_TMP/out"
		status=1
	else
		timeout -k 10 300 "$program" >"$HLOOM_LINT_TMP/out" 2>&1 </dev/null || status=$?
	fi
	ms=$((($(date +%s%N) - start) / 1000000))
	seconds=$(printf '%d.%02d' $((ms / 1000)) $((ms % 1000 / 10)))
	case $status in
	0) echo "ok $rule $seconds" ;;
	77) echo "skip $rule $seconds $(head -n 1 "$HLOOM_LINT_TMP/out")" && continue ;;
	*)
		echo "FAIL $rule $seconds"
		failed=1
		;;
	esac
	sed 's/^/# /' "$HLOOM_LINT_TMP/out" | head -n 100
done
exit "$failed"
