//! Ebbtide: a store for authorization state that must expire.
//!
//! A record is live while `now < expires_at`. At or past that, every read and every conditional write answers as if
//! it had never been written, whether or not it has been swept. A condition and its write are one atomic step, on
//! every engine.
//!
//! | module | what is in it |
//! |---|---|
//! | [`backend`] | the contract, [`Backend`], that every engine keeps; [`open`]; the memory engine; `metered` |
//! | [`mod@key`] | [`Key`] and [`Prefix`], with their order-preserving encoding |
//! | [`kind`] | the kinds of record |
//! | [`scope`] | [`Scope`], its text form, what it covers, and [`Reach`] |
//! | [`record`], [`write`](mod@write) | [`Record`], [`Version`], [`Write`], [`Batch`], [`Commit`] |
//! | [`time`], [`rng`] | the clocks and the random numbers that are handed in |
//! | [`clock_guard`] | a clock that never runs backwards in a store, and whose leaps erase nothing |
//! | [`ttl`] | [`Ttl`] and the policies that bound it |
//! | [`keyring`] | the keys that refresh tokens are derived with and payloads are sealed under |
//! | [`stores`] | the typed stores on top of a backend: one handle, [`Stores`], a method for each |
//! | [`audit`] | who changed what, and why: a log chained by hash |
//! | [`sweeper`] | removes what has expired, within its share of the time, and tells when nothing does |
//! | [`transfer`] | copies between engines, and JSON lines from and to other systems |
//! | [`digest`], [`secret`], [`error`] | what is kept of a secret; what does not print; what went wrong |
//! | `conformance` | the suite that every engine passes (feature `conformance`) |
//!
//! ```
//! use ebbtide::{BackendExt, Clock, Key, Kind, Record, Scope, SystemRng, SystemClock, Ttl, open};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> ebbtide::Result<()> {
//! let store = open("memory:").await?;
//! let now = SystemClock.now();
//! let key = Key::new(Kind::Replay, &Scope::tenant("acme")?, &["jti-1".into()], &[])?;
//! let record = Record::new("", Ttl::from_secs(60)?.expires_at(now)?, &SystemRng);
//! assert!(store.insert(key.clone(), record.clone(), now).await?.is_applied());
//! assert!(!store.insert(key, record, now).await?.is_applied(), "the second is a replay");
//! # Ok(())
//! # }
//! ```

pub mod admin;
pub mod backend;
mod db;
pub mod engines;
pub mod keyring;
pub mod layers;
pub mod model;
pub mod ops;
pub mod stores;

pub use admin::{Admin, AdminExt, Cleared, Counted, Erased, KindStats, Stats};
pub use async_trait::async_trait;
pub use backend::{Backend, BackendExt, Budget, Cursor, Info, Page, Share, Swept};
pub use bytes::Bytes;
pub use db::{Builder, Ebbtide, Scoped, open_engine};
pub use engines::memory::Memory;
pub use engines::url::StoreUrl;
pub use keyring::Keyring;
pub use layers::metered::Metered;
pub use model::digest::Digest;
pub use model::error::{Error, ErrorKind, Result};
pub use model::key::{Key, Part, Prefix};
pub use model::kind::Kind;
pub use model::record::{Record, Version};
pub use model::rng::{Rng, SeededRng, SystemRng};
pub use model::scope::{Name, Reach, Scope};
pub use model::secret::Secret;
pub use model::time::{Clock, ManualClock, Stopwatch, SystemClock, Timestamp};
pub use model::ttl::{Ttl, TtlPolicies, TtlPolicy};
pub use model::write::{Batch, Commit, Condition, Effect, Write};
pub use ops::sweeper::Sweeper;
pub use stores::Stores;

/// The README's example is compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
