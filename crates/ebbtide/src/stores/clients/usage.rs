//! First use of a client. A registration that is never used ends, where it was registered so.
//!
//! A use that reads the client notes itself. Issuing does not read the client, so it notes the use beside its answer. For
//! half a minute a process remembers the clients that have nothing to note, so that busy ones are not read again and
//! again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::{Clients, StoredClient};
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::Write;
use crate::stores::shared::tombstones::Principal;
use crate::stores::shared::update::Step;

/// Time for which a client that has nothing to note is not looked at again.
const REMEMBERED: Duration = Duration::from_secs(30);

/// Shortest lifetime without a use: longer than a process may remember that there is no such client.
const LEAST_UNUSED: Ttl = Ttl::secs(60);

/// Most clients that a process remembers.
const MOST: usize = 10_000;

/// Clients that have nothing to note, by the digest of scope and id, with the boot time at which they were read.
#[derive(Debug, Default)]
pub(crate) struct KnownClients(Mutex<HashMap<[u8; 32], Duration>>);

impl KnownClients {
    fn knows(&self, name: [u8; 32], boot: Duration) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&name).is_some_and(|since| boot.saturating_sub(*since) < REMEMBERED)
    }

    fn remember(&self, name: [u8; 32], boot: Duration) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(name, boot);
    }

    fn forget(&self, name: &[u8; 32]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

pub(super) fn check_unused_ttl(ttl: Ttl) -> Result<()> {
    if ttl < LEAST_UNUSED {
        return Err(Error::invalid(format!("a lifetime without a use is at least {LEAST_UNUSED}"))
            .about("unused_ttl_seconds"));
    }
    Ok(())
}

impl Clients {
    /// Notes, beside the answer of the caller, that something was issued to a client.
    pub(in crate::stores) fn note_use(&self, client_id: &str) {
        let Ok((_, digest)) = self.key(client_id) else { return };
        let (name, boot) = (self.name(&digest), self.stores.backend().time().boot());
        if self.stores.known_clients().knows(name, boot) {
            return;
        }
        self.stores.known_clients().remember(name, boot);
        let (clients, client_id) = (self.clone(), client_id.to_owned());
        self.stores.beside(async move {
            let noted = clients.mark_used(&client_id).await;
            if noted.is_err() {
                clients.stores.known_clients().forget(&name);
            }
            noted.map(|_| ())
        });
    }

    /// Forgets that a client has nothing to note: it is registered anew.
    pub(super) fn forget_use(&self, digest: &Digest) {
        self.stores.known_clients().forget(&self.name(digest));
    }

    fn name(&self, digest: &Digest) -> [u8; 32] {
        let scope = self.scope.to_string();
        *Digest::of("used client", &[scope.as_bytes(), digest.as_bytes()]).as_bytes()
    }

    /// Notes the first use of a client, and returns its end; none if there is no such client.
    pub(super) async fn mark_used(&self, client_id: &str) -> Result<Option<Timestamp>> {
        let (key, digest) = self.key(client_id)?;
        let (key, digest) = (&key, &digest);
        let mark = self.stores.retry(|now| async move {
            let Some(record) = self.stores.backend().get(key, now).await? else {
                return Ok(Step::answer(None));
            };
            let mut stored: StoredClient = codec::decode(&record.value)?;
            let Some(used_until) = stored.used_until.take() else {
                return Ok(Step::answer(Some(record.expires_at)));
            };
            let expires_at = Timestamp::from_stored(used_until)?;
            let marked = self.stores.record(codec::encode(&stored), expires_at);
            let mut writes =
                vec![Write::Replace { key: key.clone(), expected: record.version, record: marked }];
            if let Some(owner) = &stored.owner {
                let key = self.index_key(owner, digest)?;
                writes.push(Write::Put { key, record: self.stores.record("", expires_at) });
            }
            let client = [Principal::Client(client_id)];
            Step::write(writes, Some(expires_at)).unless_deleted_or(&self.scope, &client, None)
        });
        mark.await
    }
}
