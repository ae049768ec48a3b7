# Build directory outside of the clone, so that RocksDB compiles once per machine.
export CARGO_TARGET_DIR ?= $(HOME)/.cache/ebbtide/target
export RUSTFLAGS ?=

.DEFAULT_GOAL := help
.PHONY: help run test test-all bench lint

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## Build and serve on http://127.0.0.1:7878, from ./data
	cargo run --release --package ebbtide-cli -- serve --store fjall:./data --sweep-interval 30s

test: ## Run every suite but those of RocksDB and the second DynamoDB emulator
	scripts/test

test-all: ## Run every suite
	scripts/test --all

bench: ## Benchmark against Redis and PostgreSQL (ROW=part QUICK=1)
	scripts/bench

lint: ## Check formatting, clippy and docs
	scripts/lint
