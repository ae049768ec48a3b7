//! What did not fit.

use std::fmt;

/// What did not fit, where something presented is compared with what was bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Field {
    /// The client.
    ClientId,
    /// The redirect URI.
    RedirectUri,
    /// The PKCE verifier, or that there was one, or none.
    CodeVerifier,
    /// The thumbprint of the key, or that there was none.
    DpopJkt,
    /// The subject.
    Subject,
    /// The granted scope.
    Scope,
}

impl fmt::Display for Field {
    /// The name that the field has in a request.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClientId => "client_id",
            Self::RedirectUri => "redirect_uri",
            Self::CodeVerifier => "code_verifier",
            Self::DpopJkt => "dpop_jkt",
            Self::Subject => "subject",
            Self::Scope => "scope",
        })
    }
}
