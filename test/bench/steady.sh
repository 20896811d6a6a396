# shellcheck shell=bash
# shellcheck disable=SC2154 # of test/bench/run.sh
# What is told over time and not as one rate: renewals while somebody holds an old snapshot, and how
# long a hand-over takes.

snapshot_seconds=${BENCH_SNAPSHOT_SECONDS:-30}
turns=${BENCH_TURNS:-2000}

# ---- renewals under an old snapshot -----------------------------------------------------------

holder=

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

# sizes TABLE FILE: its bytes once a second, until killed
sizes() {
	while :; do
		sql -d small -c "SELECT extract(epoch FROM clock_timestamp()),
			pg_total_relation_size('$1')" >>"$2"
		sleep 1
	done
}

# under_snapshot SCRIPT TABLE: rate and size for each second go to snapshot.csv, how much is left
# of the rate to rates
under_snapshot() {
	local sizer
	: >"$HL_TMP/sizes"
	hold
	sizes "$2" "$HL_TMP/sizes" &
	sizer=$!
	pgb small "$1.sql" 8 off -T "$snapshot_seconds" -P 1 --progress-timestamp ||
		fail "pgbench -f $1.sql"
	kill "$sizer"
	wait "$sizer" 2>/dev/null || true
	let_go
	# What pgbench prints for a second goes with the last size there was at its end; its last line
	# may be cut short.
	sed -n 's/^progress: \([0-9.]*\) s, \([0-9.]*\) tps.*/\1 \2/p' "$HL_TMP/pgbench.err" |
		awk -v sizes="$HL_TMP/sizes" -v s="$1,$r" 'BEGIN {
				FS = "[| ]"; while ((getline < sizes) > 0) { at[++n] = $1; size[n] = $2 } i = 1 }
			{ while (i < n && at[i + 1] <= $1) i++; print s "," NR "," $2 "," size[i] }' |
		head -n -1 >"$HL_TMP/series"
	cat "$HL_TMP/series" >>"$out/snapshot.csv"
	rates[$1]+=" $(awk -F , '{ sum += $4 } END { printf "%d", sum }' "$HL_TMP/series")"
	# One second of a virtual machine says little, so it is the medians of five.
	rates[$1-first]+=" $(median "$(head -n 5 "$HL_TMP/series" | cut -d , -f 4 | tr '\n' ' ')")"
	rates[$1-last]+=" $(median "$(tail -n 5 "$HL_TMP/series" | cut -d , -f 4 | tr '\n' ' ')")"
	rates[$1-growth]+=" $(awk -F , '{ size[NR] = $5 } END { print size[NR] - size[1] }' \
		"$HL_TMP/series")"
}

part_snapshot() {
	local r s
	declare -A of=([renew_heap]=heap_lease [renew_lease]=hloom_leases)
	echo "series,round,second,per_second,table_bytes" >"$out/snapshot.csv"
	sql -d small -c "INSERT INTO heap_lease SELECT c * 100 + k, '$owner', 'infinity'
			FROM generate_series(0, 7) AS c, generate_series(1, 8) AS k" \
		-c "SELECT count(*)
			FROM generate_series(0, 7) AS c, generate_series(1, 8) AS k, hloom_try_acquire(
				'steady', (c * 100 + k)::text, '10 min', owner => '$owner')" >/dev/null
	for ((r = 1; r <= rounds; r++)); do
		note "held snapshot, round $r of $rounds"
		for s in $(in_turn "$r" renew_heap renew_lease); do
			sql -d small -c "VACUUM heap_lease"
			under_snapshot "$s" "${of[$s]}"
		done
	done
	heading "renewals under a held snapshot, 8 clients, \`synchronous_commit = off\`" \
		renewals "per second, first" last "last / first" "growth, bytes"
	for s in renew_heap renew_lease; do
		line "${of[$s]}" "$(median "${rates[$s]}")" "$(median "${rates[$s-first]}")" \
			"$(median "${rates[$s-last]}")" "$(printf %.2f "$(ratio "$s-last" "$s-first")")" \
			"$(median "${rates[$s-growth]}")"
	done
	verdict "hloom_lock, last / first" "$(ratio renew_lease-last renew_lease-first)" ">=" 0.9
	verdict "hloom_lock, growth in bytes" "$(median "${rates[renew_lease-growth]}")" "==" 0
	sql -d small -c "DELETE FROM heap_lease" -c "SELECT count(hloom_release(namespace, key, owner))
		FROM hloom_leases WHERE namespace = 'steady'" >/dev/null
	snapshot_plot
}

