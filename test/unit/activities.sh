#!/bin/sh
# Builds and runs activities.c with the library's own sources and what PostgreSQL has for programs
# that are no server: beside the modules in Debian's packages, with libpq elsewhere.
set -eu
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
config=${PG_CONFIG:-pg_config}
headers=$($config --includedir-server)
${CC:-cc} -std=gnu99 -O2 -D_GNU_SOURCE -I../../src -I"$headers" -o "$out/activities" activities.c \
	../../src/activities.c ../../src/trace.c \
	-L"$($config --pkglibdir)" -L"$($config --libdir)" -lpgcommon -lpgport -lm
"$out/activities"
