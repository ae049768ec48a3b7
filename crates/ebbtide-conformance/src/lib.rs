//! Conformance suite that every engine passes, published so that any backend, and any live store, can be checked.
//!
//! A case is a private function named in [`CASES`]; one that is forgotten there is dead code and fails the build.
//! Cases write only records of [`Kind::PROBES`], at times far in the future: no sweep and no engine's TTL reaches
//! them, they sweep no kind but their own, and a live store is left unchanged.

mod alterations;
mod clock;
mod conditions;
mod expiry;
pub mod faulty;
mod model;
mod races;
mod rig;
mod scans;
mod scopes;
pub mod stores;
mod sweeps;

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use rig::Rig;

use ebbtide::AdminExt as _;
use ebbtide::admin::Admin;
use ebbtide::backend::{BackendExt, Budget};
use ebbtide::model::error::Result;
use ebbtide::model::key::Prefix;
use ebbtide::model::kind::Kind;
use ebbtide::model::time::Timestamp;

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One sentence of the contract, and its test.
pub struct Case {
    /// Part of the contract that it belongs to.
    pub group: &'static str,
    /// Sentence of the contract.
    pub name: &'static str,
    run: fn(Rig) -> Running,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Case({}::{})", self.group, self.name)
    }
}

macro_rules! cases {
    ($($group:ident: $($name:ident)+;)+) => {
        /// Every case, in the order of execution.
        pub const CASES: &[Case] = &[$($(Case {
            group: stringify!($group),
            name: stringify!($name),
            run: |rig| Box::pin($group::$name(rig)),
        },)+)+];
    };
}

cases! {
    conditions:
        get_of_what_was_never_written_is_none
        put_writes_over_anything
        insert_writes_where_nothing_is
        insert_is_refused_over_a_live_record
        replace_needs_the_live_version
        delete_has_no_condition
        remove_needs_the_live_version
        check_holds_for_the_live_version_alone
        absent_holds_where_nothing_is_live
        take_returns_the_record_once
        a_batch_is_all_or_nothing
        the_first_refused_write_is_named
        a_batch_holds_a_hundred_writes
        each_of_several_batches_is_judged_by_itself
        a_recreated_record_never_matches_an_old_version
        values_of_any_bytes_come_back
        keys_at_their_bounds_are_kept_apart;
    expiry:
        get_ends_at_the_instant
        take_ends_at_the_instant
        insert_takes_the_place_of_an_expired_record
        replace_never_revives
        remove_of_an_expired_record_is_refused
        check_of_an_expired_record_is_refused
        absent_holds_from_the_instant
        scan_ends_at_the_instant
        put_and_delete_ignore_what_is_expired
        a_longer_life_counts_from_its_writing
        a_shorter_life_counts_from_its_writing
        a_record_without_end_stays;
    races:
        one_insert_wins
        one_insert_over_an_expired_record_wins
        one_of_the_inserts_of_several_batches_wins
        one_replace_wins
        one_take_wins
        one_remove_wins
        a_take_and_a_replace_do_not_both_win
        crossing_batches_have_one_winner
        crossing_checks_do_not_both_win
        crossing_absences_do_not_both_win
        an_inserted_tombstone_and_an_absence_check_do_not_cross
        a_counter_loses_no_increment
        readers_never_see_half_a_batch;
    alterations:
        an_addition_counts_from_zero
        a_counter_lives_from_its_first_addition
        an_addition_beyond_the_limit_is_refused
        additions_of_many_callers_add_up
        a_limit_is_never_passed
        a_swap_answers_what_it_replaced
        of_many_swaps_each_record_is_answered_once
        a_touch_moves_the_end_alone
        a_take_by_shape_leaves_the_others;
    scans:
        a_partition_is_listed_in_order
        pages_join_to_the_whole
        a_scan_goes_on_from_what_was_deleted
        a_sort_prefix_is_whole_parts
        partitions_and_kinds_are_kept_apart
        an_expired_record_takes_no_place_in_a_listing
        a_record_that_stays_is_listed_once_while_others_change;
    sweeps:
        a_sweep_is_strict
        a_sweep_never_removes_what_is_live
        a_sweep_counts_by_kind
        a_sweep_leaves_other_kinds_alone
        a_sweep_is_resumed_until_there_is_no_more
        a_sweep_goes_by_the_present_expiry
        a_sweep_beside_extensions_removes_none_of_the_extended
        a_sweep_removes_nothing_that_a_read_would_honour
        a_swept_key_can_be_used_again
        twenty_of_a_hundred_that_expire_are_gone_within_two_intervals
        sweeping_changes_no_answer
        stats_count_the_live_and_the_overdue;
    scopes:
        every_operation_is_exact_in_scope
        below_is_what_a_scope_covers
        a_count_is_of_what_is_live_under_its_prefixes
        kinds_are_listed_and_cleared_together
        a_joined_name_is_not_another_scope
        erasing_a_scope_leaves_the_others;
    clock:
        in_doubt_only_what_both_ends_agree_on_is_answered
        in_doubt_nothing_gets_a_new_end
        in_doubt_evidence_still_blocks
        in_doubt_a_version_is_judged_by_its_own_end
        in_a_hold_presence_is_judged_at_the_later_end
        in_a_hold_absence_must_be_certain
        in_a_hold_a_take_is_still_won_once
        what_has_ended_is_never_written
        a_sweep_by_a_clock_in_doubt_removes_nothing;
    model:
        a_random_run_answers_as_the_model_does
        a_random_run_of_batches_answers_as_the_model_does;
}

/// Runs one case. No other run of the kit may use the store meanwhile. The error is the failure message of the case.
pub async fn run(case: &Case, backend: Arc<dyn Admin>, seed: u64) -> std::result::Result<(), String> {
    let rig = Rig::new(backend, case.name, seed);
    outcome((case.run)(rig)).await
}

async fn outcome(case: Running) -> std::result::Result<(), String> {
    tokio::spawn(case).await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => panic_message(panic.as_ref()),
        Err(error) => error.to_string(),
    })
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "the case panicked".to_owned())
}

/// Removes every record of the kit, from any run.
pub async fn clear(backend: &dyn Admin) -> Result<()> {
    for &kind in Kind::PROBES {
        backend.erase_all(&Prefix::kind_wide(kind), Timestamp::ZERO).await?;
    }
    backend.sweep_all(Timestamp::MAX, &Budget::everything(Kind::PROBES)).await?;
    Ok(())
}
