#!/bin/bash
# Versions of PostgreSQL are told apart in src/compat.h alone.
! grep -E '^src/.*\.[ch]$' "$HLOOM_FILES" | grep -v '^src/compat\.h$' |
	xargs -d '\n' grep -n 'PG_VERSION_NUM\|PG_MAJORVERSION\|CATALOG_VERSION_NO'
