//! The stores of one scope.

use crate::model::error::Result;
use crate::model::scope::Scope;
use crate::ops::explain::Explain;
use crate::stores::Stores;
use crate::stores::registry::every_store;
use crate::stores::scopes::Scopes;

/// The stores of one scope. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Scoped {
    stores: Stores,
    scope: Scope,
}

macro_rules! accessors {
    ($(#[$doc:meta] $module:ident: $store:ident $(($question:ident))?;)+) => {
        impl Scoped {
            $(#[$doc]
            #[must_use]
            pub fn $module(&self) -> crate::stores::$module::$store {
                self.stores.$module(&self.scope)
            })+
        }
    };
}

every_store!(accessors);

impl Scoped {
    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// The scope.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Scopes that this one covers.
    #[must_use]
    pub fn scopes(&self) -> Scopes {
        self.stores.scopes(&self.scope)
    }

    /// Explanations of records: their state, and the reason for it.
    #[must_use]
    pub fn explain(&self) -> Explain {
        Explain::new(self.stores.clone(), self.scope.clone())
    }

    /// Stores of a scope that this one covers. Another scope is `Invalid`.
    pub fn below(&self, scope: &str) -> Result<Self> {
        let scope: Scope = scope.parse()?;
        if self.scope.covers(&scope) {
            return Ok(Self::new(self.stores.clone(), scope));
        }
        Err(crate::model::error::Error::invalid(format!("the scope {} does not cover that one", self.scope)))
    }
}
