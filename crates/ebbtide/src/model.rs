//! Values that every layer shares: keys, records, writes, scopes, time and random numbers. No I/O.

pub mod alteration;
pub(crate) mod codec;
pub mod digest;
pub mod error;
pub mod key;
pub mod kind;
pub mod record;
pub mod rng;
pub mod scope;
pub mod secret;
pub mod time;
pub mod ttl;
pub mod write;
