#!/bin/bash
# What the module exports is prefixed: PostgreSQL 15 loads all modules into one name space.
set -u
. test/lint/cc.sh
if [[ -z ${HLOOM_SO:-} || ! -e ${HLOOM_SO:-} ]]; then
	HLOOM_SO=$HLOOM_LINT_TMP/hloom_lock.so
	cc -O0 -fPIC -shared -o "$HLOOM_SO" src/*.c || exit 1
fi
bad=$(nm -D --defined-only "$HLOOM_SO" | awk '{ print $NF }' |
	grep -Ev '^(hloom_|pg_finfo_hloom_|Pg_magic_func$|_PG_init$|_init$|_fini$)')
[[ -z $bad ]] || {
	echo "exported without the prefix hloom_:"
	echo "$bad"
	exit 1
}
