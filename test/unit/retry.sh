#!/bin/sh
# Builds and runs retry.c with the library's own sources and what PostgreSQL has for programs that
# are no server: beside the modules in Debian's packages, with libpq elsewhere.
set -eu
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
config=${PG_CONFIG:-pg_config}
headers=$($config --includedir-server)
${CC:-cc} -std=gnu99 -O2 -D_GNU_SOURCE -I../../src -I"$headers" -o "$out/retry" retry.c \
	../../src/retry.c ../../src/attempts.c \
	-L"$($config --pkglibdir)" -L"$($config --libdir)" -lpgcommon -lpgport -lm
"$out/retry"
