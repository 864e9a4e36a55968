# What a newcomer needs: `sudo make demo`, and `sudo make test`. `make help` lists the rest.
# GO_DL and GOPROXY name mirrors to fetch Go from: `make GO_DL=URL demo`.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

# Where scripts/go.sh puts Go if there is none; sudo drops its usual place from the PATH.
export PATH := $(CURDIR)/.go/bin:$(PATH):/usr/local/go/bin

# The one place where the versions of the tools stand.
GOFUMPT     := mvdan.cc/gofumpt@v0.12.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
SCHEMATHESIS := schemathesis==4.32.5

# Packages at once. Integration tests share one kernel, and CI has two cores.
P         ?= 2
FUZZTIME  ?= 10s
SOAKTIME  ?= 10m
APITIME   ?= 2m
APISEED   ?= 1
SOAKSEED  ?= 203
BENCHTIME ?= 1s
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS   := -s -w -X github.com/sluice-net/sluice/internal/version.number=$(VERSION)

# `go test -race` needs cgo. Packages that only wire etcd together are tested
# without it in CI: their concurrency is that of the packages below them, which
# all run under the race detector, and compiling etcd for it takes minutes. The
# others are compiled without etcd for it: their stores are in memory. pairs/tables has
# no goroutines of its own, and takes ten times as long with it.
RACELESS ?= /store/etcdstore$$|/controller$$|/controller/|/cli$$|/lab/cli$$|/examples/|/cmd/|/experiment$$|/demo$$|/internal/check$$|/pairs/tables$$|/dashboard|/api/conformance$$

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

.PHONY: build
build: ## compile bin/sluice and bin/sluice-lab
	@scripts/deps.sh go
	mkdir -p bin
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/sluice ./cmd/sluice-lab

# What is left out because something is missing fails in CI.
LEFTOUT = $(if $(filter true,$(CI)),1,0)

.PHONY: dashboard
dashboard: dashboard/node_modules/.package-lock.json ## build the page that the binary embeds (Node.js)
	cd dashboard && npm run --silent build

dashboard/node_modules/.package-lock.json: dashboard/package.json dashboard/package-lock.json
	cd dashboard && npm ci
	touch node_modules/.package-lock.json

.PHONY: test-dashboard
test-dashboard: ## the page: types, unit tests, that it is built, and Chromium against a live lab (Node.js, root)
	@if ! command -v npm >/dev/null; then echo 'NOT TESTED: the dashboard, because npm is missing; make deps installs it' >&2; exit $(LEFTOUT); fi
	$(MAKE) --no-print-directory dashboard/node_modules/.package-lock.json
	$(SUITE) -count=1 -p 1 -timeout 5m ./dashboard/...

# Held against what it says of itself: by generated requests, in a network that leads
# nowhere.
VENV := out/schemathesis

$(VENV)/installed: Makefile
	python3 -m venv --clear $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check '$(SCHEMATHESIS)'
	touch $@

.PHONY: test-api
test-api: ## the API against its OpenAPI document, by generated requests for APITIME (default 2m), made from APISEED (default 1) (Python 3, root)
	@if ! python3 -c 'import ensurepip' 2>/dev/null; then echo 'NOT TESTED: the API against its document, because python3-venv is missing; make deps installs it' >&2; exit $(LEFTOUT); fi
	$(MAKE) --no-print-directory $(VENV)/installed
	go build -o /dev/null ./cmd/sluice
	SCHEMATHESIS=$(CURDIR)/$(VENV)/bin/schemathesis APITIME=$(APITIME) APISEED=$(APISEED) \
		$(SUITE) -count=1 -timeout 10m -exec $(CURDIR)/api/conformance/alone.sh ./api/conformance

.PHONY: deps
deps: ## install by apt what the tests and experiments run against (root)
	@scripts/deps.sh go demo test

.PHONY: demo
demo: ## a 100 MB download over a long lossy link, direct and by SOS (root)
	@scripts/deps.sh root go demo
	$(MAKE) --no-print-directory build
	exec bin/sluice-lab demo $(DEMOFLAGS)

.PHONY: demo-handover
demo-handover: ## a device that roams between two operators under a download (root)
	@scripts/deps.sh root go demo
	$(MAKE) --no-print-directory build
	exec bin/sluice-lab demo handover $(DEMOFLAGS)

