#!/bin/bash
# Where the time of one pair of lock and unlock goes, as Markdown: the processor time of eight
# clients by program (perf, cpu-clock), and the instructions of one backend by what it does
# (callgrind).  SELECT 1 twice is the floor: two statements that do nothing.
# BENCH_SECONDS per operation, BENCH_OPERATIONS of "select_twice advisory memory lease heap".
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=test/lib.sh
. ../lib.sh
# shellcheck source=test/bench/measure.sh
. ./measure.sh

seconds=${BENCH_SECONDS:-10}
read -ra operations <<<"${BENCH_OPERATIONS:-select_twice advisory memory lease heap}"
pairs=500
owner=6f0e4a52-7d1b-4c3a-9a55-0d8a3c1e2b47
server=

# The clean-up goes on when one of its steps fails.
leave() {
	local status=$?
	set +e
	[[ -z $server ]] || kill "$server" 2>/dev/null
	(exit "$status")
	hl_cleanup
}

# ---- processor time ----------------------------------------------------------------------------

# times OPERATION: microseconds of both cores per pair, by program and by where it was
times() {
	local count
	pgb small "$1.sql" 8 off -T 2
	perf record -q -a -F 997 -e cpu-clock -o "$HL_TMP/perf.data" -- \
		env PGOPTIONS="-c synchronous_commit=off" pgbench -n -M prepared -c 8 -j 2 \
		-D "owner=$owner" -f "$1.sql" -T "$seconds" small >"$HL_TMP/pgbench" 2>&1
	count=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' \
		"$HL_TMP/pgbench")
	perf script -i "$HL_TMP/perf.data" -F comm,ip,dso 2>/dev/null | awk -v pairs="$count" '
		function place(comm, dso) {
			if (comm ~ /^swapper/) return "idle"
			if (comm == "pgbench") return "client"
			if (comm != "postgres") return "others"
			if (dso ~ /kernel|vmlinux|unknown/) return "kernel"
			if (dso ~ /hloom_lock/) return "hloom_lock"
			if (dso ~ /\/postgres\)?$/) return "postgres"
			return "libraries"
		}
		NF >= 3 { us[place($1, $NF)] += 1e6 / 997 }
		END {
			n = split("kernel postgres libraries hloom_lock client others idle", name)
			for (i = 1; i <= n; i++) printf " %.1f |", us[name[i]] / pairs
			printf "\n" }'
}

# ---- instructions ------------------------------------------------------------------------------

# under_valgrind: the server again, slowly
under_valgrind() {
	local i
	"${HL_AS[@]}" valgrind --quiet --tool=callgrind \
		--callgrind-out-file="$HL_TMP/tmp/callgrind.%p" "$HL_BINDIR/postgres" -D "$HL_TMP/profile" \
		-c config_file="$HL_TMP/profile.conf" </dev/null >>"$HL_TMP/log/profile.log" 2>&1 &
	server=$!
	for ((i = 0; i < 600; i++)); do
		! pg_isready -q -d postgres || return 0
		sleep 0.2
	done
	fail "the server does not start under valgrind"
}

# backend_profile OPERATION PAIRS: the profile of the backend that did them
backend_profile() {
	local known i
	known=$(ls "$HL_TMP"/tmp)
	pgb small "$1.sql" 1 off -t "$2"
	# A backend writes its profile as it leaves; pgbench had two of them, and one did the work.
	for ((i = 0; i < 100; i++)); do
		[[ -n $(sql -d postgres -c "SELECT 1 FROM pg_stat_activity WHERE datname = 'small'
			AND backend_type = 'client backend'") ]] || break
		sleep 0.1
	done
	(cd "$HL_TMP/tmp" && comm -13 <(echo "$known") <(ls) | grep '^callgrind' |
		xargs grep -H '^summary: \|^totals: ' | sort -t ' ' -k 2 -n | tail -n 1 | cut -d : -f 1)
}

# inclusive PROFILE: total and functions with what they call, "name instructions"
inclusive() {
	callgrind_annotate --inclusive=yes --threshold=100 --auto=no "$HL_TMP/tmp/$1" | tr -d , |
		sed -n -e 's/^ *\([0-9]*\) .*PROGRAM TOTALS.*/total \1/p' \
			-e 's/^ *\([0-9]*\) ([^)]*) *[^ ]*:\([A-Za-z_0-9]*\)\( .*\)\?$/\2 \1/p'
}

# instructions OPERATION: of a backend per pair, by what it does
instructions() {
	local once twice
	once=$(backend_profile "$1" "$pairs")
	twice=$(backend_profile "$1" $((2 * pairs)))
	awk -v pairs="$pairs" '
		NR == FNR { once[$1] = $2; next }
		{ per[$1] = ($2 - once[$1]) / pairs }
		END {
			begin = per["StartTransactionCommand"] + per["CommitTransactionCommand"]
			bind = per["OidInputFunctionCall"]
			setup = per["ExecutorStart"] + per["ExecutorEnd"]
			ours = per["hloom_sql_try_acquire"] + per["hloom_sql_release"] + \
				per["pg_try_advisory_lock_int8"] + per["pg_advisory_unlock_int8"]
			run = per["ExecutorRun"] - ours
			printf " %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f |\n", per["total"],
				begin, bind, setup, run, ours, per["total"] - begin - bind - setup - run - ours
		}' <(inclusive "$once") <(inclusive "$twice")
}

hl_need_packages base bench
for program in perf valgrind; do
	command -v "$program" >/dev/null || hl_die "$program is not installed"
done
hl_begin
trap leave EXIT
hl_build
hl_conf
hl_start profile "shared_buffers = 256MB" "max_wal_size = 8GB" "autovacuum = off"
sql -d postgres -c "CREATE DATABASE small"
sql -d small -f schema.sql

# shellcheck disable=SC2016 # Markdown
printf '\n| microseconds of processor time per pair, 8 clients, `synchronous_commit = off` | %s\n' \
	'server: kernel | postgres | libraries | hloom_lock | client | others | idle |'
printf '| --- | --- | --- | --- | --- | --- | --- | --- |\n'
for operation in "${operations[@]}"; do
	printf '| %s |%s\n' "$operation" "$(times "$operation")"
done
hl_stop profile
under_valgrind
# shellcheck disable=SC2016 # Markdown
printf '\n| instructions per pair, one client, `synchronous_commit = off` | %s | %s\n' \
	'all | begin and commit | reading parameters' \
	'executor start and end | executor run | function | rest |'
printf '| --- | --- | --- | --- | --- | --- | --- | --- |\n'
for operation in "${operations[@]}"; do
	printf '| %s |%s\n' "$operation" "$(instructions "$operation")"
done
