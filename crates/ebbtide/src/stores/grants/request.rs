//! What a grant is asked for with.

use std::time::Duration;

use super::Grants;
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::ttl::Ttl;
use crate::stores::profile::Profile;
use crate::stores::shared::payload::Payload;
use crate::stores::{check_length, check_optional};

/// How long a family lives. What is not said comes from the profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[must_use]
pub struct GrantTtls {
    profile: Option<Profile>,
    idle: Option<Ttl>,
    max: Option<Ttl>,
    grace: Option<Duration>,
}

/// The terms with everything filled in.
pub(super) struct Lives {
    pub(super) idle: Ttl,
    pub(super) max: Ttl,
    pub(super) grace: Duration,
}

impl GrantTtls {
    /// The longest time for which a lost answer can be asked for again.
    pub const MAX_GRACE: Duration = Duration::from_secs(60);

    /// The terms of this profile instead of the stores' own.
    pub fn profile(mut self, profile: Profile) -> Self {
        self.profile = Some(profile);
        self
    }

    /// Ends the family when it was not rotated for that long.
    pub fn idle(mut self, idle: Ttl) -> Self {
        self.idle = Some(idle);
        self
    }

    /// Ends the family after that long, however often it is rotated.
    pub fn max(mut self, max: Ttl) -> Self {
        self.max = Some(max);
        self
    }

    /// For how long a lost answer can be asked for again: 0 is strict, 60 seconds is the most.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }
}

pub(crate) fn check_grace(grace: Duration) -> Result<()> {
    if grace > GrantTtls::MAX_GRACE {
        return Err(Error::invalid(format!(
            "the grace of a rotation is 0 to {} seconds",
            GrantTtls::MAX_GRACE.as_secs()
        )));
    }
    Ok(())
}

impl Grants {
    pub(super) fn lives(&self, terms: &GrantTtls) -> Result<Lives> {
        let profile = terms.profile.unwrap_or(*self.stores.profile());
        let idle = terms.idle.unwrap_or(profile.refresh_idle);
        // Who asks for a long idle time and no cap does not mean the cap to cut it short.
        let max = self.stores.ttl(Kind::Grant, &self.scope, terms.max, profile.refresh_max.max(idle))?;
        let grace = terms.grace.unwrap_or(profile.grace);
        check_grace(grace)?;
        Ok(Lives { idle, max, grace })
    }
}

/// A grant to be issued.
#[derive(Debug, Clone)]
#[must_use]
pub struct GrantRequest {
    pub(crate) subject: String,
    pub(crate) client_id: String,
    pub(crate) scope: Option<String>,
    pub(crate) thumbprint: Option<String>,
    pub(crate) data: Option<Payload>,
    pub(crate) terms: GrantTtls,
}

impl GrantRequest {
    /// A grant that speaks for `subject`, held by `client_id`.
    pub fn new(subject: impl Into<String>, client_id: impl Into<String>) -> Self {
        let (subject, client_id) = (subject.into(), client_id.into());
        Self { subject, client_id, scope: None, thumbprint: None, data: None, terms: GrantTtls::default() }
    }

    /// What was granted: OAuth's scope, names with spaces between.
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.scope = Some(scope.into());
        self
    }

    /// Binds the family to the key with this thumbprint.
    pub fn thumbprint(mut self, thumbprint: impl Into<String>) -> Self {
        self.thumbprint = Some(thumbprint.into());
        self
    }

    /// Keeps this with the grant, sealed.
    pub fn data(mut self, data: impl Into<Payload>) -> Self {
        self.data = Some(data.into());
        self
    }

    /// How long the family lives.
    pub fn terms(mut self, terms: GrantTtls) -> Self {
        self.terms = terms;
        self
    }

    pub(super) fn check(&self) -> Result<()> {
        check_length("subject", &self.subject, MAX_NAME_BYTES)?;
        check_length("client_id", &self.client_id, MAX_NAME_BYTES)?;
        check_optional("scope", self.scope.as_deref(), MAX_SCOPE_BYTES)?;
        check_optional("key thumbprint", self.thumbprint.as_deref(), MAX_THUMBPRINT_BYTES)
    }
}

/// The longest subject and client id, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 1_024;

/// The longest granted scope, in bytes.
pub(crate) const MAX_SCOPE_BYTES: usize = 8_192;

/// The longest key thumbprint, in bytes.
pub(crate) const MAX_THUMBPRINT_BYTES: usize = 256;
