# An index: each target is a line one could type. `make run` and `make test` need
# nothing but Go and root on Debian 12; setup installs what is missing.

GO      ?= go
BIN     := build/bin
RELEASE := -trimpath -ldflags=-s

.PHONY: run build test unit integration test-v2 policy vet check bench fuzz setup clean

run: build                     ## the demonstration: a hermetic build, two refusals, the proof
	bash scripts/delegated bash scripts/demo

build: setup                   ## the four commands; only the runner is privileged and uses cgo
	CGO_ENABLED=0 $(GO) build $(RELEASE) -o $(BIN)/ ./cmd/stockade ./cmd/stockaded ./cmd/stockade-init
	CGO_ENABLED=1 $(GO) build $(RELEASE) -o $(BIN)/ ./cmd/stockade-run

test: vet unit policy integration  ## everything, in less than twelve minutes on two cores

unit: setup                    ## what needs no binaries
	bash scripts/delegated $(GO) test -count=1 $$($(GO) list ./... | grep -v /integration)

integration: build             ## users' stories, escapes, leaks: the real binaries, as root
	STOCKADE_BIN=$(CURDIR)/$(BIN) bash scripts/delegated $(GO) test -count=1 -timeout 10m ./integration/...

test-v2:                       ## in virtual machines without cgroup v1: Debian 12 as it is, and its newest kernel
	bash scripts/test-v2 $(KERNELS)

policy: build                  ## the shipped Rego library, checked and tested by the engine that serves it
	$(BIN)/stockade policy check policies && $(BIN)/stockade policy test policies

vet: setup                     ## format, and what the compiler's own tool finds
	test -z "$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go') | tee /dev/stderr)"
	$(GO) vet ./...

check: vet                     ## and what staticcheck finds; it is fetched, so it is no part of test
	$(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

bench: build                   ## exec and open beside fork+exec, bwrap and runc: table and build/bench.json
	bash scripts/delegated $(GO) run ./integration/compare -bin $(BIN) -json build/bench.json

fuzz: setup                    ## every decoder for a while; corpora are replayed by unit
	bash scripts/fuzz $(FUZZTIME)

setup:                         ## installs only what is missing
	bash scripts/setup

clean:
	rm -rf build
