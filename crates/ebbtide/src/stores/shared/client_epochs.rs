//! Set of the clients with a raised epoch, and the lease under which a process holds it.
//!
//! A raise inserts entry n in the commit that moves the head of the set from n − 1. A process reads on by n every second,
//! and trusts what it has for a lease that is counted from before the read was sent. Where the lease has ended, the call
//! that needs it reads on first. A raise is answered after a lease has passed: from then on every process knows it, or
//! refuses. The process that raises knows it at once. A clock in doubt voids leases; then the epoch itself is read.
//!
//! An entry takes about 120 bytes in memory; there is one for each client that was revoked or deleted within the longest
//! lifetime.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as Lock, MutexGuard, PoisonError};
use std::time::Duration;

use minicbor::{Decode, Encode};
use tokio::sync::Mutex;

use super::epochs::{Epoch, PresentEpoch};
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

/// Time by which the clocks of two processes may come to differ during a lease.
const DRIFT: Duration = Duration::from_millis(10);

/// Entry of the set.
#[derive(Encode, Decode)]
struct EpochEntry {
    /// Key of the client's epoch.
    #[cbor(n(0), with = "minicbor::bytes")]
    client: Vec<u8>,
    #[n(1)]
    epoch: u64,
    /// True while the client is being deleted.
    #[n(2)]
    #[cbor(default)]
    deleting: bool,
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

/// Epoch of a client, as it was read together with a record; none where it is not read but held or a condition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClientRead<'a> {
    pub(super) client_id: &'a str,
    pub(super) epoch: Option<PresentEpoch>,
}

/// Epochs of clients, as far as this process has read them.
#[derive(Default)]
pub(crate) struct ClientEpochs {
    held: Lock<Held>,
    /// Turn of the task that reads on.
    turn: Arc<Mutex<()>>,
}

#[derive(Default)]
struct Held {
    epochs: HashMap<Vec<u8>, Epoch>,
    /// Number of the last entry that was read; none before the first reading.
    read_to: Option<u64>,
    lease: Option<Lease>,
    /// Number of readings that have begun.
    begun: u64,
    /// Number of the last reading that has ended well.
    ended: u64,
}

/// Epoch of a client, as the set has it under a valid lease; none where nothing was raised.
struct Leased(Option<Epoch>);

impl ClientEpochs {
    fn held(&self) -> MutexGuard<'_, Held> {
        // A panic leaves a set that is at most too old; the lease bounds that.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self, client: Vec<u8>, epoch: Epoch) {
        let mut held = self.held();
        let present = held.epochs.entry(client).or_insert(epoch);
        if epoch.value > present.value {
            *present = epoch;
        }
    }
}

impl Stores {
    /// Returns whether the epoch of a client is a condition of each commit.
    pub(crate) fn clients_are_conditions(&self) -> bool {
        self.client_epoch_source() == ClientEpochSource::Commit
    }

    /// Source of the epochs of clients for a request of that time: a clock in doubt voids leases, so that the epochs are
    /// read.
    pub(crate) fn client_epochs_from(&self, now: Now) -> ClientEpochSource {
        match self.client_epoch_source() {
            ClientEpochSource::Lease if !now.is_confirmed() => ClientEpochSource::Read,
            source => source,
        }
    }

    /// Reads a record that a client presents something of, in one round trip with the epoch of the client where that is
    /// read with each call.
    pub(crate) async fn get_with_client<'a>(
        &self,
        key: &Key,
        (scope, client_id): (&Scope, &'a str),
        now: Now,
    ) -> Result<(Option<Record>, ClientRead<'a>)> {
        if self.client_epochs_from(now) != ClientEpochSource::Read {
            let record = self.backend().get(key, now).await?;
            return Ok((record, ClientRead { client_id, epoch: None }));
        }
        let keys = [key.clone(), Principal::Client(client_id).tombstone(scope)?];
        let mut found = self.backend().get_many(&keys, now).await?.into_iter();
        let record = found.next().flatten();
        let epoch = found.next().flatten().as_ref().map(Epoch::read).transpose()?;
        Ok((record, ClientRead { client_id, epoch: Some(PresentEpoch(epoch)) }))
    }

    /// Present epoch of the client with that key, where it is no condition of a commit. Call it after the record was
    /// read.
    pub(crate) async fn client_epoch(&self, key: &Key, now: Now) -> Result<Option<Epoch>> {
        if self.client_epochs_from(now) == ClientEpochSource::Lease {
            if let Some(Leased(epoch)) = self.held_epoch(key) {
                return Ok(epoch);
            }
            self.read_on(now).await?;
            if let Some(Leased(epoch)) = self.held_epoch(key) {
                return Ok(epoch);
            }
            if self.client_epochs_from(self.now()?) == ClientEpochSource::Lease {
                return Err(Error::unavailable("the lease on the epochs of clients has ended"));
            }
        }
        self.backend().get(key, now).await?.as_ref().map(Epoch::read).transpose()
    }

