# Outsight. `make` alone prints what there is.
SHELL        := /bin/bash
.SHELLFLAGS  := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS    += --no-print-directory

STATICCHECK  := honnef.co/go/tools/cmd/staticcheck@v0.8.2
# A test that fails is not run again: it has found a fault, in itself or in what it tests.
GOTEST       := go run gotest.tools/gotestsum@v1.13.0 --format pkgname --hide-summary skipped
# lint vets all of it; debuggers' symbols take a third of the time that linking a test takes.
GOTESTFLAGS   = -vet=off -ldflags=-w
FUZZTIME     ?= 60s
SUDO         := $(if $(filter 0,$(shell id -u)),,sudo env "PATH=$$PATH")
# One way to build everything, so that nothing is compiled twice; the race detector needs cgo.
export CGO_ENABLED := 0
# What is built with the race detector waits for a second before it ends, each process of a test for itself.
export GORACE := atexit_sleep_ms=100
export PATH  := $(PATH):/usr/local/go/bin:/usr/sbin:/sbin
# Build tags of tests that take long or need more than the machine has by itself.
TAGS          = long,thanos,s3
# What looks at the host mostly waits; packages that only compute run beside it, and then guests, which take a whole CPU
# all the time at a lower priority.
TESTS         = generated --beside 'lint unit-plain unit-race' unit-host unit-kernel --beside test-kernels end-to-end page
GUESTS       ?= 2
# Tests that compute for long take ten times as long with the race detector, and share nothing: they run without it.
COMPUTING     = QueriesInLittleMemory DropsAreOfTheNumbersThatLackThem BaselineIsThePastHour \
                GraphIsExact FlightHasTheBusiestContainersAndThoseAskedFor FlightKeepsAStallInALongWindow \
                ContainerThatEnded BadBodies GRPCBombs DamagedBlockOfTheQueue EmptyMessages MillionLabelValues \
                LabelsOfManySeries QueriesThatBuildMuch \
                NoTenantReadsAnothersSeries ServicesAreOfTheGraph Windows Thinning LogInBucket \
                BucketThatDoesNotAnswer TornSegment AnnealingIsNearTheBest RulesAreKept SameProblemSameAnswer \
                RoundTrip WindowsAreAsDecoded NothingIsLostWithRows WhoReadsDoesNotMatter \
                LimitsThatAreNotSeen LatencyAhead LatencyWithQuota LatencyWithPool PoolIsNotKnownYet PoolIsTheLimit \
                LatencyWithPermits NoPermitsShow DealingToReplicas MoreIsNeverLess
either        = ^Test($(subst $(eval) ,|,$(strip $1)))$$
# Each test in bpf decodes the kernel's types, which takes ten times as long with the race detector.
KERNEL_RACES  = ^Test(LifecycleEvents|TLSProbesComeAndGo|ReadingDoesNotWaitForALook|Listeners|CloseThatNobodyTold)$$

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

.PHONY: rdma
rdma: ## bin/outsight-rdma, for reading regions by RDMA (needs a C compiler and libibverbs)
	@scripts/install rdma
	@mkdir -p bin
	@$(CC) -std=gnu11 -O2 -Wall -Wextra -o bin/outsight-rdma rdma/outsight-rdma.c -libverbs

.PHONY: check
check: ## what needs neither root nor Docker: generated files, lint, units that look at no host (4 minutes on two cores)
	@scripts/install check
	@scripts/steps generated lint unit-hostless

.PHONY: test
test: ## everything that a change must pass (root; 30 minutes on two cores)
	@scripts/install test
	@scripts/with-docker scripts/steps $(TESTS)

.PHONY: test-all
test-all: ## test, and what takes hours: races in bpf, chaos, attacks, comparisons with other systems, fuzzing (root)
	@scripts/install test
	@scripts/with-docker scripts/steps $(TESTS) unit-kernel-race test-older-hosts test-long fuzz

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
	go vet -tags $(TAGS) ./...
	go run $(STATICCHECK) -tags $(TAGS) ./...

.PHONY: unit
unit: unit-plain unit-race unit-host unit-kernel ## all package tests (root, Docker)

.PHONY: unit-hostless
unit-hostless: ## tests of packages that look at nothing of the host
	@$(GOTEST) --packages "$$(scripts/packages hostless)" -- $(GOTESTFLAGS) -timeout 15m

.PHONY: unit-plain
unit-plain: ## those of them that unit-race leaves out
	@$(GOTEST) --packages "$$(scripts/packages plain)" -- $(GOTESTFLAGS) -timeout 15m
	@$(GOTEST) --packages "$$(scripts/packages tests '$(call either,$(COMPUTING))')" -- $(GOTESTFLAGS) -timeout 15m -run '$(call either,$(COMPUTING))'

