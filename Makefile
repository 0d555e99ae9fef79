# Every target sets up what it needs by itself, in .venv, and only what has changed.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
DEMO ?=
BENCH_CASES ?=
BENCH_ROUNDS ?= 1
STRESS_SECONDS ?= 600
SOAK_SECONDS ?= 600
KILL_ROUNDS ?= 100
FUZZ_SECONDS ?= 60
CHAOS_SECONDS ?= 300
CHAOS_SEED ?=
SEEDS ?= 2000
TROUBLE_SEEDS ?= 500
WORLD_ROUNDS ?= 1
CHAIN_SEEDS ?= 500
FIRST_SEED ?= 0
PROCESSES ?= 1
PLAN_MINUTES ?= 60
RL_CASES ?=
RL_SEEDS ?= 5
MODIN_TESTS ?= 20
PANDAS_TESTS ?= 20
RAY_REPOSITORY ?=
TEST_PROCESSES ?= 4
PAPER ?=
PAPER_SHORT ?=
SECTIONS ?=
SHORT ?=
RAY_VERSION := 2.60.0

venv := .venv
python := $(venv)/bin/python
# The versions that the tests are known to pass with; another Python than those in the folder takes what is newest.
lock := deploy/locks/cpython-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])').txt
pip := $(python) -m pip install -qq --disable-pip-version-check $(addprefix -c ,$(wildcard $(lock)))
native := $(shell find native -name '*.cpp' -o -name '*.hpp')
extension_sources := $(filter-out native/tests/%,$(native))

.PHONY: help
help:  ## what can be made
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# ---- set-up ----------------------------------------------------------------------------------------

# $(call step,what,commands): a line that says what is done, and how long it took
step = printf '  %s ... ' '$(1)' && begun=$$(date +%s) && { $(2); } && echo "$$(($$(date +%s) - begun)) s"

$(venv)/.builder: pyproject.toml
	@test -x $(python) || { $(call step,a virtual environment in $(venv),$(PYTHON) -m venv $(venv)); }
	@$(call step,what a build needs,$(pip) --upgrade 'pip>=25.1' && $(pip) --group build)
	@touch $@

$(venv)/.tools: $(venv)/.builder
	@$(call step,what the tests and the checks need,$(pip) --group dev)
	@touch $@

$(venv)/.installed: $(venv)/.builder CMakeLists.txt $(extension_sources)
	@$(call step,the native core is compiled,$(pip) --no-build-isolation -e .)
	@touch $@

$(venv)-ray/.installed: Makefile
	@test -x $(venv)-ray/bin/python || $(PYTHON) -m venv $(venv)-ray
	@$(venv)-ray/bin/python -m pip install -qq --disable-pip-version-check ray==$(RAY_VERSION) numpy distributed
	@touch $@

.PHONY: build
build: $(venv)/.tools $(venv)/.installed  ## the package, installed for editing in .venv

# ---- use -------------------------------------------------------------------------------------------

# With no more than a demo needs: who comes to look does not wait for what the tests need.
.PHONY: demo
demo: $(venv)/.installed  ## simulate, train and serve in one program, two minutes; DEMO=tune: another, DEMO=--list: which
	@$(call step,what the demo needs,$(pip) 'weft[$(or $(filter tune data pandas,$(DEMO)),rl)]')
	@$(python) -m weft.cli demo $(DEMO)

# The dashboard's tests drive a browser; where it cannot be installed they are skipped, and say so.
$(venv)/.browser: $(venv)/.tools
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || { test "$$(id -u)" = 0 \
		&& apt-get install -qq -y --no-install-recommends chromium chromium-driver >/dev/null 2>&1; } \
		|| echo "no chromium and chromedriver here: the tests of the dashboard's pages are skipped"
	@touch $@

# The tests start thousands of processes. Where PYTHONDONTWRITEBYTECODE is set each would compile all that it imports.
.PHONY: test
test: build test-native $(venv)/.browser  ## the whole test suite, in parts, four side by side; TEST_PROCESSES=1: one pytest
	@$(python) -m compileall -q src tests
	@$(python) $(if $(filter 1,$(TEST_PROCESSES)),-m pytest -q tests,tests/by_folder.py --processes $(TEST_PROCESSES))

