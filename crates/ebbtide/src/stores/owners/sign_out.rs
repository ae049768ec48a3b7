//! Sign-out of a subject, and the overview of what a subject has.

use super::Owners;
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::stores::access_tokens::AccessTokenInfo;
use crate::stores::audit::{AuditContext, Note};
use crate::stores::check_length;
use crate::stores::clients::Client;
use crate::stores::grants::{Grant, Holder, MAX_NAME_BYTES, MOST_COUNTED};
use crate::stores::sessions::SessionInfo;
use crate::stores::shared::epochs::Epoch;
use crate::stores::shared::paging::MAX_LIMIT;
use crate::stores::shared::tombstones::Principal;
use crate::stores::shared::update::Step;

/// Attempts to raise the epoch in much less than the time for which nothing is issued afterwards.
pub(in crate::stores) const LAST_RAISES: usize = 16;

/// Counts of a sign-out. Codes and approved device codes of the subject are ended too; they are in no index, and so in
/// no count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SignedOut {
    /// Number of grants that were active.
    pub grants: u64,
    /// Number of access tokens without a grant.
    pub access_tokens: u64,
    /// Number of sessions that were live.
    pub sessions: u64,
    /// True if there may be more: the first [`MOST_COUNTED`] of each are counted.
    pub more: bool,
}

impl SignedOut {
    /// Number of all that was counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.grants + self.access_tokens + self.sessions
    }
}

/// Grants, access tokens, sessions and clients of a subject, up to 1,000 of each.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Overview {
    /// Grants in any state that have not reached their cap.
    pub grants: Vec<Grant>,
    /// Access tokens, under a grant or without one, that have not reached their end.
    pub access_tokens: Vec<AccessTokenInfo>,
    /// Live sessions.
    pub sessions: Vec<SessionInfo>,
    /// Clients that the subject owns.
    pub clients: Vec<Client>,
    /// True if there is more than the overview has.
    pub more: bool,
}

impl Owners {
    /// Ends every grant, access token, session, outstanding code and approved device code of a subject. Nothing that was
    /// issued before this returns works afterwards, whatever raced: their epoch is raised in one write, with the audit
    /// entry, and once more after the count, for what was issued meanwhile.
    ///
    /// Tokens of a client that speaks for itself are of the client: revoke them [by it](crate::stores::grants::Holder).
    /// They are neither ended nor counted, even if a subject has the name of the client.
    pub async fn sign_out(&self, subject: &str, context: &AuditContext) -> Result<SignedOut> {
        check_length("subject", subject, MAX_NAME_BYTES)?;
        let note =
            &Note::revoked(context)?.about(Kind::Owner, vec![subject.to_owned()]).with_detail("sign-out");
        let (was, _) = self.raise(subject, Some(note)).await?;
        let Self { stores, scope } = self;
        let holder = Holder::Subject(subject);
        let (grants, more_grants) = stores.grants(scope).count_ended(holder, was, MOST_COUNTED).await?;
        let (access_tokens, more_tokens) =
            stores.access_tokens(scope).count_ended(holder, was, MOST_COUNTED).await?;
        let (sessions, more_sessions) =
            stores.sessions(scope).count_ended(subject, was, MOST_COUNTED).await?;
        let more = more_grants || more_tokens || more_sessions;
        for _ in 0..LAST_RAISES {
            let (_, epoch) = self.raise(subject, None).await?;
            if stores.holds_issues_after(epoch, 0)? {
                return Ok(SignedOut { grants, access_tokens, sessions, more });
            }
        }
        Err(Error::unavailable("the store is too slow to end what is issued meanwhile; try again"))
    }

    /// Raises the epoch of a subject, and returns the one before and the new one.
    async fn raise(&self, subject: &str, note: Option<&Note>) -> Result<(u64, Epoch)> {
        let raise = self.stores.retry(|now| async move {
            let principal = Principal::Owner(subject);
            let (was, epoch, writes) = self.stores.raise(principal, &self.scope, None, now).await?;
            let step = Step::write(writes, (was.map_or(0, |was| was.value), epoch));
            Ok(match note {
                Some(note) => step.audited(&self.scope, note.clone()),
                None => step,
            })
        });
        raise.await
    }

    /// Lists what a subject has, without payloads. It changes and renews nothing.
    pub async fn overview(&self, subject: &str) -> Result<Overview> {
        check_length("subject", subject, MAX_NAME_BYTES)?;
        let Self { stores, scope } = self;
        let holder = Holder::Subject(subject);
        let grants = stores.grants(scope).list(holder, None, MAX_LIMIT).await?;
        let (access_tokens, more_tokens) = stores.access_tokens(scope).list(holder, MAX_LIMIT).await?;
        let sessions = stores.sessions(scope).list(subject, None, MAX_LIMIT).await?;
        let clients = stores.clients(scope).list(subject, None, MAX_LIMIT).await?;
        let more = grants.next.is_some() || more_tokens || sessions.next.is_some() || clients.next.is_some();
        Ok(Overview {
            grants: grants.items,
            access_tokens,
            sessions: sessions.items,
            clients: clients.items,
            more,
        })
    }
}
