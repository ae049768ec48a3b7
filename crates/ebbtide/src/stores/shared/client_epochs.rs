//! Set of the clients with a raised epoch, and the lease under which a process holds it.
//!
//! A raise inserts entry n in the commit that moves the head of the set from n − 1. A process reads on by n, and trusts
//! what it has for a lease that is counted from before the read was sent. A raise is answered after a lease has passed:
//! from then on every process knows it, or refuses. An entry takes about 120 bytes in memory; there is one for each
//! client that was revoked or deleted within the longest lifetime.

use std::collections::HashMap;
use std::sync::{Mutex as Lock, PoisonError};
use std::time::Duration;

use minicbor::{Decode, Encode};
use tokio::sync::Mutex;

use super::epochs::Epoch;
use super::paging::Pages;
use super::tombstones::Principal;
use crate::model::codec;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::write::Write;
use crate::stores::Stores;
use crate::timekeeping::{Lease, Now};

/// Time for which a process trusts the set that it has read.
pub(crate) const LEASE: Duration = Duration::from_secs(2);

/// Age of a lease at which it is renewed beside an answer.
const RENEW_AFTER: Duration = Duration::from_secs(1);

/// Entry of the set.
#[derive(Encode, Decode)]
struct Entry {
    /// Key of the client's epoch.
    #[cbor(n(0), with = "minicbor::bytes")]
    client: Vec<u8>,
    #[n(1)]
    epoch: u64,
}

#[derive(Encode, Decode)]
struct Head {
    #[n(0)]
    entries: u64,
}

/// Source of the epochs of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ClientEpochSource {
    /// A condition of each commit: for engines of one process, where nobody contends.
    #[default]
    Commit,
    /// The set, under a lease: for nodes that share a store.
    Lease,
    /// A read with each call: for processes that can be frozen between two lines.
    Read,
}

/// Epochs of clients, as far as this process has read them.
#[derive(Default)]
pub(crate) struct ClientEpochs {
    held: Lock<Held>,
    /// Turn of the process that reads on.
    turn: Mutex<()>,
}

#[derive(Default)]
struct Held {
    epochs: HashMap<Vec<u8>, u64>,
    /// Number of the last entry that was read; none before the first reading.
    read_to: Option<u64>,
    lease: Option<(Lease, Duration)>,
}

impl ClientEpochs {
    fn held(&self) -> std::sync::MutexGuard<'_, Held> {
        // A panic leaves a set that is at most too old; the lease bounds that.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stores {
    /// Returns whether the epoch of a client is a condition of each commit.
    pub(crate) fn clients_are_conditions(&self) -> bool {
        self.client_epoch_source() == ClientEpochSource::Commit
    }

    /// Present epoch of the client with that key, where it is no condition of a commit. Call it after the record was
    /// read.
    pub(crate) async fn client_epoch(&self, key: &Key, now: Now) -> Result<u64> {
        if self.client_epoch_source() != ClientEpochSource::Lease {
            let record = self.backend().get(key, now).await?;
            return Ok(record.as_ref().map(Epoch::read).transpose()?.map_or(0, |epoch| epoch.value));
        }
        if let Some(epoch) = self.held_epoch(key) {
            return Ok(epoch);
        }
        self.read_on(now).await?;
        self.held_epoch(key).ok_or_else(|| Error::unavailable("the lease on the epochs of clients has ended"))
    }

    /// Epoch of a client under the lease; none without a valid lease. A lease that is about to end is renewed beside
    /// the answer.
    fn held_epoch(&self, key: &Key) -> Option<u64> {
        let time = self.backend().time();
        let (epoch, begun) = {
            let held = self.client_epochs().held();
            let (lease, begun) = held.lease.as_ref()?;
            if !time.holds(lease) {
                return None;
            }
            (held.epochs.get(key.as_bytes()).copied().unwrap_or(0), *begun)
        };
        if time.boot().saturating_sub(begun) > RENEW_AFTER {
            let stores = self.clone();
            self.beside(async move { stores.read_on(stores.now()?).await });
        }
        Some(epoch)
    }

