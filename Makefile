# What a newcomer needs: `sudo make demo`, and `sudo make test`. `make help` lists the rest.
# GO_DL and GOPROXY name mirrors to fetch Go from: `make GO_DL=URL demo`.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

# Where scripts/go.sh puts Go if there is none; sudo drops its usual place from the PATH.
export PATH := $(CURDIR)/.go/bin:$(PATH):/usr/local/go/bin

# The one place where the versions of the tools stand.
GOFUMPT      := mvdan.cc/gofumpt@v0.12.0
STATICCHECK  := honnef.co/go/tools/cmd/staticcheck@v0.8.2
REVIVE       := github.com/mgechev/revive@v1.17.0
PROMLINTER   := github.com/yeya24/promlinter/cmd/promlinter@v0.3.0
GOTESTSUM    := gotest.tools/gotestsum@v1.13.0
SCHEMATHESIS := schemathesis==4.32.5

FUZZTIME  ?= 10s
SOAKTIME  ?= 10m
SOAKSEED  ?= 203
APITIME   ?= 2m
APISEED   ?= 1
BENCHTIME ?= 1s
# Minutes after which make test-live begins no further package.
LIVETIME  ?= 35
# The scale of make claims: quick, normal or full.
SCALE     ?= normal
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS   := -s -w -X github.com/sluice-net/sluice/internal/version.number=$(VERSION)

# The packages whose live tests named TestSmoke... are the smoke of make test.
SMOKE := ./test/sos ./test/handover ./test/qos ./test/cinema ./test/mobilityfirst

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

.PHONY: build
build: ## compile bin/sluice and bin/sluice-lab
	@scripts/deps.sh go
	mkdir -p bin
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/sluice ./lab/cmd/sluice-lab

# What is left out because something is missing fails in CI.
LEFTOUT = $(if $(filter true,$(CI)),1,0)

.PHONY: dashboard
dashboard: dashboard/node_modules/.package-lock.json ## build the page that the binary embeds (Node.js)
	cd dashboard && npm run --silent build

dashboard/node_modules/.package-lock.json: dashboard/package.json dashboard/package-lock.json
	cd dashboard && npm ci
	touch node_modules/.package-lock.json

VENV := out/schemathesis

$(VENV)/installed: Makefile
	python3 -m venv --clear $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check '$(SCHEMATHESIS)'
	touch $@

.PHONY: test-api
test-api: $(VENV)/installed ## the API against its OpenAPI document, by generated requests for APITIME, made from APISEED (Python 3, root)
	go build -o /dev/null ./cmd/sluice
	SCHEMATHESIS=$(CURDIR)/$(VENV)/bin/schemathesis APITIME=$(APITIME) APISEED=$(APISEED) \
		go test -count=1 -timeout 10m -exec $(CURDIR)/api/conformance/alone.sh ./api/conformance

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

# The test suite has three rings; CONTRIBUTING.md says which a new test belongs to.

.PHONY: test
test: ## ring 1: formatting, linters, unit tests, and as root a smoke of each service on Open vSwitch
	@scripts/deps.sh go
	if [ "$$(id -u)" = 0 ]; then scripts/deps.sh demo smoke; fi
	$(MAKE) --no-print-directory -j2 unit lint
	$(MAKE) --no-print-directory smoke

.PHONY: test-live
test-live: ## ring 2: all live suites, a package at a time, for LIVETIME minutes at most (root)
	@scripts/deps.sh root go demo test
	$(MAKE) --no-print-directory programs dashboard/node_modules/.package-lock.json
	SLUICE_BIN=$(PROGRAMS) LIVETIME=$(LIVETIME) GOTESTSUM=$(GOTESTSUM) scripts/live.sh

.PHONY: test-custody
test-custody: ## 10,000 chunks to a host that moves 50 times, is away for 20 s and changes domain twice (root)
	@scripts/deps.sh root go demo test
	$(MAKE) --no-print-directory programs
	SLUICE_BIN=$(PROGRAMS) go test -count=1 -v -timeout 15m -run '^TestCustodyWhileMoving$$' ./test/mobilityfirst -args -whole

