//! Requests for a grant and for a rotation.

use std::fmt;
use std::time::Duration;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::Grants;
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::secret::Secret;
use crate::model::ttl::Ttl;
use crate::stores::access_tokens::{AccessDraft, asked};
use crate::stores::shared::confirmation::{Confirmation, Resources};
use crate::stores::shared::epochs::check_longest;
use crate::stores::shared::payload::Payload;
use crate::stores::shared::setters::setters;
use crate::stores::{Stores, check_optional};

/// Lifetimes of a family. Whatever is left out comes from the profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct GrantTtls {
    /// Profile to use instead of the default: `oauth`, `spa`, `mcp`, or a configured one.
    #[cfg_attr(feature = "schema", schema(example = "spa"))]
    pub profile: Option<String>,
    /// Time without a rotation after which the family ends.
    #[serde(rename = "idle_ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub idle_ttl: Option<Ttl>,
    /// Time after which the family ends, however often it is rotated.
    #[serde(rename = "max_ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub max_ttl: Option<Ttl>,
    /// Time within which a rotation can be retried: 0 is strict, 60 seconds is the most.
    #[serde(rename = "grace_seconds", default, deserialize_with = "seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 0, maximum = 60))]
    pub grace: Option<Duration>,
}

/// Lifetimes with everything filled in.
pub(super) struct FamilyTtls {
    pub(super) idle: Ttl,
    pub(super) max: Ttl,
    pub(super) grace: Duration,
    pub(super) strict: bool,
    /// Lifetime of access tokens, where a profile is named.
    pub(super) access: Option<Duration>,
}

impl GrantTtls {
    /// Longest time within which a rotation can be retried.
    pub const MAX_GRACE: Duration = Duration::from_secs(60);

    setters!(profile: String, idle_ttl: Ttl, max_ttl: Ttl, grace: Duration);

    /// Refuses a profile that does not exist, and a grace that is too long.
    pub(in crate::stores) fn check(&self, stores: &Stores) -> Result<()> {
        self.grace.map_or(Ok(()), check_grace)?;
        self.profile.as_deref().map_or(Ok(()), |name| stores.profile_named(name).map(|_| ()))
    }
}

/// Deserializes `true`, `false` or lifetimes.
pub(crate) fn asked_grant<'de, D: Deserializer<'de>>(member: D) -> Result<Option<GrantTtls>, D::Error> {
    Ok(Option::<GrantMember>::deserialize(member)?.and_then(|GrantMember(grant)| grant))
}

struct GrantMember(Option<GrantTtls>);

impl<'de> Deserialize<'de> for GrantMember {
    fn deserialize<D: Deserializer<'de>>(member: D) -> Result<Self, D::Error> {
        const MEMBERS: &[&str] = &["profile", "idle_ttl_seconds", "max_ttl_seconds", "grace_seconds"];
        member.deserialize_struct("GrantTtls", MEMBERS, FlagOrTtls)
    }
}

struct FlagOrTtls;

impl<'de> Visitor<'de> for FlagOrTtls {
    type Value = GrantMember;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, or an object")
    }

    fn visit_bool<E>(self, asked: bool) -> Result<GrantMember, E> {
        Ok(GrantMember(asked.then(GrantTtls::default)))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<GrantMember, A::Error> {
        GrantTtls::deserialize(MapAccessDeserializer::new(members)).map(|ttls| GrantMember(Some(ttls)))
    }
}

/// Deserializes a number of whole seconds, which may be zero.
pub(crate) fn seconds<'de, D: Deserializer<'de>>(member: D) -> Result<Option<Duration>, D::Error> {
    Ok(Option::<u32>::deserialize(member)?.map(|seconds| Duration::from_secs(seconds.into())))
}

pub(crate) fn check_grace(grace: Duration) -> Result<()> {
    if grace > GrantTtls::MAX_GRACE {
        let most = GrantTtls::MAX_GRACE.as_secs();
        let message = format!("the grace of a rotation is 0 to {most} seconds");
        return Err(Error::invalid(message).about("grace_seconds"));
    }
    Ok(())
}

impl Grants {
    pub(super) fn family_ttls(&self, request: &GrantRequest) -> Result<FamilyTtls> {
        let profile = match &request.profile {
            Some(name) => self.stores.profile_named(name)?,
            None => *self.stores.profile(),
        };
        let idle = request.idle_ttl.unwrap_or(profile.refresh_idle);
        // A long idle time without a cap is not cut short by the cap of the profile.
        let max =
            self.stores.ttl(Kind::Grant, &self.scope, request.max_ttl, profile.refresh_max.max(idle))?;
        let member = if request.max_ttl.is_some() { "max_ttl_seconds" } else { "idle_ttl_seconds" };
        check_longest("a grant", max, member)?;
        let grace = request.grace.unwrap_or(profile.grace);
        check_grace(grace)?;
        let access = request.profile.as_ref().map(|_| profile.access.duration());
        Ok(FamilyTtls { idle, max, grace, strict: profile.strict, access })
    }
}

