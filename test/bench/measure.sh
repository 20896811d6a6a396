# shellcheck shell=bash
# shellcheck disable=SC2004,SC2034,SC2154 # shared with test/bench/run.sh
# What the parts of test/bench/run.sh measure with: runs of pgbench, WAL and transaction ids per
# run, the processor time of others meanwhile, medians, ratios and verdicts.

title=
foreign_cpu=0

fail() {
	printf 'FAILED: %s\n' "$*" >&2
	exit 1
}

sql() { timeout "${limit:-120}" psql -XqAt -v ON_ERROR_STOP=1 "$@"; }
wanted() { [[ " $parts " == *" $1 "* ]]; }
note() { printf '# %s\n' "$*" >&2; }

# pgb DATABASE SCRIPT CLIENTS SYNC [OPTION...]: one pgbench run into $HL_TMP/pgbench
pgb() {
	local db=$1 script=$2 clients=$3 sync=$4
	shift 4
	PGOPTIONS="-c synchronous_commit=$sync" timeout $((seconds * 10 + 120)) \
		pgbench -n -M prepared -c "$clients" -j 2 -D "owner=$owner" -f "$script" "$@" "$db" \
		>"$HL_TMP/pgbench" 2>"$HL_TMP/pgbench.err" || {
		cat "$HL_TMP/pgbench.err" >&2
		return 1
	}
}

rate_of_run() { sed -n 's/^tps = \([0-9.]*\) .*/\1/p' "$HL_TMP/pgbench"; }

# cpu_times: processor time of the machine in ticks, busy and in all, and of this script with all
# its descendants, those that have ended and been waited for included
cpu_times() {
	{
		sed -n '1p' /proc/stat
		cat /proc/[0-9]*/stat 2>/dev/null || true
	} | awk -v root=$$ '
		/^cpu/ { for (i = 2; i <= 9; i++) { all += $i; if (i < 5 || i > 6) busy += $i }; next }
		{ pid = $1; sub(/.*\) /, ""); parent[pid] = $2; used[pid] = $12 + $13 + $14 + $15 }
		END {
			for (pid in parent)
				for (p = pid; p in parent; p = parent[p])
					if (p == root) { own += used[pid]; break }
			print busy, all, own
		}'
}

cpu_before() { cpu_at_start=$(cpu_times); }

# cpu_after: sets foreign_cpu, percent of the machine that was used by others since cpu_before.
# What the kernel does on nobody's account is among it, and a tick is a hundredth of a second.
cpu_after() {
	foreign_cpu=$(awk -v before="$cpu_at_start" -v after="$(cpu_times)" 'BEGIN {
		split(before, b); split(after, a)
		f = ((a[1] - b[1]) - (a[3] - b[3])) * 100 / (a[2] - b[2])
		printf "%.0f", f < 0 ? 0 : f }')
}

# record NAME SCRIPT CLIENTS SYNC RATE WAL: one line of the raw data
record() {
	foreign[$1]+=" $foreign_cpu"
	printf '%s,%s,%s,%s,%s,%s,%s\n' "$1" "${2%.sql}" "$3" "$4" "$5" "$6" "$foreign_cpu" \
		>>"$out/raw.csv"
}

used() {
	sql -d "$1" -c "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0'),
		pg_snapshot_xmax(pg_current_snapshot())"
}

# measure NAME DATABASE SCRIPT CLIENTS SYNC: one run; its rate is added to those of NAME
measure() {
	local name=$1 db=$2 script=$3 clients=$4 sync=$5 before after count
	before=$(used "$db")
	cpu_before
	pgb "$db" "$script" "$clients" "$sync" -T "$seconds" || fail "pgbench -f $script"
	cpu_after
	after=$(used "$db")
	rates[$name]+=" $(rate_of_run)"
	count=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' \
		"$HL_TMP/pgbench")
	wal[$name]=$(awk "BEGIN { printf \"%.1f\", (${after%|*} - ${before%|*}) / $count }")
	xids[$name]=$(awk "BEGIN { printf \"%.2f\", (${after#*|} - ${before#*|}) / $count }")
	record "$name" "$script" "$clients" "$sync" "$(rate_of_run)" "${wal[$name]}"
}

median() {
	tr ' ' '\n' <<<"$*" | sed '/^$/d' | sort -g | awk '{ v[NR] = $1 }
		END { print (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2 }'
}

# ratio NAME OTHER: the median of the rounds' ratios, so that a slow minute counts for both
ratio() {
	# shellcheck disable=SC2086
	median "$(paste <(printf '%s\n' ${rates[$1]}) <(printf '%s\n' ${rates[$2]}) |
		awk '{ printf " %.3f", $1 / $2 }')"
}

# in_turn ROUND NAME...: the names, in every other round the other way around, so that whoever comes
# late gains nothing
in_turn() {
	local round=$1
	shift
	if ((round % 2)); then printf '%s\n' "$@"; else printf '%s\n' "$@" | tac; fi
}

# say FORMAT [ARGUMENT...]: of the report, which is Markdown
say() {
	# shellcheck disable=SC2059
	printf "$@" | tee -a "$HL_TMP/report"
}

# heading TITLE [COLUMN...]: begins a table; what row() prints if no columns are given
heading() {
	local column
	title=$1
	shift
	[[ $# -gt 0 ]] || set -- "per second" "WAL bytes" xids "foreign CPU %"
	say '\n| %s |' "$title"
	for column; do say ' %s |' "$column"; done
	say '\n| --- |'
	for column; do say ' --- |'; done
	say '\n'
}

# row NAME LABEL: the medians of its rounds
row() {
	say '| %s | %.0f | %s | %s | %.0f |\n' "$2" "$(median "${rates[$1]}")" "${wal[$1]}" \
		"${xids[$1]}" "$(median "${foreign[$1]}")"
}

# line LABEL VALUE...: of a table whose columns the caller has named
line() {
	say '| %s |' "$1"
	shift
	say ' %s |' "$@"
	say '\n'
}

# verdict LABEL VALUE OPERATOR TARGET
verdict() {
	local word
	word=$(awk "BEGIN { print ($2 $3 $4) ? \"reached\" : \"missed\" }")
	note "$title: $1: $(printf %.2f "$2"), wanted $3 $4: $word"
	printf '| %s: %s | %.2f | %s %s | %s |\n' "$title" "$1" "$2" "$3" "$4" "$word" \
		>>"$HL_TMP/verdicts"
}

no_lease_left() {
	[[ $(sql -d "$1" -c "SELECT count(*) FROM hloom_leases WHERE namespace = 'bench'
		AND key <> 'held'") -eq 0 ]] || fail "leases were left behind in $1"
}

