#!/bin/bash
# The sources compile without a warning.
set -u
. test/lint/cc.sh
status=0
for f in src/*.c; do
	# The last three are what PostgreSQL's own macros and callback types force on everybody.
	cc -O2 -Wall -Wextra -Wshadow -Wmissing-prototypes -Wold-style-definition \
		-Wdeclaration-after-statement -Wimplicit-fallthrough=3 -Werror \
		-Wno-unused-parameter -Wno-sign-compare -Wno-missing-field-initializers \
		-c -o /dev/null "$f" || status=1
done
exit "$status"
