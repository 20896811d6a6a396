#!/bin/bash
# The sources compile against the headers of every PostgreSQL from 15 to 18 installed here.
set -u
. test/lint/cc.sh
status=0
for PG_CONFIG in /usr/lib/postgresql/1[5-8]/bin/pg_config; do
	[[ -e $("$PG_CONFIG" --includedir-server 2>/dev/null)/postgres.h ]] || continue
	for f in src/*.c; do
		cc -Wall -Wno-unused-parameter -fsyntax-only "$f" || {
			echo "with $("$PG_CONFIG" --version)"
			status=1
		}
	done
done
exit "$status"