.PHONY: test-native
test-native: $(venv)/.tools  ## the native core's own tests, without sanitizers
	@$(call run_native_tests,build/native-tests,,)
	@if $(arm_has_compiler); then $(call build_for_arm,weft_core); fi

# Debian's compiler and emulator. Emulation keeps the order of this machine's memory: what it shows is that all of it
# builds and runs there, not that weaker orders do no harm. It keeps a word for each page that was ever mapped, so
# that a test with hundreds of segments takes it 23 GB: records are changed at random in fewer of them.
arm_compiler := aarch64-linux-gnu-g++
arm_emulator := qemu-aarch64
arm_has_compiler = command -v $(arm_compiler) >/dev/null
build_for_arm = $(venv)/bin/cmake -S . -B build/native-arm -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(venv)/bin/ninja) \
	--log-level=WARNING -DWEFT_NATIVE_TESTS=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_SYSTEM_NAME=Linux \
	-DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=$(arm_compiler) \
	'-DCMAKE_CROSSCOMPILING_EMULATOR=$(arm_emulator);-L;/usr/aarch64-linux-gnu' >/dev/null \
	&& $(venv)/bin/cmake --build build/native-arm --target $(1) -- --quiet

.PHONY: test-arm
test-arm: $(venv)/.tools  ## the native tests for aarch64, in an emulator that is installed if need be (as root, Debian)
	@{ $(arm_has_compiler) && command -v $(arm_emulator) >/dev/null; } || { test "$$(id -u)" = 0 \
		&& apt-get install -qq -y --no-install-recommends g++-aarch64-linux-gnu qemu-user >/dev/null 2>&1; } || true
	@if $(arm_has_compiler) && command -v $(arm_emulator) >/dev/null; then \
		$(call build_for_arm,all) && WEFT_FUZZ_ROUNDS=5 $(venv)/bin/ctest --test-dir build/native-arm \
			--output-on-failure --no-tests=error --progress; \
	else echo "skipped: there is no $(arm_compiler) and $(arm_emulator) here, and they cannot be installed" \
		"(it takes root and Debian's g++-aarch64-linux-gnu and qemu-user)"; fi

