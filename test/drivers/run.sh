#!/bin/bash
# The examples of README.md, the lock from three drivers: psycopg 3, JDBC and node-postgres, and its
# metrics as a parser of OpenMetrics and as prometheus-postgres-exporter read them.
# Prints TAP.
# PGHOST (a TCP address), PGPORT, PGUSER and PGDATABASE name a database that has hloom_lock.
set -uo pipefail
cd "$(dirname "$0")" || exit 1
: "${PGHOST:?}" "${PGPORT:?}" "${PGUSER:?}" "${PGDATABASE:?}"

jar=${POSTGRESQL_JAR:-/usr/share/java/postgresql.jar}
# Debian's python3-psycopg is seen by Debian's interpreter only.
python=${PYTHON:-/usr/bin/python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

count=0
failed=0

result() {
	count=$((count + 1))
	[[ $1 == ok ]] || failed=$((failed + 1))
	echo "$1 $count - $2"
}

# A client prints "ok - name" lines; one that stops early fails here, whatever it printed.
driver() {
	local name=$1 expected=$2 status=0 seen=0 line
	shift 2
	timeout 120 "$@" >"$work/out" 2>"$work/err" || status=$?
	while IFS= read -r line; do
		case $line in
		"ok - "*) result ok "$name: ${line#ok - }" ;;
		"not ok - "*) result "not ok" "$name: ${line#not ok - }" ;;
		*) echo "# $line" && continue ;;
		esac
		seen=$((seen + 1))
	done <"$work/out"
	if [[ $status -eq 0 && $seen -eq $expected ]]; then
		result ok "$name: ran to its end"
	else
		result "not ok" "$name: ran to its end"
		echo "# exit status $status, $seen of $expected checks"
		sed 's/^/# /' "$work/err"
	fi
}

# Debian's package, or without it npm's.
install_pg() {
	[[ -d /usr/share/nodejs/pg ]] && NODE_PATH=/usr/share/nodejs && return 0
	NODE_PATH=$work/node_modules
	timeout 120 npm install --prefix "$work" --no-save --no-audit --no-fund pg@8 \
		>"$work/npm" 2>&1
}

driver readme 27 env PYTHONDONTWRITEBYTECODE=1 "$python" readme.py
driver psycopg 66 env PYTHONDONTWRITEBYTECODE=1 "$python" psycopg_client.py
driver openmetrics 6 env PYTHONDONTWRITEBYTECODE=1 "$python" openmetrics.py
driver exporter 7 env PYTHONDONTWRITEBYTECODE=1 "$python" exporter.py
driver jdbc 62 java -cp "$jar" JdbcClient.java
if install_pg; then
	driver node-pg 61 env NODE_PATH="$NODE_PATH" node node_client.js
else
	result "not ok" "node-pg: npm installs pg where there is no package"
	sed 's/^/# /' "$work/npm"
fi

echo "1..$count"
[[ $failed -eq 0 ]]
