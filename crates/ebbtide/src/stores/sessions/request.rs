//! Contents of a session, as they are given and as they are read.

use std::fmt;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::model::error::{Error, Result};
use crate::model::secret::Secret;
use crate::model::ttl::Ttl;
use crate::stores::shared::payload::{Payload, present};
use crate::stores::shared::setters::setters;

/// Session to be created. All members are optional; the contents are sealed together and never printed.
#[derive(Clone, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct SessionRequest {
    /// Owner of the session.
    #[cfg_attr(feature = "schema", schema(min_length = 1, example = "alice"))]
    pub subject: Option<String>,
    /// Name that codes and grants refer to the session by; its handle by default.
    pub sid: Option<String>,
    /// Any JSON value.
    #[serde(default, deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Value>))]
    pub data: Option<Payload>,
    /// `state` that the sign-in began with.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub state: Option<Secret>,
    /// Identity provider.
    pub provider: Option<String>,
    /// PKCE verifier.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub code_verifier: Option<Secret>,
    /// E-mail addresses that the provider has verified.
    pub verified_emails: Option<Vec<String>>,
    /// Answer of the provider's token endpoint.
    #[serde(default, deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Value>))]
    pub token_data: Option<Payload>,
    /// User information from the provider.
    #[serde(default, deserialize_with = "present")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Value>))]
    pub user_info: Option<Payload>,
    /// Lifetime since the last touch.
    #[serde(rename = "ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub ttl: Option<Ttl>,
    /// Lifetime that touches cannot exceed; a day, or the TTL if that is longer, by default.
    #[serde(rename = "max_ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub max_ttl: Option<Ttl>,
    /// `true` if each read renews the lifetime, up to the cap.
    pub sliding: Option<bool>,
    /// Profile whose lifetime is used: `oauth`, `spa`, `mcp`, or a configured one.
    #[cfg_attr(feature = "schema", schema(example = "oauth"))]
    pub profile: Option<String>,
}

impl SessionRequest {
    /// Creates a request for an empty session without an owner.
    pub fn new() -> Self {
        Self::default()
    }

    setters!(subject: String, sid: String, data: Payload, state: Secret, provider: String, code_verifier: Secret, verified_emails: Vec<String>, token_data: Payload, user_info: Payload, ttl: Ttl, max_ttl: Ttl, sliding: bool, profile: String);

    /// Contents, as they are sealed.
    pub(super) fn payload(&self) -> Payload {
        let json = |payload: &Option<Payload>| payload.as_ref().map(|payload| payload.expose().clone());
        let text = |secret: &Option<Secret>| secret.as_ref().map(|secret| secret.expose().into());
        let members = [
            ("data", json(&self.data)),
            ("state", text(&self.state)),
            ("provider", self.provider.clone().map(Value::from)),
            ("code_verifier", text(&self.code_verifier)),
            ("verified_emails", self.verified_emails.clone().map(Value::from)),
            ("token_data", json(&self.token_data)),
            ("user_info", json(&self.user_info)),
        ];
        let given = members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Payload::new(given.collect::<Map<_, _>>())
    }
}

impl fmt::Debug for SessionRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionRequest({:?}, …)", self.subject)
    }
}

/// Contents of a session. They do not print.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct SessionFields {
    /// Any JSON value.
    #[serde(default, deserialize_with = "present")]
    pub data: Option<Payload>,
    /// `state` that the sign-in began with.
    pub state: Option<Secret>,
    /// Identity provider.
    pub provider: Option<String>,
    /// PKCE verifier.
    pub code_verifier: Option<Secret>,
    /// E-mail addresses that the provider has verified.
    pub verified_emails: Option<Vec<String>>,
    /// Answer of the provider's token endpoint.
    #[serde(default, deserialize_with = "present")]
    pub token_data: Option<Payload>,
    /// User information from the provider.
    #[serde(default, deserialize_with = "present")]
    pub user_info: Option<Payload>,
}

impl SessionFields {
    pub(super) fn open(payload: Payload) -> Result<Self> {
        // The parser's error may quote the contents, so it is left out.
        serde_json::from_value(payload.into_inner())
            .map_err(|_| Error::corrupt("the contents of a session cannot be read"))
    }
}

impl fmt::Debug for SessionFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionFields(…)")
    }
}
