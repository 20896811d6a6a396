#!/bin/bash
# The lease beside SELECT 1, the advisory lock, hand-written lease tables and Redis, in one run.
# BENCH_SECONDS per run, BENCH_ROUNDS rounds in turn, BENCH_LIVE leases of the large database,
# BENCH_SNAPSHOT_SECONDS of renewals under a snapshot, BENCH_TURNS hand-overs timed,
# BENCH_RENEWED leases renewed for BENCH_RENEW_SECONDS, BENCH_REAPED leases reaped,
# BENCH_OUT is the directory for what is found: CSV, ratios.md and the plots,
# BENCH_PARTS of "pairs memory lose handover crowd loss snapshot live renew reap idle count".
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=test/lib.sh
. ../lib.sh
# shellcheck source=test/bench/measure.sh
. ./measure.sh
# shellcheck source=test/bench/pairs.sh
. ./pairs.sh
# shellcheck source=test/bench/steady.sh
. ./steady.sh

seconds=${BENCH_SECONDS:-5}
rounds=${BENCH_ROUNDS:-5}
live=${BENCH_LIVE:-1000000}
renewed=${BENCH_RENEWED:-20000}
renew_seconds=${BENCH_RENEW_SECONDS:-120}
reaped=${BENCH_REAPED:-200000}
all_parts='pairs memory lose handover crowd loss snapshot live renew reap idle count'
parts=${BENCH_PARTS:-$all_parts}
out=${BENCH_OUT:-$HL_ROOT/bench-results}
owner=6f0e4a52-7d1b-4c3a-9a55-0d8a3c1e2b47
other=00000000-0000-4000-8000-000000000001
declare -A rates=() wal=() xids=() foreign=()

# The clean-up goes on when one of its steps fails.
leave() {
	local status=$?
	set +e
	(exit "$status")
	hl_cleanup
}

# Who brings an owner token needs no more than the fence, as who takes an advisory lock needs no
# more than a boolean.  And a command under a lease is one call, under an advisory lock it is three.
part_memory() {
	local r n s
	for ((r = 1; r <= rounds; r++)); do
		note "memory, round $r of $rounds"
		for n in "${pairs_clients[@]}"; do
			for s in $(in_turn "$r" advisory memory advisory_execute memory_execute); do
				measure "$s-$n" small "$s.sql" "$n" on
			done
		done
	done
	[[ $(sql -d small -c "SELECT count(*) FROM hloom_locks WHERE namespace = 'memory'") -eq 0 ]] ||
		fail "leases were left behind in memory"
	heading "provider memory, ratio of rates" "${pairs_clients[@]}"
	ratios "try_acquire + release / advisory lock + unlock" memory advisory
	ratios "execute_with_lock of SELECT 1 / advisory lock + unlock" memory_execute advisory
	ratios "execute_with_lock of SELECT 1 / advisory lock, SELECT 1, unlock" \
		memory_execute advisory_execute
	for n in "${pairs_clients[@]}"; do
		verdict "pair / pair, $n clients" "$(ratio "memory-$n" "advisory-$n")" ">=" 1
		verdict "one call / pair, $n clients" "$(ratio "memory_execute-$n" "advisory-$n")" ">=" 1
	done
}

# ratios LABEL NAME OTHER: a line with one for each number of clients
ratios() {
	local n list=()
	for n in "${pairs_clients[@]}"; do
		list+=("$(printf %.2f "$(ratio "$2-$n" "$3-$n")")")
	done
	line "$1" "${list[@]}"
}

