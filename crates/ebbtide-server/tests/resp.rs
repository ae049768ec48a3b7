//! The Redis protocol through a real socket, on a clock that the test moves.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "resp/client.rs"]
mod client;
#[path = "resp/commands.rs"]
mod commands;
#[path = "resp/edge.rs"]
mod edge;
#[path = "resp/rules.rs"]
mod rules;
#[path = "resp/transactions.rs"]
mod transactions;
