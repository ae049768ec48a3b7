//! Epochs of subjects and clients: a number that is zero until something happens, and that a sign-out, a revocation by
//! client and a deletion raise.
//!
//! Everything that is issued carries the epochs of its subject and its client; what is derived from it keeps them. What
//! carries an older epoch is dead at every use. So one write ends everything that was issued before, also what a paused
//! process commits afterwards. A raise is at least the time in milliseconds, so that an epoch never comes again after
//! its record has expired.
//!
//! The epoch of a subject is a condition of every commit that issues or uses. The epoch of a client is not, where nodes
//! share a store: every call of a client would contend for it. There it comes from the [set](super::client_epochs) that
//! each process holds under a lease.

use std::time::Duration;

use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};

use super::client_epochs::{ClientEpochSource, ClientRead};
use super::refusal::RefusalCause;
use super::tombstones::{Principal, owner_is_deleted};
use crate::model::codec;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::record::{Record, Version};
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::{Batch, Commit, Write};
use crate::stores::Stores;
use crate::stores::grants::Why;
use crate::timekeeping::Now;

const DAY: u64 = 24 * 3600;

/// Longest lifetime of anything that carries an epoch: ten years. It may only ever be raised.
pub(crate) const LONGEST: Ttl = Ttl::secs(3_653 * DAY);

/// Time for which an epoch is kept after it was raised, and a group after it was revoked: a day longer than anything that
/// carries one, for writes that were in flight.
pub(crate) const KEPT: Duration = Duration::from_secs(3_654 * DAY);

/// Refuses a lifetime that is longer than epochs are kept.
pub(crate) fn check_longest(what: &str, ttl: Ttl, member: &'static str) -> Result<()> {
    if ttl > LONGEST {
        return Err(Error::invalid(format!("{what} lives at most {LONGEST}")).about(member));
    }
    Ok(())
}

/// Epochs that a record carries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub(crate) struct Stamp {
    #[n(0)]
    subject: u64,
    #[n(1)]
    client: u64,
    /// Versions of the records that the epochs are from, so that a commit can check them without a read.
    #[n(2)]
    subject_version: Option<ByteArray<16>>,
    #[n(3)]
    client_version: Option<ByteArray<16>>,
}

impl Stamp {
    pub(crate) fn subject(&self) -> u64 {
        self.subject
    }

    pub(crate) fn client(&self) -> u64 {
        self.client
    }

    pub(super) fn take(&mut self, role: Role, value: u64, version: Option<ByteArray<16>>) {
        match role {
            Role::Subject => (self.subject, self.subject_version) = (value, version),
            Role::Client => (self.client, self.client_version) = (value, version),
            Role::Session => {}
        }
    }

    /// The same, with the epoch of a principal and the record that it is from.
    pub(crate) fn with(
        mut self,
        principal: Principal<'_>,
        epoch: Option<Epoch>,
        record: Option<&Record>,
    ) -> Self {
        let value = epoch.map_or(0, |epoch| epoch.value);
        let version = record.map(|record| (*record.version.as_bytes()).into());
        match principal {
            Principal::Owner(_) => (self.subject, self.subject_version) = (value, version),
            Principal::Client(_) => (self.client, self.client_version) = (value, version),
            Principal::Session(_) => {}
        }
        self
    }

    /// The same, with the subject's epoch of another: a device code has that of its approval.
    pub(crate) fn with_subject_of(mut self, other: Self) -> Self {
        (self.subject, self.subject_version) = (other.subject, other.subject_version);
        self
    }
}

/// Epoch of a principal, as it is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Epoch {
    pub(crate) value: u64,
    /// True while the principal is being deleted: nothing new is accepted.
    pub(crate) deleting: bool,
}

/// Present epoch of a principal that was read; none where nothing was raised.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PresentEpoch(pub(crate) Option<Epoch>);

#[derive(Encode, Decode)]
struct StoredEpoch {
    #[n(0)]
    value: u64,
    #[n(1)]
    deleting: bool,
}

impl Epoch {
    pub(crate) fn read(record: &Record) -> Result<Self> {
        // Tombstones of earlier versions: empty during the deletion, the time of its end afterwards.
        if record.value.is_empty() {
            return Ok(Self { value: 0, deleting: true });
        }
        if let Ok(ended_at) = <[u8; 8]>::try_from(record.value.as_ref()) {
            return Ok(Self { value: u64::from_be_bytes(ended_at), deleting: false });
        }
        let StoredEpoch { value, deleting } = codec::decode(&record.value)?;
        Ok(Self { value, deleting })
    }