snapshot_plot() {
	command -v gnuplot >/dev/null || return 0
	gnuplot <<-PLOT
		set terminal svg size 900,420 background rgb "white" font "sans,12"
		set output "$out/snapshot.svg"
		set datafile separator ","
		set multiplot layout 1,2 title "Renewals while somebody holds an old snapshot"
		set xlabel "second"
		set key bottom left
		set grid
		set yrange [0:*]
		set ylabel "renewals per second"
		of(s, c) = stringcolumn(1) eq s && column(2) == 1 ? column(c) : NaN
		plot "$out/snapshot.csv" using 3:(of("renew_heap", 4)) with linespoints \
			title "heap lease table", \
			"" using 3:(of("renew_lease", 4)) with linespoints title "hloom\\\\_lock"
		set key top left
		set ylabel "table with its index, MB"
		plot "$out/snapshot.csv" using 3:(of("renew_heap", 5) / 1e6) with linespoints \
			title "heap lease table", \
			"" using 3:(of("renew_lease", 5) / 1e6) with linespoints title "hloom\\\\_lock"
	PLOT
}

# ---- hand-over ---------------------------------------------------------------------------------

# turn NAME LABEL TURNS SYNC: two clients take turns, and one waits while the other works;
# from "about to give back" to "has it" on the server's clock
turn() {
	local times p
	sql -d small -c "TRUNCATE turns"
	pgb small "turn_$1.sql" 2 "$4" -t "$(($3 / 2))" || fail "pgbench -f turn_$1.sql"
	times=$(sql -d small -c "WITH next AS (SELECT client <> lead(client) OVER turn AS waited,
			extract(epoch FROM lead(got) OVER turn - gave) * 1000 AS ms
		FROM turns WINDOW turn AS (ORDER BY got))
		SELECT p, percentile_cont(p) WITHIN GROUP (ORDER BY ms)
		FROM next, generate_series(0, 1, 0.005) AS p WHERE waited GROUP BY p ORDER BY p")
	sed "s/^/$2, synchronous_commit $4|/;s/|/;/g" <<<"$times" >>"$out/handover.csv"
	for p in 0.500 0.900 0.990 1.000; do
		printf '%.3f\n' "$(sed -n "s/^$p|//p" <<<"$times")"
	done >"$HL_TMP/turn"
	mapfile -t p <"$HL_TMP/turn"
	line "$2" "$4" "${p[@]}"
	p50=${p[0]}
	p99=${p[2]}
}

part_handover() {
	local p50 p99
	note "hand-over"
	echo "series;quantile;ms" >"$out/handover.csv"
	heading "hand-over to one waiter, ms" "\`synchronous_commit\`" p50 p90 p99 max
	turn polling "heap lease table, looked at every 50 ms" "$((turns / 20))" off
	turn advisory "pg_advisory_lock" "$turns" off
	turn lease "hloom_acquire" "$turns" on
	turn lease "hloom_acquire" "$turns" off
	verdict "hloom_acquire off, p50" "$p50" "<" 0.2
	verdict "hloom_acquire off, p99" "$p99" "<" 1
	handover_plot
}

handover_plot() {
	command -v gnuplot >/dev/null || return 0
	gnuplot <<-PLOT
		set terminal svg size 900,420 background rgb "white" font "sans,12"
		set output "$out/handover.svg"
		set datafile separator ";"
		set title "From just before a release until the waiter has the key"
		set logscale x
		set xlabel "ms"
		set ylabel "share of hand-overs within"
		set yrange [0:1]
		set grid
		set key outside right noenhanced
		names = "sed -n '2,\$s/;.*//p' '$out/handover.csv' | uniq | tr ' ' '~' | tr '\\\\n' ' '"
		series = system(names)
		name(i) = system("echo '" . word(series, i) . "' | tr '~' ' '")
		plot for [i=1:words(series)] "$out/handover.csv" \
			using (stringcolumn(1) eq name(i) ? column(3) : NaN):2 with lines lw 2 title name(i)
	PLOT
}
