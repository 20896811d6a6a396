#!/bin/bash
# The demo: eight psql clients settle the same 400 invoices, with the lock and without it.
set -euo pipefail
cd "$(dirname "$0")"
# shellcheck source=test/lib.sh
. ../lib.sh

clients=8
pids=()

sql() { timeout 60 psql -XqAt -v ON_ERROR_STOP=1 "$@"; }
say() { printf '%s\n' "$*"; }

fail() {
	printf '\nFAILED: %s\n' "$*" >&2
	exit 1
}

# The clean-up goes on when one of its steps fails.
leave() {
	local status=$?
	set +e
	(exit "$status")
	hl_cleanup
}

# start_clients SCHEMA JOB: every client in a process, a connection and an order of its own.
start_clients() {
	local schema=$1 job=$2 n
	pids=()
	for ((n = 1; n <= clients; n++)); do
		PGAPPNAME="client $n" PGOPTIONS="-c search_path=$schema,public" \
			timeout 60 psql -Xq -v job="$job" -v walk="$work/$schema.$n.sql" -f client.sql \
			>"$work/$schema.$n.out" 2>&1 &
		pids+=($!)
	done
}

running() { kill -0 "${pids[@]}" 2>/dev/null; }

# Says how far the clients are until the last has reached the end.
watch_clients() {
	local schema=$1 count last='' n failed=0
	while running; do
		count=$(sql -c "SELECT count(*) FROM $schema.invoice WHERE settled")
		if [[ $count != "$last" ]]; then
			printf '  settled so far: %3d of %d\n' "$count" "$total"
			last=$count
		fi
		sleep 0.3
	done
	for ((n = 1; n <= clients; n++)); do
		wait "${pids[n - 1]}" || { cat "$work/$schema.$n.out" >&2; failed=1; }
	done
	pids=()
	[[ $failed -eq 0 ]] || fail "a client stopped early"
	printf '  settled in the end: %d of %d\n' \
		"$(sql -c "SELECT count(*) FROM $schema.invoice WHERE settled")" "$total"
}

# Prints the lease table once it can be seen at work.
show_leases() {
	local rows
	while running; do
		rows=$(timeout 60 psql -Xq -P footer=off -v ON_ERROR_STOP=1 -c "
			SELECT key, owner_tag, fence, application_name, holder_pid AS pid,
			       to_char(expires_at - clock_timestamp(), 'SS.MS') AS seconds_left
			  FROM hloom_leases WHERE namespace = 'billing' ORDER BY key")
		if [[ $(wc -l <<<"$rows") -gt 4 ]]; then
			say "$rows"
			return
		fi
	done
	fail "no lease was ever seen in hloom_leases"
}

# Sums of the CSV by currency, in whole cents and without asking the database.
sums_of_file() {
	awk -F, 'NR > 1 { split($(NF - 2), a, "."); cents[$(NF - 1)] += a[1] * 100 + a[2] }
		END { for (c in cents) print c "|" cents[c] }' invoices.csv | LC_ALL=C sort
}

sums_of_payments() {
	sql -c "SELECT currency, (sum(amount) * 100)::bigint FROM $1.payment
		GROUP BY 1 ORDER BY currency COLLATE \"C\""
}

say "Building the extension and starting a private server ..."
hl_need_packages base
hl_begin
trap leave EXIT
export PGDATABASE=postgres PGCLIENTENCODING=UTF8
hl_build
hl_conf
hl_start demo "fsync = off"
work=$HL_TMP/clients
mkdir "$work"

total=$(($(wc -l <invoices.csv) - 1))
timeout 60 psql -Xq -f schema.sql

say "$total invoices, $clients clients, every client wants to settle every invoice."
say ""
say "1. With the lock: no row from hloom_try_acquire means skip it, another client is at it."
start_clients locked settle.sql
show_leases
watch_clients locked

paid=$(sql -c "SELECT count(*) FROM locked.payment")
wrong=$(sql -c "SELECT count(*) FROM (
	SELECT number FROM locked.invoice LEFT JOIN locked.payment ON invoice = number
	 GROUP BY number, settled HAVING count(invoice) <> 1 OR NOT settled) AS w")
refused=$(sql -c "SELECT count(*) FROM locked.visit WHERE outcome = 'refused'")
visits=$(sql -c "SELECT count(*) FROM locked.visit")
lost=$(sql -c "SELECT count(*) FROM locked.visit WHERE outcome = 'lease lost'")
left=$(sql -c "SELECT count(*) FROM hloom_leases WHERE namespace = 'billing'")
in_file=$(sums_of_file)
in_payments=$(sums_of_payments locked)

say ""
say "2. Without the lock: look, pay, mark, by the same eight clients in the same order."
start_clients unlocked settle_unlocked.sql
watch_clients unlocked

extra=$(sql -c "SELECT count(*) - count(DISTINCT invoice) FROM unlocked.payment")
twice=$(sql -c "SELECT count(*) FROM (
	SELECT FROM unlocked.payment GROUP BY invoice HAVING count(*) > 1) AS t")
overpaid=$(sql -c "SELECT string_agg(over || ' ' || currency, ', ' ORDER BY currency) FROM (
	SELECT currency, sum(paid) - sum(amount) AS over
	  FROM (SELECT i.currency, i.amount, sum(p.amount) AS paid
	          FROM unlocked.invoice i JOIN unlocked.payment p ON invoice = number
	         GROUP BY number) AS each
	 GROUP BY currency HAVING sum(paid) > sum(amount)) AS o")

say ""
say "What the data says"
printf '  with the lock:    %d payments for %d invoices, %d not paid exactly once\n' \
	"$paid" "$total" "$wrong"
printf '                    %d visits, %d refused because another client held the lease\n' \
	"$visits" "$refused"
printf '                    sums: %s\n' \
	"$(awk -F'|' '{ printf "%s%.2f %s", s, $2 / 100, $1; s = ", " }' <<<"$in_payments")"
printf '  without the lock: %d invoices paid twice or more, %d payments too many\n' \
	"$twice" "$extra"
printf '                    overpaid: %s\n' "${overpaid:-nothing}"

[[ $wrong -eq 0 && $paid -eq $total ]] || fail "with the lock, not every invoice was paid once"
[[ $visits -eq $((clients * total)) ]] || fail "a client did not visit every invoice"
[[ $in_payments == "$in_file" ]] || fail "the payments differ from invoices.csv: $in_file"
[[ $lost -eq 0 && $left -eq 0 ]] || fail "$lost leases were lost, $left were left behind"
[[ $twice -gt 0 ]] || fail "without the lock nothing was paid twice: the race proves nothing"

say ""
say "Passed: every invoice settled exactly once under the lock, to the cent of invoices.csv."
