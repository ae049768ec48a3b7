//! Predefined buckets, with a name and a lifetime. Codes, tokens and sessions have stores of their own: see
//! `docs/attributes.md`.

use crate::model::error::Result;
use crate::model::ttl::Ttl;

use super::Attributes;

/// Owner of a bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holder {
    /// One for the scope, under that owner.
    Shared(&'static str),
    /// One for each owner.
    EachOwner,
}

/// Predefined bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// Name.
    pub bucket: &'static str,
    /// Owner.
    pub holder: Holder,
    /// Default lifetime of its attributes; none if they do not expire.
    pub ttl_seconds: Option<i64>,
}

impl Preset {
    const fn shared(bucket: &'static str, owner: &'static str, ttl_seconds: Option<i64>) -> Self {
        Self { bucket, holder: Holder::Shared(owner), ttl_seconds }
    }

    const fn each(bucket: &'static str, ttl_seconds: Option<i64>) -> Self {
        Self { bucket, holder: Holder::EachOwner, ttl_seconds }
    }

    /// Returns the default lifetime.
    pub fn ttl(&self) -> Result<Option<Ttl>> {
        self.ttl_seconds.map(Ttl::from_secs).transpose()
    }
}

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;

/// Settings of the application.
pub const APP_SETTINGS: Preset = Preset::shared("app_settings", Attributes::SYSTEM_OWNER, None);
/// Types of trust between owners.
pub const TRUST_TYPES: Preset = Preset::shared("trust_types", Attributes::SYSTEM_OWNER, None);
/// Owners of clients, by client.
pub const CLIENT_INDEX: Preset = Preset::shared("client_index", Attributes::OAUTH_OWNER, None);
/// Sign-ins whose owner does not exist yet.
pub const OAUTH_SESSIONS: Preset = Preset::shared("oauth_sessions", Attributes::OAUTH_OWNER, Some(600));
/// Refresh tokens of single-page applications, by digest.
pub const SPA_REFRESH_TOKENS: Preset =
    Preset::shared("spa_refresh_tokens", Attributes::OAUTH_OWNER, Some(14 * DAY));
/// Notes of the application about an owner.
pub const INTERNAL: Preset = Preset::each("_internal", None);
/// Permissions of a peer beyond those of its type, by peer.
pub const TRUST_PERMISSIONS: Preset = Preset::each("trust_permissions", None);
/// Clients that an owner registered.
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
