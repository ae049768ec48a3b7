//! Settings of an [`Ebbtide`](super::Ebbtide) before it is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::restore::{self, read_fence};
use super::{Ebbtide, Parts, needs_keyring};
use crate::admin::Admin;
use crate::engines;
use crate::engines::url::StoreUrl;
use crate::keyring::Keyring;
use crate::keyring::shared::SharedKeyring;
use crate::layers::authenticated::Untagged;
use crate::layers::metered::Metered;
use crate::model::error::{Error, Result};
use crate::model::rng::SystemRng;
use crate::model::scope::Scope;
use crate::model::time::{Clock, Timestamp};
use crate::model::ttl::TtlPolicies;
use crate::ops::ring::Rings;
use crate::stores::Stores;
use crate::stores::attributes::BucketLives;
use crate::stores::profile::Profile;
use crate::stores::registry::indexes;
use crate::timekeeping::{Clocks, SystemClocks, TimeSource, Timed};

/// Store to open.
pub(super) enum Source {
    Url(String),
    Engine(Arc<dyn Admin>),
}

/// Clocks behind the time of a store.
enum TimeFrom {
    Clocks(Arc<dyn Clocks>),
    /// Taken at its word, for tests.
    Trusted(Arc<dyn Clock>),
}

/// Opens an [`Ebbtide`] with settings of your own.
///
/// ```
/// use ebbtide::Ebbtide;
/// use ebbtide::stores::profile::Profile;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> ebbtide::Result<()> {
/// let db = Ebbtide::builder("memory:").profile(Profile::mcp()).open().await?;
/// # Ok(())
/// # }
/// ```
#[must_use]
#[expect(clippy::struct_excessive_bools, reason = "each is one setting of the builder")]
pub struct Builder {
    source: Source,
    must_exist: bool,
    keyring: Option<Keyring>,
    keyring_file: Option<PathBuf>,
    needs_keyring: bool,
    reads_policies: bool,
    holds_leases: bool,
    looks_for_untagged: bool,
    time: TimeFrom,
    metered: bool,
    policies: TtlPolicies,
    bucket_lives: BucketLives,
    profile: Profile,
    profiles: Vec<(String, Profile)>,
    require_pkce: bool,
}

impl Builder {
    pub(super) fn new(source: Source) -> Self {
        Self {
            source,
            must_exist: false,
            keyring: None,
            keyring_file: None,
            needs_keyring: true,
            reads_policies: true,
            holds_leases: true,
            looks_for_untagged: false,
            time: TimeFrom::Clocks(Arc::new(SystemClocks::new())),
            metered: true,
            policies: TtlPolicies::default(),
            bucket_lives: BucketLives::default(),
            profile: Profile::default(),
            profiles: Vec::new(),
            require_pkce: false,
        }
    }

    /// Opens only a store that exists: neither a store nor a keyring is created.
    pub fn must_exist(mut self) -> Self {
        self.must_exist = true;
        self
    }

    /// Uses this keyring.
    pub fn keyring(mut self, keyring: Keyring) -> Self {
        self.keyring = Some(keyring);
        self
    }

