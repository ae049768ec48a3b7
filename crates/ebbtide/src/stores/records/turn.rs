//! Turns of writers that lost a record to another one.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use tokio::sync::{Mutex, MutexGuard};

use super::Records;
use super::request::{By, RecordAddress};

/// Turns of this process, one for each value of a byte. Records that share one wait for each other's losers, and for
/// nobody else.
static TURNS: [Mutex<()>; 256] = [const { Mutex::const_new(()) }; 256];

/// Turn of a call that lost a record to another writer. The losers of one process write one after the other, so that
/// each competes with newcomers alone.
///
/// A call has one turn at the most, and keeps it to its end: a second one could be that of a caller that waits for the
/// first.
#[derive(Debug, Default)]
pub struct Turn(Option<MutexGuard<'static, ()>>);

impl Records {
    /// Waits for the turn of the record at `address`. Returns true once the call has it: what it read before is old.
    /// Returns false if it had a turn already.
    pub async fn wait_turn(&self, address: &RecordAddress, turn: &mut Turn) -> bool {
        let name = match &address.by {
            By::Id(id) => id.as_bytes(),
            By::Key(name) => name.as_bytes(),
        };
        self.wait_turn_of(&address.collection, name, turn).await
    }

    /// The same for the record with this id.
    pub(super) async fn wait_turn_of(&self, collection: &str, id: &[u8], turn: &mut Turn) -> bool {
        if turn.0.is_some() {
            return false;
        }
        let mut hasher = DefaultHasher::new();
        (&self.scope, collection, id).hash(&mut hasher);
        let [place, ..] = hasher.finish().to_le_bytes();
        turn.0 = Some(TURNS[usize::from(place)].lock().await);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Waker};

    use super::*;
    use crate::engines::memory::Memory;
    use crate::model::scope::Scope;
    use crate::stores::Stores;

    #[tokio::test]
    async fn a_call_has_one_turn_until_its_end() {
        let stores = Stores::for_tests(Arc::new(Memory::default()));
        let records = stores.records(&"tenant:turns".parse::<Scope>().unwrap());
        let address = RecordAddress::id("redis", "a");
        let (mut first, mut second) = (Turn::default(), Turn::default());
        assert!(records.wait_turn(&address, &mut first).await);
        assert!(!records.wait_turn(&address, &mut first).await, "it has one");
        assert!(!records.wait_turn(&RecordAddress::id("redis", "b"), &mut first).await, "of any record");
        {
            let mut waiting = pin!(records.wait_turn(&address, &mut second));
            assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            drop(first);
            assert!(waiting.await);
        }
        drop(second);
        assert!(records.wait_turn(&address, &mut Turn::default()).await);
    }
}
