#!/bin/bash
# Instructions of one acquire + release, counted by valgrind: the same on a busy machine.
# BENCH_LIVE leases are live meanwhile.  BENCH_CONF is a line for postgresql.conf.
# CALLGRIND_OUT=FILE keeps the profile.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=test/lib.sh
. ../lib.sh

live=${BENCH_LIVE:-1000}
pairs=2000
command -v valgrind >/dev/null || {
	echo "valgrind is not installed, nothing counted" >&2
	exit 0
}

# The clean-up goes on when one of its steps fails.
leave() {
	local status=$?
	set +e
	(exit "$status")
	hl_cleanup
}

# instructions PAIRS: of a single-user server that does so many pairs in one statement
instructions() {
	hl_run 600 valgrind --tool=callgrind --callgrind-out-file="$HL_TMP/tmp/callgrind.$1" \
		"$HL_BINDIR/postgres" --single -D "$HL_TMP/count" -c config_file="$HL_TMP/count.conf" \
		bench >"$HL_TMP/log/count.log" 2>&1 <<-SQL || return 1
			SET synchronous_commit = off
			SELECT pair_cost(1)
			SELECT pair_cost($1)
		SQL
	# A failed statement leaves the exit status alone.
	[[ $(grep -c 'pair_cost = "' "$HL_TMP/log/count.log") -eq 2 ]] || return 1
	sed -n 's/^summary: //p;s/^totals: //p' "$HL_TMP/tmp/callgrind.$1" | head -n 1
}

hl_need_packages base
hl_begin
trap leave EXIT
hl_build
hl_conf
hl_start count "shared_buffers = 256MB" "autovacuum = off" "hloom_lock.max_lease = '1 d'" \
	${BENCH_CONF:+"$BENCH_CONF"}
timeout 60 psql -Xq -d postgres -c "CREATE DATABASE bench"
timeout 60 psql -Xq -d bench -f schema.sql
timeout 600 psql -XqAt -v ON_ERROR_STOP=1 -d bench >/dev/null <<-SQL
	SELECT count(*) FROM generate_series(1, $live) AS g,
		LATERAL hloom_try_acquire('load', 'k' || g, lease => '6 h');
SQL
hl_stop count

# The first server to start reads what the others find as it should be, and is not counted.
if ! instructions $((2 * pairs)) >/dev/null || ! once=$(instructions "$pairs") ||
	! twice=$(instructions $((2 * pairs))); then
	hl_tail "$HL_TMP/log/count.log"
	exit 1
fi
printf 'acquire + release, %d live leases: %d instructions\n' "$live" \
	$(((twice - once) / pairs))
# file_cost PROFILE FILE...: instructions in functions of these source files, not what they call
file_cost() {
	local profile=$1
	shift
	callgrind_annotate --threshold=100 --auto=no "$profile" | tr -d , |
		awk -v files="$*" 'BEGIN { n = split(files, want, " ") }
			{ for (i = 1; i <= n; i++) if (index($0, "/src/" want[i] ":")) sum += $1 }
			END { print sum + 0 }'
}

# of_these LABEL FILE...
of_these() {
	local label=$1 more less
	shift
	more=$(file_cost "$HL_TMP/tmp/callgrind.$((2 * pairs))" "$@")
	less=$(file_cost "$HL_TMP/tmp/callgrind.$pairs" "$@")
	printf '  of these, %s: %d instructions\n' "$label" $(((more - less) / pairs))
}

if command -v callgrind_annotate >/dev/null; then
	of_these "counting for the metrics" stats.c
	of_these "telling of activities" activities.c trace.c
	callgrind_annotate "$HL_TMP/tmp/callgrind.$((2 * pairs))" | grep -v '^--' |
		grep '%).*hloom_lock' | sed -n '1,15{s| [^ ]*/src/| src/|;s| \[.*||;p}'
fi
[[ -z ${CALLGRIND_OUT:-} ]] || cp "$HL_TMP/tmp/callgrind.$((2 * pairs))" "$CALLGRIND_OUT"
