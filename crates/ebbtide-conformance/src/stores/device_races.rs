//! Races for one device code: one wins, and every caller gets a consistent answer.

use super::device_codes::{decide, decided, poll, redeem, redeemed, start};
use super::grants::is_revoked;
use super::rig::StoreRig;
use ebbtide::model::kind::Kind;
use ebbtide::model::secret::Secret;
use ebbtide::stores::device_codes::{Approve, DecideOutcome, Deny, DeviceRedeemOutcome, PollOutcome};
use ebbtide::stores::grants::Why;

pub(super) async fn approving_and_denying_have_one_winner(rig: StoreRig) {
    for _ in 0..6 {
        let device = start(&rig).await;
        let answers = rig.together(16, |rig, index| {
            let code = device.user_code.clone();
            async move {
                // Each has a source of its own, so that none waits for the count of another.
                let source = format!("{index}");
                if index % 2 == 0 {
                    decide(&rig, Approve::new(code, "ada").source(source)).await
                } else {
                    decide(&rig, Deny::new(code, source)).await
                }
            }
        });
        let answers = answers.await;
        let winners: Vec<_> = (0..16).filter(|&index| answers[index] == decided()).collect();
        assert_eq!(winners.len(), 1, "{answers:?}");
        assert_eq!(answers.iter().filter(|answer| **answer == DecideOutcome::Used).count(), 15);
        let answer = poll(&rig, &device).await;
        let approved = matches!(answer, PollOutcome::Approved { .. });
        assert_eq!(approved, winners[0] % 2 == 0, "as the winner has said: {answer:?}");
    }
}

pub(super) async fn every_poll_counts(rig: StoreRig) {
    let device = start(&rig).await;
    let answers = rig.together(16, |rig, _| {
        let device = device.clone();
        async move { poll(&rig, &device).await }
    });
    let mut intervals: Vec<_> = answers
        .await
        .into_iter()
        .map(|answer| match answer {
            PollOutcome::Pending { interval_seconds } | PollOutcome::SlowDown { interval_seconds } => {
                interval_seconds
            }
            other => panic!("no decision was made, but: {other:?}"),
        })
        .collect();
    intervals.sort_unstable();
    let each_five_more: Vec<u64> = (1..=16).map(|n| 5 * n).collect();
    assert_eq!(intervals, each_five_more, "no slowing down is lost");
}

pub(super) async fn one_of_many_redemptions_wins_and_the_others_revoke(rig: StoreRig) {
    for _ in 0..6 {
        let device = start(&rig).await;
        assert_eq!(decide(&rig, Approve::new(&device.user_code, "ada")).await, decided());
        let answers = rig.together(16, |rig, _| {
            let device = device.clone();
            async move { redeem(&rig, &device).await }
        });
        let answers = answers.await;
        let mut ids = answers.iter().filter_map(|answer| match answer {
            DeviceRedeemOutcome::Redeemed(redeemed) => redeemed.grant.as_ref().map(|grant| grant.grant_id),
            _ => None,
        });
        let (id, second) = (ids.next().expect("one wins"), ids.next());
        assert_eq!(second, None, "and one alone");
        let reused = DeviceRedeemOutcome::Reused { grant_id: Some(id) };
        assert_eq!(answers.iter().filter(|answer| **answer == reused).count(), 15);
        assert_eq!(is_revoked(&rig, id).await, Some(Why::CodeReused));
    }
}

pub(super) async fn a_verdict_that_was_overtaken_is_told_so(rig: StoreRig) {
    let device = start(&rig).await;
    let (other, code) = (rig.clone(), device.user_code.clone());
    let overtaken = rig.meanwhile(Kind::DeviceCode, async move {
        assert_eq!(decide(&other, Deny::new(&code, "here")).await, decided());
    });
    assert_eq!(decide(&overtaken, Approve::new(&device.user_code, "ada")).await, DecideOutcome::Used);
    assert_eq!(poll(&rig, &device).await, PollOutcome::Denied);
}

pub(super) async fn a_poll_does_not_undo_an_approval(rig: StoreRig) {
    let device = start(&rig).await;
    let (other, code) = (rig.clone(), device.user_code.clone());
    let overtaken = rig.meanwhile(Kind::DeviceCode, async move {
        assert_eq!(decide(&other, Approve::new(&code, "ada")).await, decided());
    });
    assert!(matches!(poll(&overtaken, &device).await, PollOutcome::Approved { .. }));
    redeemed(&rig, &device).await;
}

pub(super) async fn guesses_at_once_are_limited_too(rig: StoreRig) {
    let answers = rig.together(16, |rig, _| async move {
        decide(&rig, Approve::new(Secret::new("BBBB-BBBB"), "ada").source("203.0.113.1")).await
    });
    let answers = answers.await;
    let looked_at = answers.iter().filter(|answer| **answer == DecideOutcome::Unknown).count();
    assert_eq!(looked_at, 10, "{answers:?}");
}
