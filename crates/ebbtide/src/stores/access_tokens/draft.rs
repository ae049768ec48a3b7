//! Access tokens that are issued in the commit of a redemption or a rotation.

use std::time::Duration;

use serde::Deserialize;
use serde::de::Error as _;

use super::{Above, AccessRequest, AccessTokens, IssuedAccessToken, TokenSource, Under};
use crate::model::error::Result;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::Write;
use crate::stores::Field;
use crate::stores::grants::{Family, GrantId};
use crate::stores::shared::confirmation::{Confirmation, Resources};
use crate::stores::shared::epochs::Stamp;
use crate::stores::shared::payload::Payload;
use crate::stores::shared::setters::setters;
use crate::timekeeping::Now;

/// New access token, and the writes that issue it.
pub(crate) type TokenWrites = (IssuedAccessToken, Vec<Write>);

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

    fn request(&self) -> AccessRequest {
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
    enum AccessMember {
        Flag(bool),
        Draft(Draft),
    }
    let Draft { scope, resource, data, ttl_seconds, ttl_ms, profile } =
        match Option::<AccessMember>::deserialize(member)? {
            Some(AccessMember::Flag(true)) => return Ok(Some(AccessDraft::default())),
            Some(AccessMember::Draft(draft)) => draft,
            Some(AccessMember::Flag(false)) | None => return Ok(None),
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

impl AccessRequest {
    /// Adds what a draft asks for, within the scope and the resources of a code; the error is the field that is not.
    pub(in crate::stores) fn narrowed(
        mut self,
        draft: &AccessDraft,
        scope: Option<&String>,
        resource: Option<&Resources>,
    ) -> Result<Self, Field> {
        let asked = draft.request();
        (self.data, self.ttl, self.profile) = (asked.data, asked.ttl, asked.profile);
        (self.scope, self.resource) = (asked.scope, asked.resource);
        self.narrow(scope, resource)?;
        Ok(self)
    }

    fn narrow(&mut self, scope: Option<&String>, resource: Option<&Resources>) -> Result<(), Field> {
        match (scope, &self.scope) {
            (_, None) => self.scope = scope.cloned(),
            (Some(granted), Some(asked)) if is_within(asked, granted) => {}
            // A grant without a scope has none to give.
            _ => return Err(Field::Scope),
        }
        match (resource, &self.resource) {
            (_, None) => self.resource = resource.cloned(),
            (Some(granted), Some(asked)) if !asked.within(granted) => return Err(Field::Resource),
            _ => {}
        }
        Ok(())
    }

    /// Fills in members from the grant; the error is the field that contradicts it.
    pub(super) fn inherit(&mut self, family: &Family) -> Result<(), Field> {
        if self.subject.get_or_insert_with(|| family.subject.clone()) != &family.subject {
            return Err(Field::Subject);
        }
        if self.client_id.get_or_insert_with(|| family.client_id.clone()) != &family.client_id {
            return Err(Field::ClientId);
        }
        let bound = family.cnf();
        let own = Confirmation::of(self.dpop_jkt.as_ref(), self.cnf.as_ref()).map_err(|_| Field::DpopJkt)?;
        let own = own.or(&bound);
        bound.check(&own)?;
        (self.dpop_jkt, self.cnf) = (None, Some(own));
        self.narrow(family.scope.as_ref(), family.resource.as_ref())
    }
}

impl AccessTokens {
    /// Access token under a family, bound to the key that was presented, and the writes that issue it; the error is the
    /// field that contradicts the grant. The caller's commit must hold the family to the state that it was judged in.
    pub(in crate::stores) fn prepare_under(
        &self,
        (draft, cnf): (&AccessDraft, &Confirmation),
        (id, family, ends_at): (GrantId, &Family, Timestamp),
        now: Now,
    ) -> Result<Result<TokenWrites, Field>> {
        let mut request = draft.request().cnf(cnf.clone());
        request.check_lengths()?;
        if let Err(field) = request.inherit(family) {
            return Ok(Err(field));
        }
        let above = Above { under: Under::of(id, family), ends_at, family };
        Ok(Ok(self.prepare(request, TokenSource::Grant(above), family.stamp(), now)?))
    }

    /// Access token without a grant, from the session `sid` if there was one, and the writes that issue it.
    pub(in crate::stores) fn prepare_alone(
        &self,
        mut request: AccessRequest,
        sid: Option<String>,
        stamp: Stamp,
        now: Now,
    ) -> Result<(IssuedAccessToken, Vec<Write>)> {
        request.check()?;
        self.prepare(request, TokenSource::Session(sid), stamp, now)
    }
}

/// Returns whether every name of `asked` is in `granted`.
fn is_within(asked: &str, granted: &str) -> bool {
    asked.split(' ').all(|name| granted.split(' ').any(|other| name == other))
}
