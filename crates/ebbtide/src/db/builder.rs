//! Settings of an [`Ebbtide`](super::Ebbtide) before it is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::restore::{self, read_fence};
use super::sweeping::Sweeping;
use super::{Ebbtide, Parts, needs_keyring};
use crate::admin::Admin;
use crate::backend::Share;
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
use crate::ops::ring::Rings;
use crate::stores::Stores;
use crate::stores::registry::indexes;
use crate::stores::settings::{StoreSettings, store_setters};
use crate::timekeeping::{Clocks, SystemClocks, TimeSource, Timed};

/// Store to open.
pub(super) enum StoreSource {
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
    source: StoreSource,
    must_exist: bool,
    keyring: Option<Keyring>,
    keyring_file: Option<PathBuf>,
    needs_keyring: bool,
    reads_policies: bool,
    looks_for_untagged: bool,
    time: TimeFrom,
    metered: bool,
    sweep_every: Option<Duration>,
    sweep_share: Share,
    settings: StoreSettings,
}

impl Builder {
    pub(super) fn new(source: StoreSource) -> Self {
        Self {
            source,
            must_exist: false,
            keyring: None,
            keyring_file: None,
            needs_keyring: true,
            reads_policies: true,
            looks_for_untagged: false,
            time: TimeFrom::Clocks(Arc::new(SystemClocks::new())),
            metered: true,
            sweep_every: None,
            sweep_share: Share::QUARTER,
            settings: StoreSettings::default(),
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

    /// Sweeps expired records at every interval, from the first one on, within a quarter of the time:
    /// [`sweep_share`](Self::sweep_share) sets another share. The sweeper ends with the handle. Without this, sweep with
    /// [`Ebbtide::sweeper`] or the command `ebbtide sweep`: no answer depends on it, but expired records take space.
    /// An interval of zero is `Invalid`, and so is a handle that is opened outside of a Tokio runtime.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ebbtide::Ebbtide;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> ebbtide::Result<()> {
    /// let db = Ebbtide::builder("memory:").sweep_every(Duration::from_secs(30)).open().await?;
    /// # assert!(Ebbtide::builder("memory:").sweep_every(Duration::ZERO).open().await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn sweep_every(mut self, interval: Duration) -> Self {
        self.sweep_every = Some(interval);
        self
    }

    /// Limits the sweeper of [`sweep_every`](Self::sweep_every) to this share of the time.
    pub fn sweep_share(mut self, share: Share) -> Self {
        self.sweep_share = share;
        self
    }

    /// Looks for records of version 0.1, which have no tag, in a store that was not opened since, and accepts them until
    /// a reseal. On DynamoDB this reads the table, so that it is for the commands of an operator: a server refuses them
    /// there unless such a command was run before.
    pub fn looking_for_untagged(mut self) -> Self {
        self.looks_for_untagged = true;
        self
    }

    /// Opens the store.
    pub async fn open(self) -> Result<Ebbtide> {
        let sweeping = self.sweep_every.map(|every| Sweeping::new(every, self.sweep_share)).transpose()?;
        let (url, engine) = match self.source {
            StoreSource::Engine(engine) => (StoreUrl::Memory, engine),
            StoreSource::Url(url) => {
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
        let mut settings = self.settings;
        settings.policies = settings.policies.with_standard();
        let stores =
            Stores::over(timed.clone()).settings(settings).shared_keyring(keyring).untagged(untagged).build();
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
        if let Some(sweeping) = sweeping {
            db.sweep_by(sweeping);
        }
        Ok(db)
    }
}

store_setters!(Builder);

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
