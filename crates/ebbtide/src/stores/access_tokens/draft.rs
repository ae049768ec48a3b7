//! Access tokens that are issued in the commit of a redemption or a rotation.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

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
pub(crate) fn asked<'de, D: Deserializer<'de>>(member: D) -> Result<Option<AccessDraft>, D::Error> {
    Ok(Option::<AccessMember>::deserialize(member)?.and_then(|AccessMember(draft)| draft))
}

struct AccessMember(Option<AccessDraft>);

impl<'de> Deserialize<'de> for AccessMember {
    fn deserialize<D: Deserializer<'de>>(member: D) -> Result<Self, D::Error> {
        // The names, so that the edge reads milliseconds and names the member of an error.
        const MEMBERS: &[&str] = &["scope", "resource", "data", "ttl_seconds", "profile"];
        member.deserialize_struct("AccessDraft", MEMBERS, FlagOrDraft)
    }
}

struct FlagOrDraft;

impl<'de> Visitor<'de> for FlagOrDraft {
    type Value = AccessMember;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, or an object")
    }

    fn visit_bool<E>(self, asked: bool) -> Result<AccessMember, E> {
        Ok(AccessMember(asked.then(AccessDraft::default)))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<AccessMember, A::Error> {
        AccessDraft::deserialize(MapAccessDeserializer::new(members)).map(|draft| AccessMember(Some(draft)))
    }
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