part_lose() {
	local r s
	[[ $(sql -d small -c "SELECT count(*) FROM hloom_try_acquire('bench', 'held',
		lease => '1 h', owner => '$other')") -eq 1 ]] || fail "cannot hold the key"
	sql -d small -c "INSERT INTO heap_lease VALUES ('held', '$other', 'infinity')"
	for ((r = 1; r <= rounds; r++)); do
		note "losing, round $r of $rounds"
		for s in $(in_turn "$r" select heap_held lease_held); do
			measure "$s" small "$s.sql" 8 on
		done
	done
	[[ $(sql -d small -c "SELECT hloom_release('bench', 'held', '$other'::uuid)") == t ]] ||
		fail "the held key changed hands"
	sql -d small -c "DELETE FROM heap_lease WHERE key = 'held'"
	heading "losing attempt, 8 clients, \`synchronous_commit = on\`"
	row select "SELECT 1"
	row heap_held "heap lease table: upsert, no row"
	row lease_held "hloom_try_acquire, no row"
	verdict "hloom_lock / SELECT 1" "$(ratio lease_held select)" ">=" 0.6
	verdict "hloom_lock, WAL bytes per attempt" "${wal[lease_held]}" "<" 1
	verdict "hloom_lock, xids per attempt" "${xids[lease_held]}" "<" 0.01
}

# load DATABASE COUNT: live leases, 10,000 in a statement
load() {
	local began=$SECONDS count
	PGOPTIONS="-c synchronous_commit=off" limit=900 sql -d "$1" >/dev/null <<-SQL
		SELECT format('SELECT count(*) FROM generate_series(%s, %s) AS g, LATERAL '
			'hloom_try_acquire(''load'', ''k'' || g, lease => ''6 h'')', n, least(n + 9999, $2))
		  FROM generate_series(1, $2, 10000) AS n
		\gexec
	SQL
	count=$(sql -d "$1" -c "SELECT count(*) FROM hloom_leases WHERE namespace = 'load'")
	[[ $count -eq $2 ]] || fail "$count of $2 leases are live"
	note "$2 leases loaded in $((SECONDS - began)) s"
}

part_live() {
	local r db
	# So that none comes while it is measured, after which each page is logged as a whole.
	sql -d postgres -c CHECKPOINT
	load small 1000
	load large "$live"
	for db in small large; do
		# Every page has been read and every plan been made before the clock runs.
		sql -d "$db" -c "SELECT pair_cost(20000)" >/dev/null
	done
	for ((r = 1; r <= rounds; r++)); do
		note "live leases, round $r of $rounds"
		for db in $(in_turn "$r" small large); do
			rates[loop-$db]+=" $(PGOPTIONS="-c synchronous_commit=off" \
				sql -d "$db" -c "SELECT pair_cost(50000)")"
			measure "live-$db" "$db" lease.sql 8 off
		done
	done
	heading "live leases, 8 clients, \`synchronous_commit = off\`"
	row live-small "1,000"
	row live-large "$live"
	heading "live leases, in one backend" "us per pair"
	line "1,000" "$(printf %.2f "$(median "${rates[loop-small]}")")"
	line "$live" "$(printf %.2f "$(median "${rates[loop-large]}")")"
	verdict "cost with $live / 1,000, 8 clients" "$(ratio live-small live-large)" "<=" 1.3
	verdict "cost with $live / 1,000, in one backend" "$(ratio loop-large loop-small)" "<=" 1.3
}

# 64 sessions take turns on one key, each with a millisecond of work.
part_crowd() {
	local r s
	for ((r = 1; r <= rounds; r++)); do
		note "crowd, round $r of $rounds"
		for s in $(in_turn "$r" crowd_advisory crowd_lease); do
			measure "$s" small "$s.sql" 64 off
		done
	done
	heading "turns on one key, 64 clients, 1 ms of work, \`synchronous_commit = off\`"
	row crowd_advisory "pg_advisory_lock + pg_advisory_unlock"
	row crowd_lease "hloom_acquire + hloom_release"
}

# How long after the end of its lease a statement is cancelled: the median of 50
part_loss() {
	local round late
	note "lost leases"
	for ((round = 0; round < 50; round++)); do
		echo "SELECT lease_end FROM hloom_try_acquire('loss', 'k$round', '100 ms',
			scope => 'session', on_lost => 'cancel') \\gset"
		echo "SELECT 'not cancelled' FROM pg_sleep(10);"
		echo "SELECT extract(epoch FROM clock_timestamp() - :'lease_end') * 1000;"
	done >"$HL_TMP/loss.sql"
	psql -XqAt -d small -f "$HL_TMP/loss.sql" >"$HL_TMP/loss" 2>"$HL_TMP/loss.err" || true
	[[ $(wc -l <"$HL_TMP/loss") -eq 50 ]] || fail "not every statement was cancelled"
	late=$(sort -n "$HL_TMP/loss" | sed -n '25s/\..*//p')
	heading "lost leases, \`on_lost => 'cancel'\`, median of 50" ms
	line "from the end of the lease to the cancel" "$late"
	verdict "ms from the end to the cancel" "$late" "<" 50
}

# worker: the process number of the background worker of database small
worker() {
	sql -d postgres -c "SELECT pid FROM pg_stat_activity WHERE datname = 'small'
		AND backend_type = 'hloom_lock worker'"
}

# cpu_ms PID: processor time it has used
cpu_ms() { awk -v hz="$(getconf CLK_TCK)" '{ print ($14 + $15) * 1000 / hz }' "/proc/$1/stat"; }

wal_stat() { sql -d postgres -c "SELECT wal_records, wal_bytes FROM pg_stat_wal"; }

# lost: leases lost so far in a namespace of database small
lost() {
	sql -d small -c "SELECT coalesce(sum(value), 0)::bigint FROM hloom_metrics
		WHERE namespace = '$1' AND name = 'hostloom_lock_lost'"
}

# Leases renewed by the worker while both cores are busy with SELECT 1, which writes no WAL.
part_renew() {
	local before after count took load status began cpu rate bytes
	note "renewing $renewed leases for $renew_seconds s"
	coproc HOLDER { psql -XqAt -d small 2>&1; }
	echo "SELECT count(*) FROM generate_series(1, $renewed) AS g, LATERAL hloom_try_acquire('renew',
		'k' || g, lease => '30 s', scope => 'session', auto_extend => true);" >&"${HOLDER[1]}"
	read -r -t 120 count <&"${HOLDER[0]}"
	[[ $count -eq $renewed ]] || fail "$count of $renewed leases are held"
	sql -d postgres -c CHECKPOINT
	timeout $((renew_seconds + 60)) pgbench -n -M prepared -c 8 -j 2 -T $((renew_seconds + 5)) \
		-f select.sql small >"$HL_TMP/pgbench" 2>&1 &
	load=$!
	# None is due in the first half of its time, and the last statistics are a second old.
	sleep 15
	before=$(wal_stat)
	began=$(date +%s%N)
	cpu=$(cpu_ms "$(worker)")
	sleep $((renew_seconds - 15))
	after=$(wal_stat)
	took=$(($(date +%s%N) - began))
	cpu=$(awk "BEGIN { print $(cpu_ms "$(worker)") - $cpu }")
	status=$(sql -d small -c "SELECT count(*) FROM hloom_leases WHERE namespace = 'renew'")
	count=$((${after%|*} - ${before%|*}))
	rate=$(awk "BEGIN { printf \"%.0f\", $count / ($took / 1e9) }")
	bytes=$(awk "BEGIN { printf \"%.0f\", (${after#*|} - ${before#*|}) / $count }")
	heading "$renewed leases of 30 s, renewed by the worker for $renew_seconds s" ""
	line "leases lost" "$(($(lost renew) + renewed - status))"
	line "renewals per second" "$rate"
	line "WAL bytes per renewal" "$bytes"
	line "worker, % of a core" "$(awk "BEGIN { printf \"%.2f\", $cpu / ($took / 1e6) * 100 }")"
	verdict "leases lost" "$(($(lost renew) + renewed - status))" "==" 0
	verdict "renewals per second" "$rate" "<=" 1400
	verdict "WAL bytes per renewal" "$bytes" "<=" 200
	echo '\q' >&"${HOLDER[1]}"
	wait "$load" "$HOLDER_PID" || true
}

