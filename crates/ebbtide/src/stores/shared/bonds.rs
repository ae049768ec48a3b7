//! Bonds of a record to its scope: the principals that end it, and the records that move with it.

use super::epochs::{Epoch, Stamp};
use super::tombstones::Principal;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part};
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::write::Write;
use crate::stores::Stores;
use crate::stores::api_keys::ApiKeys;
use crate::stores::audit::Audit;
use crate::stores::nonces::Nonces;
use crate::stores::owners::Owners;
use crate::stores::policies::Policies;
use crate::stores::provider_tokens::ProviderTokens;
use crate::stores::replays::Replays;
use crate::timekeeping::Now;

/// Move of a store's records to another scope. The defaults are for records that nothing ends but their own expiry, and
/// that stand alone.
pub(crate) trait Moves: Sized {
    /// Principals that end a record of the store's first kind, with the epochs that it carries.
    fn bonds(_key: &Key, _value: &[u8]) -> Result<Bonds> {
        Ok(Bonds::default())
    }

    /// Value of a record that moves from the scope `from`, with the epochs of the scope that it moves to; none if it
    /// carries none.
    fn restamped(_value: &[u8], _stamp: Stamp, _from: &Scope) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// Records of this scope that move together with `record`.
    async fn companions(&self, _key: &Key, _record: &Record) -> Result<Companions> {
        Ok(Companions::default())
    }
}

impl Moves for ApiKeys {}
impl Moves for Audit {}
impl Moves for Nonces {}
impl Moves for Owners {}
impl Moves for Policies {}
impl Moves for ProviderTokens {}
impl Moves for Replays {}

/// Principals that end a record.
#[derive(Debug, Default)]
pub(crate) struct Bonds {
    /// Subject whose epoch the record carries.
    pub(crate) subject: Option<String>,
    /// Client whose epoch the record carries.
    pub(crate) client: Option<String>,
    /// Session that the record came from.
    pub(crate) session: Option<String>,
    /// Epochs that the record carries.
    pub(crate) stamp: Stamp,
    /// Owners that it is removed with.
    pub(crate) owners: Vec<String>,
    /// Client that it is removed with.
    pub(crate) of_client: Option<String>,
}

/// Records of the same scope that move together with another.
#[derive(Debug, Default)]
pub(crate) struct Companions {
    /// Records that move in the same commit.
    pub(crate) keys: Vec<Key>,
    /// Markers that end the record: it stays if there is one, here or in the other scope.
    pub(crate) markers: Vec<Key>,
}

impl Companions {
    /// Records without markers.
    pub(crate) fn of(keys: impl IntoIterator<Item = Key>) -> Self {
        Self { keys: keys.into_iter().collect(), markers: Vec::new() }
    }
}

impl Bonds {
    /// Bonds of a record that is removed with an owner.
    pub(crate) fn of_owner(owner: impl Into<String>) -> Self {
        Self { owners: vec![owner.into()], ..Self::default() }
    }

    /// Bonds of what a subject and a client share. Where they are one, the client alone counts.
    pub(crate) fn of_parties(subject: &str, client: &str, session: Option<&str>, stamp: Stamp) -> Self {
        Self {
            subject: Some(subject.to_owned()).filter(|_| subject != client),
            client: Some(client.to_owned()),
            session: session.map(str::to_owned),
            stamp,
            ..Self::default()
        }
    }

    /// Principals, each with the epoch that the record carries of it; none if only a deletion matters.
    fn principals(&self) -> impl Iterator<Item = (Principal<'_>, Option<u64>)> {
        let subject =
            self.subject.as_deref().map(|name| (Principal::Owner(name), Some(self.stamp.subject())));
        let client = self.client.as_deref().map(|name| (Principal::Client(name), Some(self.stamp.client())));
        let session = self.session.as_deref().map(|sid| (Principal::Session(sid), Some(0)));
        let owners = self.owners.iter().map(|name| (Principal::Owner(name), None));
        let of_client = self.of_client.as_deref().map(|name| (Principal::Client(name), None));
        subject.into_iter().chain(client).chain(session).chain(owners).chain(of_client)
    }
}

/// First name in the key of a record: its owner, where records are kept by owner.
pub(crate) fn first_name(key: &Key) -> Result<String> {
    match key.partition().first() {
        Some(Part::Text(name)) => Ok(name.to_string()),
        _ => Err(Error::corrupt("the key of a record has no name")),
    }
}

impl Stores {
    /// Epochs with which a record goes on in the scope `to`, and the conditions under which it does. None if it has ended
    /// in `from`, or one of its principals is being deleted.
    pub(crate) async fn carry(
        &self,
        bonds: &Bonds,
        from: &Scope,
        to: &Scope,
        now: Now,
    ) -> Result<Option<(Stamp, Vec<Write>)>> {
        let (mut stamp, mut conditions) = (Stamp::default(), Vec::new());
        for (scope, is_here) in [(from, true), (to, false)] {
            for (principal, carried) in bonds.principals() {
                let key = principal.tombstone(scope)?;
                let record = self.backend().get(&key, now).await?;
                let epoch = record.as_ref().map(Epoch::read).transpose()?;
                let is_ended = |epoch: Epoch| {
                    let is_older = is_here && carried.is_some_and(|carried| epoch.value > carried);
                    epoch.deleting || is_older || matches!(principal, Principal::Session(_))
                };
                if epoch.is_some_and(is_ended) {
                    return Ok(None);
                }
                if !is_here && carried.is_some() {
                    stamp = stamp.with(principal, epoch, record.as_ref());
                }
                conditions.push(match record {
                    Some(record) => Write::Check { key, expected: record.version },
                    None => Write::Absent { key },
                });
            }
        }
        Ok(Some((stamp, conditions)))
    }
}
