//! JSON types of Ebbtide's HTTP API, shared by the server, the command line and clients.
//!
//! Requests are the request types of the stores themselves; this crate holds the answers.

#![allow(missing_docs, reason = "the members are those of the HTTP contract, which docs/http.md describes")]

pub mod answers;
pub mod clients;
pub mod codes;
pub mod describe;
pub mod device_codes;
pub mod grants;
pub mod keys;
pub mod nonces;
pub mod pushed_requests;
pub mod replays;
pub mod sessions;
pub mod tokens;