# As a stranger would: from the archive alone, in a folder without git, with an environment that has nothing.
.PHONY: sdist-check
sdist-check: $(venv)/.builder  ## the sdist, and a wheel of it that runs, both left in dist; PYTHON=python3.14
	@set -e; folder=$$(mktemp -d); trap "rm -rf $$folder" EXIT; mkdir -p dist; \
	$(python) -c 'from scikit_build_core.build import build_sdist; build_sdist("dist")'; \
	tar -xzf dist/weft-*.tar.gz -C $$folder; \
	$(PYTHON) -m venv $$folder/venv; \
	$$folder/venv/bin/pip wheel -qq --disable-pip-version-check --no-deps -w $$folder/wheel $$folder/weft-*/; \
	$$folder/venv/bin/pip install -qq --disable-pip-version-check $$folder/wheel/*.whl; \
	cp $$folder/wheel/*.whl dist; cd $$folder; \
	venv/bin/python -c 'import weft; print(weft.__file__, weft.get(weft.remote(lambda: "runs").remote()))'; \
	venv/bin/weft --version

.PHONY: stress
stress: build  ## the long stress test and the kills; STRESS_SECONDS=600 KILL_ROUNDS=100
	@WEFT_STRESS_SECONDS=$(STRESS_SECONDS) $(python) -m pytest -q -s tests/stress
	@WEFT_KILL_ROUNDS=$(KILL_ROUNDS) $(python) -m pytest -q tests/faults/test_kill_anything.py

.PHONY: soak-serve
soak-serve: build  ## weft.serve under load, updates and kills; SOAK_SECONDS=600
	@$(python) benchmarks/serve_soak.py --seconds $(SOAK_SECONDS)

.PHONY: chaos
chaos: build  ## real programs while all they run on is killed, stopped and cut off (machines, as root); CHAOS_SECONDS=300 CHAOS_SEED=
	@$(python) tests/chaos --seconds $(CHAOS_SECONDS) $(if $(CHAOS_SEED),--seed $(CHAOS_SEED))

.PHONY: worlds
worlds: build  ## five machines in network namespaces, one of them in trouble, one world after another (as root); WORLD_ROUNDS=1
	@$(python) tests/cluster/cut_worlds.py --rounds $(WORLD_ROUNDS)

.PHONY: test-modin
test-modin: build  ## Modin's own tests on Weft, of those that pass on its Python engine; MODIN_TESTS=20 a file, 0: all
	@$(pip) --group modin-tests
	@$(python) tests/weft_modin/modin_suite.py --per-file $(MODIN_TESTS)

.PHONY: test-pandas
test-pandas: build  ## pandas' own tests on deferred frames, of those that pass on pandas; PANDAS_TESTS=20 a file, 0: all
	@$(python) tests/weft_pandas/pandas_suite.py --per-file $(PANDAS_TESTS) --least 99
	@$(python) tests/weft_pandas/pandas_suite.py --per-file $(PANDAS_TESTS) --rows 0 --least 97

.PHONY: test-ray-docs
test-ray-docs: build  ## the programs of Ray's documentation on Weft, from a clone of its repository; RAY_REPOSITORY=path
	@test -n "$(RAY_REPOSITORY)" || { echo "name a clone of Ray's repository: make test-ray-docs RAY_REPOSITORY=path"; exit 2; }
	@$(python) tests/compat/ray_docs.py --repository $(RAY_REPOSITORY)

.PHONY: ray-names
ray-names: build  ## the table of Ray's public names in docs/ray-differences.md, from a clone of its repository; RAY_REPOSITORY=path
	@test -n "$(RAY_REPOSITORY)" || { echo "name a clone of Ray's repository: make ray-names RAY_REPOSITORY=path"; exit 2; }
	@$(python) -m weft.compat tests/compat/ray_names.py --repository $(RAY_REPOSITORY)

.PHONY: test-ray-packages
test-ray-packages: build  ## packages built on Ray, each in an environment of its own, an hour; PACKAGE=dask: one of them
	@$(python) tests/compat/ray_packages.py --only '$(PACKAGE)' $(if $(PACKAGE),,--write)

.PHONY: plans
plans: build  ## random plans of weft.data against Polars, and queries against DuckDB; PLAN_MINUTES=60 (of each) FIRST_SEED=0
	@$(python) tests/data/random_plans.py --minutes $(PLAN_MINUTES) --seeds $(FIRST_SEED):0
	@$(python) tests/data/random_queries.py --minutes $(PLAN_MINUTES) --seeds $(FIRST_SEED):0
	@$(python) tests/data/random_sql.py --minutes $(PLAN_MINUTES) --seeds $(FIRST_SEED):0

.PHONY: tpch
tpch: build  ## TPC-H's 22 queries through data.sql against DuckDB; TPCH_SCALE=0.1
	@WEFT_TPCH_SCALE=$(or $(TPCH_SCALE),0.1) $(python) -m pytest -q tests/data/test_sql.py -k tpc_h

.PHONY: simulate
simulate: build  ## simulated clusters from many seeds; SEEDS=2000 TROUBLE_SEEDS=500 CHAIN_SEEDS=500 FIRST_SEED=0 PROCESSES=1
	@$(python) -m weft.testing.simulate --processes $(PROCESSES) --seeds $(FIRST_SEED):$$(( $(FIRST_SEED) + $(SEEDS) ))
	@for kind in 1 2 3 4 5; do \
		first=$$(( kind * 1000000 + $(FIRST_SEED) )); \
		$(python) -m weft.testing.simulate --processes $(PROCESSES) --seeds $$first:$$(( first + $(TROUBLE_SEEDS) )) || exit 1; \
	done
	@$(python) tests/store/chain_worlds.py $(FIRST_SEED):$$(( $(FIRST_SEED) + $(CHAIN_SEEDS) ))

.PHONY: check
check: build  ## ruff, mypy, clang-format, codespell, the prose of the pages
	@$(venv)/bin/ruff check -q .
	@$(venv)/bin/ruff format --check -q . || { echo "make format would change files"; exit 1; }
	@$(python) -m mypy
	@$(venv)/bin/codespell -D - -D docs/words.txt *.md benchmarks deploy docs examples native src tests
	@$(python) docs/prose.py *.md $$(find benchmarks deploy docs examples -name '*.md')
	@$(if $(native),$(venv)/bin/clang-format --dry-run -Werror $(native))

.PHONY: docs
docs: build  ## the documentation's site, in build/docs; a dead link or a warning is an error
	@$(pip) --group docs
	@$(python) -m sphinx -q -W --keep-going -c docs -b html . build/docs
	@echo "build/docs/docs/index.html"

.PHONY: pictures
pictures: build $(venv)/.browser  ## the pictures of the dashboard in docs/images, of a program that runs
	@$(python) docs/pictures.py

.PHONY: records
records: $(venv)/.tools  ## native/records.hpp and engine/wire/kinds.py anew, of native/schema/records.py
	@$(python) native/schema/generate.py

.PHONY: format
format: $(venv)/.tools  ## write everything in the house's format
	@$(venv)/bin/ruff check -q --fix . || true
	@$(venv)/bin/ruff format -q .
	@$(if $(native),$(venv)/bin/clang-format -i $(native))

.PHONY: bench
bench: build $(venv)-ray/.installed  ## Weft and Ray side by side; BENCH_CASES=a,b BENCH_ROUNDS=n
	@$(python) benchmarks/engine.py --ray-python $(venv)-ray/bin/python \
		--cases '$(BENCH_CASES)' --rounds $(BENCH_ROUNDS)

.PHONY: bench-pools
bench-pools: build $(venv)-ray/.installed  ## Weft beside process pools and Dask
	@$(python) benchmarks/pools.py --dask-python $(venv)-ray/bin/python

.PHONY: bench-growth
bench-growth: build  ## what one more costs as their number grows; GROWTH='--cases tasks,cancels --most 100000'
	@$(python) benchmarks/growth.py $(GROWTH)

.PHONY: bench-cluster
bench-cluster: build $(venv)-ray/.installed  ## between nodes: Weft, Ray and a bare socket; BENCH_CASES BENCH_ROUNDS
	@$(python) benchmarks/cluster.py --ray-python $(venv)-ray/bin/python \
		--cases '$(BENCH_CASES)' --rounds $(BENCH_ROUNDS)

paper_scripts := $(filter-out reproduction page,$(notdir $(basename $(wildcard benchmarks/paper/*.py))))

.PHONY: paper
paper: build  ## the Ray paper's figures and tables again, and docs/paper.md of them; PAPER='chain objects' PAPER_SHORT=1
	@$(pip) --group paper
	@cd benchmarks/paper && failed=; for script in $(or $(PAPER),$(paper_scripts)); do \
		timeout -k 10 300 $(abspath $(python)) $$script.py $(if $(PAPER_SHORT),--short) || failed="$$failed $$script"; \
		done; $(abspath $(python)) page.py; test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

# Everything that Weft is measured beside; none of it is a dependency.
$(venv)-peers/.installed: Makefile pyproject.toml
	@test -x $(venv)-peers/bin/python || $(PYTHON) -m venv $(venv)-peers
	@$(venv)-peers/bin/python -m pip install -qq --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(venv)-peers/bin/python -m pip install -qq --disable-pip-version-check ray==$(RAY_VERSION) --group peers
	@touch $@

# PEERS_PYTHON names interpreters that have the peers already, instead of an environment that is made here.
.PHONY: scoreboard
scoreboard: build $(if $(PEERS_PYTHON),,$(venv)-peers/.installed)  ## Weft beside its peers, and docs/scoreboard.md; SECTIONS='engine,pools' SHORT=1
	@$(python) benchmarks/scoreboard.py --peers-python $(or $(PEERS_PYTHON),$(abspath $(venv)-peers/bin/python)) \
		$(if $(SECTIONS),--sections $(SECTIONS)) $(if $(SHORT),--short)

.PHONY: fuzz
fuzz: build  ## all that reads bytes of other nodes; FUZZ_SECONDS=60
	@$(pip) --group fuzz
	@mkdir -p build/fuzz
	@nice -n 19 $(python) tests/fuzz/fuzz_links.py build/fuzz tests/fuzz/corpus -max_total_time=$(FUZZ_SECONDS) \
		-artifact_prefix=build/fuzz- -print_final_stats=1

# libFuzzer comes with Clang; Debian's is installed where it may be.
fuzz_compiler := clang++-14
.PHONY: fuzz-native
fuzz-native: $(venv)/.tools  ## the native readers of records, batches and rows, by libFuzzer; FUZZ_SECONDS=60
	@command -v $(fuzz_compiler) >/dev/null || { test "$$(id -u)" = 0 \
		&& apt-get install -qq -y --no-install-recommends clang-14 libclang-rt-14-dev llvm-14 >/dev/null; } \
		|| { echo "no $(fuzz_compiler) here, and no root to install it"; exit 1; }
	@$(venv)/bin/cmake -S . -B build/fuzz-native -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(venv)/bin/ninja) \
		--log-level=WARNING -DWEFT_NATIVE_TESTS=ON -DWEFT_FUZZ=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo \
		-DWEFT_SANITIZE=address,undefined -DCMAKE_CXX_COMPILER=$(fuzz_compiler) >/dev/null
	@$(venv)/bin/cmake --build build/fuzz-native --target fuzz_records -- --quiet
	@mkdir -p build/fuzz-records
	@nice -n 19 build/fuzz-native/fuzz_records build/fuzz-records -max_total_time=$(FUZZ_SECONDS) -max_len=512 \
		-artifact_prefix=build/fuzz-records- -print_final_stats=1

.PHONY: sbom
sbom: build  ## a bill of materials (CycloneDX) of what is installed here, in build/sbom.json
	@$(python) deploy/sbom.py --output build/sbom.json

.PHONY: lock
lock: build  ## write down the versions that are installed here, for who builds after
	@{ echo "# What the tests are run with on this Python: each version by name. Written by \`make lock\`, obeyed by every" \
		"install of the Makefile."; $(python) -m pip freeze --exclude-editable | grep -v '^#\| @ ' \
		| sed -E 's/\+[a-z0-9.]+$$//'; } >$(lock)

.PHONY: audit
audit: build  ## known vulnerabilities of what is installed here, where their database can be reached
	@$(pip) --group audit
	@$(python) -m pip_audit --local --skip-editable --strict --progress-spinner off \
		|| { echo "found something above, or the database of vulnerabilities could not be reached"; exit 1; }

.PHONY: fuzz-serve
fuzz-serve: build  ## requests made up from an example's OpenAPI against weft.serve
	@$(pip) --group fuzz-serve
	@$(python) tests/fuzz/fuzz_serve.py

.PHONY: bench-rl
bench-rl: build  ## does each algorithm of weft.rl reach its bar? hours; RL_CASES='ppo-cartpole …' RL_SEEDS=5
	@$(python) benchmarks/rl/bars.py $(RL_CASES) --seeds $(RL_SEEDS)
	@$(python) benchmarks/rl/plot.py
	@$(python) benchmarks/rl/pages.py

.PHONY: sanitize
sanitize: build  ## the native tests and the engine's under ASan and UBSan, then native tests and many threads under TSan
	@$(call run_native_tests,build/sanitize-address,address$(comma)undefined,)
	@$(python) tests/sanitized.py pandas
	@$(python) tests/sanitized.py engine
	@$(call run_native_tests,build/sanitize-thread,thread,$(unrandomised))
	@$(python) tests/sanitized.py threads

comma := ,
# ThreadSanitizer of older compilers cannot map its shadow when addresses are randomised much.
unrandomised = $(shell setarch $$(uname -m) -R true 2>/dev/null && echo setarch $$(uname -m) -R)
define run_native_tests
$(venv)/bin/cmake -S . -B $(1) -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(venv)/bin/ninja) --log-level=WARNING \
	-DWEFT_NATIVE_TESTS=ON -DWEFT_SANITIZE=$(2) -DCMAKE_BUILD_TYPE=RelWithDebInfo \
&& $(venv)/bin/cmake --build $(1) -- --quiet \
&& $(3) $(venv)/bin/ctest --test-dir $(1) --output-on-failure --no-tests=error --progress \
	--parallel $$(nproc)
endef

.PHONY: clean
clean:  ## remove environments, builds and caches
	@rm -rf build dist $(venv) $(venv)-ray $(venv)-peers .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