    /// Uses the keyring in this file, which must exist. An embedded store without one has `keyring.json` beside its
    /// data, made on first use; a store that several nodes share needs one.
    pub fn keyring_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.keyring_file = Some(path.into());
        self
    }

    /// Opens without the store's keyring, for tools that neither derive tokens nor read sealed values: a token that
    /// such a handle issues is unknown to every other one.
    pub fn without_keyring(mut self) -> Self {
        self.needs_keyring = false;
        self
    }

    /// Leaves the stored policies unread: records are bounded by the configured ones alone. For tools that write no
    /// records.
    pub fn without_stored_policies(mut self) -> Self {
        self.reads_policies = false;
        self
    }

    /// Takes every instant from `clock`, and doubts none of them. For tests.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.time = TimeFrom::Trusted(Arc::new(clock));
        self
    }

    /// Takes the time from these clocks instead of this machine's.
    pub fn clocks(mut self, clocks: impl Clocks) -> Self {
        self.time = TimeFrom::Clocks(Arc::new(clocks));
        self
    }

    /// Leaves out spans and metrics of engine calls.
    pub fn without_metrics(mut self) -> Self {
        self.metered = false;
        self
    }

    /// Bounds the lives of records by `policies`. Without one for every scope, approvals and relationships live for a
    /// minute to a year, or without end.
    pub fn policies(mut self, policies: TtlPolicies) -> Self {
        self.policies = policies;
        self
    }

    /// Gives attributes the default lifetimes of their buckets.
    pub fn bucket_lives(mut self, lives: BucketLives) -> Self {
        self.bucket_lives = lives;
        self
    }

    /// Gives records the default lifetimes of `profile`.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// Lets grants ask for `profile` by this name. It comes before a preset of the same name.
    pub fn profile_named(mut self, name: impl Into<String>, profile: Profile) -> Self {
        self.profiles.push((name.into(), profile));
        self
    }

    /// Reads the epoch of a client with each call instead of holding it under a lease: for processes that can be frozen
    /// between two lines, such as functions.
    pub fn without_leases(mut self) -> Self {
        self.holds_leases = false;
        self
    }

    /// Looks for records of version 0.1, which have no tag, in a store that was not opened since, and accepts them until
    /// a reseal. On DynamoDB this reads the table, so that it is for the commands of an operator: a server refuses them
    /// there unless such a command was run before.
    pub fn looking_for_untagged(mut self) -> Self {
        self.looks_for_untagged = true;
        self
    }

    /// Issues no code without a PKCE challenge. A client can be registered with the same setting.
    pub fn require_pkce(mut self, required: bool) -> Self {
        self.require_pkce = required;
        self
    }

    /// Opens the store.
    pub async fn open(self) -> Result<Ebbtide> {
        let (url, engine) = match self.source {
            Source::Engine(engine) => (StoreUrl::Memory, engine),
            Source::Url(url) => {
                let url: StoreUrl = url.parse()?;
                if self.must_exist {
                    url.must_exist()?;
                }
                if self.needs_keyring && self.keyring.is_none() && self.keyring_file.is_none() {
                    needs_keyring(&url)?;
                }
                let engine = engines::open(&url, &indexes()).await?;
                (url, engine)
            }
        };
        let engine: Arc<dyn Admin> = if self.metered { Arc::new(Metered::new(engine)) } else { engine };
        let timed = match self.time {
            TimeFrom::Clocks(clocks) => Timed::open(Arc::clone(&engine), clocks).await?,
            TimeFrom::Trusted(clock) => {
                Timed::new(Arc::clone(&engine), Arc::new(TimeSource::of_clock(clock)))
            }
        };
        let date = timed.time().date();
        // After the engine: a keyring is made only in a folder that holds a store.
        let mut rings = Rings::new(engine.as_ref(), &SystemRng, date);
        if self.looks_for_untagged {
            rings = rings.looking();
        }
        let ephemeral = || SharedKeyring::new(Keyring::generate(&SystemRng, date));
        let (keyring, untagged) = match (self.keyring, &self.keyring_file, url.folder()) {
            (Some(keyring), ..) => (SharedKeyring::new(keyring), None),
            (None, Some(path), _) => (SharedKeyring::load(path)?, None),
            (None, None, _) if !self.needs_keyring => (ephemeral(), Some(Untagged::Unread)),
            (None, None, Some(folder)) => {
                (keyring_beside(folder, self.must_exist, &rings, date).await?, None)
            }
            (None, None, None) => (ephemeral(), Some(Untagged::Accepted)),
        };
        let untagged = if let Some(untagged) = untagged {
            untagged
        } else {
            let known = rings.adopt(&keyring.get()).await?;
            keyring.set_known(known.keys);
            if known.authenticated { Untagged::Refused } else { Untagged::Accepted }
        };
        let mut builder = Stores::over(timed.clone())
            .shared_keyring(keyring)
            .untagged(untagged)
            .policies(self.policies.with_standard())
            .bucket_lives(self.bucket_lives)
            .profile(self.profile)
            .require_pkce(self.require_pkce);
        for (name, profile) in self.profiles {
            builder = builder.profile_named(name, profile);
        }
        if !self.holds_leases {
            builder = builder.without_leases();
        }
        let stores = builder.build();
        let fence = read_fence(engine.as_ref(), date).await?;
        if let Some((fence, _)) = fence {
            stores.set_fence(fence);
        }
        if self.reads_policies {
            stores.policies(&Scope::Global).reload().await?;
        }
        let db = Ebbtide(Arc::new(Parts { stores, engine, timed }));
        // A restore that was interrupted is completed before the first answer.
        if let Some((fence, false)) = fence
            && untagged != Untagged::Unread
        {
            restore::complete(&db, fence).await?;
        }
        db.watch_clock();
        Ok(db)
    }
}

/// The keyring that an embedded store has where none is named. One is made for a new store only: a store whose keyring
/// is gone would answer "unknown" to every token.
async fn keyring_beside(
    folder: &Path,
    must_exist: bool,
    rings: &Rings<'_>,
    now: Timestamp,
) -> Result<SharedKeyring> {
    let path = folder.join(Keyring::FILE_NAME);
    if !must_exist && !path.exists() {
        if let Some(known) = rings.known().await? {
            let ids: Vec<_> = known.keys.iter().map(ToString::to_string).collect();
            return Err(Error::invalid(format!(
                "the keyring of this store is missing at {}: restore the file with the keys {}",
                path.display(),
                ids.join(", ")
            )));
        }
        Keyring::load_or_create(&path, &SystemRng, now)?;
    }
    SharedKeyring::load(&path)
}