/// Request for a grant.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct GrantRequest {
    /// Subject that the grant speaks for.
    #[cfg_attr(feature = "schema", schema(min_length = 1, example = "alice"))]
    pub subject: String,
    /// Client that holds the grant.
    #[cfg_attr(feature = "schema", schema(min_length = 1, example = "app"))]
    pub client_id: String,
    /// OAuth scope: names separated by spaces.
    pub scope: Option<String>,
    /// Payload, stored sealed.
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub data: Option<Payload>,
    /// Thumbprint of the key that the family is bound to.
    pub dpop_jkt: Option<String>,
    /// Key that the family is bound to, by `jkt` or `x5t#S256`.
    pub cnf: Option<Confirmation>,
    /// Resources that its access tokens are meant for (RFC 8707).
    #[cfg_attr(feature = "schema", schema(value_type = Option<Vec<String>>))]
    pub resource: Option<Resources>,
    /// Session that the grant comes from: when the session is deleted with `revoke_grants`, the grant ends.
    pub sid: Option<String>,
    /// Profile to use instead of the default: `oauth`, `spa`, `mcp`, or a configured one.
    #[cfg_attr(feature = "schema", schema(example = "spa"))]
    pub profile: Option<String>,
    /// Time without a rotation after which the family ends.
    #[serde(rename = "idle_ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub idle_ttl: Option<Ttl>,
    /// Time after which the family ends, however often it is rotated.
    #[serde(rename = "max_ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub max_ttl: Option<Ttl>,
    /// Time within which a rotation can be retried: 0 is strict, 60 seconds is the most.
    #[serde(rename = "grace_seconds", default, deserialize_with = "seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 0, maximum = 60))]
    pub grace: Option<Duration>,
}

impl GrantRequest {
    /// Request for a grant that speaks for `subject` and is held by `client_id`.
    pub fn new(subject: impl Into<String>, client_id: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            client_id: client_id.into(),
            scope: None,
            data: None,
            dpop_jkt: None,
            cnf: None,
            resource: None,
            sid: None,
            profile: None,
            idle_ttl: None,
            max_ttl: None,
            grace: None,
        }
    }

    setters!(
        scope: String,
        data: Payload,
        dpop_jkt: String,
        cnf: Confirmation,
        resource: Resources,
        sid: String,
        profile: String,
        idle_ttl: Ttl,
        max_ttl: Ttl,
        grace: Duration,
    );

    /// Sets all lifetimes at once.
    pub fn ttls(self, ttls: GrantTtls) -> Self {
        let GrantTtls { profile, idle_ttl, max_ttl, grace } = ttls;
        Self { profile, idle_ttl, max_ttl, grace, ..self }
    }

    pub(super) fn check(&self) -> Result<()> {
        check_optional("sid", self.sid.as_deref(), MAX_NAME_BYTES)?;
        check_names(Some(&self.subject), Some(&self.client_id), self.scope.as_deref())
    }

    pub(super) fn key(&self) -> Result<Confirmation> {
        Confirmation::of(self.dpop_jkt.as_ref(), self.cnf.as_ref())
    }
}

/// Refuses names that are empty or too long.
pub(crate) fn check_names(subject: Option<&str>, client_id: Option<&str>, scope: Option<&str>) -> Result<()> {
    check_optional("subject", subject, MAX_NAME_BYTES)?;
    check_optional("client_id", client_id, MAX_NAME_BYTES)?;
    check_optional("scope", scope, MAX_SCOPE_BYTES)
}

/// Request to exchange a refresh token for its successor.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct Rotate {
    /// Refresh token.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub refresh_token: Secret,
    /// Authenticated client that presents it.
    #[cfg_attr(feature = "schema", schema(example = "app"))]
    pub client_id: String,
    /// Thumbprint of the key whose proof came with it; an access token that is asked for is bound to it.
    pub dpop_jkt: Option<String>,
    /// Key that came with it, by `jkt` or `x5t#S256`; an access token that is asked for is bound to it.
    pub cnf: Option<Confirmation>,
    /// Asks for an access token, issued in the commit of the rotation: `true`, or what differs from the grant.
    #[serde(default, deserialize_with = "asked")]
    pub access_token: Option<AccessDraft>,
}

impl Rotate {
    /// Request of `client_id` to rotate a refresh token.
    pub fn new(refresh_token: impl Into<Secret>, client_id: impl Into<String>) -> Self {
        Self {
            refresh_token: refresh_token.into(),
            client_id: client_id.into(),
            dpop_jkt: None,
            cnf: None,
            access_token: None,
        }
    }

    setters!(dpop_jkt: String, cnf: Confirmation, access_token: AccessDraft);
}

/// Longest subject and client id, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 1_024;

/// Longest OAuth scope, in bytes.
pub(crate) const MAX_SCOPE_BYTES: usize = 8_192;

/// Longest key thumbprint, in bytes.
pub(crate) const MAX_THUMBPRINT_BYTES: usize = 256;
