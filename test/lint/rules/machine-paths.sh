#!/bin/bash
# No file names a directory of the machine somebody happened to work on.
! xargs -d '\n' grep -nIE '(^|[^A-Za-z0-9_.$}/-])/(work|opt|home|root)/' <"$HLOOM_FILES"
