#!/bin/bash
# Each header compiles with nothing but postgres.h before it.
set -u
. test/lint/cc.sh
status=0
for f in src/*.h; do
	printf '#include "postgres.h"\n#include "%s"\n' "$(basename "$f")" |
		cc -Wall -Wno-unused-function -Werror -fsyntax-only -x c - || {
		echo "$f does not compile alone"
		status=1
	}
done
exit "$status"
