//! State shared by all routes.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use ebbtide::ops::sweeper::SweepSettings;
use ebbtide::stores::audit::{Action, AuditContext, Note};
use ebbtide::timekeeping::{Now, TimeSource, Timed};
use ebbtide::{Admin, Ebbtide, Keyring, Rng as _, Scope, Secret, Stores, SystemRng};

use crate::http::auth::Access;
use crate::http::edge::Edge;
use crate::http::limits::Limits;
use crate::http::quota::Quotas;
use crate::http::scoping::{ScopeRules, Scoping};
use crate::http::why::Refusals;
use crate::metrics::{Scrapes, ShownBuckets};
use crate::routes::Readiness;

/// The stores that are served, and who may use them. Cheap to clone.
#[derive(Debug, Clone)]
pub struct App(Arc<Parts>);

/// State shared by the clones of an [`App`].
#[derive(Debug, Clone)]
pub struct Parts {
    pub(crate) stores: Stores,
    /// Id of this node among those that report their keyring.
    pub(crate) node: [u8; 8],
    pub(crate) backend: Served,
    pub(crate) db: Ebbtide,
    pub(crate) edge: Arc<Edge>,
    pub(crate) scrapes: Arc<Scrapes>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) access: Arc<Access>,
    pub(crate) quotas: Arc<Quotas>,
    pub(crate) refusals: Arc<Refusals>,
    pub(crate) scoping: Arc<Scoping>,
    /// Lease and bounds of the sweeps that are asked for, and the silence after which `/v1/stats` warns.
    pub(crate) sweep: SweepSettings,
    pub(crate) buckets: Arc<ShownBuckets>,
}

impl Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

/// The backend that is served, for what concerns it as a whole.
#[derive(Clone)]
pub(crate) struct Served(pub(crate) Arc<dyn Admin>);

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.info().engine)
    }
}

fn node_id() -> [u8; 8] {
    let mut id = [0; 8];
    SystemRng.fill(&mut id);
    id
}

impl Parts {
    /// The time of a request, for what is not in a store. `Unavailable` while nothing can be answered.
    pub(crate) fn now(&self) -> ebbtide::Result<Now> {
        self.db.time().now()
    }

    /// The time of the store, and its clocks.
    pub(crate) fn time(&self) -> &TimeSource {
        self.db.time()
    }

    /// The engine with its time.
    pub(crate) fn timed(&self) -> &Timed {
        self.db.timed()
    }
}

/// Time after a sign-out in which nothing is issued to its subject: three quarters of it are for the way of the answer
/// to the caller. Every process that serves a store has the same.
const SIGN_OUT_HOLD: Duration = Duration::from_millis(500);

impl App {
    /// Serves `db` to whoever has the root key, of which only a digest is kept.
    #[must_use]
    pub fn new(db: &Ebbtide, root_key: &Secret) -> Self {
        db.stores().hold_issues_after_sign_out(SIGN_OUT_HOLD);
        Self(Arc::new(Parts {
            stores: db.stores().clone(),
            node: node_id(),
            backend: Served(Arc::clone(db.engine())),
            db: db.clone(),
            edge: Arc::new(Edge::new(Limits::default())),
            scrapes: Arc::default(),
            readiness: Arc::default(),
            access: Arc::new(Access::new([root_key])),
            quotas: Arc::default(),
            refusals: Arc::default(),
            scoping: Arc::default(),
            sweep: SweepSettings::default(),
            buckets: Arc::default(),
        }))
    }

    /// Serves whoever has one of the root keys: two during a rotation.
    #[must_use]
    pub fn with_root_keys(mut self, root_keys: &[Secret]) -> Self {
        Arc::make_mut(&mut self.0).access = Arc::new(Access::new(root_keys));
        self
    }

    /// Serves this process alone: the audit log has it as [`Author::LOCAL`](ebbtide::stores::audit::Author::LOCAL).
    pub(crate) fn local(mut self, key: &Secret) -> Self {
        Arc::make_mut(&mut self.0).access = Arc::new(Access::local(key));
        self
    }

    /// Reads the keyring again if its file has changed. After an error the present one stays in use.
    pub async fn reload_keyring(&self) {
        match self.db.reload_keyring().await {
            Ok(false) => {}
            Ok(true) => {
                let ring = self.stores.keyring();
                tracing::info!(active = %ring.active(), keys = ring.keys().len(), "read the keyring again");
                // `keyring activate` and `retire` ask for the reports of the nodes.
                if let Err(error) = self.db.report_keyring(&self.node).await {
                    tracing::warn!(%error, "cannot report the keyring of this node");
                }
                if let Err(error) = self.note_keyring(&ring).await {
                    tracing::warn!(%error, "cannot note the change of the keyring in the audit log");
                }
            }
            Err(error) => tracing::warn!(%error, "cannot read the keyring again; keeping the present one"),
        }
    }

    /// Appends the keys of a keyring that has changed to the audit log.
    async fn note_keyring(&self, ring: &Keyring) -> ebbtide::Result<()> {
        let ids: Vec<_> = ring.keys().iter().map(|key| key.id.to_string()).collect();
        let detail = format!("the key {} is active; the keys are {}", ring.active(), ids.join(", "));
        let context = AuditContext::because("a node has read its keyring again")?;
        let note = Note::of(Action::Keyring, &context)?.with_detail(detail);
        self.stores.audit(&Scope::Global).append(&note).await
    }

    /// The same within other limits.
    #[must_use]
    pub fn within(mut self, limits: Limits) -> Self {
        let parts = Arc::make_mut(&mut self.0);
        parts.edge = Arc::new(Edge::new(limits));
        self
    }

    /// The same with other rules for requests that name no scope.
    #[must_use]
    pub fn with_scope_rules(mut self, rules: ScopeRules) -> Self {
        Arc::make_mut(&mut self.0).scoping = Arc::new(Scoping::new(rules));
        self
    }

    /// Ends the drain delay of a shutdown.
    pub fn skip_drain_delay(&self) {
        self.edge.skip_drain_delay.send_replace(true);
    }

    /// The same with other settings of the sweeps that are asked for.
    #[must_use]
    pub fn with_sweep_settings(mut self, settings: SweepSettings) -> Self {
        Arc::make_mut(&mut self.0).sweep = settings;
        self
    }

    /// The same with bounds on how many records scopes have.
    #[must_use]
    pub fn with_quotas(mut self, quotas: Quotas) -> Self {
        Arc::make_mut(&mut self.0).quotas = Arc::new(quotas);
        self
    }
}
