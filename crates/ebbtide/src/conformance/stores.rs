//! The second table: the typed stores, run on every engine. Their records are of the real kinds, so this table is
//! for stores made for a test, and not for live ones.

mod attribute_lives;
mod attributes;
mod audit;
mod replays;
mod rig;
mod yielding;

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
    attributes:
        every_json_value_is_stored_and_read_back
        setting_writes_over_and_keeps_no_life
        insert_and_replace_have_conditions
        only_the_caller_that_removed_it_is_told_so
        a_swap_compares_json_and_not_text
        a_counter_loses_no_increment
        one_of_many_marks_a_token_used
        names_with_separators_never_meet
        a_bucket_is_deleted_alone
        an_owner_is_deleted_alone
        pages_of_a_bucket_join_to_the_whole
        buckets_are_listed_by_name
        changes_happen_together_or_not_at_all
        changes_do_not_leave_the_scope
        scopes_do_not_share_attributes
        presets_have_their_lives;
    attribute_lives:
        an_attribute_ends_at_the_instant
        a_swap_keeps_the_life_unless_told_otherwise
        a_read_renews_what_slides
        a_read_never_renews_past_the_cap
        a_read_renews_only_where_it_is_worth_it
        readers_beside_a_writer_lose_none_of_its_writes
        an_extension_is_longer_and_never_past_the_cap
        an_extension_never_revives
        an_extension_keeps_within_the_policy
        a_policy_bounds_what_is_set;
    audit:
        an_extension_is_in_the_log
        a_refused_extension_is_not
        a_burst_of_extensions_loses_no_entry
        a_changed_entry_is_found
        a_missing_entry_is_found
        an_entry_of_another_hand_is_found
        a_forged_chain_is_found_by_a_mark
        entries_end_and_the_rest_still_verifies
        scopes_have_logs_of_their_own;
}

/// Runs one case. The error is what the case found.
pub async fn run(case: &StoreCase, backend: Arc<dyn Backend>, seed: u64) -> Result<(), String> {
    outcome((case.run)(StoreRig::new(backend, seed))).await
}