.PHONY: demo-cinema
demo-cinema: ## live channels in a browser, changed in the network (root)
	@scripts/deps.sh root go demo cinema
	$(MAKE) --no-print-directory build
	exec bin/sluice-lab demo cinema $(DEMOFLAGS)

.PHONY: demo-mf
demo-mf: ## chunks to a name that moves, and is away, and by a function (root)
	@scripts/deps.sh root go demo
	$(MAKE) --no-print-directory build
	exec bin/sluice-lab demo names $(DEMOFLAGS)

.PHONY: test-bare
test-bare: ## the README's demo on a Debian 12 that has only make, git and curl, made for it, in four minutes (root)
	@scripts/deps.sh root bare
	scripts/test-bare.sh

.PHONY: check
check: format vet staticcheck rules race ## formatting, vet, staticcheck, house rules, tests under the race detector

.PHONY: format
format: ## fail on files that gofumpt would change
	@out=$$(go run $(GOFUMPT) -l .)
	if [ -n "$$out" ]; then echo "not formatted; run: go run $(GOFUMPT) -w ."; echo "$$out"; exit 1; fi

.PHONY: vet
vet:
	go vet ./...

.PHONY: staticcheck
staticcheck:
	go run $(STATICCHECK) ./...

# A test that fails has found something, also if it does so now and then: none is run
# again but those of .ci/quarantine, and none is skipped in CI but those of .ci/skips.
SUITE := go run ./internal/suite

.PHONY: rules
rules: ## layers, documentation, metrics' names, and the documentation's commands
	$(SUITE) -count=1 ./internal/check

# The packages that take minutes, most of them spent waiting, start first.
LONGEST := ./sos/integration ./handover/integration ./cinema/integration
longest_first = { go list $(LONGEST); go list ./...; } | awk '!seen[$$0]++'

.PHONY: race
race: ## all other tests; under the race detector wherever goroutines are ours, and alone where measurements are compared with the truth
	$(SUITE) -race -tags noetcd -p $(P) -parallel 3 -timeout 25m $$($(longest_first) | grep -vE '$(RACELESS)')
	$(SUITE) -p $(P) -timeout 15m $$($(longest_first) | grep -E '$(RACELESS)' | grep -vE '/internal/check$$|/dashboard|/api/conformance')
	$(SUITE) -run 'AreTrue|SourcesAgree|ThousandDevices|SavingGap|SeamlessDevice|ControllerKilled|ManyClasses|ProducerSilent|ViewerGone|FiftyWatch' -p 1 -timeout 10m ./network ./handover/integration ./qos/integration ./cinema/integration

.PHONY: race-all
race-all: ## every package under the race detector
	go test -race -p $(P) -timeout 30m ./...

.PHONY: soak
soak: ## all services under load while programs are killed, for SOAKTIME (default 10m) (root)
	@scripts/deps.sh root go demo
	$(MAKE) --no-print-directory build
	exec bin/sluice-lab soak --time $(SOAKTIME) $(SOAKFLAGS)

# CI soaks for two minutes, where it may build networks, and in one order, as it makes its
# requests from one seed: what a drawn one finds is not the fault of the change at hand.
.PHONY: test
test: ## everything that CI runs (root for the integration tests)
	@scripts/deps.sh go
	$(MAKE) --no-print-directory format vet staticcheck fuzz rules test-dashboard test-api race
	@scripts/lines.sh
	if [ "$$(id -u)" = 0 ]; then $(MAKE) --no-print-directory soak SOAKTIME=2m SOAKFLAGS='--seed $(SOAKSEED)'; $(MAKE) --no-print-directory test-bare; else echo 'NOT TESTED: the soak, and the demo on a bare Debian, because they need root' >&2; exit $(LEFTOUT); fi

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME each (default 10s)
	scripts/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: ## a dated table of benchmarks in out/
	scripts/bench.sh $(BENCHTIME)

.PHONY: deb
deb: build ## a Debian package of bin/sluice in dist/
	packaging/build-deb.sh bin/sluice '$(VERSION)' dist

.PHONY: clean
clean: ## remove what the targets above have made
	rm -rf bin dist out .go
