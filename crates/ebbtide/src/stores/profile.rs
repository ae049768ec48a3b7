//! Lifetime profiles: default lifetimes by kind of credential.

use std::str::FromStr;
use std::time::Duration;

use super::codes::Codes;
use super::grants::check_grace;
use crate::model::error::{Error, Result};
use crate::model::ttl::Ttl;

/// Default lifetimes of what the stores issue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// Lifetime of an authorization code.
    pub code: Ttl,
    /// Lifetime of an access token.
    pub access: Ttl,
    /// Lifetime of a refresh token that is not used.
    pub refresh_idle: Ttl,
    /// Lifetime of a family of refresh tokens, however often it is used.
    pub refresh_max: Ttl,
    /// Retry window of a rotation whose answer was lost; 0 to 60 seconds.
    pub grace: Duration,
    /// True if every old refresh token is a theft once the answer to its rotation has arrived.
    pub strict: bool,
    /// Lifetime of a session.
    pub session: Ttl,
    /// Lifetime of a nonce.
    pub nonce: Ttl,
    /// Lifetime of a replay record.
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
            strict: false,
            session: Ttl::secs(600),
            nonce: Ttl::secs(300),
            replay: Ttl::secs(300),
        }
    }

    /// Single-page applications: codes of ten minutes, access tokens of an hour.
    #[must_use]
    pub const fn spa() -> Self {
        Self { code: Ttl::secs(600), access: Ttl::secs(3600), ..Self::oauth() }
    }

    /// The same with another life of a code.
    #[must_use]
    pub const fn with_code(self, code: Ttl) -> Self {
        Self { code, ..self }
    }

    /// The same with another life of an access token.
    #[must_use]
    pub const fn with_access(self, access: Ttl) -> Self {
        Self { access, ..self }
    }

    /// The same with other lives of a refresh token: one that is not used, and a family however often it is used.
    #[must_use]
    pub const fn with_refresh(self, idle: Ttl, max: Ttl) -> Self {
        Self { refresh_idle: idle, refresh_max: max, ..self }
    }

    /// The same with another time for which a lost answer to a rotation can be asked for again.
    #[must_use]
    pub const fn with_grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// The same, where every old refresh token is a theft once the answer to its rotation has arrived.
    #[must_use]
    pub const fn with_strict(self, strict: bool) -> Self {
        Self { strict, ..self }
    }

    /// The same with another life of a session.
    #[must_use]
    pub const fn with_session(self, session: Ttl) -> Self {
        Self { session, ..self }
    }

    /// The same with other lives of a nonce and of the memory of a proof.
    #[must_use]
    pub const fn with_nonce_and_replay(self, nonce: Ttl, replay: Ttl) -> Self {
        Self { nonce, replay, ..self }
    }

    /// Refuses lives that the stores would refuse each time, or that contradict each other.
    pub fn check(&self) -> Result<()> {
        if self.code.duration() > Duration::from_secs(Codes::MAX_TTL_SECONDS) {
            return Err(Error::invalid(format!(
                "a code lives at most {} s; this profile gives it {}",
                Codes::MAX_TTL_SECONDS,
                self.code
            )));
        }
        if self.refresh_idle > self.refresh_max {
            return Err(Error::invalid(format!(
                "a family of refresh tokens lives at most {} in this profile, and idle for {}",
                self.refresh_max, self.refresh_idle
            )));
        }
        check_grace(self.grace)
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
            ))
            .about("profile")),
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
        assert_eq!(seconds("oauth"), [60, 900, 1_209_600, 600, 300, 300]);
        assert_eq!(seconds("spa"), [600, 3_600, 1_209_600, 600, 300, 300]);
        assert_eq!(seconds("mcp"), [600, 3_600, 2_592_000, 600, 300, 300]);
        assert!(["oauth", "spa", "mcp"].iter().all(|name| name.parse::<Profile>().unwrap().check().is_ok()));
        assert!("OAuth".parse::<Profile>().unwrap_err().message().contains("oauth, spa, mcp"));
    }
    #[test]
    fn a_profile_that_cannot_be_kept_is_refused() {
        let own = Profile::spa().with_session(Ttl::secs(60)).with_access(Ttl::secs(30));
        assert_eq!((own.session, own.access, own.code), (Ttl::secs(60), Ttl::secs(30), Ttl::secs(600)));
        assert!(own.check().is_ok());
        for (wrong, names) in [
            (own.with_code(Ttl::secs(601)), "600 s"),
            (own.with_refresh(Ttl::secs(11), Ttl::secs(10)), "10 s"),
            (own.with_grace(Duration::from_secs(61)), "60"),
        ] {
            let error = wrong.check().unwrap_err();
            assert!(error.message().contains(names), "{error}");
        }
    }
}
