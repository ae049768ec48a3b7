//! The second table: the typed stores, run on every engine. Their records are of the real kinds, so this table is
//! for stores made for a test, and not for live ones.

mod approvals;
mod attribute_lives;
mod attributes;
mod audit;
mod policies;
mod relationships;
mod replays;
mod rig;
mod scopes;
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
    approvals:
        what_was_granted_is_read_back
        a_check_is_exact_in_every_name
        an_approval_ends_at_the_instant
        granting_again_begins_a_new_life
        a_batch_answers_in_order
        an_identity_is_listed_and_counted_alone
        a_revocation_is_told_once_and_logged
        an_approval_is_extended_within_its_cap
        a_check_renews_what_slides
        a_handle_is_not_talked_into_another_scope;
    relationships:
        a_relationship_is_read_from_both_ends
        types_are_kept_apart
        both_ends_end_at_the_instant
        removing_removes_both_ends_once
        an_extension_reaches_both_ends
        both_ends_agree_after_a_race
        a_lost_reverse_stands_in_no_ones_way
        relationships_keep_to_their_scope
        a_batch_of_edges_answers_in_order
        a_way_is_found_over_several_steps
        the_depth_is_an_answer
        cycles_do_no_harm
        only_trust_and_membership_carry_on
        a_way_ends_with_its_weakest_step
        ways_keep_to_their_scope_and_relation
        a_search_goes_both_ways;
    policies:
        a_policy_holds_at_once_and_is_logged
        a_policy_reaches_other_nodes_when_they_reload
        a_policy_that_is_not_sound_changes_nothing
        the_most_specific_policy_holds
        a_caller_changes_only_what_it_covers
        racing_changes_are_all_logged;
    scopes:
        a_scope_is_counted_exactly_or_below
        statistics_are_by_scope_and_kind
        a_scope_is_deleted_alone
        a_deletion_is_gone_on_with
        a_caller_reaches_only_what_it_covers
        one_store_is_deleted_alone;
}

/// Runs one case. The error is what the case found.
pub async fn run(case: &StoreCase, backend: Arc<dyn Backend>, seed: u64) -> Result<(), String> {
    outcome((case.run)(StoreRig::new(backend, seed))).await
}
