#!/bin/bash
# The lease beside SELECT 1, the advisory lock and a hand-written lease table, in one run.
# BENCH_SECONDS per run, BENCH_ROUNDS rounds in turn, BENCH_LIVE leases of the large database,
# BENCH_RENEWED leases renewed for BENCH_RENEW_SECONDS, BENCH_REAPED leases reaped,
# BENCH_TURNS hand-overs timed,
# BENCH_OUT is the directory for raw.csv, ratios.md and the plots,
# BENCH_PARTS of "pairs off on memory lose handover crowd loss live snapshot renew reap idle".
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=test/lib.sh
. ../lib.sh
# shellcheck source=test/bench/measure.sh
. ./measure.sh
# shellcheck source=test/bench/pairs.sh
. ./pairs.sh

seconds=${BENCH_SECONDS:-5}
rounds=${BENCH_ROUNDS:-3}
live=${BENCH_LIVE:-1000000}
renewed=${BENCH_RENEWED:-20000}
renew_seconds=${BENCH_RENEW_SECONDS:-120}
reaped=${BENCH_REAPED:-200000}
turns=${BENCH_TURNS:-2000}
parts=${BENCH_PARTS:-pairs off on memory lose handover crowd loss live snapshot renew reap idle}
out=${BENCH_OUT:-$HL_ROOT/bench-results}
owner=6f0e4a52-7d1b-4c3a-9a55-0d8a3c1e2b47
other=00000000-0000-4000-8000-000000000001
declare -A rates=() wal=() xids=() foreign=()
holder=

# The clean-up goes on when one of its steps fails.
leave() {
	local status=$?
	set +e
	(exit "$status")
	hl_cleanup
}

part_off() {
	local r
	for ((r = 1; r <= rounds; r++)); do
		note "off, round $r of $rounds"
		measure A small select.sql 8 off
		measure B small advisory.sql 8 off
		measure C small heap.sql 8 off
		measure D small lease.sql 8 off
	done
	no_lease_left small
	heading "synchronous_commit = off, 8 clients"
	row A "A  SELECT 1"
	row B "B  pg_try_advisory_lock + pg_advisory_unlock"
	row C "C  heap lease table: upsert + delete"
	row D "D  hloom_try_acquire + hloom_release"
	verdict "D / B" "$(ratio D B)" ">=" 0.8
	verdict "D / C" "$(ratio D C)" ">=" 2.5
}

part_on() {
	local r n
	for ((r = 1; r <= rounds; r++)); do
		note "on, round $r of $rounds"
		for n in 8 32; do
			measure "C$n" small heap.sql "$n" on
			measure "D$n" small lease.sql "$n" on
		done
	done
	no_lease_left small
	for n in 8 32; do
		heading "synchronous_commit = on, $n clients"
		row "C$n" "C  heap lease table: upsert + delete"
		row "D$n" "D  hloom_try_acquire + hloom_release"
		verdict "D / C" "$(ratio "D$n" "C$n")" ">=" 2
	done
}

# Who brings an owner token needs no more than the fence, as who takes an advisory lock needs no
# more than a boolean.  And a command under a lease is one call, under an advisory lock it is three.
part_memory() {
	local r n
	for ((r = 1; r <= rounds; r++)); do
		note "memory, round $r of $rounds"
		for n in 1 2 8 32; do
			measure "B$n" small advisory.sql "$n" on
			measure "M$n" small memory.sql "$n" on
			measure "N$n" small advisory_execute.sql "$n" on
			measure "X$n" small memory_execute.sql "$n" on
		done
	done
	[[ $(sql -d small -c "SELECT count(*) FROM hloom_locks WHERE namespace = 'memory'") -eq 0 ]] ||
		fail "leases were left behind in memory"
	for n in 1 2 8 32; do
		heading "provider memory, synchronous_commit = on, $n clients"
		row "B$n" "B  pg_try_advisory_lock + pg_advisory_unlock"
		row "M$n" "M  hloom_try_acquire + hloom_release"
		row "N$n" "N  the same as B, with SELECT 1 in between"
		row "X$n" "X  hloom_execute_with_lock of SELECT 1"
		verdict "M / B" "$(ratio "M$n" "B$n")" ">=" 1
		verdict "X / B" "$(ratio "X$n" "B$n")" ">=" 1
		verdict "X / N" "$(ratio "X$n" "N$n")" ">=" 1
	done
}

