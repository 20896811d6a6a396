#!/bin/sh
# Builds and runs losses.c with the library's own source.
set -eu
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
headers=$(${PG_CONFIG:-pg_config} --includedir-server)
${CC:-cc} -std=gnu99 -O2 -D_GNU_SOURCE -I../../src -I"$headers" -o "$out/losses" losses.c \
	../../src/losses.c
"$out/losses"
