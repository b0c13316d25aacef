# An index: each target is a line one could type. `make run` and `make test` need
# nothing but Go and root on Debian 12; setup installs what is missing.

GO      ?= go
BIN     := build/bin
RELEASE := -trimpath -ldflags=-s

.PHONY: run build test unit integration policy check bench fuzz setup clean

run: build                     ## the demonstration: a hermetic build, two refusals, the proof
	bash scripts/demo

build: setup                   ## the four commands; only the runner is privileged and uses cgo
	CGO_ENABLED=0 $(GO) build $(RELEASE) -o $(BIN)/ ./cmd/stockade ./cmd/stockaded ./cmd/stockade-init
	CGO_ENABLED=1 $(GO) build $(RELEASE) -o $(BIN)/ ./cmd/stockade-run

test: check unit policy integration  ## everything, in less than twelve minutes on two cores

unit: setup                    ## what needs no binaries
	$(GO) test $$($(GO) list ./... | grep -v /integration)

integration: build             ## users' stories, escapes, leaks: the real binaries, as root
	STOCKADE_BIN=$(CURDIR)/$(BIN) $(GO) test -count=1 -timeout 10m ./integration/...

policy: build                  ## the shipped Rego library, checked and tested by the engine that serves it
	$(BIN)/stockade policy check policies && $(BIN)/stockade policy test policies

check: setup                   ## what a reader should not have to notice
	test -z "$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go') | tee /dev/stderr)"
	$(GO) vet ./...

bench: build                   ## exec and open beside fork+exec, bwrap and runc: table and build/bench.json
	$(GO) run ./integration/compare -bin $(BIN) -json build/bench.json

fuzz: setup                    ## every decoder for a while; corpora are replayed by unit
	bash scripts/fuzz $(FUZZTIME)

setup:                         ## installs only what is missing
	bash scripts/setup

clean:
	rm -rf build
