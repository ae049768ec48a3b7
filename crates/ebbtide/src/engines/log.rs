//! The write-ahead log of the embedded engine: groups of frames in segments, a manifest, an index, and recovery.
//!
//! | module | contents |
//! |---|---|
//! | `disk` | the file system behind a trait; the real one, and a simulated one for tests |
//! | `group`, `frame`, `segment`, `position` | the byte layout |
//! | `manifest` | the list of files, kinds and keyrings that must be there |
//! | `recovery` | opening: the floor, damage, the torn tail |
//! | `hint` | entries of full segments, for a quick opening |
//! | `index`, `ordered` | keys of the log: a keyed hash, and maps in order for kinds that users list |
//! | `cold` | the cold store behind the log, and its windows |
//! | `embedded` | the engine: commits, reads, listings, retirement, sweeps |
//! | `pool` | threads for reads from the disk |
//! | `writer` | group commit: one thread that writes, syncs and wakes; segments prepared ahead |

/// Number of seeds of a simulated run. `EBBTIDE_TEST_SEEDS` overrides it: more find more, and take longer.
#[cfg(test)]
const SEEDS: u64 = 800;

#[cfg(test)]
fn seeds() -> u64 {
    std::env::var("EBBTIDE_TEST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS)
}

pub mod cold;
pub mod disk;
pub mod embedded;
pub mod faults;
pub(crate) mod frame;
pub(crate) mod group;
pub(crate) mod hint;
pub(crate) mod index;
pub(crate) mod manifest;
pub(crate) mod ordered;
pub(crate) mod pool;
pub(crate) mod position;
pub mod recovery;
pub(crate) mod segment;
pub(crate) mod writer;
