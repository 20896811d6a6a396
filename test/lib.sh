# shellcheck shell=bash
# Packages, a private build and private servers for test/run.sh, test/demo/run.sh and
# test/bench/run.sh.  Source it from bash, then:
#
#	hl_need_packages base tests
#	hl_begin
#	hl_build && hl_conf && hl_start main "fsync = off"
#	hl_psql -d postgres -c 'SELECT 1'
#
# Works with and without "set -euo pipefail".  Everything lives below $HL_TMP and goes away at exit;
# KEEP=1 keeps it.  Nothing is installed into the system's PostgreSQL and none of its clusters is
# touched.

HL_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
HL_MIN_MAJOR=15
HL_MAX_MAJOR=18
HL_SERVER_TIMEOUT=${HL_SERVER_TIMEOUT:-3600}
HL_TMP=
HL_PG_CONFIG=
HL_AS=()
declare -A HL_PORT=()

# hl_say TEXT: a progress line on stderr
hl_say() { printf '# %s\n' "$*" >&2; }

# hl_die TEXT: say why and leave with status 1
hl_die() { hl_say "$*" && exit 1; }

# hl_tail FILE...: the end of each log that exists and is not empty, on stderr
hl_tail() {
	local f
	for f; do
		[[ -s $f ]] || continue
		hl_say "--- end of ${f#"$HL_TMP"/}"
		tail -n "${HL_TAIL:-40}" "$f" | sed 's/^/# /' >&2
	done
}

# hl_run SECONDS COMMAND...: run as the server's user with a time limit; a signal ends the wait
hl_run() {
	local limit=$1
	shift
	# In the background, since bash runs a trap only after its foreground command has ended.
	"${HL_AS[@]}" timeout -k 10 "$limit" "$@" <&0 &
	wait $!
}

# ---- packages ----------------------------------------------------------------------------------

