//! JSON types of Ebbtide's HTTP API, shared by the server, the command line and clients.
//!
//! Requests are the request types of the stores where a store has one. This crate holds the answers, and the requests
//! that only name a record.

#![allow(missing_docs, reason = "the members are those of the HTTP contract, which docs/http.md describes")]

pub mod access;
pub mod answers;
pub mod approvals;
pub mod attributes;
pub mod audit;
pub mod belongings;
pub mod challenges;
pub mod clients;
pub mod clock;
pub mod codes;
pub mod describe;
pub mod device_codes;
pub mod explain;
pub mod grants;
pub mod keys;
pub mod nonces;
pub mod policies;
pub mod provider_tokens;
pub mod pushed_requests;
pub mod records;
pub mod relationships;
pub mod replays;
pub mod scopes;
pub mod sessions;
pub mod stats;
pub mod subjects;
pub mod tokens;
pub mod transfer;
pub mod why;
