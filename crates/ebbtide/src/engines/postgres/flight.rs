//! A connection with a statement in flight.

use std::time::Duration;

use deadpool_postgres::{Object, Pool};
use tokio::time::timeout;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::turns::HeldTurns;

/// Interval between two requests to cancel.
const AGAIN: Duration = Duration::from_millis(100);

/// A leased connection. If the caller goes away, its statement is cancelled, and the connection goes back to the pool
/// once it is idle; if that takes too long, it is closed.
pub(super) struct Flight {
    client: Option<Object>,
    ways: Ways,
    /// Turns of the statement, which last as long as it does.
    turns: Option<HeldTurns>,
}

/// Means to end a statement that nobody waits for.
#[derive(Clone)]
pub(super) struct Ways {
    pub(super) pool: Pool,
    pub(super) tls: MakeRustlsConnect,
    /// Bound of a request to cancel, which is a connection of its own.
    pub(super) connect: Duration,
    /// Bound of the whole.
    pub(super) patience: Duration,
    /// False if a request to cancel could do harm: the statement is then waited for.
    pub(super) cancels: bool,
}

impl Flight {
    pub(super) fn new(client: Object, ways: Ways, turns: Option<HeldTurns>) -> Self {
        Self { client: Some(client), ways, turns }
    }

    pub(super) fn client(&self) -> &Object {
        self.client.as_ref().expect("a flight has a connection until it ends")
    }

    /// Gives the connection back: its statement has been answered.
    pub(super) fn land(mut self) {
        self.client = None;
    }

    /// Closes the connection.
    pub(super) fn discard(mut self) {
        if let Some(client) = self.client.take() {
            drop(Object::take(client));
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            drop(Object::take(client));
            return;
        };
        let (ways, turns) = (self.ways.clone(), self.turns.take());
        runtime.spawn(async move {
            if !timeout(ways.patience, until_idle(&client, &ways)).await.unwrap_or(false) {
                drop(Object::take(client));
                purge(&ways.pool);
            }
            drop(turns);
        });
    }
}

/// Cancels the statement in flight, and waits until the server has answered it. No request to cancel is under way when
/// this returns, so that none reaches a later statement.
async fn until_idle(client: &Object, ways: &Ways) -> bool {
    // It is answered after everything that was sent before it.
    let mut idle = std::pin::pin!(client.simple_query(""));
    if !ways.cancels {
        return idle.await.is_ok();
    }
    let token = client.cancel_token();
    loop {
        if !matches!(timeout(ways.connect, token.cancel_query(ways.tls.clone())).await, Ok(Ok(()))) {
            return false;
        }
        // Between two steps of a transaction, the server ignores the request.
        if let Ok(answered) = timeout(AGAIN, idle.as_mut()).await {
            return answered.is_ok();
        }
    }
}

/// Closes the idle connections: one to the same server has died, or does not answer.
pub(super) fn purge(pool: &Pool) {
    pool.retain(|_, _| false);
}