    /// Next epoch after `present`: never one that was there before, even if its record has expired since.
    pub(crate) fn raised(present: Option<Self>, deleting: bool, now: Now) -> Self {
        let next = present.map_or(0, |present| present.value.saturating_add(1));
        Self { value: next.max(now.latest().as_millis()), deleting }
    }

    /// Record of the epoch. During a deletion it has no end.
    pub(crate) fn record(self, stores: &Stores, now: Now) -> Result<Record> {
        let expires_at = if self.deleting { Timestamp::NEVER } else { now.end_after(KEPT)? };
        let stored = StoredEpoch { value: self.value, deleting: self.deleting };
        Ok(stores.record(codec::encode(&stored), expires_at))
    }
}

/// Reason why something is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Death {
    /// Time of the raise.
    pub(crate) at: Timestamp,
    pub(crate) why: Why,
    /// True if a principal is being deleted: what is theirs is absent.
    pub(crate) deleting: bool,
}

impl Death {
    /// Notes it as the cause of a refusal.
    pub(crate) fn note(&self) {
        let cause = match self.why {
            _ if self.deleting => RefusalCause::Deleted,
            Why::ClientRevoked => RefusalCause::ClientRevoked,
            Why::SessionEnded => RefusalCause::SessionEnded,
            _ => RefusalCause::SignedOut,
        };
        cause.note();
    }
}

/// Subject that something speaks for, the client that holds it, and the session that it came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parties<'a> {
    subject: Option<&'a str>,
    client: Option<&'a str>,
    session: Option<&'a str>,
    /// Epoch of the client, where it was read together with the record.
    read: Option<PresentEpoch>,
}

impl<'a> Parties<'a> {
    /// Parties of a subject and a client. Where they are one, as with client credentials, the client alone counts: all
    /// calls of the client would contend for the subject.
    pub(crate) fn new(subject: &'a str, client: &'a str) -> Self {
        Self { subject: Some(subject).filter(|_| subject != client), ..Self::client(client) }
    }

    pub(crate) fn subject(subject: Option<&'a str>) -> Self {
        Self { subject, client: None, session: None, read: None }
    }

    pub(crate) fn client(client: &'a str) -> Self {
        Self { client: Some(client), ..Self::subject(None) }
    }

    pub(crate) fn session(mut self, sid: Option<&'a str>) -> Self {
        self.session = sid;
        self
    }

    /// The same with the epoch of the client that was read with the record, if it is of this client.
    pub(crate) fn with_read(mut self, read: ClientRead<'_>) -> Self {
        self.read = read.epoch.filter(|_| self.client == Some(read.client_id));
        self
    }

    /// Keys of the epochs, with what `stamp` says of them.
    pub(super) fn conditions(&self, scope: &Scope, stamp: Stamp) -> Result<Vec<Carried>> {
        let mut carried = Vec::with_capacity(3);
        if let Some(subject) = self.subject {
            let key = Principal::Owner(subject).tombstone(scope)?;
            let version = stamp.subject_version.map(|version| Version::from_bytes(*version));
            carried.push(Carried { key, epoch: stamp.subject, version, role: Role::Subject, read: None });
        }
        if let Some(client) = self.client {
            let key = Principal::Client(client).tombstone(scope)?;
            let version = stamp.client_version.map(|version| Version::from_bytes(*version));
            let read = self.read;
            carried.push(Carried { key, epoch: stamp.client, version, role: Role::Client, read });
        }
        if let Some(sid) = self.session {
            let key = Principal::Session(sid).tombstone(scope)?;
            carried.push(Carried { key, epoch: 0, version: None, role: Role::Session, read: None });
        }
        Ok(carried)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Subject,
    Client,
    Session,
}

/// Epoch that a record carries, of one principal.
#[derive(Debug, Clone)]
pub(crate) struct Carried {
    pub(super) key: Key,
    epoch: u64,
    version: Option<Version>,
    pub(super) role: Role,
    /// Present epoch, where it was read together with the record.
    read: Option<PresentEpoch>,
}

impl Carried {
    /// Condition that the epoch is still this one; none if only a read can tell.
    fn condition(&self) -> Option<Write> {
        let key = self.key.clone();
        match self.version {
            _ if self.epoch == 0 => Some(Write::Absent { key }),
            Some(expected) => Some(Write::Check { key, expected }),
            None => None,
        }
    }

