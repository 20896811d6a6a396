# hloom_lock: distributed lease locks for PostgreSQL 15 to 18
#
# "make help" lists the targets.  The version is kept in hloom_lock.control alone.

TOP := $(patsubst %/,%,$(dir $(firstword $(MAKEFILE_LIST))))

PG_CONFIG ?= pg_config
EXTENSION = hloom_lock
HLOOM_VERSION := $(shell sed -n "s/^default_version *= *'\(.*\)'.*/\1/p" \
	'$(TOP)/hloom_lock.control')

.DEFAULT_GOAL := all

# These install what they need themselves, so they must not need pg_config or its makefiles.
STANDALONE = help demo test bench check-temp check-world lint indent indent-check dist

ifneq (,$(filter-out $(STANDALONE),$(or $(MAKECMDGOALS),all)))

PG_MAJOR := $(shell $(PG_CONFIG) --version 2>/dev/null | sed 's/[^0-9]*\([0-9]*\).*/\1/')
ifeq (,$(PG_MAJOR))
$(error cannot run "$(PG_CONFIG)": install PostgreSQL with its server headers or set PG_CONFIG)
endif
ifneq (,$(filter $(PG_MAJOR),7 8 9 10 11 12 13 14))
$(error hloom_lock needs PostgreSQL 15 or later, "$(PG_CONFIG)" belongs to $(PG_MAJOR))
endif

MODULE_big = hloom_lock
OBJS = $(patsubst $(TOP)/%.c,%.o,$(sort $(wildcard $(TOP)/src/*.c)))
DATA = $(patsubst $(TOP)/%,%,$(sort $(wildcard $(TOP)/sql/hloom_lock--*.sql)))
HEADERS_hloom_lock = src/hloom_provider.h
PG_CPPFLAGS = -I$(TOP)/src -DHLOOM_LOCK_VERSION='"$(HLOOM_VERSION)"'

REGRESS = $(patsubst $(TOP)/test/sql/%.sql,%,$(sort $(wildcard $(TOP)/test/sql/*.sql)))
REGRESS_OPTS = --inputdir=$(TOP)/test
ISOLATION = $(patsubst $(TOP)/test/specs/%.spec,%,$(sort $(wildcard $(TOP)/test/specs/*.spec)))
ISOLATION_OPTS = --inputdir=$(TOP)/test --outputdir=. --load-extension=hloom_lock
PROVE_TESTS ?= $(patsubst $(TOP)/%,%,$(sort $(wildcard $(TOP)/test/t/*.pl)))
ifneq (,$(strip $(PROVE_TESTS)))
TAP_TESTS = 1
endif
ifeq (,$(strip $(REGRESS)))
override undefine REGRESS
endif
ifeq (,$(strip $(ISOLATION)))
override undefine ISOLATION
endif

# Bitcode gains nothing here and asks for the clang PostgreSQL was built with.  "override", because
# PostgreSQL's own makefile sets it later; "make with_llvm=yes" still works.
ifneq (command line,$(origin with_llvm))
override with_llvm = no
endif

# pg_regress looks for ./expected, which a build outside of the source tree does not have.
ifneq ($(TOP),.)
REGRESS_PREP = expected-link
.PHONY: expected-link
expected-link:
	@test -e expected || ln -s $(abspath $(TOP))/expected expected
endif

EXTRA_CLEAN = results regression.diffs regression.out output_iso tmp_check tmp_check_iso log

PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# A changed structure must reach every object that knows it.
$(OBJS): $(wildcard $(TOP)/src/*.h) $(TOP)/hloom_lock.control $(TOP)/Makefile | $(CURDIR)/src
$(CURDIR)/src:
	@mkdir -p $@

endif

## all: build the module (default)
## install: install the module, its scripts and the provider header
## installcheck: regress, isolation and TAP tests against the installed, running server
.PHONY: $(STANDALONE)

help:	## list the targets
	@sed -n -e 's/^## \([a-z-]*\): \(.*\)/\1|\2/p' \
		-e 's/^\([a-z-]*\):[^#]*##  *\(.*\)/\1|\2/p' '$(TOP)/Makefile' | \
		awk -F'|' '{ printf "make %-13s %s\n", $$1, $$2 }'

test:	## install what is missing, build, run every test on a private server; ONE=name for one
	@ONE='$(ONE)' '$(TOP)/test/run.sh'

check-temp:	## only the tests of installcheck, on a private server
	@ONE='$(ONE)' KINDS='regress isolation tap' '$(TOP)/test/run.sh'

check-world:	## make test with every PostgreSQL from 15 to 18 found here
	@'$(TOP)/test/run.sh' --all-versions

lint:	## the rules of test/lint/README.md; ONE=name for one
	@'$(TOP)/test/lint/run.sh' $(ONE)

indent:	## indent the C sources with pgindent or pg_bsd_indent
	@'$(TOP)/test/lint/indent.sh'

indent-check:	## show what indent would change
	@'$(TOP)/test/lint/indent.sh' --check

bench:	## measure against a private server
	@'$(TOP)/test/bench/run.sh'

demo:	## eight clients settle 400 invoices, with the lock and without it
	@'$(TOP)/test/demo/run.sh'

dist:	## hloom_lock-VERSION.zip from the last commit
	@git -C '$(TOP)' archive --format=zip --prefix='hloom_lock-$(HLOOM_VERSION)/' \
		-o '$(CURDIR)/hloom_lock-$(HLOOM_VERSION).zip' HEAD
	@echo 'hloom_lock-$(HLOOM_VERSION).zip'
