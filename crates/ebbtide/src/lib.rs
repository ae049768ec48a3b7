#![doc = include_str!("../README.md")]
//!
//! | module | contents |
//! |---|---|
//! | [`Ebbtide`], [`Builder`], [`Scoped`] | the handle: engine, keyring, time and metrics as one |
//! | [`stores`] | the typed stores, and their request and outcome types |
//! | [`ops`] | sweeper, clean-up, explanations, transfer between stores, resealing |
//! | [`backend`], [`admin`] | the contract that every engine keeps: [`Backend`], and [`Admin`] for operators |
//! | [`engines`] | memory, fjall, RocksDB, PostgreSQL, DynamoDB; [`StoreUrl`] |
//! | [`layers`] | backends in front of another one: metrics, authenticated records |
//! | [`keyring`] | the keys that tokens are derived with and payloads are sealed under |
//! | [`timekeeping`] | time that fails closed: the interval of a request, and its source |
//! | [`model`] | keys, records, writes, scopes, time, random numbers, errors |

pub mod admin;
pub mod backend;
mod db;
pub mod engines;
pub mod keyring;
pub mod layers;
pub mod model;
pub mod ops;
pub mod stores;
pub mod timekeeping;

pub use admin::{Admin, AdminExt, Cleared, Counted, Erased, KindStats, Stats};
pub use async_trait::async_trait;
pub use backend::{Backend, BackendExt, Budget, Cursor, Info, Page, Share, Swept};
pub use bytes::Bytes;
pub use db::{Builder, Ebbtide, Scoped, open_engine, restore};
pub use engines::memory::Memory;
pub use engines::url::StoreUrl;
pub use keyring::Keyring;
pub use layers::metered::Metered;
pub use model::alteration::{Add, Alteration, Altered};
pub use model::digest::Digest;
pub use model::error::{Error, ErrorKind, Result};
pub use model::key::{Key, Part, Prefix};
pub use model::kind::Kind;
pub use model::record::{Record, Version};
pub use model::rng::{Rng, SeededRng, SystemRng};
pub use model::scope::{Name, Reach, Scope};
pub use model::secret::Secret;
pub use model::time::{Clock, ManualClock, Stopwatch, SystemClock, Timestamp};
pub use model::ttl::{FoundPolicy, PolicyTarget, Ttl, TtlPolicies, TtlPolicy};
pub use model::write::{Batch, Commit, Condition, Effect, Write};
pub use ops::sweeper::Sweeper;
pub use serde_json;
pub use stores::Stores;
