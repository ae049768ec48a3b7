//! What every route works with.

use std::sync::Arc;

use ebbtide::clock_guard::ClockGuard;
use ebbtide::{Backend, Secret, Stores};

use crate::auth::Access;
use crate::quota::Quotas;

/// The stores that are served, and who may use them. Cheap to clone.
#[derive(Debug, Clone)]
pub struct App {
    pub(crate) stores: Stores,
    pub(crate) backend: Served,
    pub(crate) guard: Arc<ClockGuard>,
    pub(crate) access: Arc<Access>,
    pub(crate) quotas: Arc<Quotas>,
}

/// The backend that is served, for what concerns it as a whole.
#[derive(Clone)]
pub(crate) struct Served(pub(crate) Arc<dyn Backend>);

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.engine())
    }
}

impl App {
    /// Serves `stores`, which stand on `backend` and take their time from `guard`, to whoever has the root key. Only
    /// its digest is kept.
    #[must_use]
    pub fn new(stores: Stores, backend: Arc<dyn Backend>, guard: Arc<ClockGuard>, root_key: &Secret) -> Self {
        Self {
            stores,
            backend: Served(backend),
            guard,
            access: Arc::new(Access::new(root_key)),
            quotas: Arc::default(),
        }
    }

    /// The same with bounds on how many records scopes have.
    #[must_use]
    pub fn with_quotas(mut self, quotas: Quotas) -> Self {
        self.quotas = Arc::new(quotas);
        self
    }
}
