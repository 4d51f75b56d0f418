# The commands of this repository; `make help` lists them. CMake and Ninja do the work, in build/PRESET.
PYTHON ?= /usr/bin/python3
JOBS ?= $(shell nproc)
PREFIX ?= /usr/local
SOAK_ROUNDS ?= 20
# Seeds of `make soak`: beyond those of `make test` (instance/simulation/CMakeLists.txt), shared out to the processes.
SEEDS ?= 10000
# The same for each kind of cluster that loses power and whose disk has faults.
KEPT_SEEDS ?= 5000
FIRST_SEED ?= 1000001
SEEDS_EACH = $(shell expr \( $(SEEDS) + $(JOBS) - 1 \) / $(JOBS))
KEPT_SEEDS_EACH = $(shell expr \( $(KEPT_SEEDS) + $(JOBS) - 1 \) / $(JOBS))

BINARIES := islands islandd islands-logger islands-gateway micro append append_judge insert payment smallbank tatp tpcc transfer voter ycsb counters ipc islands_trial
export PATH := $(CURDIR)/build/tools:$(PATH)
export CTEST_OUTPUT_ON_FAILURE := 1
export UBSAN_OPTIONS ?= print_stacktrace=1
# GCC 12's ThreadSanitizer cannot start where the kernel randomizes addresses by more than 28 bits.
TSAN_RUN := $(shell [ "$$(cat /proc/sys/vm/mmap_rnd_bits 2>/dev/null || echo 28)" -le 28 ] || echo setarch -R)
export TSAN_OPTIONS ?= halt_on_error=1:second_deadlock_stack=1:suppressions=$(CURDIR)/cmake/tsan.supp

# $(call tests_of,PRESET,LABEL): names of the tests of ROOMS with this label that are not long; each is also its build target.
tests_of = ctest --test-dir build/$(1) -L '^$(2)$$' -L '^$(ROOMS)$$' -LE '^long$$' --show-only | sed -n 's/^ *Test *\#[0-9]*: //p'

.NOTPARALLEL:
.PHONY: help build install deb demo test test-machines planted sanitize sanitize-all bench bench-engines bench-parts soak chaos fuzz format dashboards dashboards-drawn packages packages-build packages-engines packages-machines packages-soak packages-draw clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' Makefile

build: packages-build build/release/build.ninja ## build the release binaries into build/release/bin
	ninja -C build/release -j $(JOBS) $(BINARIES) python_stubs

install: build ## install below PREFIX (/usr/local), inside DESTDIR
	ninja -C build/release documents islands_client
	DESTDIR=$(DESTDIR) cmake --install build/release --prefix $(PREFIX) --strip

deb: build ## a Debian package, into build/release/package
	ninja -C build/release documents islands_client
	cd build/release && cpack -G DEB

demo: packages-build build/release/build.ninja ## build what it takes, cut this machine into islands, run the microbenchmark, print the table
	ninja -C build/release -j $(JOBS) islands islandd islands-logger islands-gateway micro
	$(PYTHON) experiments/demo.py

test: packages build/release/build.ninja ## build everything, run the unit tests and those that start processes
	ninja -C build/release -j $(JOBS)
	ctest --test-dir build/release -j $(JOBS) -L '^unit$$' --no-tests=error
	$(PYTHON) deploy/e2e/suite.py deploy/e2e

test-machines: packages-machines build/release/build.ninja ## boot virtual machines like the papers', check where islands really are
	ninja -C build/release -j $(JOBS) islands islandd islands-logger micro
	$(PYTHON) -m pytest deploy/machines -p no:cacheprovider -rs

planted: packages build/release/build.ninja ## break the engine in 101 ways on purpose: its tests have to notice
	ninja -C build/release -j $(JOBS) $(BINARIES) python_stubs disk_faults log_judge planted
	ctest --test-dir build/release -j $(JOBS) -L '^planted$$' --no-tests=error
	$(PYTHON) -m pytest deploy/e2e -m planted -p no:cacheprovider -rs

ROOMS = core
sanitize-all: ROOMS = unit
sanitize-all: sanitize ## all unit tests under ASan and UBSan, all stress tests under TSan
sanitize: packages build/asan/build.ninja build/tsan/build.ninja ## the tests of what lays out memory under ASan and UBSan, its stress tests under TSan
	ninja -C build/asan build.ninja && ninja -C build/asan -j $(JOBS) $$($(call tests_of,asan,unit))
	ctest --test-dir build/asan -j $(JOBS) -L '^unit$$' -L '^$(ROOMS)$$' -LE '^long$$' --no-tests=error
	ninja -C build/tsan build.ninja && ninja -C build/tsan -j $(JOBS) $$($(call tests_of,tsan,stress))
	$(TSAN_RUN) ctest --test-dir build/tsan -j $(JOBS) -L '^stress$$' -L '^$(ROOMS)$$' -LE '^long$$' --no-tests=error

BENCH ?=
bench: packages build/release/build.ninja ## measure islands, beside other engines, with the bars set for them: half an hour
	ninja -C build/release -j $(JOBS) $(BINARIES) peers workload_peers bare_pages gateway_load local_path_bench messaging_bench disk_faults
	$(PYTHON) experiments/bench.py $(BENCH)

ENGINES ?=
bench-engines: packages-engines build/release/build.ninja ## measure islands beside LMDB, RocksDB, Berkeley DB, WiredTiger, SQLite, PostgreSQL and MariaDB, with a page: 30 minutes
	ninja -C build/release -j $(JOBS) $(BINARIES) peers workload_peers gateway_load
	$(PYTHON) experiments/bench_engines.py $(ENGINES)

