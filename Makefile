# All builds share one directory outside the clone, so that dependencies compile once per machine.
export CARGO_TARGET_DIR ?= $(HOME)/.cache/ebbtide/target
export RUSTFLAGS ?=

.DEFAULT_GOAL := help
.PHONY: help run build test test-all proof bench lint

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## Build with the embedded engine, and serve on http://127.0.0.1:7878 from ./data
	@echo "building with the embedded engine alone; PostgreSQL, DynamoDB, verify and import from Redis come with: make build"
	cargo run --profile quick --package ebbtide-cli --no-default-features --features fjall -- serve --store fjall:./data --sweep-interval 30s

build: ## Build the shipped binary: every engine but RocksDB
	cargo build --profile dist --locked --package ebbtide-cli
	@echo "built $(CARGO_TARGET_DIR)/dist/ebbtide"

test: ## Run every suite but RocksDB's, with the services that they need
	scripts/test

test-all: ## Run every suite
	scripts/test --all

proof: ## Run what is too long for CI, with a summary (STEPS="seeds soak")
	scripts/proof $(STEPS)

bench: ## Measure beside Redis and PostgreSQL (ROW=part QUICK=1)
	scripts/bench

lint: ## Check format, clippy, documentation, packages, links and templates
	scripts/lint
