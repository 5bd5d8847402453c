# Outsight. `make` alone prints what there is.
SHELL        := /bin/bash
.SHELLFLAGS  := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS    += --no-print-directory

STATICCHECK  := honnef.co/go/tools/cmd/staticcheck@v0.8.2
# The tests share a real kernel, real containers and two slow CPUs with all else that runs there. At
# most three that failed are run once more, alone; both outcomes are printed, a data race is final.
GOTEST       := go run gotest.tools/gotestsum@v1.13.0 --format pkgname --hide-summary skipped \
                --rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-run-root-test --rerun-fails-abort-on-data-race
FUZZTIME     ?= 60s
SUDO         := $(if $(filter 0,$(shell id -u)),,sudo env "PATH=$$PATH")
# One way to build everything, so that nothing is compiled twice; the race detector needs cgo.
export CGO_ENABLED := 0
export PATH  := $(PATH):/usr/local/go/bin:/usr/sbin:/sbin
# The packages that are tested with the race detector; test/ runs the built binaries instead.
# One after the other: the kernel programs see all of the host, other packages' containers as well.
UNITS         = $$(go list ./... | grep -v -e '^outsight/test/' -e '^outsight/internal/kernel' | grep -v -w $(patsubst %,-e %,$(HOSTLESS)))
# Those that look at nothing of the host run two at a time.
HOSTLESS      = internal/api internal/csvy internal/export internal/graph internal/ingest internal/kubernetes \
                internal/model internal/otlp internal/queue internal/report internal/store
# Comparisons with other systems: thousands of queries, which the race detector makes four times as long.
COMPARISONS   = ^Test(PromQLIsThatOfPrometheus|NoTenantReadsAnothersSeries|TheMapIsTheSameFromARemoteStore)$$
# Each test in bpf decodes the kernel's types, which takes ten times as long with the race detector:
# it is used where goroutines share something.
BPF_RACES     = ^Test(LifecycleEvents|TLSProbesComeAndGo|ReadingDoesNotWaitForALook|Listeners|CloseThatNobodyTold)$$

.PHONY: help
help: ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: ## start the demo shop and watch it (root; Ctrl-C ends it and leaves nothing)
	@scripts/install demo
	@$(MAKE) build
	@$(SUDO) scripts/with-docker bin/outsight demo

.PHONY: build
build: ## bin/outsight and bin/outsight-agent (needs Go alone)
	@go build -ldflags '-s -w' -o bin/ ./cmd/...

.PHONY: test
test: ## everything that a change must pass (root; half an hour on two slow cores)
	@scripts/install test
	@scripts/with-docker $(MAKE) generated lint unit end-to-end page
	@$(MAKE) test-kernels

.PHONY: generated
generated: ## prove that the committed kernel objects and page are those of the sources
	@scripts/generate --check

.PHONY: generate
generate: ## rebuild kernel objects (pinned clang) and the page (Node)
	@scripts/install generate
	@scripts/generate

.PHONY: lint
lint: ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "not formatted with gofmt:" $$unformatted >&2; exit 1; fi
	go vet ./...
	go run $(STATICCHECK) ./...

.PHONY: unit
unit: ## package tests with the race detector, kernel programs loaded for real (root, Docker)
	@CGO_ENABLED=1 go build -race ./...
	@CGO_ENABLED=1 $(GOTEST) --packages "$(HOSTLESS:%=./%/...)" -- -race -p 2 -timeout 15m -skip '$(COMPARISONS)'
	@$(GOTEST) --packages ./internal/api -- -timeout 15m -run '$(COMPARISONS)'
	@CGO_ENABLED=1 scripts/with-docker $(GOTEST) --packages "$(UNITS)" -- -race -p 1 -timeout 15m
	@scripts/with-docker $(GOTEST) --packages ./internal/kernel/... -- -p 1 -timeout 15m
	@CGO_ENABLED=1 scripts/with-docker $(GOTEST) --packages ./internal/kernel/... -- -p 1 -race -timeout 15m -run '$(BPF_RACES)'

.PHONY: end-to-end
end-to-end: ## the built binary against real containers (root, Docker)
	@scripts/with-docker $(GOTEST) --packages "$$(go list ./test/... | grep -v -e '^outsight/test/kernels' -e '^outsight/test/attacks' -e '^outsight/test/neo4j' -e '^outsight/test/grafana')" -- -count=1 -p 1 -timeout 15m

