#!/bin/bash
# Shell scripts are free of what shellcheck knows.
command -v shellcheck >/dev/null || { echo "shellcheck is not installed" && exit 77; }
grep -E '(\.sh|^\.ci/run)$' "$HLOOM_FILES" | xargs -d '\n' shellcheck -x
