#!/bin/sh
# Builds and runs bucket.c against the headers of the server under test.
set -eu
cd "$(dirname "$0")"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
headers=$(${PG_CONFIG:-pg_config} --includedir-server)
${CC:-cc} -std=gnu99 -O2 -D_GNU_SOURCE -I../../src -I"$headers" -o "$out/bucket" bucket.c
"$out/bucket"
