# An index: each target is a line one could type. `make run` and `make test` need
# nothing but make, git, Go and root on Debian 12; setup installs what is missing.

GO      ?= go
BIN     := build/bin
VERSION := $(shell scripts/version)
RELEASE := -trimpath -ldflags="-s -X main.version=$(VERSION)"
PREFIX  ?= /usr/local
ROUNDS  ?= 100000
ATTACKS ?= 10000

# Tests are compiled as the commands are, so that nothing is compiled twice: without cgo, but for what links libseccomp.
PURE    := GOFLAGS="$(GOFLAGS) -trimpath" CGO_ENABLED=0
WITHCGO := GOFLAGS="$(GOFLAGS) -trimpath" CGO_ENABLED=1
CGO     := ./cmd/stockade-run ./sandbox/runc ./sandbox/seccomp
OTHERS   = $(GO) list ./... | grep -vxF "$$($(GO) list $(CGO))"

# The packages that have tests which let themselves be killed.
CRASHING := ./internal/journal ./internal/spool ./supervisor

.PHONY: run build failpoints test unit unit-pure unit-cgo integration test-v2 test-race soak policy vet check bench fuzz setup clean install uninstall deb generated test-install

run: build                     ## the demonstration: a hermetic build, two refusals, the proof
	bash scripts/delegated bash scripts/demo

build: setup                   ## the five commands; only the runner is privileged and uses cgo
	CGO_ENABLED=0 $(GO) build $(RELEASE) -o $(BIN)/ ./cmd/stockade ./cmd/stockaded ./cmd/stockade-init ./cmd/stockade-relay
	CGO_ENABLED=1 $(GO) build $(RELEASE) -o $(BIN)/ ./cmd/stockade-run

failpoints: setup              ## the five commands again, which the tests can kill at any point
	CGO_ENABLED=0 $(GO) build -trimpath -tags failpoint -o $(BIN)/failpoint/ ./cmd/stockade ./cmd/stockaded ./cmd/stockade-init ./cmd/stockade-relay
	CGO_ENABLED=1 $(GO) build -trimpath -tags failpoint -o $(BIN)/failpoint/ ./cmd/stockade-run

test: vet unit policy integration  ## everything, in twelve minutes on two quick cores (twenty where they are shared); what it leaves to test-v2 it says
	@bash scripts/test-v2 --rows

unit: setup                    ## what needs no binaries
	$(MAKE) -j2 --no-print-directory unit-pure unit-cgo
	$(PURE) $(GO) test -vet=off -count=1 -tags failpoint -run Failpoint $(CRASHING)

unit-pure:
	$(PURE) bash scripts/delegated $(GO) test -vet=off -count=1 -p 3 $$($(OTHERS) | grep -v /integration)

unit-cgo:
	$(WITHCGO) bash scripts/delegated $(GO) test -vet=off -count=1 -p 1 $(CGO)

integration: generated failpoints  ## users' stories, escapes, crashes, streams, leaks: the real binaries, as root
	bash scripts/setup tests || true # without node, some tests say that they are skipped
	STOCKADE_BIN=$(CURDIR)/$(BIN) STOCKADE_GENERATED=$(CURDIR)/build/generated $(PURE) bash scripts/delegated $(GO) test -vet=off -count=1 -timeout 30m ./integration/...

test-v2:                       ## the isolation tests in a virtual machine, Debian 12 as it is; KERNELS='6.12 6.1-nolandlock' are its newest kernel, and none of its Landlock
	bash scripts/test-v2 $(KERNELS)

test-race: build               ## what races with what, 100,000 times, attacks on what is being built, 10,000 times, and the packages where most of it meets, under the race detector
	STOCKADE_ROUNDS=$(ROUNDS) $(GO) test -race -count=1 -timeout 3h -v -run '^TestRaces$$' ./supervisor
	$(GO) test -race -count=1 -timeout 30m ./supervisor/ledger ./supervisor/server ./supervisor/client ./internal/spool ./internal/journal ./sandbox/launch
	STOCKADE_ROUNDS=$(ATTACKS) $(GO) test -count=1 -timeout 3h -v -run 'Swapped|LinkForTemporary|CommitKilled|CommitExecute|Failures|Meanwhile' ./sandbox/workspace ./sandbox/runc ./sandbox/guest
	STOCKADE_ROUNDS=$(ATTACKS) STOCKADE_BIN=$(CURDIR)/$(BIN) bash scripts/delegated $(GO) test -count=1 -timeout 3h -v -run '^TestThreats$$' ./integration
	STOCKADE_ROUNDS=1000000 $(GO) test -count=1 -timeout 1h -v -run '^TestRaces$$' ./internal/filetool

soak: build failpoints         ## kills, every call of a set-up refused, streams, short commands, decisions under hot reload and the torture of the journal, as long as they are meant to be
	STOCKADE_SOAK=1 $(GO) test -count=1 -timeout 6h -tags failpoint ./internal/journal ./internal/spool
	STOCKADE_SOAK=1 $(GO) test -count=1 -timeout 1h -v -run '^TestHotReload$$' ./supervisor
	STOCKADE_SOAK=1 STOCKADE_BIN=$(CURDIR)/$(BIN) bash scripts/delegated $(GO) test -count=1 -timeout 12h -v -run 'Crashes|Streams|ShortCommands|ShellsMany|SetupFaults|Python|TypeScript' ./integration/
	STOCKADE_SOAK=1 $(GO) test -count=1 -timeout 2h ./internal/filetool

policy: build                  ## the shipped Rego library, checked and tested by the engine that serves it
	$(BIN)/stockade policy check policies && $(BIN)/stockade policy test policies

vet: setup                     ## format, and what the compiler's own tool finds
	test -z "$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go') | tee /dev/stderr)"
	$(PURE) $(GO) vet $$($(OTHERS))
	$(WITHCGO) $(GO) vet $(CGO)

check: vet                     ## and what staticcheck finds; it is fetched, so it is no part of test
	$(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

bench: build                   ## exec and open beside fork+exec, bwrap and runc, file tools, policy, noisy neighbours, restarts: table and build/bench.json; ONLY=neighbours is one group
	bash scripts/delegated $(GO) run ./integration/compare -bin $(BIN) -only "$(ONLY)" -json build/bench.json

fuzz: setup                    ## every decoder for a while; corpora are replayed by unit
	bash scripts/fuzz $(FUZZTIME)

generated: build               ## what is made from the commands: manual pages, completions, a configuration with every default
	BIN=$(BIN) GO=$(GO) bash scripts/generated

install: generated             ## below PREFIX (/usr/local) and /etc, or all of it below DESTDIR
	BIN=$(BIN) DESTDIR=$(DESTDIR) PREFIX=$(PREFIX) bash scripts/install install

uninstall:                     ## what install has put there, and nothing is left; a journal stops it, until STATE=delete
	DESTDIR=$(DESTDIR) PREFIX=$(PREFIX) STATE=$(STATE) bash scripts/install uninstall

deb: generated                 ## a Debian package, in build/
	rm -f build/*.deb
	BIN=$(BIN) VERSION=$(VERSION) bash scripts/deb

test-install: deb              ## the package in a clean Debian 12 root: installed, used, replaced under a live session, purged; and the first ten minutes
	bash scripts/test-install build/*.deb

setup:                         ## installs only what is missing
	bash scripts/setup

clean:
	rm -rf build
