# What a contributor does with this repository. Every target that is meant to be typed has a
# line of help behind ##; make alone prints them.

GO    ?= go
MODULE = github.com/fencedrun/fencedrun

# The linter is pinned here and nowhere else. It is no dependency of the module, so go run
# fetches and caches it under this very version.
GOLANGCI = $(GO) run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# make fuzz FUZZTIME=10m looks longer; make bench BENCH=Once looks at less.
FUZZTIME ?= 30s
BENCH    ?= .

# Statements of package fence that its own tests and those of package runs must reach, in percent.
FENCE_COVERAGE = 95

.DEFAULT_GOAL = help

.PHONY: help
help: ## Print this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: build
build: ## Compile every package
	$(GO) build ./...

.PHONY: test
test: ## Vet everything and run every test, scenario and example, with the race detector
	$(GO) vet ./...
	$(GO) test -race ./...

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
bench: ## Run the benchmarks that match BENCH (all)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./...

.PHONY: demo
demo: ## Show the support bot with and without fencedrun
	$(GO) run ./examples/support-bot

.PHONY: lint
lint: ## Check formatting, vet, and run the pinned linter
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GOLANGCI) config verify
	$(GOLANGCI) run

.PHONY: fmt
fmt: ## Format the code as lint wants it
	$(GOLANGCI) fmt

.PHONY: tidy-check
tidy-check: ## Fail if go mod tidy would change go.mod or go.sum
	$(GO) mod tidy -diff
