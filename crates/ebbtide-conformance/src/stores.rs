//! Second table of cases: the typed stores, on every engine. They write records of the real kinds, so this table is
//! for test stores, not for live ones.

mod access_tokens;
mod api_keys;
mod approvals;
mod attribute_lives;
mod attributes;
mod audit;
mod belongings;
mod challenges;
mod client_changes;
mod clients;
mod clock;
mod codes;
mod crashes;
mod device_codes;
mod device_races;
mod epochs;
mod explain;
mod grants;
mod interleavings;
mod keys;
mod meanwhile;
mod migration;
mod nonces;
mod owned_records;
mod owners;
mod policies;
mod provider_tokens;
mod pushed_requests;
mod record_policies;
mod records;
mod relationships;
mod replays;
mod revocations;
mod rig;
mod scopes;
mod sessions;
mod stored_records;
mod yielding;

use std::sync::Arc;

use rig::StoreRig;

use super::{Running, outcome};
use ebbtide::admin::Admin;

/// One promise of a typed store, and its test.
pub struct StoreCase {
    /// Store that it belongs to.
    pub group: &'static str,
    /// Promise, as a sentence.
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
    clock:
        in_doubt_a_seen_proof_is_a_replay_and_a_new_one_is_not_fresh
        in_doubt_nothing_is_issued_and_what_is_live_at_both_ends_is_honoured
        in_doubt_an_honest_retry_is_no_theft
        a_doubt_voids_what_a_node_holds_of_revoked_clients
        in_doubt_a_read_renews_nothing
        in_a_hold_a_credential_that_ended_is_refused_and_a_proof_is_not_fresh_again;
    replays:
        a_proof_is_fresh_once
        a_proof_is_fresh_again_at_its_expiry
        a_hold_goes_on_refusing
        a_proof_ends_with_its_own_time
        a_proof_is_for_one_request
        a_proof_is_refused_as_long_as_a_nonce_is_good
        a_policy_does_not_free_a_proof_before_its_nonce
        namespace_jti_and_thumbprint_all_count
        one_of_many_callers_finds_a_proof_fresh
        a_batch_records_what_is_fresh
        scopes_do_not_share_replays
        sweeping_in_between_changes_no_answer;
    nonces:
        a_nonce_is_checked_many_times
        a_nonce_is_accepted_once
        a_stateless_nonce_needs_no_record_until_it_is_accepted
        a_nonce_ends_at_the_instant
        an_accepted_nonce_stays_used
        a_nonce_is_of_its_audience_and_scope
        one_of_many_callers_gets_a_nonce_accepted;
    codes:
        a_code_is_redeemed_once
        who_has_only_the_code_revokes_nothing
        a_redirect_uri_may_be_left_out_with_a_challenge
        pkce_can_be_made_mandatory
        a_redemption_issues_an_access_token_in_its_commit
        a_certificate_binds_code_grant_and_token
        a_code_ends_at_the_instant
        a_code_lives_ten_minutes_at_most
        what_does_not_fit_is_named_and_burns_the_code
        a_code_can_be_kept_on_a_mismatch
        a_verifier_without_a_challenge_is_refused
        a_key_that_comes_with_the_code_binds_the_grant
        redeeming_gives_the_grant_that_was_asked_for
        a_second_redemption_revokes_what_the_first_gave
        a_second_redemption_revokes_a_token_without_a_grant
        one_of_many_redemptions_wins_and_the_others_revoke
        one_of_many_without_a_grant_wins
        codes_of_another_scope_are_unknown;
    epochs:
        a_sign_out_ends_everything_of_its_subject
        a_revocation_by_client_ends_everything_of_the_client
        a_sign_out_counts_only_what_it_ends
        a_revocation_by_client_is_known_to_every_node_when_it_is_answered
        a_node_issues_nothing_to_a_client_that_another_one_deletes
        nothing_survives_a_sign_out_that_races_its_issuers
        a_rotation_that_a_sign_out_overtakes_is_dead
        an_epoch_that_expired_and_was_raised_again_revives_nothing
        an_epoch_of_a_client_that_expired_revives_nothing
        an_overview_has_everything_of_a_subject
        a_session_can_take_its_grants_with_it
        a_session_that_is_over_takes_its_grants_with_it;
    grants:
        a_refresh_token_is_rotated
        a_retry_gets_the_same_successor_until_the_grace_ends
        no_grace_is_strict_and_a_minute_is_the_most
        using_the_successor_closes_the_retry
        an_access_token_in_use_closes_the_retry
        a_strict_family_takes_every_old_token_for_a_theft_after_proof
        twelve_tabs_revoke_nobody_and_a_thief_is_caught
        a_family_is_not_rotated_faster_than_its_windows_end
        a_rotation_issues_an_access_token_in_its_commit
        the_access_token_of_a_rotation_is_bound_to_the_key_that_came_with_it
        an_older_generation_revokes_the_family
        a_mismatch_burns_nothing
        idle_time_slides_and_ends_at_the_instant
        the_cap_is_never_passed
        revoked_is_sticky_until_the_cap
        a_family_takes_the_same_bytes_however_often_it_is_rotated
        tokens_of_another_scope_are_unknown;
    revocations:
        any_token_of_a_family_revokes_it
        a_client_revokes_its_own_tokens_alone
        a_subject_and_a_client_are_signed_out_everywhere
        signing_out_goes_through_every_page
        indexes_end_with_the_family
        twelve_rotations_of_one_token_give_one_successor
        one_generation_has_one_winner_where_there_is_no_grace
        a_thief_and_a_victim_are_both_stopped_whatever_the_order
        a_thief_within_the_grace_is_stopped_by_the_next_use
        rotating_against_revoking_leaves_nothing_alive
        issuing_against_revoking_leaves_nothing_alive
        introspecting_against_rotating_loses_neither
        one_revocation_of_many_is_counted
        an_audited_revocation_is_told_once
        a_revoked_token_is_told_of_once;
    interleavings:
        a_rotation_that_was_overtaken_gets_the_same_successor
        a_strict_rotation_that_was_overtaken_is_a_reuse
        a_rotation_does_not_undo_a_revocation
        a_revocation_is_not_undone_by_a_rotation
        a_proof_of_receipt_does_not_undo_a_revocation
        no_access_token_gets_into_a_revoked_family
        an_access_token_is_of_the_generation_that_it_is_written_in
        no_provider_tokens_get_into_a_revoked_family
        a_redemption_that_was_overtaken_revokes
        an_acceptance_that_was_overtaken_finds_the_nonce_used;
    records:
        a_record_is_put_and_read
        a_record_ends_at_the_instant
        a_put_depends_on_what_is_there
        a_life_is_given_kept_or_past
        a_record_is_taken_once
        a_record_is_consumed_once
        one_of_many_inserts_wins
        a_touch_moves_the_end_of_record_and_keys
        a_delete_says_whether_there_was_one
        a_second_key_is_unique
        a_retained_record_is_only_read
        a_revoked_group_is_gone
        a_revoked_group_refuses_a_write_in_flight
        a_counter_is_exact_and_bounded
        a_lease_has_one_holder
        a_batch_of_records_is_all_or_nothing
        records_of_scopes_and_collections_are_apart
        ids_are_found_through_a_rotation_of_the_ring;
    stored_records:
        nothing_of_a_record_is_stored_in_clear
        a_listing_has_ids_and_no_values
        a_store_has_one_naming_key
        a_record_slides_up_to_its_cap
        puts_together_are_answered_each_by_itself;
    record_policies:
        a_policy_of_a_collection_bounds_its_records
        counters_and_leases_of_a_collection_have_policies
        the_nearest_scope_and_then_the_collection_decides
        a_change_of_the_value_keeps_group_and_keys
        a_change_against_a_revocation_leaves_nothing
        a_record_goes_with_what_it_belongs_to
        writing_against_deleting_leaves_no_record;
    keys:
        old_tokens_are_good_until_their_key_is_retired
        a_retry_gets_the_same_successor_across_a_change_of_keys
        tokens_of_another_ring_are_unknown
        what_is_sealed_under_a_retired_key_is_a_fault
        a_record_under_a_retired_key_is_unavailable_and_not_lost;
    access_tokens:
        a_token_alone_is_active_until_the_instant
        a_token_takes_after_its_grant
        what_contradicts_the_grant_is_refused
        a_token_is_refused_where_there_is_no_active_grant
        revoking_a_grant_kills_every_descendant
        a_token_ends_with_its_grant
        a_token_is_revoked_alone
        tokens_alone_are_signed_out_with_their_subject_and_client
        unknown_expired_and_revoked_are_answered_alike
        sweeping_in_between_changes_no_answer;
    provider_tokens:
        they_are_kept_replaced_and_deleted
        they_end_at_the_instant_and_not_past_the_cap
        they_are_gone_with_their_grant
        putting_against_revoking_leaves_nothing_readable;
    sessions:
        what_was_put_into_a_session_comes_back
        a_session_ends_at_the_instant
        a_touch_never_passes_the_cap_and_never_shortens
        a_session_is_claimed_once
        one_of_many_claims_wins
        a_claim_that_was_overtaken_finds_it_used
        a_touch_does_not_undo_a_claim
        a_subject_is_listed_and_revoked_alone
        revoking_goes_through_every_page
        indexes_end_with_the_cap
        sessions_of_another_scope_are_unknown;
    pushed_requests:
        a_request_is_taken_once_by_its_client
        a_request_ends_at_the_instant
        a_uri_of_ones_own_is_used_once
        one_of_many_takes_wins
        a_take_that_was_overtaken_finds_it_used
        requests_of_another_scope_are_unknown;
    device_codes:
        a_flow_goes_from_start_to_redemption
        a_user_code_is_read_however_it_is_typed
        a_denial_is_final
        the_first_verdict_stands
        polling_too_early_is_slowed_down_for_good
        a_code_ends_at_the_instant
        another_clients_code_is_a_mismatch
        redeeming_before_the_verdict_counts_as_a_poll
        a_second_redemption_revokes_what_the_first_gave
        a_second_redemption_revokes_a_token_without_a_grant
        guesses_of_a_source_are_limited
        bounds_are_named
        codes_of_another_scope_are_unknown;
    device_races:
        approving_and_denying_have_one_winner
        every_poll_counts
        one_of_many_redemptions_wins_and_the_others_revoke
        a_verdict_that_was_overtaken_is_told_so
        a_poll_does_not_undo_an_approval
        guesses_at_once_are_limited_too;
    challenges:
        a_challenge_is_verified_once
        a_challenge_is_found_by_id_subject_or_secret
        a_secret_is_of_its_purpose_subject_and_scope
        a_challenge_ends_at_the_instant
        wrong_secrets_are_counted_and_close_it
        one_of_many_verifications_wins
        guesses_at_once_do_not_pass_the_limit
        a_verification_that_was_overtaken_finds_it_used
        a_peek_uses_nothing_up_and_helps_nobody_to_guess
        siblings_end_only_where_they_are_told_to
        a_used_challenge_stays_used
        issuing_at_once_leaves_one_open
        the_oldest_sibling_ends_beyond_the_limit
        six_digits_are_good_until_their_key_is_retired
        challenges_of_a_deleted_subject_are_gone
        challenge_bounds_are_named;
    client_changes:
        a_promised_overlap_is_kept_whatever_follows
        an_imported_hash_verifies_its_secret
        a_client_is_changed_and_the_change_is_audited
        a_client_that_nobody_uses_ends
        an_access_token_takes_its_grant_along_where_that_is_asked_for;
    clients:
        a_client_is_registered_found_and_verified
        an_id_is_taken_once
        one_of_many_registrations_wins
        a_public_client_has_no_secret
        a_secret_is_rotated_with_an_overlap
        rotations_at_once_leave_the_newest_good
        an_owners_clients_are_listed
        a_client_ends_at_the_instant
        a_deleted_client_takes_its_grants_and_tokens_along
        deleting_against_issuing_leaves_nothing_alive
        a_client_that_is_not_there_is_not_deleted
        clients_of_another_scope_are_unknown;
    owners:
        an_owner_goes_with_everything_and_alone
        nothing_new_is_written_for_a_deleted_owner
        a_code_brings_nobody_back
        a_name_is_free_again_behind_the_last_step
        a_name_that_is_free_again_is_deleted_again
        writing_against_deleting_leaves_nothing
        a_deletion_goes_in_steps_and_is_told
        an_owner_of_nothing_is_deleted_too
        owners_of_another_scope_are_left_alone;
    belongings:
        what_belongs_to_an_owner_is_absent_as_soon_as_its_deletion_begins
        one_that_has_ended_with_its_trust_hides_none_of_another_type
        what_belongs_to_a_trust_ends_with_it_at_the_instant
        no_condition_holds_for_what_has_ended_with_its_trust
        what_belongs_to_a_grant_ends_with_a_sign_out
        what_was_written_anew_without_a_parent_stays
        a_parent_that_is_not_there_is_refused
        writing_against_removing_leaves_nothing_of_a_trust
        reconciling_removes_index_records_that_lead_to_nothing;
    crashes:
        a_deletion_of_an_owner_that_crashes_anywhere_honours_nothing
        a_deletion_of_a_client_that_crashes_anywhere_honours_nothing;
    migration:
        every_kind_moves_and_works_there
        a_move_that_crashes_anywhere_goes_on
        a_move_whose_writes_fail_anywhere_goes_on
        one_use_wins_against_a_move;
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
        a_log_that_is_cut_or_emptied_is_found
        a_log_from_a_copy_is_found_by_a_mark
        a_forged_checkpoint_breaks_the_log
        the_author_is_the_authenticated_key
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
        a_grant_by_a_caller_that_may_not_extend_lengthens_nothing
        an_approval_is_extended_within_its_cap
        a_check_renews_what_slides
        a_handle_is_not_talked_into_another_scope;
    relationships:
        a_relationship_is_read_from_both_ends
        types_are_kept_apart
        both_ends_end_at_the_instant
        removing_removes_both_ends_once
        an_extension_reaches_both_ends
        an_addition_by_a_caller_that_may_not_extend_lengthens_nothing
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
        a_search_goes_both_ways
        nothing_is_reached_over_someone_who_is_being_deleted;
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
        a_stopped_deletion_is_resumed_within_a_day
        a_deletion_that_has_begun_outlives_its_scope
        a_deletion_of_the_global_scope_revives_no_client
        a_caller_reaches_only_what_it_covers
        one_store_is_deleted_alone;
    api_keys:
        a_key_is_found_by_its_secret
        what_is_not_a_key_is_unknown
        a_key_ends_at_the_instant
        a_key_is_revoked_once
        keys_are_listed_exactly_or_below
        a_caller_manages_only_what_it_covers
        a_key_is_gone_with_its_scope
        what_was_done_to_keys_is_logged
        a_request_is_within_bounds;
    explain:
        a_replay_record_is_live_until_its_end
        a_nonce_is_live_used_or_expired
        a_code_tells_what_it_gave
        a_grant_tells_why_it_was_revoked
        an_access_token_ends_with_its_grant
        what_an_epoch_ended_is_explained
        an_extension_tells_who_and_why
        what_was_revoked_is_told_from_the_log
        an_explanation_renews_nothing
        what_a_session_a_request_and_a_device_came_to
        explanations_keep_to_their_scope;
}

/// Runs one case. The error is the failure message of the case.
pub async fn run(case: &StoreCase, backend: Arc<dyn Admin>, seed: u64) -> Result<(), String> {
    outcome((case.run)(StoreRig::new(backend, seed))).await
}