# A fifth of a million leases that have ended, removed and reported
part_reap() {
	local wal began took
	note "reaping $reaped leases"
	sql -d postgres -c "ALTER SYSTEM SET hloom_lock.reap_interval = '1 h'" \
		-c "SELECT pg_reload_conf()" >/dev/null
	PGOPTIONS="-c synchronous_commit=off" limit=600 sql -d small >/dev/null -c "SELECT count(*)
		FROM generate_series(1, $reaped) AS g, hloom_try_acquire('reap', 'k' || g, lease => '1 s')"
	sleep 2
	[[ $(lost reap) -eq 0 ]] || note "$(lost reap) were reaped before"
	wal=$(wal_stat)
	began=$(date +%s%N)
	limit=600 sql -d small -c "SELECT hloom_reap()" >/dev/null
	took=$(($(date +%s%N) - began))
	[[ $(lost reap) -eq $reaped ]] || fail "$(lost reap) of $reaped are counted as lost"
	wal=$(sql -d postgres -c "SELECT round((wal_bytes - ${wal#*|}) / $reaped, 2) FROM pg_stat_wal")
	heading "$reaped leases that have ended" ""
	line "hloom_reap(), with the worker reporting, s" \
		"$(awk "BEGIN { printf \"%.2f\", $took / 1e9 }")"
	line "WAL bytes per lease" "$wal"
	sql -d postgres -c "ALTER SYSTEM RESET hloom_lock.reap_interval" \
		-c "SELECT pg_reload_conf()" >/dev/null
}

