//! Requests to issue and to redeem a code.

use serde::Deserialize;

use super::{Codes, IssuedCode};
use crate::model::error::{Error, Result};
use crate::model::secret::Secret;
use crate::model::ttl::Ttl;
use crate::stores::access_tokens::{AccessDraft, asked};
use crate::stores::check_optional;
use crate::stores::grants::{GrantTtls, MAX_NAME_BYTES, asked_grant, check_names};
use crate::stores::shared::confirmation::{Confirmation, Resources};
use crate::stores::shared::payload::Payload;
use crate::stores::shared::setters::setters;

/// Request for a code, with everything that it is bound to.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct CodeRequest {
    /// Client that may redeem the code.
    #[cfg_attr(feature = "schema", schema(min_length = 1, example = "app"))]
    pub client_id: String,
    /// Subject that the code speaks for.
    #[cfg_attr(feature = "schema", schema(min_length = 1, example = "alice"))]
    pub subject: String,
    /// URI that the code is sent to. A redemption that names one must name this one.
    #[cfg_attr(
        feature = "schema",
        schema(min_length = 1, max_length = 4096, example = "https://app.example/cb")
    )]
    pub redirect_uri: Option<String>,
    /// PKCE challenge; the method is S256.
    pub code_challenge: Option<String>,
    /// Thumbprint of the key that the code is bound to.
    pub dpop_jkt: Option<String>,
    /// Key that the code is bound to, by `jkt` or `x5t#S256`.
    pub cnf: Option<Confirmation>,
    /// Granted OAuth scope.
    pub scope: Option<String>,
    /// Resources that its access tokens are meant for (RFC 8707).
    #[cfg_attr(feature = "schema", schema(value_type = Option<Vec<String>>))]
    pub resource: Option<Resources>,
    /// Session that the code comes from; its grant ends with it.
    pub sid: Option<String>,
    /// Payload, stored sealed; the grant gets it too.
    #[cfg_attr(feature = "schema", schema(value_type = Option<serde_json::Value>))]
    pub data: Option<Payload>,
    /// Lifetime: 60 seconds by default, 600 at most.
    #[serde(rename = "ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1, maximum = 600))]
    pub ttl: Option<Ttl>,
    /// Profile of the code, and of its grant unless the redemption names another: `oauth`, `spa`, `mcp`, or a
    /// configured one.
    #[cfg_attr(feature = "schema", schema(example = "spa"))]
    pub profile: Option<String>,
}

impl CodeRequest {
    /// Request for a code of `client_id`, that speaks for `subject` and is sent to `redirect_uri`.
    pub fn new(
        client_id: impl Into<String>,
        subject: impl Into<String>,
        redirect_uri: impl Into<String>,
    ) -> Self {
        Self {
            client_id: client_id.into(),
            subject: subject.into(),
            redirect_uri: Some(redirect_uri.into()),
            code_challenge: None,
            dpop_jkt: None,
            cnf: None,
            scope: None,
            resource: None,
            sid: None,
            data: None,
            ttl: None,
            profile: None,
        }
    }

    setters!(
        code_challenge: String,
        dpop_jkt: String,
        cnf: Confirmation,
        scope: String,
        resource: Resources,
        sid: String,
        data: Payload,
        ttl: Ttl,
        profile: String,
    );

    pub(super) fn check(&self) -> Result<()> {
        check_optional("redirect_uri", self.redirect_uri.as_deref(), Codes::MAX_URI_BYTES)?;
        check_optional("sid", self.sid.as_deref(), MAX_NAME_BYTES)?;
        // A sign-out ends nothing of a subject that is its own client, and who registers may choose the client_id.
        if self.subject == self.client_id {
            return Err(Error::invalid("a code speaks for a user, who has another name than the client")
                .about("subject"));
        }
        check_names(Some(&self.subject), Some(&self.client_id), self.scope.as_deref())
    }

    pub(super) fn key(&self) -> Result<Confirmation> {
        Confirmation::of(self.dpop_jkt.as_ref(), self.cnf.as_ref())
    }
}

/// Request to redeem a code, with everything that is presented with it.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct Redeem {
    /// The code.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub code: Secret,
    /// Authenticated client that presents the code.
    #[cfg_attr(feature = "schema", schema(example = "app"))]
    pub client_id: String,
    /// Redirect URI that the client names; it must be the one of the code. With a PKCE challenge it may be left out.
    #[cfg_attr(feature = "schema", schema(example = "https://app.example/cb"))]
    pub redirect_uri: Option<String>,
    /// PKCE verifier.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub code_verifier: Option<Secret>,
    /// Thumbprint of the key whose proof came with the code; the grant is bound to it.
    pub dpop_jkt: Option<String>,
    /// Key that came with the code, by `jkt` or `x5t#S256`; the grant is bound to it.
    pub cnf: Option<Confirmation>,
    /// Asks for a grant, issued in the commit that redeems the code: `true`, or its lifetimes.
    #[serde(default, deserialize_with = "asked_grant")]
    pub grant: Option<GrantTtls>,
    /// Asks for an access token, issued in the same commit: `true`, or what differs from the code.
    #[serde(default, deserialize_with = "asked")]
    pub access_token: Option<AccessDraft>,
    /// Leaves the code redeemable when something does not match, instead of invalidating it.
    #[serde(skip)]
    pub keep_on_mismatch: bool,
}

impl Redeem {
    /// Request of `client_id` to redeem `code`. A code that is bound to a redirect URI, and to no PKCE challenge, needs
    /// [`redirect_uri`](Self::redirect_uri) too.
    pub fn new(code: impl Into<Secret>, client_id: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            client_id: client_id.into(),
            redirect_uri: None,
            code_verifier: None,
            dpop_jkt: None,
            cnf: None,
            grant: None,
            access_token: None,
            keep_on_mismatch: false,
        }
    }

    setters!(
        redirect_uri: String,
        code_verifier: Secret,
        dpop_jkt: String,
        cnf: Confirmation,
        grant: GrantTtls,
        access_token: AccessDraft,
    );

    /// Asks for a grant with the lifetimes of the profile.
    pub fn with_grant(self) -> Self {
        self.grant(GrantTtls::default())
    }

    /// Sets [`keep_on_mismatch`](Self#structfield.keep_on_mismatch).
    pub fn keep_on_mismatch(mut self) -> Self {
        self.keep_on_mismatch = true;
        self
    }
}

impl From<IssuedCode> for Secret {
    fn from(issued: IssuedCode) -> Self {
        issued.code
    }
}