part_lose() {
	local r
	[[ $(sql -d small -c "SELECT count(*) FROM hloom_try_acquire('bench', 'held',
		lease => '1 h', owner => '$other')") -eq 1 ]] || fail "cannot hold the key"
	sql -d small -c "INSERT INTO heap_lease VALUES ('held', '$other', 'infinity')"
	for ((r = 1; r <= rounds; r++)); do
		note "losing, round $r of $rounds"
		measure LA small select.sql 8 on
		measure LC small heap_held.sql 8 on
		measure LD small lease_held.sql 8 on
	done
	[[ $(sql -d small -c "SELECT hloom_release('bench', 'held', '$other'::uuid)") == t ]] ||
		fail "the held key changed hands"
	sql -d small -c "DELETE FROM heap_lease WHERE key = 'held'"
	heading "losing attempt, 8 clients, synchronous_commit = on"
	row LA "A  SELECT 1"
	row LC "C  heap lease table: upsert, no row"
	row LD "D  hloom_try_acquire, no row"
	verdict "D / A" "$(ratio LD LA)" ">=" 0.6
	verdict "D: WAL bytes per attempt" "${wal[LD]}" "<" 1
	verdict "D: xids per attempt" "${xids[LD]}" "<" 0.01
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
	load small 1000
	load large "$live"
	for db in small large; do
		# Every page has been read and every plan been made before the clock runs.
		sql -d "$db" -c "SELECT pair_cost(20000)" >/dev/null
	done
	for ((r = 1; r <= rounds; r++)); do
		note "live leases, round $r of $rounds"
		for db in small large; do
			rates[loop-$db]+=" $(PGOPTIONS="-c synchronous_commit=off" \
				sql -d "$db" -c "SELECT pair_cost(50000)")"
			measure "live-$db" "$db" lease.sql 8 off
		done
	done
	heading "$live live leases against 1,000, sync off"
	row live-small "D  1,000 live, 8 clients"
	row live-large "D  $live live, 8 clients"
	printf '  %-48s %12.2f\n' "in one backend, 1,000 live, us per pair" \
		"$(median "${rates[loop-small]}")"
	printf '  %-48s %12.2f\n' "in one backend, $live live, us per pair" \
		"$(median "${rates[loop-large]}")"
	verdict "cost, 8 clients" "$(ratio live-small live-large)" "<=" 1.3
	verdict "cost, in one backend" "$(ratio loop-large loop-small)" "<=" 1.3
}

# hold: a transaction whose snapshot keeps every dead row
hold() {
	local i
	PGAPPNAME=holder timeout 600 psql -Xq -d small -c "BEGIN ISOLATION LEVEL REPEATABLE READ" \
		-c "SELECT count(*) FROM heap_lease" -c "SELECT pg_sleep(600)" >/dev/null 2>&1 &
	holder=$!
	for ((i = 0; i < 100; i++)); do
		[[ -z $(sql -d small -c "SELECT 1 FROM pg_stat_activity WHERE application_name = 'holder'
			AND backend_xmin IS NOT NULL AND query LIKE '%pg_sleep%'") ]] || return 0
		sleep 0.1
	done
	fail "the snapshot is not held"
}

let_go() {
	sql -d small -c "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
		WHERE application_name = 'holder'" >/dev/null
	wait "$holder" || true
}

# under_snapshot LABEL SCRIPT TABLE: rates of the first and the last seconds, growth of the table
under_snapshot() {
	local time=$((seconds * 4 < 10 ? 10 : seconds * 4)) before after first last
	before=$(sql -d small -c "SELECT pg_total_relation_size('$3')")
	hold
	pgb small "$2" 8 off -T "$time" -P 1 || fail "pgbench -f $2"
	let_go
	after=$(sql -d small -c "SELECT pg_total_relation_size('$3')")
	# The first line of progress contains the connecting, the last may be cut short.
	read -r first last < <(awk '/^progress:/ { v[++n] = $4 }
		END { print (v[2] + v[3]) / 2, (v[n - 2] + v[n - 1]) / 2 }' "$HL_TMP/pgbench.err")
	printf '  %-28s %12.0f %12.0f %14d\n' "$1" "$first" "$last" $((after - before))
	kept=$(awk "BEGIN { printf \"%.3f\", $last / $first }")
}

part_snapshot() {
	local kept
	note "held snapshot"
	sql -d small -c "VACUUM (TRUNCATE OFF) heap_lease"
	printf '\n%-30s %12s %12s %14s\n' "held snapshot, 8 clients, off" "first s" "last s" \
		"growth, bytes"
	under_snapshot "C  heap lease table" heap_few.sql heap_lease
	printf '  %-48s %12.2f\n' "C: last / first" "$kept"
	under_snapshot "D  lease" lease_few.sql hloom_leases
	verdict "D: last / first" "$kept" ">=" 0.9
}

# turn NAME LABEL TURNS SYNC: two clients take turns, and one waits while the other works;
# from "about to give back" to "has it" on the server's clock
turn() {
	local times
	sql -d small -c "TRUNCATE turns"
	pgb small "turn_$1.sql" 2 "$4" -t "$(($3 / 2))" || fail "pgbench -f turn_$1.sql"
	times=$(sql -d small -c "WITH next AS (SELECT client <> lead(client) OVER turn AS waited,
			extract(epoch FROM lead(got) OVER turn - gave) * 1000 AS ms
		FROM turns WINDOW turn AS (ORDER BY got))
		SELECT percentile_cont(p) WITHIN GROUP (ORDER BY ms)
		FROM next, unnest(ARRAY[0.5, 0.99]) AS p WHERE waited GROUP BY p ORDER BY p")
	p50=${times%%$'\n'*}
	p99=${times##*$'\n'}
	printf '  %-48s %12.3f %10.3f\n' "$2" "$p50" "$p99"
}

part_handover() {
	local p50 p99
	note "hand-over"
	heading "hand-over to one waiter, ms" p50 p99 ""
	turn polling "C  heap lease table, looked at every 50 ms" "$((turns / 20))" off
	turn advisory "B  pg_advisory_lock" "$turns" off
	turn lease "D  hloom_acquire, synchronous_commit = on" "$turns" on
	turn lease "D  hloom_acquire, synchronous_commit = off" "$turns" off
	verdict "D: p50, synchronous_commit = off" "$p50" "<" 0.2
	verdict "D: p99, synchronous_commit = off" "$p99" "<" 1
}

# 64 sessions take turns on one key, each with a millisecond of work.
part_crowd() {
	local r
	for ((r = 1; r <= rounds; r++)); do
		note "crowd, round $r of $rounds"
		measure XB small crowd_advisory.sql 64 off
		measure XD small crowd_lease.sql 64 off
	done
	heading "one key, 64 clients, 1 ms of work, synchronous_commit = off" "turns/s"
	row XB "B  pg_advisory_lock + pg_advisory_unlock"
	row XD "D  hloom_acquire + hloom_release"
	printf '  %-48s %12.2f\n' "D / B" "$(ratio XD XB)"
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
	printf '\n%-30s\n' "lost leases, on_lost cancel"
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
	local before after count took load status began cpu
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
	heading "$renewed leases of 30 s, renewed for $renew_seconds s" "" "" ""
	verdict "leases lost" "$(($(lost renew) + renewed - status))" "==" 0
	verdict "renewals per second" \
		"$(awk "BEGIN { print (${after%|*} - ${before%|*}) / ($took / 1e9) }")" "<=" 1400
	count=$((${after%|*} - ${before%|*}))
	verdict "WAL bytes per renewal" \
		"$(awk "BEGIN { print (${after#*|} - ${before#*|}) / $count }")" "<=" 200
	printf '  %-48s %12.2f\n' "worker, % of a core" \
		"$(awk "BEGIN { print $cpu / ($took / 1e6) * 100 }")"
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
	heading "$reaped leases that have ended" "" "" ""
	printf '  %-48s %12.2f\n' "hloom_reap(), with the worker reporting, s" \
		"$(awk "BEGIN { print $took / 1e9 }")"
	printf '  %-48s %12.2f\n' "WAL bytes per lease" "$wal"
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
	heading "idle worker, 60 s" "" "" ""
	verdict "% of a core" "$(awk "BEGIN { print $cpu / ($took / 1e6) * 100 }")" "<" 0.1
	verdict "WAL bytes" "$after" "==" 0
	sql -d postgres -c "ALTER SYSTEM RESET autovacuum" -c "SELECT pg_reload_conf()" >/dev/null
	echo '\q' >&"${HOLDER[1]}"
	wait "$HOLDER_PID" || true
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
for part in pairs off on memory lose handover crowd loss snapshot live renew reap idle; do
	wanted "$part" || continue
	"part_$part"
done
write_report "$machine"
