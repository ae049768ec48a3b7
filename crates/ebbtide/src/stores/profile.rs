//! Lifetime profiles: what lives how long where nothing else was asked for.

use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::ttl::Ttl;

/// The lives that the stores give where none is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// Of an authorization code.
    pub code: Ttl,
    /// Of an access token.
    pub access: Ttl,
    /// Of a refresh token that is not used.
    pub refresh_idle: Ttl,
    /// Of a family of refresh tokens, however often it is used.
    pub refresh_max: Ttl,
    /// For how long a lost answer to a rotation can be asked for again; 0 to 60 seconds.
    pub grace: Duration,
    /// Of a session.
    pub session: Ttl,
    /// Of a nonce.
    pub nonce: Ttl,
    /// Of the memory of a proof.
    pub replay: Ttl,
}

const DAY: u64 = 24 * 3600;

impl Profile {
    /// The names, as [`FromStr`] reads them.
    pub const NAMES: [&str; 3] = ["oauth", "spa", "mcp"];

    /// An authorization server: codes of a minute, access tokens of a quarter of an hour.
    #[must_use]
    pub const fn oauth() -> Self {
        Self {
            code: Ttl::secs(60),
            access: Ttl::secs(900),
            refresh_idle: Ttl::secs(14 * DAY),
            refresh_max: Ttl::secs(90 * DAY),
            grace: Duration::from_secs(10),
            session: Ttl::secs(600),
            nonce: Ttl::secs(300),
            replay: Ttl::secs(60),
        }
    }

    /// Single-page applications: codes of ten minutes, access tokens of an hour.
    #[must_use]
    pub const fn spa() -> Self {
        Self { code: Ttl::secs(600), access: Ttl::secs(3600), ..Self::oauth() }
    }

    /// Model Context Protocol clients: as single-page applications, with refresh tokens of thirty days.
    #[must_use]
    pub const fn mcp() -> Self {
        Self { refresh_idle: Ttl::secs(30 * DAY), ..Self::spa() }
    }
}

impl Default for Profile {
    fn default() -> Self {
        Self::oauth()
    }
}

impl FromStr for Profile {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "oauth" => Ok(Self::oauth()),
            "spa" => Ok(Self::spa()),
            "mcp" => Ok(Self::mcp()),
            _ => Err(Error::invalid(format!(
                "no lifetime profile has that name; the profiles are {}",
                Self::NAMES.join(", ")
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_those_of_the_design() {
        let seconds = |name: &str| {
            let profile: Profile = name.parse().unwrap();
            [
                profile.code,
                profile.access,
                profile.refresh_idle,
                profile.session,
                profile.nonce,
                profile.replay,
            ]
            .map(|ttl| ttl.duration().as_secs())
        };
        assert_eq!(seconds("oauth"), [60, 900, 1_209_600, 600, 300, 60]);
        assert_eq!(seconds("spa"), [600, 3_600, 1_209_600, 600, 300, 60]);
        assert_eq!(seconds("mcp"), [600, 3_600, 2_592_000, 600, 300, 60]);
        assert!("OAuth".parse::<Profile>().unwrap_err().message().contains("oauth, spa, mcp"));
    }
}
