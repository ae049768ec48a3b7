//! Access tokens that are issued in the commit of a redemption or a rotation.

use std::time::Duration;

use serde::Deserialize;
use serde::de::Error as _;

use super::{Above, AccessRequest, AccessTokens, IssuedAccessToken, Under};
use crate::model::error::Result;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::Write;
use crate::stores::Field;
use crate::stores::grants::{Family, GrantId};
use crate::stores::shared::confirmation::Resources;
use crate::stores::shared::epochs::Stamp;
use crate::stores::shared::payload::Payload;
use crate::stores::shared::setters::setters;
use crate::timekeeping::Now;

/// Access token to issue together with a redemption or a rotation: `true`, or what differs from the grant.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct AccessDraft {
    /// OAuth scope, within the granted one; all of it by default.
    pub scope: Option<String>,
    /// Resources that the token is meant for, among those of the grant; all of them by default.
    #[cfg_attr(feature = "schema", schema(value_type = Option<Vec<String>>))]
    pub resource: Option<Resources>,
    /// Payload, stored sealed.
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub data: Option<Payload>,
    /// Lifetime; the cap of the grant applies if it is sooner.
    #[serde(rename = "ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub ttl: Option<Ttl>,
    /// Profile whose lifetime is used: `oauth`, `spa`, `mcp`, or a configured one.
    #[cfg_attr(feature = "schema", schema(example = "spa"))]
    pub profile: Option<String>,
}

impl AccessDraft {
    setters!(scope: String, resource: Resources, data: Payload, ttl: Ttl, profile: String);

    pub(super) fn request(&self) -> AccessRequest {
        AccessRequest {
            scope: self.scope.clone(),
            resource: self.resource.clone(),
            data: self.data.clone(),
            ttl: self.ttl,
            profile: self.profile.clone(),
            ..AccessRequest::default()
        }
    }
}

/// Deserializes `true`, `false` or a draft.
pub(crate) fn asked<'de, D: serde::Deserializer<'de>>(member: D) -> Result<Option<AccessDraft>, D::Error> {
    /// Draft with the milliseconds that the edge reads wherever it knows the members.
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Draft {
        scope: Option<String>,
        resource: Option<Resources>,
        data: Option<Payload>,
        ttl_seconds: Option<Ttl>,
        ttl_ms: Option<u64>,
        profile: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(
        untagged,
        expecting = "expected true, or an object with scope, resource, data, ttl_seconds, ttl_ms or profile"
    )]
    enum Asked {
        Flag(bool),
        Draft(Draft),
    }
    let Draft { scope, resource, data, ttl_seconds, ttl_ms, profile } =
        match Option::<Asked>::deserialize(member)? {
            Some(Asked::Flag(true)) => return Ok(Some(AccessDraft::default())),
            Some(Asked::Draft(draft)) => draft,
            Some(Asked::Flag(false)) | None => return Ok(None),
        };
    let ttl = match (ttl_seconds, ttl_ms) {
        (Some(_), Some(_)) => return Err(D::Error::custom("ttl_seconds and ttl_ms exclude each other")),
        (ttl, None) => ttl,
        (None, Some(millis)) => {
            let ttl = Ttl::new(Duration::from_millis(millis));
            Some(ttl.map_err(|error| D::Error::custom(error.message()))?)
        }
    };
    Ok(Some(AccessDraft { scope, resource, data, ttl, profile }))
}

impl AccessTokens {
    /// Access token under a family, and the write that issues it; the error is the field that contradicts the grant.
    /// The caller's commit must hold the family to the state that it was judged in.
    pub(in crate::stores) fn prepare_under(
        &self,
        draft: &AccessDraft,
        (id, family, ends_at): (GrantId, &Family, Timestamp),
        now: Now,
    ) -> Result<Result<(IssuedAccessToken, Write), Field>> {
        let mut request = draft.request();
        request.check_lengths()?;
        if let Err(field) = request.inherit(family) {
            return Ok(Err(field));
        }
        let above = Above { under: Under::of(id, family), ends_at, family };
        let (issued, insert, ..) = self.prepare(request, Some(above), family.stamp(), now)?;
        Ok(Ok((issued, insert)))
    }

    /// Access token without a grant, and the writes that issue it.
    pub(in crate::stores) fn prepare_alone(
        &self,
        request: AccessRequest,
        stamp: Stamp,
        now: Now,
    ) -> Result<(IssuedAccessToken, Vec<Write>)> {
        request.check()?;
        let (issued, insert, digest, stored) = self.prepare(request, None, stamp, now)?;
        let mut writes = vec![insert];
        for key in self.index_keys(&digest, &stored)? {
            writes.push(Write::Insert { key, record: self.stores.record("", issued.expires_at) });
        }
        Ok((issued, writes))
    }
}

/// Returns whether every name of `asked` is in `granted`.
pub(super) fn is_within(asked: &str, granted: &str) -> bool {
    asked.split(' ').all(|name| granted.split(' ').any(|other| name == other))
}
