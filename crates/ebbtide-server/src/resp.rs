//! The Redis protocol (RESP2 and RESP3), for session stores, replay checks and counters that already speak it.
//!
//! Keys are records of the collection `redis` with byte values, in the scope of the connection. What holds for every
//! other call holds here: a write is durable before its reply, an expired key is absent, and of several contenders one
//! wins. Commands of a connection take effect in order; those of a pipeline that touch different keys run together, so
//! that they share a group commit.

mod apply;
mod codec;
mod connection;
mod control;
mod data;
mod decimal;
mod glob;
mod group;
mod inline;
mod listener;
mod meters;
mod parse;
mod refusals;
mod reply;
mod run;
mod session;
mod specs;
mod transaction;

pub use listener::{Listening, serve};