.PHONY: unit-race
unit-race: ## those of them whose goroutines share something, with the race detector
	@CGO_ENABLED=1 $(GOTEST) --packages "$$(scripts/packages race)" -- $(GOTESTFLAGS) -race -timeout 15m -skip '$(call either,$(COMPUTING))'

# One package after the other: the kernel programs see all of the host, other packages' containers as well. The command's
# scripts start it again and again, and with the race detector each start takes ten times as long.
.PHONY: unit-host
unit-host: ## tests of packages that look at the host, with the race detector (root, Docker)
	@CGO_ENABLED=1 scripts/with-docker $(GOTEST) --packages "$$(scripts/packages host)" -- $(GOTESTFLAGS) -race -p 1 -timeout 15m -skip '^TestScripts$$'
	@scripts/with-docker $(GOTEST) --packages ./cmd/outsight -- $(GOTESTFLAGS) -timeout 15m -run '^TestScripts$$'

.PHONY: unit-kernel
unit-kernel: ## tests of the kernel programs, loaded for real (root, Docker)
	@scripts/with-docker $(GOTEST) --packages "$$(scripts/packages kernel)" -- $(GOTESTFLAGS) -p 1 -timeout 15m

.PHONY: unit-kernel-race
unit-kernel-race: ## those whose goroutines share something, with the race detector (root; not part of test)
	@CGO_ENABLED=1 $(GOTEST) --packages "$$(scripts/packages kernel)" -- $(GOTESTFLAGS) -race -p 1 -timeout 15m -run '$(KERNEL_RACES)'

.PHONY: end-to-end
end-to-end: ## the built binary against real containers (root, Docker)
	@scripts/with-docker $(GOTEST) --packages "$$(scripts/packages end-to-end)" -- $(GOTESTFLAGS) -count=1 -p 1 -parallel 4 -timeout 15m

.PHONY: test-kernels
test-kernels: ## older kernels in virtual machines, and a table of what works on which
	@scripts/install kernels
	@go test -count=1 -v -timeout 60m -parallel $(GUESTS) ./test/kernels

.PHONY: test-older-hosts
test-older-hosts: ## two hosts of test-kernels with Linux 6.1 (4 minutes; not part of test)
	@scripts/install kernels
	@OUTSIGHT_KERNEL=6.1 go test -count=1 -v -timeout 60m -run '^TestTwoHosts$$' ./test/kernels

# Tests with the build tag long take minutes, gigabytes, a memory cgroup of their own, or other systems.
ATTACKS       = ^Test(OneTenantAttacksAnotherDoesNotNotice|HostileTenantInMemory|QueriesInFourGiB|StrangersTakeLittle)$$

.PHONY: test-long
test-long: ## attacks, chaos, and comparisons with other systems (root; 20 minutes; not part of test)
	@scripts/install redis
	@scripts/with-docker go test -count=1 -v -p 1 -timeout 40m -tags long -run "$$(scripts/packages long-tests)" $$(scripts/packages long)

.PHONY: test-attacks
test-attacks: ## attacks on a server under its memory limit: each, and all at once (root; 8 minutes; not part of test)
	@go test -count=1 -v -p 1 -timeout 20m -tags long -run '$(ATTACKS)' $$(scripts/packages long)

.PHONY: test-neo4j
test-neo4j: ## load the map's Cypher into a real Neo4j (Java 17, Maven; fetches 150 MB; not part of test)
	@scripts/install neo4j
	@go test -count=1 -v -timeout 20m ./test/neo4j

.PHONY: test-clickhouse
test-clickhouse: ## keep frames in a real ClickHouse server and in chDB (Debian's server, Python; fetches 300 MB; not part of test)
	@scripts/install clickhouse
	@test -x bin/chdb/bin/python || python3 -m venv bin/chdb
	@bin/chdb/bin/pip install -q chdb-core==26.9.0
	@OUTSIGHT_CHDB_PYTHON=$(CURDIR)/bin/chdb/bin/python OUTSIGHT_CLICKHOUSE_HOSTS=10 \
	  go test -count=1 -v -timeout 30m ./test/clickhouse

.PHONY: test-grafana
test-grafana: ## let Grafana's Prometheus data source and its dashboards ask a server (Node, Chromium; fetches some 500 MB; not part of test)
	@scripts/install grafana
	@scripts/page-modules test/grafana/browser
	@cd test/grafana/datasource && go vet ./...
	@go test -count=1 -v -timeout 10m ./test/grafana

