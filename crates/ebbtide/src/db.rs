//! The handle: engine, keyring, time and metrics as one.

mod builder;
mod clock;
pub mod restore;
mod scoped;
mod sweeping;

use std::fmt;
use std::sync::Arc;

pub use builder::Builder;
use builder::StoreSource;
pub use scoped::Scoped;

use crate::admin::Admin;
use crate::engines;
use crate::engines::url::StoreUrl;
use crate::model::error::{Error, Result};
use crate::model::rng::SystemRng;
use crate::model::scope::Scope;
use crate::model::ttl::TtlPolicies;
use crate::ops::ring::Rings;
use crate::ops::sweeper::Sweeper;
use crate::stores::Stores;
use crate::stores::registry::indexes;
use crate::timekeeping::{Clocks, EngineClock, SystemClocks, TimeSource, Timed};

/// A store of authorization state, ready to use. Cheap to clone.
///
/// There is one way to open a store, and it is the safe way: the handle has the store's keyring, so that tokens are
/// good after a restart, a time that no jump of the wall clock changes, and metrics.
///
/// ```
/// use ebbtide::Ebbtide;
/// use ebbtide::stores::replays::{Proof, ReplayOutcome};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> ebbtide::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let url = format!("fjall:{}", dir.path().join("data").display());
/// # #[cfg(not(feature = "fjall"))]
/// # let url = "memory:".to_owned();
/// // `fjall:./data`, `postgres://…`, `dynamodb:TABLE?region=…`, `memory:`
/// let db = Ebbtide::open(&url).await?;
/// let acme = db.scope("tenant:acme")?;
/// let proof = Proof::new("dpop", "jti-1");
/// assert!(matches!(acme.replays().check(&proof).await?, ReplayOutcome::Fresh { .. }));
/// assert!(matches!(acme.replays().check(&proof).await?, ReplayOutcome::Replay { .. }));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Ebbtide(Arc<Parts>);

struct Parts {
    stores: Stores,
    engine: Arc<dyn Admin>,
    timed: Timed,
}

impl Ebbtide {
    /// Opens the store that `url` names, with defaults that suit most. An embedded store is created where there is
    /// none, with a keyring beside its data; a store that several nodes share needs one keyring for all of them:
    /// see [`Builder::keyring_file`].
    pub async fn open(url: &str) -> Result<Self> {
        Self::builder(url).open().await
    }

    /// Opens the store that `url` names with settings of your own.
    pub fn builder(url: &str) -> Builder {
        Builder::new(StoreSource::Url(url.to_owned()))
    }

    /// Opens a store on an engine of your own. Without a keyring of yours, one is made that ends with the handle.
    pub fn over(engine: Arc<dyn Admin>) -> Builder {
        Builder::new(StoreSource::Engine(engine))
    }

    /// A store in memory, for tests: its records and its keyring end with it.
    #[must_use]
    pub fn in_memory() -> Self {
        let engine: Arc<dyn Admin> = Arc::new(engines::memory::Memory::default());
        let clocks: Arc<dyn Clocks> = Arc::new(SystemClocks::new());
        let time = Arc::new(TimeSource::new(clocks, EngineClock::None, None));
        let policies = TtlPolicies::default().with_standard();
        let timed = Timed::new(Arc::clone(&engine), time);
        let stores = Stores::over(timed.clone()).policies(policies).build();
        Self(Arc::new(Parts { stores, engine, timed }))
    }

    /// The stores of a scope, by its text form: `global`, `tenant:acme`, `tenant:acme/env:prod`.
    pub fn scope(&self, scope: &str) -> Result<Scoped> {
        Ok(self.at(&scope.parse::<Scope>()?))
    }

    /// The stores of a scope.
    #[must_use]
    pub fn at(&self, scope: &Scope) -> Scoped {
        Scoped::new(self.0.stores.clone(), scope.clone())
    }

    /// Waits for the writes that go on beside answers, writes a last checkpoint of the audit log, and lets go of the
    /// store: the next [`open`](Self::open) of an embedded one finds it free, once the other handles are dropped too.
    pub async fn close(self) {
        self.stores().settle().await;
        if let Err(error) = self.stores().checkpoint_audit().await {
            tracing::warn!(%error, "cannot write the last checkpoint of the audit log");
        }
    }

    /// Every store, each by its scope.
    #[must_use]
    pub fn stores(&self) -> &Stores {
        &self.0.stores
    }

    /// The engine, for operations on the whole store.
    #[must_use]
    pub fn engine(&self) -> &Arc<dyn Admin> {
        &self.0.engine
    }

    /// The engine and the time by which every answer is judged.
    #[must_use]
    pub fn timed(&self) -> &Timed {
        &self.0.timed
    }

    /// The time by which every answer is judged.
    #[must_use]
    pub fn time(&self) -> &TimeSource {
        self.0.timed.time()
    }

    /// Reads the keyring again if its file has changed, and lets the store know its keys. Returns whether it had
    /// changed. After an error the present one stays in use.
    pub async fn reload_keyring(&self) -> Result<bool> {
        let changed = self.0.stores.shared_keyring().reload()?;
        if changed {
            let ring = self.0.stores.keyring();
            match self.rings().adopt(&ring).await {
                Ok(known) => self.0.stores.shared_keyring().set_known(known.keys),
                Err(error) => {
                    self.0.stores.shared_keyring().leave_unnoticed();
                    return Err(error);
                }
            }
        }
        Ok(changed)
    }

    /// Reports the keys of this node to the store, for `keyring activate` and `keyring show`, and refuses records
    /// without a tag once the store says that all have one.
    pub async fn report_keyring(&self, node: &[u8; 8]) -> Result<()> {
        let rings = self.rings();
        rings.report(node, &self.0.stores.keyring()).await?;
        if let Some(known) = rings.known().await? {
            if known.authenticated {
                self.0.stores.refuse_untagged();
            }
            self.0.stores.shared_keyring().set_known(known.keys);
        }
        Ok(())
    }

    /// The keyring as the store knows it.
    #[must_use]
    pub fn rings(&self) -> Rings<'_> {
        Rings::new(self.0.engine.as_ref(), &SystemRng, self.0.timed.time().date())
    }

    /// A sweeper of this store, to sweep when you say so; [`Builder::sweep_every`] sweeps by itself.
    #[must_use]
    pub fn sweeper(&self) -> Sweeper {
        Sweeper::new(self.0.timed.clone(), SystemRng)
    }
}

impl fmt::Debug for Ebbtide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ebbtide({})", self.0.engine.info().engine)
    }
}

/// Opens the engine that `url` names, and nothing around it: no keyring, no time, no metrics. For tests and
/// measurements of an engine; everything else calls [`Ebbtide::open`].
pub async fn open_engine(url: &str) -> Result<Arc<dyn Admin>> {
    engines::open(&url.parse()?, &indexes()).await
}

/// Returns `Invalid` if the store's nodes could end up with different keyrings.
fn needs_keyring(url: &StoreUrl) -> Result<()> {
    if url.is_shared() {
        return Err(Error::invalid(
            "a store that several nodes share needs one keyring for all of them; make it with `ebbtide keyring init` \
             and name it with --keyring",
        ));
    }
    Ok(())
}