.PHONY: test-all
test-all: ## ring 3: everything, with the race detector, fuzzing, generated requests, soak, bare Debian and quick experiments; hours (root)
	@scripts/deps.sh root go demo test bare
	$(MAKE) --no-print-directory test race fuzz test-api
	$(MAKE) --no-print-directory soak SOAKTIME=2m SOAKFLAGS='--seed $(SOAKSEED)'
	$(MAKE) --no-print-directory test-bare
	$(MAKE) --no-print-directory claims SCALE=quick

.PHONY: lint
lint: format vet staticcheck revive promlinter ## formatting, vet and linters

.PHONY: format
format: ## fail on files that gofumpt would change
	@out=$$(go run $(GOFUMPT) -l .)
	if [ -n "$$out" ]; then echo "not formatted; run: go run $(GOFUMPT) -w ."; echo "$$out"; exit 1; fi

# work stands for the packages of all modules of go.work.
.PHONY: vet
vet:
	go vet work

.PHONY: staticcheck
staticcheck:
	go run $(STATICCHECK) work

.PHONY: revive
revive:
	go run $(REVIVE) -config .revive.toml -set_exit_status ./...

.PHONY: promlinter
promlinter:
	go run $(PROMLINTER) lint .

# vet has seen the tests already. Tests wait more than they compute, so that more packages than
# cores run at once.
.PHONY: unit
unit: ## unit tests of all packages, house rules, seeds of the fuzz targets, and the dashboard's unit tests (Node.js)
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory dashboard/node_modules/.package-lock.json; fi
	mkdir -p out/unit
	go run $(GOTESTSUM) --format pkgname --format-hide-empty-pkg --hide-summary skipped --jsonfile out/unit/tests.json -- -short -vet=off -p 4 -timeout 15m work
	scripts/skips.sh out/unit/tests.json

.PHONY: smoke
smoke: ## a live test of each service on Open vSwitch (root); one that fails runs once more
	@if [ "$$(id -u)" != 0 ]; then echo 'NOT TESTED: the smoke of each service, because it needs root'; exit $(LEFTOUT); fi
	scripts/deps.sh go demo smoke
	$(MAKE) --no-print-directory programs
	mkdir -p out/smoke
	rm -f out/smoke/rerun
	SLUICE_BIN=$(PROGRAMS) go run $(GOTESTSUM) --format testname --jsonfile out/smoke/tests.json --rerun-fails=1 --rerun-fails-run-root-test \
		--rerun-fails-report=out/smoke/rerun --packages '$(SMOKE)' -- -count=1 -vet=off -p 1 -timeout 15m -run '^TestSmoke'
	@if [ -s out/smoke/rerun ]; then sed 's/^/UNSTEADY: /' out/smoke/rerun; fi
	scripts/skips.sh out/smoke/tests.json

# The programs that live tests start, see internal/selfbuild.
PROGRAMS := $(CURDIR)/out/programs

.PHONY: programs
programs:
	mkdir -p $(PROGRAMS)
	go build -o $(PROGRAMS)/ ./cmd/sluice ./lab/cmd/sluice-lab

.PHONY: rules
rules: ## the house rules alone: layers, waits, catalogues of events and tests
	go test -count=1 -short ./internal/check

.PHONY: race
race: ## all tests, live ones too, under the race detector (root)
	go run $(GOTESTSUM) --format pkgname -- -race -p 1 -parallel 3 -timeout 60m work

.PHONY: soak
soak: ## all services under load while programs are killed, for SOAKTIME (default 10m) (root)
	@scripts/deps.sh root go demo
	$(MAKE) --no-print-directory build
	exec bin/sluice-lab soak --time $(SOAKTIME) $(SOAKFLAGS)

.PHONY: claims
claims: ## every experiment at SCALE, and fail on a claim that is missed; hours, on a quiet machine (root)
	@scripts/deps.sh root go demo test
	$(MAKE) --no-print-directory build
	exec bin/sluice-lab experiment run all --scale $(SCALE) --out out/claims

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
