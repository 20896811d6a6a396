# shellcheck shell=bash
# cc FLAG... FILE: the compiler with PostgreSQL's flags; its headers are not what is judged.
cc() {
	# shellcheck disable=SC2046
	gcc -std=gnu99 -fno-strict-aliasing -fwrapv $("$PG_CONFIG" --cppflags) -Isrc \
		-isystem "$("$PG_CONFIG" --includedir-server)" -DHLOOM_LOCK_VERSION='"lint"' "$@"
}
