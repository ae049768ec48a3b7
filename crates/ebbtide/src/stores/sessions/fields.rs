//! What is kept in a session.

use std::fmt;

use serde_json::{Map, Value};

use crate::model::error::{Error, Result};
use crate::model::secret::Secret;
use crate::stores::shared::payload::Payload;

/// What is kept in a session: all of it optional, sealed together, and never printed.
#[derive(Clone, Default, PartialEq)]
pub struct SessionFields {
    /// Anything.
    pub data: Option<Payload>,
    /// The `state` that the sign-in was begun with.
    pub state: Option<Secret>,
    /// The provider that the user signs in with.
    pub provider: Option<String>,
    /// The PKCE verifier.
    pub code_verifier: Option<Secret>,
    /// The e-mail addresses that the provider has verified.
    pub verified_emails: Option<Vec<String>>,
    /// What the provider's token endpoint answered.
    pub token_data: Option<Payload>,
    /// What the provider says of the user.
    pub user_info: Option<Payload>,
}

impl SessionFields {
    pub(super) fn to_payload(&self) -> Payload {
        let mut fields = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                fields.insert(name.to_owned(), value);
            }
        };
        let json = |payload: &Option<Payload>| payload.as_ref().map(|payload| payload.expose().clone());
        let text = |secret: &Option<Secret>| secret.as_ref().map(|secret| secret.expose().into());
        put("data", json(&self.data));
        put("state", text(&self.state));
        put("provider", self.provider.clone().map(Value::from));
        put("code_verifier", text(&self.code_verifier));
        put("verified_emails", self.verified_emails.clone().map(Value::from));
        put("token_data", json(&self.token_data));
        put("user_info", json(&self.user_info));
        Payload::new(fields)
    }

    pub(super) fn from_payload(payload: Payload) -> Result<Self> {
        let wrong = || Error::corrupt("a session holds what no session is written with");
        let Value::Object(mut fields) = payload.into_inner() else { return Err(wrong()) };
        let mut text = |name: &str| match fields.remove(name) {
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(wrong()),
            None => Ok(None),
        };
        let (state, provider, code_verifier) = (text("state")?, text("provider")?, text("code_verifier")?);
        let emails = |value: Value| match value {
            Value::Array(emails) => emails
                .into_iter()
                .map(|email| if let Value::String(email) = email { Ok(email) } else { Err(wrong()) })
                .collect::<Result<Vec<_>>>(),
            _ => Err(wrong()),
        };
        Ok(Self {
            data: fields.remove("data").map(Payload::new),
            state: state.map(Secret::new),
            provider,
            code_verifier: code_verifier.map(Secret::new),
            verified_emails: fields.remove("verified_emails").map(emails).transpose()?,
            token_data: fields.remove("token_data").map(Payload::new),
            user_info: fields.remove("user_info").map(Payload::new),
        })
    }
}

impl fmt::Debug for SessionFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionFields(…)")
    }
}
