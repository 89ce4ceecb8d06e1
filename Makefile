# What a contributor does with this repository. Every target that is meant to be typed has a
# line of help behind ##; make alone prints them.

GO    ?= go
MODULE = github.com/fencedrun/fencedrun

# The linter is pinned here and nowhere else. It is no dependency of the module, so go run
# fetches and caches it under this very version.
GOLANGCI = $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# make fuzz FUZZTIME=10m looks longer; so does make bench BENCHTIME=20m.
FUZZTIME  ?= 30s
BENCHTIME ?= 5m

# make microbench BENCH=Once looks at less.
BENCH     ?= .

# Statements of package fence that its own tests and those of package runs must reach, in percent.
FENCE_COVERAGE = 95

.DEFAULT_GOAL = help

.PHONY: help
help: ## Print this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## Compile every package
	$(GO) build ./...

# Postgres, PgBouncer and Redis for one command, on free ports and gone afterwards.
SERVICES = $(GO) run ./internal/services

# Tests that wait for servers and for killed processes leave the cores idle: more packages at once
# than there are cores, as far as two cores go.
TEST_RACE = $(GO) test -race -p 3 -timeout 20m ./...

# What calls internal/race.Skip, and so is left out of TEST_RACE.
TEST_NO_RACE = $(GO) test -timeout 20m ./chaos/internal/sim ./adapters/river ./cmd/fencedrun && \
	$(GO) test ./ledger/redisledger -run "^(TestContract|TestMemoryAndRedisHoldTheSameAfterEveryStep)$$/^miniredis$$"

.PHONY: test
test: ## Vet everything and run every test on private servers, with the race detector; what is too slow under it without
	$(GO) vet ./...
	$(SERVICES) -- sh -ec '$(TEST_RACE) && $(TEST_NO_RACE)'

.PHONY: test-quick
test-quick: ## Run the tests that need no server, without the race detector
	$(GO) test ./...

.PHONY: services
services: ## Start private servers, print how tests find them, and wait for Ctrl-C
	@$(SERVICES)

.PHONY: cover
cover: ## Measure how much of fence the tests of fence and runs reach; fail under 95 %
	$(GO) test -coverpkg=$(MODULE)/fence -coverprofile=cover.out ./fence ./runs
	@$(GO) tool cover -func=cover.out | awk -v want=$(FENCE_COVERAGE) ' \
		$$1 == "total:" { sub("%", "", $$3); got = $$3 + 0; seen = 1 } \
		END { \
			printf "fence: %.1f %% of statements covered, %d %% wanted\n", got, want; \
			exit !(seen && got >= want) \
		}'

.PHONY: golden
golden: ## Rewrite the goldens of fence's scenarios; read the diff before you keep it
	$(GO) test ./fence -rewrite

.PHONY: fuzz
fuzz: ## Fuzz every fuzz target for FUZZTIME each (30s)
	@set -e; for package in $$($(GO) list ./...); do \
		for target in $$($(GO) test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
			echo "$$package $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$package; \
		done; \
	done

.PHONY: bench
bench: ## Compare with hand-written SQL, plain Redis and DBOS for BENCHTIME (5m); writes docs/performance.md
	cd bench && $(GO) build -o ../bin/bench .
	$(SERVICES) -only postgres,redis -- bin/bench -time $(BENCHTIME) -docs docs

.PHONY: bench-check
bench-check: ## Vet and test the benchmarks' own module
	cd bench && $(GO) vet ./... && $(GO) test ./... && $(GO) mod tidy -diff

.PHONY: microbench
microbench: ## Run the Go benchmarks that match BENCH (all)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./...

# How many worlds the campaign of make simulate plays, and the first of them. WORLDS=1000000 takes
# a quarter of an hour on two cores.
WORLDS ?= 50000
FROM   ?= 1

.PHONY: simulate
simulate: ## Simulate: WORLDS (50000) random worlds, every exhaustive scope, every rule's sabotage
	$(GO) build -o bin/fencedrun ./cmd/fencedrun
	bin/fencedrun chaos -seeds $(WORLDS) -from $(FROM)
	FENCEDRUN_EXHAUST=1 $(GO) test ./chaos/internal/sim -run '^(TestExhaustiveScopes|TestEveryDriverStillNoticesWhatItNoticed|TestEveryFaultAloneDoesHarm)$$' -timeout 15m -v
	bin/fencedrun chaos -selftest

# Minutes of each of the four storms.
STORM ?= 1.25

.PHONY: chaos
chaos: ## Run the live storms for five minutes in total, on servers of their own; docs/reliability.md
	$(GO) build -o bin/fencedrun ./cmd/fencedrun
	@set -e; \
		storm() { echo; echo "== chaos live -minutes $(STORM) $$*"; bin/fencedrun chaos live -minutes $(STORM) "$$@"; }; \
		storm -queue plain -ledger postgres; \
		storm -queue plain -ledger redis; \
		storm -queue river -ledger postgres; \
		storm -queue asynq -ledger redis

.PHONY: river-suite
river-suite: ## Run River's own tests without and with the plugin, and compare (4 min), on a private server
	$(SERVICES) -only postgres -- $(GO) run ./internal/riversuite

.PHONY: long
long: ## Run what waits for minutes: Asynq's own recoverer, ten cold runs of the racers (6 min)
	FENCEDRUN_LONG=1 $(SERVICES) -only postgres,redis -- $(GO) test ./internal/live -run 'Recoverer|Racers' -timeout 20m -v

.PHONY: scale
scale: ## Audit and purge 200,000 conversations on SQLite and on Postgres (about an hour)
	FENCEDRUN_LONG=1 $(SERVICES) -only postgres -- $(GO) test ./cmd/fencedrun -run AuditAndPurge -timeout 3h -v

.PHONY: demo
demo: ## Show the support bot with and without fencedrun
	$(GO) run ./examples/support-bot

.PHONY: lint
lint: ## Check formatting, vet, and run the pinned linter
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GOLANGCI) config verify
	$(GOLANGCI) run
	cd bench && $(GOLANGCI) run

.PHONY: fmt
fmt: ## Format the code as lint wants it
	$(GOLANGCI) fmt
	cd bench && $(GOLANGCI) fmt

.PHONY: tidy-check
tidy-check: ## Fail if go mod tidy would change go.mod or go.sum
	$(GO) mod tidy -diff
