#!/bin/sh
# Builds and runs renewal.c with the library's own source.
set -eu
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
config=${PG_CONFIG:-pg_config}
headers=$($config --includedir-server)
${CC:-cc} -std=gnu99 -O2 -D_GNU_SOURCE -I../../src -I"$headers" -o "$out/renewal" renewal.c \
	../../src/renewal.c
"$out/renewal"