# Other implementations, in Rust, as sender and as reflector: STAMP open and with HMAC, TWAMP-Light.
.PHONY: test-stamp
test-stamp: ## STAMP against the crate stamp-suite, TWAMP-Light against the crate twamp (Rust's cargo; four minutes of building the first time; not part of test)
	@scripts/install stamp
	@STAMP_SUITE=$(CURDIR)/bin/stamp-suite/bin/stamp-suite TWAMP=$(CURDIR)/bin/stamp-suite/bin/twamp_example \
	  go test -count=1 -v -timeout 10m -tags interop -run 'StampSuite|TWAMPLight' ./internal/stamp

.PHONY: test-redis
test-redis: ## build Debian's Redis with its statistics in a region, and compare with INFO (root, Docker; fetches 13 MB; a minute; not part of test)
	@scripts/install test
	@scripts/install redis
	@scripts/with-docker go test -count=1 -v -timeout 10m -tags long -run '^TestRedisStatisticsInRegion$$' ./test/e2e

.PHONY: test-s3
test-s3: ## keep frames in a bucket of an S3 server built from source (two minutes of building the first time; not part of test)
	@go test -count=1 -v -timeout 20m -tags s3 -run S3 ./internal/framelog

.PHONY: test-thanos
test-thanos: ## keep series in a Thanos built from source, and compare (five minutes of building the first time; not part of test)
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
bench-server: ## how many samples and agents a server takes, and 100 SIGKILLs, and the memory of a series and of frames; rewrites docs/server.md (root; 22 minutes)
	@scripts/install bench
	@$(MAKE) build
	@$(SUDO) env "PATH=$$PATH" go run ./bench -only server,frames,memory -docs docs

.PHONY: bench-fleet
bench-fleet: ## what 1,000, 3,000 and 10,000 agents cost a server that they send to every 10 s; rewrites docs/server.md (root; 6 minutes)
	@scripts/install bench
	@$(MAKE) build
	@$(SUDO) env "PATH=$$PATH" go run ./bench -only fleet -fleet 1000,3000,10000 -docs docs

.PHONY: bench-cost
bench-cost: ## what a switch, a disk request and a computation cost, and whether the parts add up; rewrites docs/cost.md (root; 21 minutes)
	@scripts/install bench
	@$(SUDO) scripts/with-docker go run ./bench -only contention,disk,counters,kernels,whole -docs docs

.PHONY: bench-disk
bench-disk: ## what is counted of disks against fio, percentiles against single requests, and the cost (root; 2 minutes)
	@scripts/install bench
	@$(SUDO) go run ./bench -only disk

.PHONY: bench-place
bench-place: ## how long placements take to find and what they cost, beside default spreading, a genetic algorithm and the best; rewrites docs/place.md (2 minutes)
	@go run ./bench -only place -docs docs

.PHONY: bench-placement
bench-placement: ## two jobs of a data cluster on placements that are deployed, prediction beside interfaces' counters; rewrites docs/place.md (root; 3 minutes)
	@scripts/install bench
	@$(MAKE) build
	@$(SUDO) scripts/with-docker env "PATH=$$PATH" go run ./bench -only placement-run -docs docs

.PHONY: bench-predict
bench-predict: ## raise the load of the demo shop and of four other applications to their limits, and try what-ifs: what was told beside what came; rewrites tables of docs/analysis.md (root; 80 minutes)
	@scripts/install bench
	@$(MAKE) build
	@$(SUDO) scripts/with-docker env "PATH=$$PATH" go run ./bench -only saturation -look 2m -docs docs -save bin/runs
	@$(SUDO) scripts/with-docker env "PATH=$$PATH" go run ./bench -only limits,whatif -look 40s -docs docs -save bin/runs
	@$(SUDO) env "PATH=$$PATH" go run ./bench -only foreseen -docs docs -replay bin/runs

.PHONY: bench-incast
bench-incast: ## simulate a controller that reads up to 100,000 hosts at once, beside paper 004 and a real shaped link; rewrites docs/incast.md (root; a minute)
	@$(SUDO) env "PATH=$$PATH" go run ./bench -only incast -docs docs

.PHONY: bench-netprobe
bench-netprobe: ## packets not seen of containers that send at once, beside tcpdump, the time to the first delay, and the agent's cost from 1 to 1,000 containers; rewrites docs/netprobe.md (root; 8 minutes)
	@scripts/install bench
	@$(MAKE) build
	@$(SUDO) scripts/with-docker go run ./bench -only netprobe,netprobe-curve -docs docs

.PHONY: bench-region
bench-region: ## reading hosts from outside: latency, edges, many hosts, what agent and Redis pay; rewrites docs/region.md (root; 12 minutes)
	@scripts/install bench
	@$(MAKE) build
	@$(SUDO) scripts/with-docker env "PATH=$$PATH" go run ./bench -docs docs \
	  -only region,region-edges,region-scale,region-agent,region-asleep,region-redis,region-register

.PHONY: clean
clean: ## remove what was built and measured
	rm -rf bin bench/results test/results web/node_modules
