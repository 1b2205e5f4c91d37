# All targets need Go, make and git. The help text of a target, or of the targets
# that it runs, names the other programs that it needs. "make help" lists the
# targets.

GO      ?= go
BIN     := bin/holdfast
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
REVISION := $(shell git rev-parse HEAD 2>/dev/null)

# All targets compile with the same settings, so that Go compiles each package once
# for the program, the tests and the checks. Only "make race" needs cgo. -buildvcs is
# off, because Go finds no commit in a worktree of git or in an exported tree.
export CGO_ENABLED := 0
export GOFLAGS := $(shell $(GO) env GOFLAGS) -trimpath -buildvcs=false

# On Linux, the binary is statically linked. With the same version of Go, the same
# commit gives the same bytes on every machine.
BUILD = $(GO) build \
	-ldflags '-s -w -X main.version=$(VERSION) -X github.com/holdfast-kv/holdfast/cluster/metrics.linkedRevision=$(REVISION)'

STATICCHECK  ?= honnef.co/go/tools/cmd/staticcheck@v0.7.0
TEST_TIMEOUT ?= 20m
RACE_TIMEOUT ?= 25m
RACE_PKGS    ?= ./rpc/... ./resp/... ./cluster/... ./script/... ./cmd/...
# "make race" skips these tests. They are long loops of a single goroutine, which
# cannot have a race.
RACE_SKIP    ?= ^(Test(WAL|Bolt)_(Flip|TornAtEveryByte|TornSectors)|TestLog_Model|TestRun_(EndsWithinItsBudget|RandomProgramsAnswerAsRedis))$$
# The code of fsm starts no goroutine (TestPurity), so "make race" runs only those
# tests of fsm that read one machine from several goroutines.
RACE_FSM     ?= Concurrent
FUZZTIME     ?= 10s
IMAGE        ?= holdfast:latest
BENCH        ?=
# The axes that "make growth" measures, separated by commas, or "all".
GROWTH       ?= all
# -count=1 runs the comparisons even if their results are cached. CI sets COUNT=,
# because it has just run them with "make test".
COUNT        ?= -count=1
SEEDS        ?= 400
# The first seed of "make sim".
FIRST        ?= 1
# The time after which "make sim" begins no further seed. 0 means no limit.
BUDGET       ?= 0
VIRTUAL      ?= 60s
EPISODES     ?= 22
FAULTS       ?= all
HOURS        ?= 8
CHAOS        ?=
CONTROLS     ?=
IMAGES       ?= 600
# "make controls" runs only the injected bugs that these programs must find. They are
# separated by commas: sim,images,chaos,fsm,cluster,compat. Empty means all.
PROGRAMS     ?=
# A regular expression for the names of the injected bugs that "make controls" runs.
# Empty means all.
ONLY         ?=
# The revision that "make upgrade-test" mixes with this tree: the latest release.
# While there is no release, it is the last commit before feature version 2 (see
# fsm/feature.go): the newest program that does not report a feature version.
OLD          ?= $(or $(shell git describe --tags --abbrev=0 --match 'v*' HEAD^ 2>/dev/null),5bd6d7c)
UPGRADES     ?= 4

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the program as bin/holdfast, on Linux statically linked
	@mkdir -p bin
	$(BUILD) -o $(BIN) ./cmd/holdfast

.PHONY: run
run: build ## build, then run three nodes on this machine until Ctrl-C
	$(BIN) dev $(DEV)

.PHONY: test
test: ## run the tests; skips those that need a program that is not installed
	$(GO) test -timeout $(TEST_TIMEOUT) ./...
	cd test/alerts && $(GO) test -count=1 -timeout $(TEST_TIMEOUT) ./...
	cd test/bench/plots && $(GO) test -count=1 -timeout $(TEST_TIMEOUT) ./...

.PHONY: race
race: ## run tests of the concurrent packages with the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -skip '$(RACE_SKIP)' -timeout $(RACE_TIMEOUT) $(RACE_PKGS)
	CGO_ENABLED=1 $(GO) test -race -run '$(RACE_FSM)' -timeout $(RACE_TIMEOUT) ./fsm