# What the worker costs while a client is connected and a lease is held, and nothing happens.
part_idle() {
	local pid before after cpu began took
	note "idle worker"
	sql -d postgres -c "ALTER SYSTEM SET autovacuum = off" -c "SELECT pg_reload_conf()" >/dev/null
	coproc HOLDER { psql -XqAt -d small 2>&1; }
	echo "SELECT count(*) FROM hloom_try_acquire('idle', 'k', lease => '1 h');" >&"${HOLDER[1]}"
	read -r -t 60 _ <&"${HOLDER[0]}"
	# The background writer notes in the WAL that there was some, 15 s later at the latest.
	sleep 20
	pid=$(worker)
	[[ -n $pid ]] || fail "there is no worker"
	before=$(sql -d postgres -c "SELECT pg_current_wal_insert_lsn()")
	cpu=$(cpu_ms "$pid")
	began=$(date +%s%N)
	sleep 60
	took=$(($(date +%s%N) - began))
	cpu=$(awk "BEGIN { print $(cpu_ms "$pid") - $cpu }")
	after=$(sql -d postgres -c "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '$before')")
	cpu=$(awk "BEGIN { printf \"%.3f\", $cpu / ($took / 1e6) * 100 }")
	heading "idle worker, a client connected and a lease held, 60 s" "% of a core" "WAL bytes"
	line "hloom_lock worker" "$cpu" "$after"
	verdict "% of a core" "$cpu" "<" 0.1
	verdict "WAL bytes" "$after" "==" 0
	sql -d postgres -c "ALTER SYSTEM RESET autovacuum" -c "SELECT pg_reload_conf()" >/dev/null
	echo '\q' >&"${HOLDER[1]}"
	wait "$HOLDER_PID" || true
}

# The same on a busy machine, so it is told as it is: see callgrind.sh.
part_count() {
	note "instructions"
	(unset PGHOST PGPORT && KEEP='' ./callgrind.sh) >"$HL_TMP/count" || fail "callgrind.sh"
	(unset PGHOST PGPORT && KEEP='' BENCH_CONF='hloom_lock.activity_history = 0' ./callgrind.sh) |
		sed -n 's/^acquire + release,/& without activities,/p' >>"$HL_TMP/count"
	heading "instructions" "per pair"
	sed -n 's/^\(acquire + release\|  of these\), \(.*\): \([0-9]*\) instructions$/\1, \2|\3/p' \
		"$HL_TMP/count" | while IFS='|' read -r what count; do line "$what" "$count"; done
}

hl_need_packages base bench
hl_begin
trap leave EXIT
hl_build
hl_conf
hl_start bench "shared_buffers = 1GB" "max_wal_size = 8GB" "checkpoint_timeout = 1h" \
	"max_connections = 100" "hloom_lock.max_lease = '1 d'" "hloom_lock.max_hold = '1 h'" \
	"hloom_lock.max_tracked_leases = $((renewed + 10000))"

for db in small large; do
	sql -d postgres -c "CREATE DATABASE $db"
	sql -d "$db" -f schema.sql
done
sql -d postgres -c CHECKPOINT

machine=$(printf 'PostgreSQL %s, %s, %d cores, load before %s; ' \
	"$(sql -d postgres -c 'SHOW server_version')" \
	"$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)" "$(nproc)" \
	"$(cut -d ' ' -f 1 /proc/loadavg)"
	printf '%d rounds of %d s in turn, medians; ratio = median of the rounds' "$rounds" "$seconds")
printf '%s\n' "$machine"

prepare_output
for part in $all_parts; do
	wanted "$part" || continue
	rates=() wal=() xids=() foreign=()
	"part_$part"
done
write_report "$machine"