.PHONY: test-kernels
test-kernels: ## older kernels in virtual machines, and a table of what works on which
	@scripts/install kernels
	@go test -count=1 -v -timeout 40m ./test/kernels

# Tests with the build tag long take minutes, gigabytes and a memory cgroup of their own.
ATTACKS       = ^Test(OneTenantAttacksAnotherDoesNotNotice|HostileTenantInMemory|QueriesInFourGiB|StrangersTakeLittle)$$

.PHONY: test-attacks
test-attacks: ## attacks on a server under its memory limit: each, and all at once (root; 8 minutes; not part of test)
	@go vet -tags long ./test/attacks ./internal/ingest ./internal/api ./cmd/outsight
	@go test -count=1 -v -p 1 -timeout 20m -tags long -run '$(ATTACKS)' ./test/attacks ./internal/ingest ./internal/api ./cmd/outsight

.PHONY: test-neo4j
test-neo4j: ## load the map's Cypher into a real Neo4j (Java 17, Maven; fetches 150 MB; not part of test)
	@scripts/install neo4j
	@go test -count=1 -v -timeout 20m ./test/neo4j

.PHONY: test-grafana
test-grafana: ## let Grafana's Prometheus data source and its dashboards ask a server (Node, Chromium; fetches some 500 MB; not part of test)
	@scripts/install grafana
	@scripts/page-modules test/grafana/browser
	@cd test/grafana/datasource && go vet ./...
	@go test -count=1 -v -timeout 10m ./test/grafana

.PHONY: test-thanos
test-thanos: ## keep series in a Thanos built from source, and compare (five minutes of building the first time; not part of test)
	@go vet -tags thanos ./internal/store
	@go test -count=1 -v -timeout 20m -tags thanos -run Thanos ./internal/store

.PHONY: page
page: build ## the page: types, units, and in headless Chromium (root, Docker)
	@scripts/page-modules
	@cd web && npm run --silent lint && npm test --silent
	@scripts/with-docker npm run --silent --prefix web page

.PHONY: fuzz
fuzz: ## fuzz every parser of foreign bytes for FUZZTIME (60s) each
	@scripts/fuzz $(FUZZTIME)

.PHONY: bench
bench: ## what watching costs, measured side by side; prints a table (root; some minutes)
	@scripts/install bench
	@$(MAKE) build
	@$(SUDO) scripts/with-docker go run ./bench

.PHONY: bench-accuracy
bench-accuracy: ## percentiles, requests and bytes against the truth; rewrites docs/accuracy.md (root; 4 minutes)
	@scripts/install bench
	@$(SUDO) go run ./bench -only accuracy,counts,events -docs docs

.PHONY: bench-overhead
bench-overhead: ## throughput lost and latency added, in turns; rewrites docs/overhead.md (root; 8 minutes)
	@scripts/install bench
	@$(MAKE) build
	@$(SUDO) scripts/with-docker go run ./bench -only throughput -pairs 5 -docs docs

.PHONY: bench-recorder
bench-recorder: ## the recorder's regularity under load and its cost; rewrites docs/recorder.md (root; 6 minutes)
	@scripts/install bench
	@$(SUDO) go run ./bench -only recorder -docs docs

.PHONY: bench-server
bench-server: ## how many samples and agents a server takes, and 100 SIGKILLs; rewrites docs/server.md (root; 13 minutes)
	@scripts/install bench
	@$(MAKE) build
	@$(SUDO) env "PATH=$$PATH" go run ./bench -only server -docs docs

.PHONY: bench-cost
bench-cost: ## what a switch, a disk request and a computation cost, and whether the parts add up; rewrites docs/cost.md (root; 21 minutes)
	@scripts/install bench
	@$(SUDO) scripts/with-docker go run ./bench -only contention,disk,counters,kernels,whole -docs docs

.PHONY: bench-disk
bench-disk: ## what is counted of disks against fio, percentiles against single requests, and the cost (root; 2 minutes)
	@scripts/install bench
	@$(SUDO) go run ./bench -only disk

.PHONY: clean
clean: ## remove what was built and measured
	rm -rf bin bench/results test/results web/node_modules