.PHONY: lint
lint: ## run gofmt, go vet, staticcheck and test/tidy
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "not formatted with gofmt:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	$(GO) test ./test/tidy

.PHONY: compat
compat: ## compare commands and client libraries with a real Redis (needs redis-server and the libraries)
	HOLDFAST_REQUIRE_REDIS=1 HOLDFAST_REQUIRE_CLIENTS=1 $(GO) test $(COUNT) -timeout $(TEST_TIMEOUT) ./test/compat/... ./test/clients/... ./test/discovery/... ./test/matrix/... ./test/recipes/... ./resp/...

.PHONY: matrix
matrix: ## kill the leader while client and lock libraries run, and write docs/compatibility.md (needs the libraries)
	HOLDFAST_REQUIRE_CLIENTS=1 $(GO) test -count=1 -timeout $(TEST_TIMEOUT) ./test/matrix -update

.PHONY: bench
bench: ## compare the speed of three nodes with a redis-server (needs redis-server and redis-benchmark); BENCH='-help' for more
	$(GO) run ./test/bench $(BENCH)

.PHONY: growth
growth: ## measure how speed and memory grow (GROWTH=keys,cost,...), and write docs/data, the plots and the tables (needs redis-server and redis-benchmark)
	$(GO) run ./test/bench -growth '$(GROWTH)' $(BENCH)
	$(MAKE) --no-print-directory plots

.PHONY: plots
plots: ## draw the plots of docs/performance.md and write its tables, from docs/data; measures nothing
	cd test/bench/plots && $(GO) run .

.PHONY: chaos
chaos: build ## inject faults into clusters of processes and check them (SEED=, EPISODES=, FAULTS=; some faults need root and strace)
	$(GO) run ./test/chaos -program $(BIN) $(if $(SEED),-seed $(SEED)) -episodes $(EPISODES) -faults '$(FAULTS)' $(CHAOS)

.PHONY: upgrade-test
upgrade-test: build ## upgrade and downgrade clusters under load, between this tree and the git revision OLD
	@git rev-parse --quiet --verify '$(OLD)^{commit}' >/dev/null || { echo "upgrade-test: this clone does not have the revision $(OLD): fetch it, or name another with OLD="; exit 1; }
	@rm -rf bin/old && mkdir -p bin/old/tree
	git archive '$(OLD)^{commit}' | tar -x -C bin/old/tree
	cd bin/old/tree && $(GO) build -ldflags '-s -w -X main.version=$(shell git rev-parse --short '$(OLD)^{commit}' 2>/dev/null)' -o ../holdfast ./cmd/holdfast
	@rm -rf bin/old/tree
	$(GO) run ./test/chaos -program $(BIN) -old bin/old/holdfast $(if $(SEED),-seed $(SEED)) -episodes $(UPGRADES) -controls=false -faults 'version,kill -9 leader,kill -9 follower,pause leader,isolate,power cut of one,snapshot race' $(CHAOS)

# draw is a shell command that prints a random number, for the first seed of a run.
draw = $$(od -An -N6 -tu8 /dev/urandom | tr -d ' ')

.PHONY: soak
soak: build ## run chaos and sim alternately with random seeds, for HOURS (8) or until a guarantee is violated
	@end=$$(awk 'BEGIN { srand(); print int(srand() + $(HOURS) * 3600) }'); \
	while [ "$$(date +%s)" -lt "$$end" ]; do \
		$(MAKE) --no-print-directory chaos EPISODES=40 SEED= CHAOS='-controls=false $(CHAOS)' || exit 1; \
		$(MAKE) --no-print-directory sim SEED= FIRST=$(draw) || exit 1; \
	done