bench-parts: packages-build build/release/build.ninja ## build and run every microbenchmark of the code
	ninja -C build/release -j $(JOBS)
	@set -e; for bench in build/release/bench/*; do echo "== $$bench"; $$bench; done

# Tests that take a table of faults, kills or transactions a twentieth of which is enough for `make test`.
FULL = $(patsubst %,deploy/e2e/test_%.py,disk_faults random_kills kill_loops list_append histories table_kills)
soak: ROOMS = unit
soak: packages packages-soak build/release/build.ninja ## run the stress tests SOAK_ROUNDS times (20), SEEDS (10000) simulated clusters and recoveries, KEPT_SEEDS (5000) of each kind that keeps what it promises, 400 faults of disks and 430 kills
	@echo "soak: $(SOAK_ROUNDS) rounds of these stress tests:"; $(call tests_of,release,stress) | sed 's/^/  /'
	ninja -C build/release -j $(JOBS) && ninja -C build/release -j $(JOBS) planted
	ctest --test-dir build/release -L '^stress$$' --repeat until-fail:$(SOAK_ROUNDS) --no-tests=error
	@echo "soak: $(SEEDS) simulated clusters from seed $(FIRST_SEED), in $(JOBS) processes"
	@seq 0 $$(($(JOBS) - 1)) | xargs -P $(JOBS) -I{} sh -c \
	  'ISLANDS_SEEDS=$$(($(FIRST_SEED) + {} * $(SEEDS_EACH))):$(SEEDS_EACH) build/release/tests/simulation_seeds_test'
	@echo "soak: $(KEPT_SEEDS) more with each of lazy, sync, forced votes and commands, which lose power and have faults of the disk"
	@for keeps in lazy sync forced command; do seq 0 $$(($(JOBS) - 1)) | xargs -P $(JOBS) -I{} sh -c \
	  "ISLANDS_KEEPS=$$keeps ISLANDS_SEEDS=\$$(($(FIRST_SEED) + {} * $(KEPT_SEEDS_EACH))):$(KEPT_SEEDS_EACH) build/release/tests/simulation_seeds_test" \
	  || exit 1; done
	@echo "soak: $(SEEDS) times an island that dies and recovers"
	@seq 0 $$(($(JOBS) - 1)) | xargs -P $(JOBS) -I{} sh -c \
	  'ISLANDS_SEEDS=$$(($(FIRST_SEED) + {} * $(SEEDS_EACH))):$(SEEDS_EACH) build/release/tests/recovery_test'
	@echo "soak: planted bugs, by each of their tests"
	ctest --test-dir build/release -j $(JOBS) -L '^planted$$' -E planted_bugs_test --no-tests=error
	instance/simulation/planted/catch.py --all build/release/tests/planted
	@echo "soak: the models of two-phase commit, epochs and cuts"
	coordinator/spin/check.py
	@echo "soak: the nth call of a real cluster on its disk goes wrong; islands killed at random, and their rings read; kill loops with histories and totals; histories through the gateway, judged twice"
	ISLANDS_FULL_TABLE=1 $(PYTHON) -m pytest $(FULL) -p no:cacheprovider -rAs
	@echo "soak: what make test leaves out of the tests with processes"
	$(PYTHON) -m pytest deploy/e2e $(FULL:%=--ignore=%) -m 'soak or planted' -p no:cacheprovider -rs
	$(MAKE) sanitize-all

CHAOS_MINUTES ?= 10
chaos: packages build ## run real clusters for CHAOS_MINUTES (10) each while islands are killed, hang or lose links, and judge their histories
	$(PYTHON) deploy/e2e/chaos.py --minutes $(CHAOS_MINUTES)

FUZZ_SECONDS ?= 30
fuzz: ## build every fuzz target with clang and run each for FUZZ_SECONDS (30)
	@deploy/install-packages.sh build fuzz
	cmake --preset fuzz -Wno-dev
	ninja -C build/fuzz -j $(JOBS) $$(ninja -C build/fuzz -t targets all | sed -n '/^cmake_/d; s/^\([a-z_]*_fuzz\): phony$$/\1/p')
	@for target in build/fuzz/fuzz/*; do echo "== $$target"; found=build/fuzz/corpora/$${target##*/}; \
	  $(PYTHON) cmake/fuzz_corpus.py unpack $${target##*/} $$found || exit 1; \
	  $$target -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 -artifact_prefix=$$found- $$found >$$found.log 2>&1 || \
	    { tail -n 60 $$found.log; echo "the input is in $$found-*"; exit 1; }; \
	  tail -n 8 $$found.log; done

format: packages ## format all C++ sources
	git ls-files --cached --others --exclude-standard '*.h' '*.cc' | xargs clang-format-16 -i

dashboards: packages ## write the Grafana dashboards' JSON from their Python source
	build/tools/venv/bin/python -B dashboards/generate.py

dashboards-drawn: packages-draw build/release/build.ninja ## draw them with Grafana's components (npm, Chromium) over a real run, into build/drawn
	ninja -C build/release -j $(JOBS) $(BINARIES) python_stubs
	ISLANDS_DRAWN=$(CURDIR)/build/drawn $(PYTHON) -m pytest deploy/e2e/test_drawn.py -p no:cacheprovider -rs

clean: ## remove everything that was built
	rm -rf build

packages: ; @deploy/install-packages.sh build test
packages-build: ; @deploy/install-packages.sh build
packages-engines: ; @deploy/install-packages.sh build test engines
packages-machines: ; @deploy/install-packages.sh build test machines
packages-soak: ; @deploy/install-packages.sh soak
packages-draw: ; @deploy/install-packages.sh build test draw

build/%/build.ninja: | packages-build
	cmake --preset $* -Wno-dev
