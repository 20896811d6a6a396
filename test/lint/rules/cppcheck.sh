#!/bin/bash
# The sources are free of what cppcheck knows.
command -v cppcheck >/dev/null || { echo "cppcheck is not installed" && exit 77; }
cppcheck --quiet --std=c99 --enable=warning,performance,portability --error-exitcode=2 \
	--inline-suppr --suppress=unknownMacro --suppress=normalCheckLevelMaxBranches \
	-D_GNU_SOURCE -Isrc \
	'-DPG_FUNCTION_INFO_V1(x)=extern int x##_decl' '-DPG_MODULE_MAGIC=extern int magic_decl' src