.PHONY: nightly
nightly: ## compile for macOS and run all controls, then helm-test, release-check, fuzz, images, upgrade-test, chaos and sim with random seeds (over three hours)
	GOOS=darwin GOARCH=arm64 $(GO) build -o /dev/null ./cmd/holdfast
	$(MAKE) --no-print-directory controls
	$(MAKE) --no-print-directory helm-test
	$(MAKE) --no-print-directory release-check
	$(MAKE) --no-print-directory fuzz FUZZTIME=5m
	$(MAKE) --no-print-directory images SEED= IMAGES=3000
	$(MAKE) --no-print-directory upgrade-test SEED= UPGRADES=12
	$(MAKE) --no-print-directory chaos SEED= EPISODES=200
	$(MAKE) --no-print-directory sim SEED= FIRST=$(draw) SEEDS=4000

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (10s)
	@set -e; for dir in $$(grep -rl --include='*_test.go' '^func Fuzz' . | xargs -n 1 dirname | sort -u); do \
		for f in $$(grep -hoE '^func Fuzz[A-Za-z0-9_]*' $$dir/*_test.go | cut -c 6- | sort -u); do \
			echo "$$dir $$f"; \
			$(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x $$dir; \
		done; \
	done

.PHONY: sim
sim: ## inject faults into simulated clusters: SEEDS histories of VIRTUAL time, or one schedule (SEED=n) three times
	@mkdir -p bin
	$(GO) test -c -o bin/sim.test ./test/sim
	bin/sim.test -test.run '^TestSim$$' -test.timeout 0 $(if $(WORK),-work '$(WORK)') $(if $(SEED),-seed $(SEED),-first $(FIRST) -seeds $(SEEDS) -budget $(BUDGET)) -virtual $(VIRTUAL) -json bin/sim.json

.PHONY: controls
controls: ## check that the checkers find each injected bug (ONLY=; CONTROLS='-help' for more)
	$(GO) run ./test/controls -only '$(ONLY)' -programs '$(PROGRAMS)' $(CONTROLS)

.PHONY: images
images: build ## start the program on IMAGES (600) data directories in states that a loss of power may leave (SEED=; needs strace)
	$(GO) run ./test/images -program $(BIN) $(if $(SEED),-seed $(SEED)) -images $(IMAGES) -json bin/images.json

.PHONY: docker
docker: ## build the container image holdfast:latest from this tree (needs Docker; nothing is pulled)
	@rm -rf bin/image && mkdir -p bin/image/data
	$(BUILD) -o bin/image/holdfast ./cmd/holdfast
	cp deploy/Dockerfile bin/image/Dockerfile
	docker build --quiet --build-arg VERSION=$(VERSION) -t $(IMAGE) bin/image

.PHONY: compose-test
compose-test: docker ## start deploy/compose.yml, kill the leader's container, and check that a lock is kept; start it with TLS too (needs Docker, Compose and openssl)
	HOLDFAST_COMPOSE_TEST=1 HOLDFAST_IMAGE=$(IMAGE) $(GO) test -count=1 -v -timeout 6m -run '^TestCompose(TLS)?$$' ./test/deploy

.PHONY: helm-test
helm-test: build ## render the Helm chart and check it with the types of the Kubernetes API (downloads the Helm library)
	cd test/helm && HOLDFAST_HELM_PROGRAM='$(CURDIR)/$(BIN)' $(GO) test -count=1 -timeout $(TEST_TIMEOUT) ./...

.PHONY: release
release: ## build archives, packages, SBOMs and checksums of all platforms in bin/release (PLATFORMS=; needs GNU tar)
	GO='$(GO)' deploy/package/build bin/release

.PHONY: release-check
release-check: ## build the release of the last commit twice and compare the checksums (PLATFORMS=; needs GNU tar)
	GO='$(GO)' deploy/package/check

.PHONY: docs
docs: ## generate docs/commands.md, docs/config.md, docs/metrics.md and the code in docs/recipes
	@mkdir -p docs
	$(GO) run ./cmd/holdfast commands > docs/commands.md.new
	mv docs/commands.md.new docs/commands.md
	$(GO) run ./cmd/holdfast settings > docs/config.md.new
	mv docs/config.md.new docs/config.md
	$(GO) test -count=1 -run TestMetricsPage ./test/deploy -update
	$(GO) run ./test/recipes/pages

.PHONY: clean
clean: ## remove bin/; keep data/, which make run writes
	rm -rf bin