    /// Epoch of a client under the lease; none without a valid lease. A lease that is about to end
    /// is renewed beside the answer.
    fn held_epoch(&self, key: &Key) -> Option<Leased> {
        let time = self.backend().time();
        let (epoch, age) = {
            let held = self.client_epochs().held();
            let lease = held.lease.as_ref().filter(|lease| time.holds(lease))?;
            (held.epochs.get(key.as_bytes()).copied(), time.age(lease))
        };
        if age > RENEW_AFTER
            && let Ok(turn) = Arc::clone(&self.client_epochs().turn).try_lock_owned()
        {
            let stores = self.clone();
            self.beside(async move {
                let read = stores.read_entries(stores.now()?).await;
                drop(turn);
                read
            });
        }
        Some(Leased(epoch))
    }

    /// Reads on if this process holds the set, or has held it: for the timer of an open store.
    pub(crate) async fn renew_client_epochs(&self) -> Result<()> {
        let holds = self.client_epochs().held().read_to.is_some();
        let now = self.now()?;
        if holds && self.client_epochs_from(now) == ClientEpochSource::Lease {
            self.read_on(now).await?;
        }
        Ok(())
    }

    /// Reads on, or waits for a reading that begins after this call.
    async fn read_on(&self, now: Now) -> Result<()> {
        let epochs = self.client_epochs();
        let begun = epochs.held().begun;
        let _turn = epochs.turn.lock().await;
        if epochs.held().ended > begun {
            return Ok(());
        }
        self.read_entries(now).await
    }

    /// Reads the entries of the set that this process does not have, and takes a new lease. The caller has the turn.
    async fn read_entries(&self, now: Now) -> Result<()> {
        let epochs = self.client_epochs();
        let (reading, read_to) = {
            let mut held = epochs.held();
            held.begun += 1;
            (held.begun, held.read_to)
        };
        let mut last = match read_to {
            Some(read_to) => read_to,
            None => self.read_all_entries(now).await?,
        };
        loop {
            let lease = self.backend().time().lease(LEASE);
            let Some(record) = self.backend().get(&entry_key(last + 1)?, now).await? else {
                let mut held = epochs.held();
                (held.read_to, held.lease, held.ended) = (Some(last), Some(lease), reading);
                return Ok(());
            };
            self.learn(&record)?;
            last += 1;
        }
    }

    /// Reads the whole set, and returns the number that its head had before.
    async fn read_all_entries(&self, now: Now) -> Result<u64> {
        let head = self.backend().get(&head_key()?, now).await?;
        let head = head.map(|head| codec::decode::<Head>(&head.value)).transpose()?;
        let prefix = Prefix::partition(Kind::Owner, &Scope::Global, &[ENTRIES.into()], &[])?;
        let mut pages = Pages::new(self, &prefix, 1_000);
        while let Some(items) = pages.next().await? {
            for (_, record) in items {
                self.learn(&record)?;
            }
        }
        Ok(head.map_or(0, |head| head.entries))
    }

    fn learn(&self, record: &Record) -> Result<()> {
        let EpochEntry { client, epoch, deleting } = codec::decode(&record.value)?;
        self.client_epochs().learn(client, Epoch { value: epoch, deleting });
        Ok(())
    }

    /// Writes that raise the epoch of a principal, and the epochs before and after. Commit them in the attempt that
    /// `now` is of; after the raise of a client, wait for [`spread`](Self::spread).
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
            let entry =
                EpochEntry { client: key.as_bytes().to_vec(), epoch: epoch.value, deleting: epoch.deleting };
            let kept = Epoch { deleting: false, ..epoch }.record(self, now)?.expires_at;
            let entry = self.record(codec::encode(&entry), kept);
            writes.push(Write::Insert { key: entry_key(number)?, record: entry });
            let moved = self.record(codec::encode(&Head { entries: number }), Timestamp::NEVER);
            writes.push(conditional(head_key()?, head.as_ref(), moved));
        }
        writes.push(conditional(key, present.as_ref(), record));
        Ok((was, epoch, writes))
    }

    /// Milliseconds until the raised epoch of a client is known to every process.
    pub(crate) fn client_spread(&self) -> u64 {
        if self.clients_are_conditions() {
            return 0;
        }
        u64::try_from((LEASE + DRIFT).as_millis()).unwrap_or(u64::MAX)
    }

    /// Takes the raised epoch of a client over, once it is committed, and waits until every other process knows of it
    /// or has no lease.
    pub(crate) async fn spread(&self, client_id: &str, scope: &Scope, epoch: Epoch) -> Result<()> {
        // Other processes may hold leases also where this one reads.
        if self.client_epoch_source() != ClientEpochSource::Commit {
            let key = Principal::Client(client_id).tombstone(scope)?;
            self.client_epochs().learn(key.as_bytes().to_vec(), epoch);
            tokio::time::sleep(LEASE + DRIFT).await;
        }
        Ok(())
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
