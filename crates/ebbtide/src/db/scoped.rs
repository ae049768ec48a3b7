//! The stores of one scope.

use crate::model::error::Result;
use crate::model::scope::Scope;
use crate::ops::explain::Explain;
use crate::stores::Stores;
use crate::stores::access_tokens::AccessTokens;
use crate::stores::api_keys::ApiKeys;
use crate::stores::approvals::Approvals;
use crate::stores::attributes::Attributes;
use crate::stores::audit::Audit;
use crate::stores::clients::Clients;
use crate::stores::codes::Codes;
use crate::stores::device_codes::DeviceCodes;
use crate::stores::grants::Grants;
use crate::stores::nonces::Nonces;
use crate::stores::owners::Owners;
use crate::stores::policies::Policies;
use crate::stores::provider_tokens::ProviderTokens;
use crate::stores::pushed_requests::PushedRequests;
use crate::stores::relationships::Relationships;
use crate::stores::replays::Replays;
use crate::stores::scopes::Scopes;
use crate::stores::sessions::Sessions;

/// The stores of one scope. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Scoped {
    stores: Stores,
    scope: Scope,
}

macro_rules! stores {
    ($($(#[$doc:meta])+ $name:ident -> $store:ident;)+) => {
        impl Scoped {
            $($(#[$doc])+
            #[must_use]
            pub fn $name(&self) -> $store {
                self.stores.$name(&self.scope)
            })+
        }
    };
}

stores! {
    /// Replay records: proofs that were seen.
    replays -> Replays;
    /// Nonces that were issued.
    nonces -> Nonces;
    /// Authorization codes.
    codes -> Codes;
    /// Refresh-token families.
    grants -> Grants;
    /// Access tokens.
    access_tokens -> AccessTokens;
    /// Tokens of upstream providers.
    provider_tokens -> ProviderTokens;
    /// Sessions, and sign-ins that are not finished.
    sessions -> Sessions;
    /// Pushed authorization requests.
    pushed_requests -> PushedRequests;
    /// Device codes, with their user codes.
    device_codes -> DeviceCodes;
    /// Registered clients.
    clients -> Clients;
    /// JSON attributes in buckets.
    attributes -> Attributes;
    /// Approvals.
    approvals -> Approvals;
    /// Relationships.
    relationships -> Relationships;
    /// Owners, and their deletion.
    owners -> Owners;
    /// Policies that this scope sees and changes.
    policies -> Policies;
    /// Scopes that this one covers.
    scopes -> Scopes;
    /// API keys that this scope manages.
    api_keys -> ApiKeys;
    /// The audit log.
    audit -> Audit;
}

impl Scoped {
    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// The scope.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.scope
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
