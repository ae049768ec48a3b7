//! The second table: the typed stores, run on every engine. Their records are of the real kinds, so this table is
//! for stores made for a test, and not for live ones.

mod replays;
mod rig;

use std::sync::Arc;

use rig::StoreRig;

use super::{Running, outcome};
use crate::backend::Backend;

/// One promise of a typed store, and the test of it.
pub struct StoreCase {
    /// Which store it belongs to.
    pub group: &'static str,
    /// The promise.
    pub name: &'static str,
    run: fn(StoreRig) -> Running,
}

impl std::fmt::Debug for StoreCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StoreCase({}::{})", self.group, self.name)
    }
}

macro_rules! cases {
    ($($group:ident: $($name:ident)+;)+) => {
        /// Every case of the typed stores.
        pub const STORE_CASES: &[StoreCase] = &[$($(StoreCase {
            group: stringify!($group),
            name: stringify!($name),
            run: |rig| Box::pin($group::$name(rig)),
        },)+)+];
    };
}

cases! {
    replays:
        a_proof_is_fresh_once
        a_proof_is_fresh_again_at_its_expiry
        a_hold_goes_on_refusing
        namespace_jti_and_thumbprint_all_count
        one_of_many_callers_finds_a_proof_fresh
        a_batch_records_what_is_fresh
        scopes_do_not_share_replays
        sweeping_in_between_changes_no_answer;
}

/// Runs one case. The error is what the case found.
pub async fn run(case: &StoreCase, backend: Arc<dyn Backend>, seed: u64) -> Result<(), String> {
    outcome((case.run)(StoreRig::new(backend, seed))).await
}
