# Every target sets up what it needs; nothing has to be installed by hand but Python 3.11, make and a C compiler.
PYTHON ?= python3.11
BIN := .venv/bin
# Only the folder of this name is deleted; any other must be new.
DEMO_OUTPUT ?= demo_output
# Processes keep the bytecode of what they import, whatever the environment says: importing Beam takes a third of the time.
unexport PYTHONDONTWRITEBYTECODE
PRISM := github.com/apache/beam/sdks/v2/go/cmd/prism@v2.77.0

.PHONY: setup browser postgres demo test test-all privacy-test fuzz docs flink prism flink-test spark pyspark spark-test bench results lock sbom wheel test-python test-lowest-beam workflows clean

setup: .venv/ready

.venv/ready: requirements.lock setup.py pyproject.toml transforms/tfrecord/wire.c
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not on the path: install it, or run make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check "$$(grep -oE '^uv==[^ ]+' requirements.lock)"
	$(BIN)/uv pip sync -q --python $(BIN)/python --require-hashes requirements.lock
	rm -f transforms/tfrecord/_wire.*.so
	$(BIN)/uv pip install -q --python $(BIN)/python --no-deps --no-build-isolation -e .
	mkdir -p .venv/types/labeldp
	for name in mechanisms transforms pipelines templates; do ln -sfn ../../../$$name .venv/types/labeldp/$$name; done
	for name in __init__.py audit attack report study training; do ln -sfn ../../../labeldp/$$name .venv/types/labeldp/$$name; done
	@touch $@

demo: setup
	$(if $(filter demo_output,$(DEMO_OUTPUT)),rm -rf demo_output)
	$(BIN)/labeldp demo --output $(DEMO_OUTPUT)

