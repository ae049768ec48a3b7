//! Buckets with a name and a life that are agreed on. Codes, tokens and sessions have stores of their own, which do
//! what a bucket cannot: `docs/attributes.md` says which.

use crate::model::error::Result;
use crate::model::ttl::Ttl;

use super::Attributes;

/// Whose a bucket is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// There is one for the scope, under that owner.
    Shared(&'static str),
    /// Each owner has one.
    EachOwner,
}

/// A bucket that is agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// Its name.
    pub bucket: &'static str,
    /// Whose it is.
    pub holder: Holder,
    /// How long what is set in it lives unless it is told otherwise; none means that it does not end.
    pub ttl_seconds: Option<i64>,
}

impl Preset {
    const fn shared(bucket: &'static str, owner: &'static str, ttl_seconds: Option<i64>) -> Self {
        Self { bucket, holder: Holder::Shared(owner), ttl_seconds }
    }

    const fn each(bucket: &'static str, ttl_seconds: Option<i64>) -> Self {
        Self { bucket, holder: Holder::EachOwner, ttl_seconds }
    }

    /// How long what is set in it lives.
    pub fn ttl(&self) -> Result<Option<Ttl>> {
        self.ttl_seconds.map(Ttl::from_secs).transpose()
    }
}

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// Settings of the application.
pub const APP_SETTINGS: Preset = Preset::shared("app_settings", Attributes::SYSTEM_OWNER, None);
/// The types of trust between owners.
pub const TRUST_TYPES: Preset = Preset::shared("trust_types", Attributes::SYSTEM_OWNER, None);
/// Which owner a client belongs to, by client.
pub const CLIENT_INDEX: Preset = Preset::shared("client_index", Attributes::OAUTH_OWNER, None);
/// Sign-ins that wait for an owner to be made.
pub const OAUTH_SESSIONS: Preset = Preset::shared("oauth_sessions", Attributes::OAUTH_OWNER, Some(600));
/// Refresh tokens of single-page applications, by digest.
pub const SPA_REFRESH_TOKENS: Preset =
    Preset::shared("spa_refresh_tokens", Attributes::OAUTH_OWNER, Some(14 * DAY));
/// What the application notes about an owner.
pub const INTERNAL: Preset = Preset::each("_internal", None);
/// What a peer may do that others of its type may not, by peer.
pub const TRUST_PERMISSIONS: Preset = Preset::each("trust_permissions", None);
/// The clients that an owner registered.
pub const CLIENTS: Preset = Preset::each("clients", None);

/// Every preset.
pub const ALL: &[Preset] = &[
    APP_SETTINGS,
    TRUST_TYPES,
    CLIENT_INDEX,
    OAUTH_SESSIONS,
    SPA_REFRESH_TOKENS,
    INTERNAL,
    TRUST_PERMISSIONS,
    CLIENTS,
];
