#!/bin/bash
# Indents src/*.[ch] as PostgreSQL does, with pgindent or pg_bsd_indent; --check shows the changes
# only and fails when there are any.  PGINDENT and PGBSDINDENT name the programs to take.
# src/typedefs.list is made anew: the types these sources use, the project's own and the server's.
set -euo pipefail
cd "$(dirname "$0")/../.."

find_program() {
	local name=$1 f found=
	for f in /usr/lib/postgresql/1[5-9]/bin/"$name" "$(command -v "$name" || true)"; do
		[[ -x $f ]] && found=$f
	done
	echo "$found"
}
bsd=${PGBSDINDENT:-$(find_program pg_bsd_indent)}
pgindent=${PGINDENT:-$(find_program pgindent)}
[[ -n $bsd ]] || { echo "pg_bsd_indent is not installed" >&2 && exit 1; }

PG_CONFIG=${PG_CONFIG:-pg_config}
for f in /usr/lib/postgresql/1[5-8]/bin/pg_config; do
	[[ -e $("$f" --includedir-server 2>/dev/null)/postgres.h ]] && PG_CONFIG=$f
done
headers=$("$PG_CONFIG" --includedir-server)

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# Names typedefs give: "} Name;", "typedef x Name;" and "typedef x (*Name) (".
typedef_names() {
	sed -nE -e 's/^\} *([A-Za-z_][A-Za-z0-9_]*);.*/\1/p' \
		-e 's/^typedef [^(]*[ *]([A-Za-z_][A-Za-z0-9_]*);.*/\1/p' \
		-e 's/^typedef [^(]*\(\*? ?([A-Za-z_][A-Za-z0-9_]*)\) *\(.*/\1/p'
}
{
	find "$headers" -name '*.h' -print0 | xargs -0 cat | typedef_names
	cat src/*.[ch] | typedef_names
	printf '%s\n' bool size_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t \
		va_list time_t pid_t pg_funcptr_t
} | LC_ALL=C sort -u >"$tmp/known"
grep -ohE '[A-Za-z_][A-Za-z0-9_]*' src/*.[ch] | LC_ALL=C sort -u >"$tmp/used"
LC_ALL=C comm -12 "$tmp/known" "$tmp/used" >"$tmp/typedefs.list"

# Both would wrap comments at 79 columns, these sources are written for 100.
printf '#!/bin/sh\nexec "%s" "$@" -l99\n' "$bsd" >"$tmp/indent"
chmod +x "$tmp/indent"

mkdir "$tmp/src"
cp src/*.[ch] "$tmp/src"
if [[ -n $pgindent ]]; then
	perl "$pgindent" --indent="$tmp/indent" --typedefs="$tmp/typedefs.list" "$tmp"/src/*.[ch]
else
	for f in "$tmp"/src/*.[ch]; do
		# pgindent's options and the parts of its work that bsd_indent alone gets wrong.
		sed -e 's,^/\*--*$,/*-X-,' "$f" >"$tmp/in.c"
		"$tmp/indent" -bad -bap -bbb -bc -bl -cli1 -cp33 -cdb -nce -d0 -di12 -nfc1 -i4 -lp -lpl \
			-nip -npro -sac -tpg -ts4 -U"$tmp/typedefs.list" "$tmp/in.c" "$tmp/out.c"
		sed -E -e 's,^/\*-X-$,/*-,' -e 's/^([A-Za-z_ ]*[A-Za-z_])[ \t]+(\*+)$/\1 \2/' \
			-e 's/^(typedef [^(]*) \* ([A-Za-z_]*;)$/\1 *\2/' "$tmp/out.c" >"$f"
	done
fi
rm -f "$tmp"/src/*.BAK

if [[ ${1:-} == --check ]]; then
	status=0
	for f in src/*.[ch]; do
		diff -u "$f" "$tmp/$f" || status=1
	done
	exit "$status"
fi
for f in "$tmp"/src/*; do
	cmp -s "$f" "src/$(basename "$f")" || {
		cp "$f" src/
		echo "indented src/$(basename "$f")"
	}
done
cmp -s "$tmp/typedefs.list" src/typedefs.list || cp "$tmp/typedefs.list" src/
