//! Fields that a redemption or rotation is checked by.

use std::fmt;

/// Field of a request that does not match the stored binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Field {
    /// Client.
    ClientId,
    /// Redirect URI.
    RedirectUri,
    /// PKCE verifier: wrong, missing or unexpected.
    CodeVerifier,
    /// Thumbprint of the key: wrong or missing.
    DpopJkt,
    /// SHA-256 thumbprint of the client certificate: wrong or missing.
    Certificate,
    /// Resource that the token is meant for.
    Resource,
    /// Subject.
    Subject,
    /// Granted OAuth scope.
    Scope,
}

impl fmt::Display for Field {
    /// Writes the name of the member in a request.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClientId => "client_id",
            Self::RedirectUri => "redirect_uri",
            Self::CodeVerifier => "code_verifier",
            Self::DpopJkt => "dpop_jkt",
            Self::Certificate => "x5t#S256",
            Self::Resource => "resource",
            Self::Subject => "subject",
            Self::Scope => "scope",
        })
    }
}