hl_installed() { [[ $(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

hl_obtainable() { [[ $(apt-cache policy "$1" 2>/dev/null) =~ Candidate:\ [^\(] ]]; }

hl_apt_update() {
	[[ -z ${HL_APT_UPDATED:-} && $(id -u) -eq 0 ]] || return 0
	HL_APT_UPDATED=1
	hl_say "apt-get update"
	apt-get -o DPkg::Lock::Timeout=300 update >&2 ||
		hl_say "apt-get update failed, going on with the package lists there are"
}

hl_apt_install() (
	# Installing a server package must not make a cluster, nor start one, nor another service.
	conf=/etc/postgresql-common/createcluster.conf
	policy=/usr/sbin/policy-rc.d
	if [[ ! -e $conf ]] && ! hl_installed postgresql-common; then
		mkdir -p "$(dirname "$conf")"
		echo "create_main_cluster = false" >"$conf"
	fi
	if [[ ! -e $policy ]]; then
		trap 'rm -f "$policy"' EXIT
		printf '%s\n' '#!/bin/sh' 'exit 101' >"$policy" && chmod +x "$policy"
	fi
	DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get -o DPkg::Lock::Timeout=300 \
		-o Dpkg::Options::=--force-confold install -y -qq --no-install-recommends "$@" \
		>&2 </dev/null
)

# hl_major PG_CONFIG: the major version it belongs to, nothing when it cannot be run
hl_major() { "$1" --version 2>/dev/null | sed -n 's/^[^0-9]*\([0-9]*\).*/\1/p'; }

hl_has_headers() { [[ -e $("$1" --includedir-server 2>/dev/null)/postgres.h ]]; }

# hl_majors: the major versions with server headers installed by the distribution, highest first
hl_majors() {
	local m
	for ((m = HL_MAX_MAJOR; m >= HL_MIN_MAJOR; m--)); do
		[[ -e /usr/include/postgresql/$m/server/postgres.h ]] && echo "$m"
	done
	return 0
}

hl_major_of_distribution() {
	local m
	for ((m = HL_MAX_MAJOR; m >= HL_MIN_MAJOR; m--)); do
		hl_obtainable "postgresql-server-dev-$m" && hl_obtainable "postgresql-$m" && echo "$m" &&
			return
	done
	return 1
}

# Sets HL_MAJOR, HL_PG_CONFIG and HL_PACKAGED (1 when PostgreSQL comes from distribution packages).
hl_choose_postgres() {
	local bindir
	HL_PACKAGED=1
	if [[ -n ${PG_CONFIG:-} ]]; then
		HL_PG_CONFIG=$(command -v "$PG_CONFIG") || hl_die "cannot run PG_CONFIG=$PG_CONFIG"
		HL_MAJOR=$(hl_major "$HL_PG_CONFIG")
		bindir=$("$HL_PG_CONFIG" --bindir)
		if [[ $bindir == "/usr/lib/postgresql/$HL_MAJOR/bin" ]]; then
			HL_PG_CONFIG=$bindir/pg_config
		else
			HL_PACKAGED=
			hl_has_headers "$HL_PG_CONFIG" || hl_die "$PG_CONFIG has no server headers"
		fi
	else
		HL_MAJOR=$(hl_majors | head -n 1)
		if [[ -z $HL_MAJOR ]]; then
			command -v apt-get >/dev/null ||
				hl_die "no PostgreSQL $HL_MIN_MAJOR to $HL_MAX_MAJOR with server headers;" \
					"install one or set PG_CONFIG"
			HL_MAJOR=$(hl_major_of_distribution) || {
				hl_apt_update
				HL_MAJOR=$(hl_major_of_distribution)
			} || hl_die "the package lists have no PostgreSQL $HL_MIN_MAJOR to $HL_MAX_MAJOR"
		fi
		HL_PG_CONFIG=/usr/lib/postgresql/$HL_MAJOR/bin/pg_config
	fi
	[[ $HL_MAJOR -ge $HL_MIN_MAJOR ]] ||
		hl_die "hloom_lock needs PostgreSQL $HL_MIN_MAJOR or later, this is ${HL_MAJOR:-unknown}"
}

# hl_need_packages SET...: install what is missing of the sets
# base, tests, tap, lint, cost, bench, drivers
hl_need_packages() {
	local set p need=() want=() missing=() optional=() absent=()
	hl_choose_postgres
	for set; do
		case $set in
		base)
			command -v gcc >/dev/null || need+=(gcc libc6-dev)
			command -v make >/dev/null || need+=(make)
			if [[ -n $HL_PACKAGED ]]; then
				need+=("postgresql-$HL_MAJOR")
				hl_has_headers "$HL_PG_CONFIG" || need+=("postgresql-server-dev-$HL_MAJOR")
			fi
			;;
		tests)
			command -v prove >/dev/null || need+=(perl)
			perl -MIPC::Run -e 1 2>/dev/null || need+=(libipc-run-perl)
			command -v pg_prove >/dev/null || need+=(libtap-parser-sourcehandler-pgtap-perl)
			[[ -z $HL_PACKAGED ]] || need+=("postgresql-$HL_MAJOR-pgtap")
			;;
		tap)
			command -v pgbouncer >/dev/null || want+=(pgbouncer)
			;;
		lint)
			command -v shellcheck >/dev/null || want+=(shellcheck)
			command -v cppcheck >/dev/null || want+=(cppcheck)
			;;
		cost)
			command -v valgrind >/dev/null || want+=(valgrind)
			;;
		bench)
			command -v redis-server >/dev/null || want+=(redis-server redis-tools)
			command -v gnuplot >/dev/null || want+=(gnuplot-nox)
			;;
		drivers)
			want+=(python3-psycopg python3-prometheus-client libpostgresql-jdbc-java
				prometheus-postgres-exporter)
			command -v java >/dev/null || want+=(default-jdk-headless)
			# The package goes with Debian's own node; beside another one npm has the driver.
			command -v npm >/dev/null || want+=(node-pg)
			;;
		*) hl_die "hl_need_packages: no set named $set" ;;
		esac
	done
	if ! command -v dpkg-query >/dev/null; then
		[[ ${#need[@]} -eq 0 ]] || hl_die "please install the like of: ${need[*]}"
		[[ ${#want[@]} -eq 0 ]] || hl_say "not found, their tests will fail: ${want[*]}"
		return 0
	fi
	for p in "${need[@]}"; do
		hl_installed "$p" || missing+=("$p")
	done
	for p in "${want[@]}"; do
		hl_installed "$p" || optional+=("$p")
	done
	[[ $((${#missing[@]} + ${#optional[@]})) -gt 0 ]] || return 0
	if [[ $(id -u) -ne 0 ]]; then
		[[ ${#optional[@]} -eq 0 ]] ||
			hl_say "missing, their tests will fail: apt-get install ${optional[*]}"
		[[ ${#missing[@]} -eq 0 ]] ||
			hl_die "missing: apt-get install --no-install-recommends ${missing[*]}"
		return 0
	fi

	for p in "${missing[@]}" "${optional[@]}"; do
		hl_obtainable "$p" || hl_apt_update
	done
	for p in "${optional[@]}"; do
		if hl_obtainable "$p"; then missing+=("$p"); else absent+=("$p"); fi
	done
	if [[ ${#missing[@]} -gt 0 ]]; then
		hl_say "installing ${missing[*]}"
		hl_apt_install "${missing[@]}" || {
			hl_apt_update
			hl_install_one_by_one "${missing[@]}"
		}
	fi
	[[ ${#absent[@]} -eq 0 ]] || hl_say "cannot be had here, their tests fail: ${absent[*]}"
	for p in "${need[@]}"; do
		hl_installed "$p" || hl_die "could not install $p"
	done
}

# One package that cannot be had must not keep the others away.
hl_install_one_by_one() {
	local p
	hl_apt_install "$@" && return
	for p; do
		hl_apt_install "$p" || hl_say "could not install $p"
	done
}

# ---- the private directory ---------------------------------------------------------------------

# hl_begin: make $HL_TMP, choose the server's user, arrange for clean-up
hl_begin() {
	local user='' base=${TMPDIR:-/tmp}
	if [[ $(id -u) -eq 0 ]]; then
		for user in postgres nobody; do
			id -u "$user" >/dev/null 2>&1 && break
		done
		HL_AS=(runuser -u "$user" --)
		"${HL_AS[@]}" test -x "$base" || base=/tmp
	fi
	# A socket's path has 107 characters at most, and the tests put directories of their own below.
	[[ ${#base} -le 40 ]] || base=/tmp
	HL_TMP=$(mktemp -d "$base/hloom.XXXXXX") || hl_die "cannot make a temporary directory"
	trap hl_cleanup EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
	mkdir "$HL_TMP/log" "$HL_TMP/home" "$HL_TMP/tmp"
	[[ -z $user ]] || chown -R "$user:" "$HL_TMP"

	HL_BINDIR=$("$HL_PG_CONFIG" --bindir)
	# shellcheck disable=SC2034 # for test/run.sh
	HL_PGXS=$(dirname "$("$HL_PG_CONFIG" --pgxs)")/..
	HL_DEST=$HL_TMP/dest
	HL_SRC=$HL_TMP/src
	HL_CONF=$HL_TMP/hloom.conf
	export PATH="$HL_BINDIR:$PATH"
	# Settings of the caller's own sessions must not decide what a test sees.
	unset PGHOST PGPORT PGUSER PGDATABASE PGSERVICE PGOPTIONS PGDATA PGPASSFILE PGSSLMODE PSQLRC
	unset PG_REGRESS_DIFF_OPTS MAKEFLAGS MFLAGS MAKELEVEL
	export PGUSER=postgres PSQLRC=/dev/null PGCONNECT_TIMEOUT=30
}

hl_server_pids() {
	local f pid
	while IFS= read -r f; do
		{ read -r pid <"$f"; } 2>/dev/null || continue
		# The number may belong to another process by now; a postmaster stays in its directory.
		[[ $pid =~ ^[0-9]+$ && $(readlink "/proc/$pid/cwd") == "$(dirname "$f")" ]] && echo "$pid"
	done < <(find "$HL_TMP" -name postmaster.pid -type f 2>/dev/null)
	return 0
}

# hl_descendants PID: its children and theirs, those of subshells included
hl_descendants() {
	cat /proc/[0-9]*/stat 2>/dev/null | awk -v root="$1" '
		{ pid = $1; sub(/.*\) /, ""); parent[pid] = $2 }
		END {
			for (pid in parent)
				for (p = pid; p in parent; p = parent[p])
					if (parent[p] == root) { print pid; break }
		}'
}

# hl_cleanup: end every process and server started below $HL_TMP, then remove it
hl_cleanup() {
	# A signal may have come in the middle of "IFS= read".
	local rc=$? pid pids i IFS=$' \t\n'
	set +e
	trap - EXIT
	trap '' HUP INT TERM
	# The clients first, or they would start further servers.
	for pid in $(hl_descendants $$); do kill -TERM "$pid" 2>/dev/null; done
	for ((i = 0; i < 100; i++)); do
		pids=$(hl_server_pids)
		[[ -n $pids || -n $(jobs -pr) ]] || break
		for pid in $pids; do
			# Immediate shutdown at once, and after five seconds without asking.
			if [[ $i -lt 50 ]]; then kill -QUIT "$pid"; else kill -KILL "$pid"; fi 2>/dev/null
		done
		sleep 0.1
	done
	if [[ -n ${KEEP:-} ]]; then
		hl_say "kept: $HL_TMP"
	else
		rm -rf --one-file-system "$HL_TMP"
	fi
	exit "$rc"
}

# ---- build -------------------------------------------------------------------------------------

# hl_copy: put the working tree, without ignored files, into $HL_SRC
hl_copy() {
	mkdir -p "$HL_SRC"
	if git -c safe.directory='*' -C "$HL_ROOT" rev-parse --show-prefix >/dev/null 2>&1; then
		(cd "$HL_ROOT" && git -c safe.directory='*' ls-files -z -co --exclude-standard |
			while IFS= read -r -d '' f; do [[ ! -e $f ]] || printf '%s\0' "$f"; done |
			tar -cf - --null -T -)
	else
		(cd "$HL_ROOT" && tar -cf - --exclude=./.git --exclude='*.o' --exclude='*.so' .)
	fi | tar -xf - -C "$HL_SRC" --no-same-owner
	[[ ${#HL_AS[@]} -eq 0 ]] || chown -R "${HL_AS[2]}:" "$HL_SRC"
}

# Sets HL_HOW: how a server is made to find the extension.
hl_choose_install() {
	local settings
	settings=$("$HL_BINDIR/postgres" --describe-config | cut -f 1)
	if grep -qx extension_control_path <<<"$settings" || [[ $HL_MAJOR -ge 18 ]]; then
		HL_HOW=control_path
	elif grep -qx extension_destdir <<<"$settings"; then
		HL_HOW=destdir
	elif [[ $("$HL_PG_CONFIG" --pkglibdir) != /usr/* && -w $("$HL_PG_CONFIG" --pkglibdir) ]]; then
		HL_HOW=system
		HL_DEST=
	else
		hl_die "this PostgreSQL takes extensions from its own directories only," \
			"and $("$HL_PG_CONFIG" --pkglibdir) is not writable"
	fi
}

hl_make() {
	local dir=$1
	shift
	if [[ $HL_HOW == system && " $* " == *" install "* ]]; then
		# Only whoever owns the prefix can write there.
		make -s -C "$dir" PG_CONFIG="$HL_PG_CONFIG" "$@"
	else
		hl_run 600 make -s -C "$dir" PG_CONFIG="$HL_PG_CONFIG" "$@"
	fi
}

# hl_build: compile the working tree and test/modules/* below $HL_TMP, install them privately
hl_build() {
	local log=$HL_TMP/log/build.log module headers
	hl_choose_install
	hl_copy
	headers=$HL_DEST$("$HL_PG_CONFIG" --includedir-server)/extension/hloom_lock
	{
		hl_make "$HL_SRC" -j2 all && hl_make "$HL_SRC" install DESTDIR="$HL_DEST"
	} >"$log" 2>&1 || {
		hl_tail "$log"
		return 1
	}
	for module in "$HL_SRC"/test/modules/*/Makefile; do
		[[ -e $module ]] || continue
		module=$(dirname "$module")
		{
			hl_make "$module" COPT="-I$headers -I$HL_SRC/src" all &&
				hl_make "$module" COPT="-I$headers -I$HL_SRC/src" install DESTDIR="$HL_DEST"
		} >>"$log" 2>&1 || {
			hl_tail "$log"
			return 1
		}
	done
}

# hl_conf: write $HL_CONF, which every server started here and by the TAP tests reads
hl_conf() {
	local libdir
	libdir=$HL_DEST$("$HL_PG_CONFIG" --pkglibdir)
	{
		echo "shared_preload_libraries = 'hloom_lock'"
		echo "log_line_prefix = '%m [%p] %b %a '"
		echo "log_lock_waits = on"
		case $HL_HOW in
		destdir)
			echo "extension_destdir = '$HL_DEST'"
			;;
		control_path)
			echo "extension_control_path = '$HL_DEST$("$HL_PG_CONFIG" --sharedir):\$system'"
			;;
		esac
		[[ $HL_HOW == system ]] || echo "dynamic_library_path = '$libdir:\$libdir'"
	} >"$HL_CONF"
	export TEMP_CONFIG=$HL_CONF
}

# ---- servers -----------------------------------------------------------------------------------

# hl_free_port: a TCP port of 127.0.0.1 nobody listens on, below the range of outgoing connections
hl_free_port() {
	local port i
	for ((i = 0; i < 200; i++)); do
		port=$((10240 + (RANDOM * 32768 + RANDOM) % 20000))
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || {
			echo "$port"
			return
		}
	done
	return 1
}

# hl_initdb NAME: a new data directory $HL_TMP/NAME
hl_initdb() {
	local locale=C
	[[ ! $(locale -a 2>/dev/null) =~ (^|$'\n')C\.(utf8|UTF-8)($'\n'|$) ]] || locale=C.UTF-8
	hl_run 120 "$HL_BINDIR/initdb" -D "$HL_TMP/$1" -U postgres -A trust -E UTF8 \
		--locale="$locale" --no-sync >"$HL_TMP/log/initdb-$1.log" 2>&1 || {
		hl_tail "$HL_TMP/log/initdb-$1.log"
		return 1
	}
	echo "include '$HL_TMP/$1.conf'" >>"$HL_TMP/$1/postgresql.conf"
}

# hl_start NAME [CONF_LINE...]: initdb when needed, start; sets PGHOST and PGPORT to its socket.
# HL_TCP=1 lets it listen on 127.0.0.1 as well.
hl_start() {
	local name=$1 dir=$HL_TMP/$1 log=$HL_TMP/log/$1.log sock=$HL_TMP/s-$1 try i
	shift
	[[ -e $dir/PG_VERSION ]] || hl_initdb "$name" || return 1
	"${HL_AS[@]}" mkdir -p "$sock"
	for try in 1 2 3 4 5; do
		HL_PORT[$name]=$(hl_free_port) || return 1
		{
			cat "$HL_CONF"
			printf '%s\n' "unix_socket_directories = '$sock'" "port = ${HL_PORT[$name]}" \
				"listen_addresses = '${HL_TCP:+127.0.0.1}'" "$@"
		} >"$HL_TMP/$name.conf"
		chmod a+r "$HL_TMP/$name.conf"
		"${HL_AS[@]}" timeout -s INT -k 30 "$HL_SERVER_TIMEOUT" "$HL_BINDIR/postgres" -D "$dir" \
			</dev/null >>"$log" 2>&1 &
		HL_SERVER=$!
		for ((i = 0; i < 600; i++)); do
			if pg_isready -q -t 5 -h "$sock" -p "${HL_PORT[$name]}" -d postgres; then
				export PGHOST=$sock PGPORT=${HL_PORT[$name]}
				return 0
			fi
			kill -0 "$HL_SERVER" 2>/dev/null || break
			sleep 0.1
		done
		# Another run may have taken the port between the look and the start.
		grep -q 'could not bind\|Address already in use' "$log" || break
		hl_say "server $name did not get its port, attempt $try"
	done
	hl_tail "$log"
	return 1
}

# hl_stop NAME [MODE]: stop it (fast unless said) and keep its data directory
hl_stop() {
	hl_run 120 "$HL_BINDIR/pg_ctl" -D "$HL_TMP/$1" -m "${2:-fast}" -t 100 -w stop \
		>>"$HL_TMP/log/stop-$1.log" 2>&1
}

# hl_psql ARGUMENT...: psql without start-up file, stopping at the first error, two minutes at most
hl_psql() { hl_run "${HL_PSQL_TIMEOUT:-120}" "$HL_BINDIR/psql" -X -q -v ON_ERROR_STOP=1 "$@"; }