    /// Judges the epoch that was read.
    fn judge(&self, epoch: Option<Epoch>) -> Option<Death> {
        let epoch = epoch?;
        let why = match self.role {
            Role::Subject => Why::SignedOut,
            Role::Client => Why::ClientRevoked,
            Role::Session => Why::SessionEnded,
        };
        let at = Timestamp::from_millis(epoch.value).unwrap_or(Timestamp::ZERO);
        let is_dead = epoch.deleting || epoch.value > self.epoch;
        is_dead.then_some(Death { at, why, deleting: epoch.deleting })
    }
}

/// Result of a commit that requires that its epochs are the present ones.
pub(crate) enum LiveCommit {
    Applied,
    /// A condition of its own did not hold, or an epoch was written anew: judge again.
    Refused {
        index: usize,
    },
    Dead(Death),
}

/// Attempts of an issue: each loss is a raise.
const ATTEMPTS: usize = 16;

impl Stores {
    /// Issues something new. `build` makes its writes with the epochs that it must carry. `None` if a condition of its
    /// own did not hold; `Invalid` if a principal is being deleted.
    ///
    /// It is one round trip: the subject's epoch is assumed to be zero, or as it was seen last, and checked by the commit.
    pub(crate) async fn issue<T>(
        &self,
        scope: &Scope,
        parties: Parties<'_>,
        mut build: impl FnMut(Stamp, Now) -> Result<(T, Vec<Write>)>,
    ) -> Result<Option<T>> {
        let mut stamp = self.seen_epochs().stamp(scope, parties)?;
        for _ in 0..ATTEMPTS {
            self.after_raise(&stamp).await?;
            let now = self.now()?;
            let mut carried = parties.conditions(scope, stamp)?;
            if let Some(place) = carried.iter().position(|one| one.role == Role::Client)
                && !self.clients_are_conditions()
            {
                let client = carried.swap_remove(place);
                let epoch = self.client_epoch(&client.key, now).await?;
                if epoch.is_some_and(|epoch| epoch.deleting) {
                    return Err(owner_is_deleted());
                }
                (stamp.client, stamp.client_version) = (epoch.map_or(0, |epoch| epoch.value), None);
                if self.after_raise(&stamp).await? {
                    continue;
                }
            }
            let (answer, writes) = build(stamp, now)?;
            let own = writes.len();
            let conditions = carried.iter().filter_map(Carried::condition);
            let batch = Batch::new(writes.into_iter().chain(conditions).collect())?;
            match self.backend().commit(batch, now).await? {
                Commit::Applied => return Ok(Some(answer)),
                Commit::Refused { index } if index < own => return Ok(None),
                Commit::Refused { .. } => {}
            }
            let keys: Vec<Key> = carried.iter().map(|one| one.key.clone()).collect();
            for (one, record) in carried.iter().zip(self.backend().get_many(&keys, now).await?) {
                let version = record.as_ref().map(|record| (*record.version.as_bytes()).into());
                let epoch = record.as_ref().map(Epoch::read).transpose()?;
                if epoch.is_some_and(|epoch| epoch.deleting) {
                    return Err(owner_is_deleted());
                }
                if one.role == Role::Session && epoch.is_some() {
                    return Err(Error::invalid("the session of sid has ended").about("sid"));
                }
                stamp.take(one.role, epoch.map_or(0, |epoch| epoch.value), version);
                let seen = epoch.zip(record).map(|(epoch, record)| (epoch.value, record.version));
                self.seen_epochs().note(&one.key, seen);
            }
        }
        Err(Error::unavailable("the epochs were raised at every attempt; try again"))
    }

    /// Commits `writes` if the epochs of `stamp` are the present ones, in one step.
    pub(crate) async fn commit_live(
        &self,
        carried: Vec<Carried>,
        writes: Vec<Write>,
        now: Now,
    ) -> Result<LiveCommit> {
        let mut checked = Vec::with_capacity(carried.len());
        for one in carried {
            if one.role == Role::Client && !self.clients_are_conditions() {
                let epoch = match one.read {
                    Some(PresentEpoch(epoch)) => epoch,
                    // After the record was read: the lease covers the time since.
                    None => self.client_epoch(&one.key, now).await?,
                };
                if let Some(death) = one.judge(epoch) {
                    return Ok(LiveCommit::Dead(death));
                }
            } else {
                checked.push(one);
            }
        }
        if checked.iter().all(|one| one.condition().is_some()) {
            let own = writes.len();
            let conditions = checked.iter().filter_map(Carried::condition);
            let batch = Batch::new(writes.iter().cloned().chain(conditions).collect())?;
            match self.backend().commit(batch, now).await? {
                Commit::Applied => return Ok(LiveCommit::Applied),
                Commit::Refused { index } if index < own => return Ok(LiveCommit::Refused { index }),
                Commit::Refused { .. } => {}
            }
        }
        // An epoch is not the one that the record was read with: look, and commit on what is there.
        let keys: Vec<Key> = checked.iter().map(|one| one.key.clone()).collect();
        let found = self.backend().get_many(&keys, now).await?;
        let mut conditions = Vec::with_capacity(checked.len());
        for (one, record) in checked.into_iter().zip(found) {
            if let Some(death) = one.judge(record.as_ref().map(Epoch::read).transpose()?) {
                return Ok(LiveCommit::Dead(death));
            }
            conditions.push(match record {
                Some(record) => Write::Check { key: one.key, expected: record.version },
                None => Write::Absent { key: one.key },
            });
        }
        let own = writes.len();
        let batch = Batch::new(writes.into_iter().chain(conditions).collect())?;
        Ok(match self.backend().commit(batch, now).await? {
            Commit::Applied => LiveCommit::Applied,
            // An epoch that was written in between is no matter of the writes.
            Commit::Refused { index } => LiveCommit::Refused { index: if index < own { index } else { 0 } },
        })
    }