# $(call debian,PACKAGES,ADVICE): installs packages of Debian's, which only root can.
debian = [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(1) >/dev/null || \
	{ echo "$(2)"; exit 1; }

# What the tests open reports in: CHROMIUM, or a browser on the path; else Debian's.
browser:
	@for name in "$$CHROMIUM" chromium google-chrome chromium-browser; do command -v "$$name" >/dev/null && exit; done; \
		$(call debian,chromium,no browser for the tests: install chromium or name one in CHROMIUM)

# The server that tests of the ledger start; without one, and where it cannot be installed, they are skipped.
postgres:
	@for program in "$$(command -v postgres)" /usr/lib/postgresql/*/bin/postgres; do test -x "$$program" && exit; done; \
		( $(call debian,postgresql,no PostgreSQL server: the tests of the ledger that need one are skipped) ) || true

# Types are checked while the tests run, in one thread, which takes less CPU time than two; errors of both are printed.
# `make test` leaves out the lanes of privacy and slow tests, `make test-all` has all but those of the engines. Both write the
# seconds, the CPU seconds and the names of the tests to build/durations.txt, the slowest first.
LANES := not privacy and not slow

test-all: LANES :=

test test-all: setup browser postgres
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@mkdir -p build
	@$(BIN)/pyrefly check -j 1 > build/pyrefly.txt 2>&1 & types=$$!; \
		$(BIN)/python -m pytest -n 2 --dist loadgroup -m "$(LANES)" --durations_file=build/durations.txt; tests=$$?; \
		wait $$types || { cat build/pyrefly.txt; exit 1; }; exit $$tests

# Attacks on whole releases, of more neighbors and releases than the tests of that lane, which are run first.
privacy-test: setup
	$(BIN)/python -m pytest -n 2 tests/privacy
	$(BIN)/python -m tests.privacy.attack_releases

# Random mutations of input files, mechanism files, ledgers and command lines, for FUZZ_SECONDS, 600 unless set. Inputs
# that fail are kept below build/fuzz. First the targets of the compiled part, for SANITIZED_SECONDS, under sanitizers: all
# memory of Python comes from malloc then, whose bounds AddressSanitizer knows.
SANITIZED_SECONDS ?= 60
SANITIZERS := -fsanitize=address,undefined -fno-sanitize-recover=all

fuzz: setup
	@mkdir -p build/sanitized
	gcc -shared -fPIC -O1 -g -Wall -Wextra $(SANITIZERS) -o build/sanitized/_wire.so transforms/tfrecord/wire.c \
		-I$$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('include'))")
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so)" PYTHONMALLOC=malloc \
		ASAN_OPTIONS=detect_leaks=0 $(BIN)/python tests/fuzz/fuzz.py --wire $(CURDIR)/build/sanitized/_wire.so \
		--seconds $(SANITIZED_SECONDS) --target tfrecord tf_example wire || { tail -n 40 build/fuzz/stderr.log; exit 1; }
	$(BIN)/python tests/fuzz/fuzz.py

# The documentation site, below build/site; warnings are errors, which --quiet would hide. `make test` builds it, too.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "built build/site/index.html"

# $(call fetch,FOLDER): what the pom of an engine names, with Maven, which keeps all files below FOLDER.
fetch = @command -v java >/dev/null && command -v mvn >/dev/null || { \
	$(call debian,default-jre-headless maven,clusters need java (11 or 17) and mvn on the path); }; \
	mvn -q -B -ntp --strict-checksums -Dmaven.repo.local=$(CURDIR)/$(1)/gradle/wrapper/repository -f $< package && touch $@

# Flink and Beam's runner for it, 150 MB, below .flink.
flink: .flink/flink.jar

.flink/flink.jar: templates/flink/pom.xml
	$(call fetch,.flink)

# Spark and Beam's runner for it, 300 MB, below .spark.
spark: .spark/jars/spark.jar

.spark/jars/spark.jar: templates/spark/pom.xml
	$(call fetch,.spark)

# PySpark with Spark in it, 500 MB, for frames: it is no dependency, and the lock has all that it needs itself.
pyspark: .spark/python/pyspark

.spark/python/pyspark: tests/engines/pyspark.lock | setup
	rm -rf .spark/python
	$(BIN)/uv pip install -q --python $(BIN)/python --no-deps --require-hashes --target .spark/python -r $<
	@touch $@

# Beam's Prism runner, where there is Go to build it with; tests do without.
prism:
	@test -x .flink/prism || ! command -v go >/dev/null || { \
		GOBIN=$(CURDIR)/.flink GOPATH=$(CURDIR)/.flink/go GOCACHE=$(CURDIR)/.flink/go/build GOFLAGS=-modcacherw \
		go install $(PRISM) || echo "Prism was not built: its test is skipped"; rm -rf .flink/go; }

# The job on a Flink cluster of its own, whose processes are killed: some minutes, and six gigabytes of memory.
flink-test: setup flink prism
	LABELDP_FLINK=1 $(BIN)/python -m pytest tests/engines

# The job on a Spark cluster of its own: some minutes, and four gigabytes of memory.
spark-test: setup spark pyspark
	LABELDP_SPARK=1 $(BIN)/python -m pytest tests/engines

# Renews the figures in docs/performance.md. What is imported is compiled first, or the first run would be measured doing
# that; a file that is not of this Python is no matter. A small benchmark, which is not kept, then reads the libraries from
# the disk. About 60 minutes on two idle cores, and 10 more for Flink where `make flink` was.
bench: setup
	rm -rf build/benchmarks
	mkdir -p build/benchmarks
	-$(BIN)/python -m compileall -qq -j 0 .venv/lib mechanisms transforms pipelines benchmarks
	$(BIN)/python benchmarks/throughput.py --sizes 40000 80000 --rounds 1 > /dev/null
	set -e; for name in throughput parquet wide encoding memory cost_model cores stores stages startup solvers center_cost $(if $(wildcard .flink/flink.jar),flink_throughput); do \
		$(BIN)/python benchmarks/$$name.py > build/benchmarks/$$name.out; done
	$(BIN)/python benchmarks/performance_page.py build/benchmarks

# Renews docs/results from the data sets that its README names, in LABELDP_DATA; hours on one core, finished cells are kept.
# Then it renews docs/expect.md by simulation, in some minutes.
results: setup
	OMP_NUM_THREADS=1 $(BIN)/python docs/results/run.py $${LABELDP_DATA:-../shared/data} build/results
	OMP_NUM_THREADS=1 $(BIN)/python docs/results/expect.py

EXTRAS := validation evaluation ledger completion aws gcp yaml iceberg delta dev

# Those of an image for jobs, which has no tests and no TensorFlow.
JOB_EXTRAS := ledger gcp aws iceberg delta
COMPILE := --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	--custom-compile-command "make lock"

# Renews sbom.cdx.json from requirements.lock: a software bill of materials in CycloneDX. The tool runs in an environment
# of its own, and the same lock gives the same bytes.
SBOM_TOOL := --from cyclonedx-bom==7.5.0 --with cyclonedx-python-lib==11.12.0
define make_sbom
	@mkdir -p build
	$(BIN)/uv tool run -q $(SBOM_TOOL) cyclonedx-py requirements requirements.lock --spec-version 1.6 \
		--output-reproducible --output-format JSON --output-file build/sbom.json
	$(BIN)/python docs/bill_of_materials.py < build/sbom.json
endef

# Renews requirements.lock from setup.py and the exceptions in pyproject.toml, with hashes, for Python 3.11, the part of
# it that a job needs, and the software bill of materials.
lock: setup
	$(BIN)/uv pip compile -q --upgrade setup.py $(EXTRAS:%=--extra %) $(COMPILE) -o requirements.lock
	$(BIN)/uv pip compile -q --upgrade setup.py $(JOB_EXTRAS:%=--extra %) $(COMPILE) --constraint requirements.lock \
		-o templates/dataflow/requirements.lock
	$(make_sbom)

sbom: setup
	$(make_sbom)

# A wheel below build/dist, and whether its compiled part keeps to the stable interface.
wheel: setup
	rm -rf build/dist
	$(BIN)/python -m build --no-isolation --wheel --outdir build/dist .
	$(BIN)/uv tool run -q abi3audit==0.0.26 --strict build/dist/*.whl

# The wheel, the demo and the unit lane on another Python: `make test-python PYTHON=python3.12`, or Python 3.13 in a folder
# of Debian 13, which only root can make.
test-python:
	$(MAKE) setup PYTHON=python3.11
	.ci/other_python $(if $(filter command line,$(origin PYTHON)),$(PYTHON))

# The demo and pipelines of others with the lowest Beam that setup.py allows.
test-lowest-beam: setup
	.ci/other_python lowest_beam

# The workflows and the citation of a public home.
workflows: setup
	GOBIN=$(CURDIR)/build go install github.com/rhysd/actionlint/cmd/actionlint@v1.7.7
	build/actionlint .github/workflows/*.yml
	$(BIN)/uv tool run -q --from cffconvert==2.0.0 cffconvert --validate

clean:
	rm -rf .venv .flink .spark build demo_output transforms/tfrecord/_wire.*.so
