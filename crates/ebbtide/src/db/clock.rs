//! The clock of an open store: its timer, its events, and the word of an operator.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::{Ebbtide, Parts, restore};
use crate::model::error::{Error, Result};
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::stores::audit::{Action, AuditContext, Note};
use crate::stores::shared::fence::Fence;
use crate::timekeeping::{Accepted, Event, Voucher};

/// Interval at which the timer looks at the clocks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

impl Ebbtide {
    /// Looks at the clocks, compares that of a shared engine and writes the store's clock mark, as far as it is time
    /// to; logs what has happened to the clock, and writes adoptions of the wall clock to the audit log. Nodes that
    /// share a store also renew their lease on the epochs of clients. The handle does this every second by itself where
    /// it is opened in a Tokio runtime; call it from a timer of your own elsewhere.
    pub async fn tick(&self) {
        if let Err(error) = self.timed().tick().await {
            tracing::warn!(%error, "cannot keep the time of the store");
        }
        for event in self.time().take_events() {
            tell(event);
            if let Event::Opened { fence: Some(at), .. } = event
                && let Err(error) = self.fence_clock(at).await
            {
                tracing::error!(%error, "cannot set the fence after time stood still");
            }
            if let Event::Adopted { from, to, voucher } = event
                && voucher != Voucher::Operator
            {
                let reason = format!("vouched for by: {}", voucher.name());
                let note = Note::new(Action::Clock, "the clock of the node", reason);
                if let Err(error) = self.note_adoption(note, (from, to)).await {
                    tracing::error!(%error, "cannot write an adoption of the wall clock to the audit log");
                }
            }
        }
        if let Err(error) = self.stores().renew_client_epochs().await {
            tracing::debug!(%error, "cannot read the epochs of clients");
        }
    }

    /// Makes the wall clock the store's time, because an operator says that it is right, and writes that to the audit
    /// log. A shared engine's clock must agree. Time goes back only if `back` allows it: records issued since would
    /// live longer by the difference. `Invalid` if the store was opened without its keyring.
    pub async fn accept_clock(&self, context: &AuditContext, back: bool) -> Result<Accepted> {
        self.stores().require_keyring()?;
        self.timed().ask_engine().await?;
        let status = self.time().status();
        if !back && status.difference_ms < -BACK_MS {
            return Err(Error::invalid(format!(
                "the store's time would go back by {} s, and records issued since would live longer by that; set the \
                 wall clock, or accept it with --back",
                -status.difference_ms / 1_000
            )));
        }
        let accepted = self.time().accept()?;
        if let Some(at) = accepted.fence {
            self.fence_clock(at).await?;
        }
        self.timed().write_mark().await?;
        if !self.engine().info().shared {
            self.engine().set_clock_mark(accepted.to).await?;
        }
        self.note_adoption(Note::of(Action::Clock, context), (accepted.from, accepted.to)).await?;
        for event in self.time().take_events() {
            tell(event);
        }
        Ok(accepted)
    }

    /// Sets the fence of a restored backup, because own time went back or stood still: what was issued before would
    /// live longer by that. Replay checks are refused first.
    async fn fence_clock(&self, at: Timestamp) -> Result<()> {
        self.stores().set_fence(Fence { at, until: Timestamp::NEVER });
        restore::set(self).await.map(|_| ())
    }

    async fn note_adoption(&self, note: Result<Note>, (from, to): (Timestamp, Timestamp)) -> Result<()> {
        let detail = format!("the store's time moved from {from} to {to}");
        let note = note?.with_expiry(from, to).with_detail(detail);
        self.stores().audit(&Scope::Global).append(&note).await
    }

    /// Starts the timer, where there is a runtime for it. It ends with the handle.
    pub(super) fn watch_clock(&self) {
        if !self.time().keeps_a_mark() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let parts: Weak<Parts> = Arc::downgrade(&self.0);
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                let Some(parts) = parts.upgrade() else { return };
                Self(parts).tick().await;
            }
        });
    }
}

/// Milliseconds that own time may be ahead of the wall without being set back.
const BACK_MS: i64 = 2_000;

fn tell(event: Event) {
    match event {
        Event::DoubtBegan { .. } | Event::WallBehind { .. } | Event::Adopted { .. } => {
            tracing::warn!(clock = true, "{event}");
        }
        _ => tracing::info!(clock = true, "{event}"),
    }
}
