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
            Self::Subject => "subject",
            Self::Scope => "scope",
        })
    }
}
