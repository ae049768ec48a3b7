//! Sweeping beside the calls of an open store.

use std::ops::ControlFlow;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::runtime::Handle;

use super::{Ebbtide, Parts};
use crate::backend::Share;
use crate::model::error::{Error, Result};

/// Schedule of a handle that sweeps by itself.
pub(super) struct Sweeping {
    every: Duration,
    share: Share,
    runtime: Handle,
}

impl Sweeping {
    /// Returns `Invalid` for an interval of zero, and where there is no runtime to sweep in.
    pub(super) fn new(every: Duration, share: Share) -> Result<Self> {
        if every.is_zero() {
            return Err(Error::invalid("the interval of a sweeper is above zero"));
        }
        let runtime = Handle::try_current()
            .map_err(|_| Error::invalid("a store that sweeps by itself is opened in a Tokio runtime"))?;
        Ok(Self { every, share, runtime })
    }
}

impl Ebbtide {
    /// Starts the sweeper. It ends with the handle: between two sweeps it holds nothing of the store, and a sweep stops
    /// at its next step.
    pub(super) fn sweep_by(&self, Sweeping { every, share, runtime }: Sweeping) {
        let parts: Weak<Parts> = Arc::downgrade(&self.0);
        runtime.spawn(async move {
            let rest = |time| {
                let parts = Weak::clone(&parts);
                async move {
                    tokio::time::sleep(time).await;
                    if parts.strong_count() == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                }
            };
            let (mut pause, mut told) = (every, Vec::new());
            while rest(pause).await.is_continue() {
                let Some(sweeper) = parts.upgrade().map(|parts| Self(parts).sweeper().share(share)) else {
                    return;
                };
                pause = sweeper.turn(Some(every), &rest, &mut told).await;
            }
        });
    }
}
