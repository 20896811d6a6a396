# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # shared with test/bench/run.sh
# One pair of lock and unlock, side by side: SELECT 1 twice, the advisory lock, three hand-written
# lease tables, both providers and Redis, at 1, 2, 8 and 32 clients, with and without a flush.

pairs_clients=(1 2 8 32)
contenders=(select_twice advisory heap heap_select heap_noflush lease memory redis)
declare -A label=(
	[select_twice]="SELECT 1, twice"
	[advisory]="pg_try_advisory_lock + pg_advisory_unlock"
	[heap]="heap lease table: guarded upsert + delete"
	[heap_select]="heap lease table: select first"
	[heap_noflush]="heap lease table: delete not flushed"
	[lease]="hloom_lock, provider table"
	[memory]="hloom_lock, provider memory"
	[redis]="Redis: SET NX PX + script"
)
redis_pid=

prepare_output() {
	mkdir -p "$out"
	echo "series,script,clients,synchronous_commit,per_second,wal_bytes,foreign_cpu_percent" \
		>"$out/raw.csv"
	: >"$HL_TMP/verdicts"
	: >"$HL_TMP/report"
}

# redis_start: a server of our own on a free port, and the program that loads it
redis_start() {
	local i
	command -v redis-server >/dev/null || return 1
	gcc -O2 -D_GNU_SOURCE -o "$HL_TMP/redis_pairs" redis_pairs.c -lpthread
	redis_port=$(hl_free_port)
	"${HL_AS[@]}" mkdir -p "$HL_TMP/redis"
	"${HL_AS[@]}" redis-server --port "$redis_port" --bind 127.0.0.1 --save '' \
		--dir "$HL_TMP/redis" --appendonly no --appendfsync always >"$HL_TMP/log/redis.log" 2>&1 &
	redis_pid=$!
	for ((i = 0; i < 100; i++)); do
		! redis-cli -p "$redis_port" ping >/dev/null 2>&1 || break
		sleep 0.1
	done
	redis_sha=$(redis-cli -p "$redis_port" script load "
		if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
		return 0")
}

# redis_measure NAME CLIENTS SYNC: one run; synchronous_commit stands for appendonly
redis_measure() {
	local result appendonly=no
	[[ $3 == off ]] || appendonly=yes
	redis-cli -p "$redis_port" config set appendonly "$appendonly" >/dev/null
	cpu_before
	result=$("$HL_TMP/redis_pairs" "$redis_port" "$2" "$seconds" "$owner" "$redis_sha") ||
		fail "redis_pairs"
	cpu_after
	rates[$1]+=" ${result#* }"
	wal[$1]=0
	record "$1" redis "$2" "$3" "${result#* }" 0
}

part_pairs() {
	local r n sync c
	redis_start || contenders=("${contenders[@]:0:7}")
	for ((r = 1; r <= rounds; r++)); do
		for sync in off on; do
			for n in "${pairs_clients[@]}"; do
				note "pairs, round $r of $rounds, synchronous_commit $sync, $n clients"
				for c in $(in_turn "$r" "${contenders[@]}"); do
					if [[ $c == redis ]]; then
						redis_measure "$c-$sync-$n" "$n" "$sync"
					else
						measure "$c-$sync-$n" small "$c.sql" "$n" "$sync"
					fi
				done
			done
		done
	done
	[[ -z $redis_pid ]] || kill "$redis_pid"
	no_lease_left small
	for sync in off on; do
		pairs_table "$sync"
		pairs_plot "$sync"
	done
	pairs_verdicts
}

# pairs_table SYNC: how many times as many pairs as the heap lease table each does
pairs_table() {
	local sync=$1 c n
	title="pairs"
	{
		# shellcheck disable=SC2016 # Markdown
		printf '\n| pairs, heap lease table = 1, `synchronous_commit = %s`, Redis with %s;' \
			"$sync" "$([[ $sync == off ]] && echo 'appendonly off' || echo 'appendfsync always')"
		printf ' clients: | 1 | 2 | 8 | 32 | WAL bytes per pair |\n'
		printf '| --- | --- | --- | --- | --- | --- |\n'
		for c in "${contenders[@]}"; do
			printf '| %s |' "${label[$c]}"
			for n in "${pairs_clients[@]}"; do
				printf ' %.2f |' "$(ratio "$c-$sync-$n" "heap-$sync-$n")"
			done
			printf ' %.0f |\n' "${wal[$c-$sync-8]}"
		done
		printf '| foreign processor time, median %% |'
		for n in "${pairs_clients[@]}"; do
			printf ' %.0f |' "$(median "${foreign[lease-$sync-$n]} ${foreign[heap-$sync-$n]}")"
		done
		printf ' |\n'
	} | tee -a "$HL_TMP/report"
}

# pairs_plot SYNC: bars by clients, as multiples of the heap lease table
pairs_plot() {
	local sync=$1 c n data=$HL_TMP/plot-$1
	command -v gnuplot >/dev/null || return 0
	{
		printf 'clients'
		for c in "${contenders[@]}"; do printf '\t%s' "${label[$c]}"; done
		echo
		for n in "${pairs_clients[@]}"; do
			printf '%s' "$n"
			for c in "${contenders[@]}"; do
				printf '\t%s' "$(ratio "$c-$sync-$n" "heap-$sync-$n")"
			done
			echo
		done
	} >"$data"
	gnuplot <<-PLOT
		set terminal svg size 900,420 background rgb "white" font "sans,12"
		set output "$out/pairs_$sync.svg"
		set datafile separator "\t"
		set title "Pairs of lock and unlock, heap lease table = 1, synchronous\\\\_commit = $sync"
		set style data histograms
		set style fill solid 0.8
		set key outside right noenhanced
		set xlabel "clients"
		set yrange [0:*]
		set grid ytics
		plot for [i=2:$(head -n 1 "$data" | awk -F '\t' '{ print NF }')] "$data" \
			using i:xtic(1) title columnheader(i)
	PLOT
}

# What was to be reached, each from this run
pairs_verdicts() {
	local n
	verdict "table / advisory lock, off, 8 clients" "$(ratio lease-off-8 advisory-off-8)" ">=" 0.8
	verdict "memory / advisory lock, off, 8 clients" "$(ratio memory-off-8 advisory-off-8)" ">=" 1
	verdict "table / heap, off, 8 clients" "$(ratio lease-off-8 heap-off-8)" ">=" 2.5
	for n in 8 32; do
		verdict "table / heap, on, $n clients" "$(ratio "lease-on-$n" "heap-on-$n")" ">=" 2
	done
}

# write_report HEAD: Markdown of the tables and of every target there was
write_report() {
	{
		printf '# Measured\n\n%s\n' "$1"
		cat "$HL_TMP/report"
		printf '\n| target | measured | wanted | |\n| --- | --- | --- | --- |\n'
		cat "$HL_TMP/verdicts"
	} >"$out/ratios.md"
	note "the results are in $out"
}