    /// Reads the entries of the set that this process does not have, and takes a new lease.
    async fn read_on(&self, now: Now) -> Result<()> {
        let asked_at = self.backend().time().boot();
        let _turn = self.client_epochs().turn.lock().await;
        let renewed = self.client_epochs().held().lease.as_ref().is_some_and(|(_, begun)| *begun >= asked_at);
        if renewed {
            return Ok(());
        }
        let mut read_to = self.client_epochs().held().read_to;
        if read_to.is_none() {
            let head = self.backend().get(&head_key()?, now).await?;
            let entries = head.map(|head| codec::decode::<Head>(&head.value)).transpose()?;
            let prefix = Prefix::partition(Kind::Owner, &Scope::Global, &[ENTRIES.into()], &[])?;
            let mut pages = Pages::new(self, &prefix, 1_000);
            while let Some(items) = pages.next().await? {
                for (_, record) in items {
                    self.learn(&record)?;
                }
            }
            read_to = Some(entries.map_or(0, |head| head.entries));
        }
        let mut next = read_to.unwrap_or_default();
        loop {
            let (lease, begun) = (self.backend().time().lease(LEASE), self.backend().time().boot());
            let Some(record) = self.backend().get(&entry_key(next + 1)?, now).await? else {
                let mut held = self.client_epochs().held();
                (held.read_to, held.lease) = (Some(next), Some((lease, begun)));
                return Ok(());
            };
            self.learn(&record)?;
            next += 1;
        }
    }

    fn learn(&self, record: &Record) -> Result<()> {
        let Entry { client, epoch } = codec::decode(&record.value)?;
        let mut held = self.client_epochs().held();
        let present = held.epochs.entry(client).or_default();
        *present = epoch.max(*present);
        Ok(())
    }

    /// Writes that raise the epoch of a principal, and the epochs before and after. Commit them in the attempt that
    /// `now` is of; after the raise of a client, wait for [`pass_lease`](Self::pass_lease).
    pub(crate) async fn raise(
        &self,
        principal: Principal<'_>,
        scope: &Scope,
        deleting: Option<bool>,
        now: Now,
    ) -> Result<(Option<Epoch>, Epoch, Vec<Write>)> {
        let key = principal.tombstone(scope)?;
        let is_client = matches!(principal, Principal::Client(_));
        let mut keys = vec![key.clone()];
        if is_client {
            keys.push(head_key()?);
        }
        let mut found = self.backend().get_many(&keys, now).await?.into_iter();
        let present = found.next().flatten();
        let was = present.as_ref().map(Epoch::read).transpose()?;
        let deleting = deleting.unwrap_or_else(|| was.is_some_and(|was| was.deleting));
        let epoch = Epoch::raised(was, deleting, now);
        let record = epoch.record(self, now)?;
        let mut writes = Vec::with_capacity(3);
        if is_client {
            let head = found.next().flatten();
            let entries = head.as_ref().map(|head| codec::decode::<Head>(&head.value)).transpose()?;
            let number = entries.map_or(0, |head| head.entries) + 1;
            let entry = Entry { client: key.as_bytes().to_vec(), epoch: epoch.value };
            let kept = Epoch { deleting: false, ..epoch }.record(self, now)?.expires_at;
            let entry = self.record(codec::encode(&entry), kept);
            writes.push(Write::Insert { key: entry_key(number)?, record: entry });
            let moved = self.record(codec::encode(&Head { entries: number }), Timestamp::NEVER);
            writes.push(conditional(head_key()?, head.as_ref(), moved));
        }
        writes.push(conditional(key, present.as_ref(), record));
        Ok((was, epoch, writes))
    }

    /// Waits until every process knows of a raise, or has no lease.
    pub(crate) async fn pass_lease(&self) {
        if self.client_epoch_source() == ClientEpochSource::Lease {
            tokio::time::sleep(LEASE).await;
        }
    }
}

/// Write of a record, if what was read there is unchanged.
fn conditional(key: Key, present: Option<&Record>, record: Record) -> Write {
    match present {
        Some(present) => Write::Replace { key, expected: present.version, record },
        None => Write::Insert { key, record },
    }
}

const ENTRIES: &str = "client epochs";

fn entry_key(number: u64) -> Result<Key> {
    Key::new(Kind::Owner, &Scope::Global, &[ENTRIES.into()], &[Part::from(&number.to_be_bytes()[..])])
}

fn head_key() -> Result<Key> {
    Key::new(Kind::Owner, &Scope::Global, &["head of the client epochs".into()], &[])
}
