//! Settings of the stores, which both builders share.

use std::collections::BTreeMap;

use crate::model::ttl::TtlPolicies;
use crate::stores::attributes::BucketTtls;
use crate::stores::profile::Profile;

/// Settings of [`Stores`](crate::Stores).
pub(crate) struct StoreSettings {
    pub(crate) policies: TtlPolicies,
    pub(crate) bucket_lives: BucketTtls,
    pub(crate) profile: Profile,
    pub(crate) profiles: BTreeMap<String, Profile>,
    pub(crate) requires_pkce: bool,
    pub(crate) holds_leases: bool,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            policies: TtlPolicies::default(),
            bucket_lives: BucketTtls::default(),
            profile: Profile::default(),
            profiles: BTreeMap::new(),
            requires_pkce: false,
            holds_leases: true,
        }
    }
}

/// Writes the setters of [`StoreSettings`] into a builder that has them as `settings`.
macro_rules! store_setters {
    ($builder:ty) => {
        impl $builder {
            /// Bounds the lives of records by `policies`. A store opened by its URL also bounds approvals and
            /// relationships to a minute to a year, or no end, in scopes without a policy of their own.
            pub fn policies(mut self, policies: $crate::model::ttl::TtlPolicies) -> Self {
                self.settings.policies = policies;
                self
            }

            /// Gives attributes the default lifetimes of their buckets.
            pub fn bucket_lives(mut self, lives: $crate::stores::attributes::BucketTtls) -> Self {
                self.settings.bucket_lives = lives;
                self
            }

            /// Gives records the default lifetimes of `profile`.
            pub fn profile(mut self, profile: $crate::stores::profile::Profile) -> Self {
                self.settings.profile = profile;
                self
            }

            /// Lets grants ask for `profile` by this name. It comes before a preset of the same name.
            pub fn profile_named(
                mut self,
                name: impl Into<String>,
                profile: $crate::stores::profile::Profile,
            ) -> Self {
                self.settings.profiles.insert(name.into(), profile);
                self
            }

            /// Issues no code without a PKCE challenge. A client can be registered with the same setting.
            pub fn require_pkce(mut self, required: bool) -> Self {
                self.settings.requires_pkce = required;
                self
            }

            /// Reads the epoch of a client with each call instead of holding it under a lease: for processes that can
            /// be frozen between two lines, such as functions.
            pub fn without_leases(mut self) -> Self {
                self.settings.holds_leases = false;
                self
            }
        }
    };
}

pub(crate) use store_setters;