    /// Reads the epochs of `parties`, and with them the record at `key`, in one round trip. Returns the record, and why
    /// what carries `stamp` is dead, if it is.
    pub(crate) async fn read_live(
        &self,
        key: Option<Key>,
        scope: &Scope,
        parties: Parties<'_>,
        stamp: Stamp,
        now: Now,
    ) -> Result<(Option<Record>, Option<Death>)> {
        let carried = parties.conditions(scope, stamp)?;
        let leased = self.client_epochs_from(now) == ClientEpochSource::Lease;
        let is_held = |one: &Carried| leased && one.role == Role::Client;
        let has_record = key.is_some();
        let read = carried.iter().filter(|one| !is_held(one)).map(|one| one.key.clone());
        let keys: Vec<Key> = key.into_iter().chain(read).collect();
        let mut found = match keys.as_slice() {
            [] => Vec::new(),
            [one] => vec![self.backend().get(one, now).await?],
            many => self.backend().get_many(many, now).await?,
        }
        .into_iter();
        let record = if has_record { found.next().flatten() } else { None };
        let mut death = None;
        for one in &carried {
            let epoch = if is_held(one) {
                // After the record was read: the lease covers the time since.
                self.client_epoch(&one.key, now).await?
            } else {
                found.next().flatten().as_ref().map(Epoch::read).transpose()?
            };
            death = one.judge(epoch).or(death);
        }
        Ok((record, death))
    }

    /// Returns why what carries `stamp` is dead, if it is, and notes it as the cause of a refusal.
    pub(crate) async fn death(
        &self,
        scope: &Scope,
        parties: Parties<'_>,
        stamp: Stamp,
        now: Now,
    ) -> Result<Option<Death>> {
        Ok(self.read_live(None, scope, parties, stamp, now).await?.1.inspect(Death::note))
    }

    /// Number of the parties whose other side, the one that was not raised, is still of the epoch that is carried.
    pub(crate) async fn count_live(&self, others: Vec<(Key, u64)>, now: Now) -> Result<u64> {
        if others.is_empty() {
            return Ok(0);
        }
        let keys: Vec<Key> = others.iter().map(|(key, _)| key.clone()).collect();
        let mut live = 0;
        for ((_, carried), record) in others.iter().zip(self.backend().get_many(&keys, now).await?) {
            let epoch = record.as_ref().map(Epoch::read).transpose()?;
            live += u64::from(epoch.is_none_or(|epoch| !epoch.deleting && epoch.value <= *carried));
        }
        Ok(live)
    }

    /// Stamp with the present epoch of a subject; none while the subject is being deleted.
    pub(crate) async fn subject_stamp(
        &self,
        scope: &Scope,
        subject: &str,
        now: Now,
    ) -> Result<Option<Stamp>> {
        let record = self.backend().get(&Principal::Owner(subject).tombstone(scope)?, now).await?;
        let Some(record) = record else { return Ok(Some(Stamp::default())) };
        let epoch = Epoch::read(&record)?;
        let version = Some((*record.version.as_bytes()).into());
        let stamp = Stamp { subject: epoch.value, subject_version: version, ..Stamp::default() };
        Ok((!epoch.deleting).then_some(stamp))
    }

    /// Epochs that a commit must find unchanged.
    pub(crate) fn carried(scope: &Scope, parties: Parties<'_>, stamp: Stamp) -> Result<Vec<Carried>> {
        parties.conditions(scope, stamp)
    }
}
