#!/bin/bash
# The version of the control file is the one of everything that repeats it.
set -u
version=$(sed -n "s/^default_version *= *'\(.*\)'.*/\1/p" hloom_lock.control)
status=0
same() {
	[[ $2 == "$version" ]] || {
		echo "$1 has version \"$2\", hloom_lock.control \"$version\""
		status=1
	}
}
while read -r v; do same META.json "$v"; done < <(
	sed -n 's/^ *"version": *"\([0-9][^"]*\)".*/\1/p' META.json)
[[ $(grep -c '"version": *"[0-9]' META.json) -eq 3 ]] || {
	echo "META.json does not have its version, its provides version and its spec version"
	status=1
}
same CHANGELOG.md "$(sed -n 's/^## \[\([^]]*\)\].*/\1/p' CHANGELOG.md | head -n 1)"
[[ -e sql/hloom_lock--$version.sql ]] || {
	echo "sql/hloom_lock--$version.sql is missing"
	status=1
}
exit "$status"
