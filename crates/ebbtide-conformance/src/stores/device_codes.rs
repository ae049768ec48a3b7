//! Device codes: polled at an interval, decided once, redeemed once.

use serde_json::json;

use super::grants::{is_active, is_revoked};
use super::rig::{StoreRig, secs};
use ebbtide::model::secret::Secret;
use ebbtide::model::time::Clock as _;
use ebbtide::stores::Field;
use ebbtide::stores::access_tokens::AccessDraft;
use ebbtide::stores::codes::Redeemed;
use ebbtide::stores::device_codes::{
    Approve, DecideOutcome, Decision, Deny, DeviceRedeem, DeviceRedeemOutcome, DeviceRequest, PollOutcome,
    StartedDevice,
};
use ebbtide::stores::grants::Why;
use ebbtide::stores::shared::payload::Payload;

pub(super) async fn start(rig: &StoreRig) -> StartedDevice {
    start_with(rig, DeviceRequest::new("tv").scope("watch").data(json!("begun"))).await
}

async fn start_with(rig: &StoreRig, request: DeviceRequest) -> StartedDevice {
    rig.stores.device_codes(&rig.scope).start(request).await.expect("start")
}

pub(super) async fn decide(rig: &StoreRig, decision: impl Into<Decision>) -> DecideOutcome {
    rig.stores.device_codes(&rig.scope).decide(decision).await.expect("decide")
}

pub(super) async fn poll(rig: &StoreRig, device: &StartedDevice) -> PollOutcome {
    rig.stores
        .device_codes(&rig.scope)
        .poll(&DeviceRedeem::new(&device.device_code, "tv"))
        .await
        .expect("poll")
}

fn present(device: &StartedDevice) -> DeviceRedeem {
    DeviceRedeem::new(device.device_code.clone(), "tv").with_grant()
}

pub(super) async fn redeem(rig: &StoreRig, device: &StartedDevice) -> DeviceRedeemOutcome {
    rig.stores.device_codes(&rig.scope).redeem(present(device)).await.expect("redeem")
}

pub(super) async fn redeemed(rig: &StoreRig, device: &StartedDevice) -> Redeemed {
    match redeem(rig, device).await {
        DeviceRedeemOutcome::Redeemed(redeemed) => *redeemed,
        other => panic!("the device code should be approved, but: {other:?}"),
    }
}

pub(super) fn decided() -> DecideOutcome {
    DecideOutcome::Decided { client_id: "tv".to_owned(), scope: Some("watch".to_owned()) }
}

fn approved() -> PollOutcome {
    PollOutcome::Approved { subject: "ada".to_owned(), scope: Some("watch".to_owned()) }
}

fn pending(interval_seconds: u64) -> PollOutcome {
    PollOutcome::Pending { interval_seconds }
}

pub(super) async fn a_flow_goes_from_start_to_redemption(rig: StoreRig) {
    let began = rig.clock.now();
    let device = start(&rig).await;
    assert_eq!((device.expires_at.since(began).as_secs(), device.interval_seconds), (600, 5));
    assert_eq!(poll(&rig, &device).await, pending(5));
    assert_eq!(decide(&rig, Approve::new(&device.user_code, "ada")).await, decided());
    assert_eq!(poll(&rig, &device).await, approved(), "as soon as it is approved");
    let redeemed = redeemed(&rig, &device).await;
    assert_eq!((redeemed.subject.as_str(), redeemed.client_id.as_str()), ("ada", "tv"));
    assert_eq!(redeemed.data.map(Payload::into_inner), Some(json!("begun")));
    let grant = rig.stores.grants(&rig.scope).get(redeemed.grant.expect("asked for").grant_id).await;
    assert_eq!(grant.expect("get").expect("there").subject, "ada");
    assert_eq!(poll(&rig, &device).await, PollOutcome::Used);
    let device = start(&rig).await;
    let approve = Approve::new(&device.user_code, "ada").data(json!("decided"));
    assert_eq!(decide(&rig, approve).await, decided());
    let redeemed = self::redeemed(&rig, &device).await;
    assert_eq!(redeemed.data.map(Payload::into_inner), Some(json!("decided")));
}

pub(super) async fn a_user_code_is_read_however_it_is_typed(rig: StoreRig) {
    for typed in [
        |code: &str| code.to_lowercase(),
        |code: &str| code.replace('-', ""),
        |code: &str| format!(" {} ", code.replace('-', " ")),
    ] {
        let device = start(&rig).await;
        let typed = Secret::new(typed(device.user_code.expose()));
        assert_eq!(decide(&rig, Approve::new(&typed, "ada")).await, decided());
        assert_eq!(poll(&rig, &device).await, approved());
    }
}

pub(super) async fn a_denial_is_final(rig: StoreRig) {
    let device = start(&rig).await;
    assert_eq!(decide(&rig, Deny::new(&device.user_code, "here")).await, decided());
    assert_eq!(poll(&rig, &device).await, PollOutcome::Denied);
    assert_eq!(redeem(&rig, &device).await, DeviceRedeemOutcome::Refused(PollOutcome::Denied));
    assert_eq!(decide(&rig, Approve::new(&device.user_code, "ada")).await, DecideOutcome::Used);
    assert_eq!(poll(&rig, &device).await, PollOutcome::Denied);
}

pub(super) async fn the_first_verdict_stands(rig: StoreRig) {
    let device = start(&rig).await;
    assert_eq!(decide(&rig, Approve::new(&device.user_code, "ada")).await, decided());
    let eve = Approve::new(&device.user_code, "eve");
    for decision in [Decision::from(Deny::new(&device.user_code, "here")), eve.into()] {
        assert_eq!(decide(&rig, decision).await, DecideOutcome::Used);
    }
    assert_eq!(redeemed(&rig, &device).await.subject, "ada");
}

pub(super) async fn polling_too_early_is_slowed_down_for_good(rig: StoreRig) {
    let device = start(&rig).await;
    assert_eq!(poll(&rig, &device).await, pending(5));
    rig.pass(5);
    assert_eq!(poll(&rig, &device).await, pending(5));
    rig.pass(4);
    assert_eq!(poll(&rig, &device).await, PollOutcome::SlowDown { interval_seconds: 10 });
    rig.pass(9);
    assert_eq!(poll(&rig, &device).await, PollOutcome::SlowDown { interval_seconds: 15 });
    rig.pass(15);
    assert_eq!(poll(&rig, &device).await, pending(15), "for good");
    let patient = start_with(&rig, DeviceRequest::new("tv").interval_seconds(30)).await;
    assert_eq!((patient.interval_seconds, poll(&rig, &patient).await), (30, pending(30)));
}

pub(super) async fn a_code_ends_at_the_instant(rig: StoreRig) {
    let request = || DeviceRequest::new("tv").scope("watch").ttl(secs(100));
    let (undecided, approved) = (start_with(&rig, request()).await, start_with(&rig, request()).await);
    let redeemed_late = start_with(&rig, request()).await;
    for device in [&approved, &redeemed_late] {
        assert_eq!(decide(&rig, Approve::new(&device.user_code, "ada")).await, decided());
    }
    rig.go_to(approved.expires_at, 1);
    assert_eq!(poll(&rig, &undecided).await, pending(5));
    redeemed(&rig, &redeemed_late).await;
    rig.go_to(approved.expires_at, 0);
    for sweeps in [false, true] {
        assert_eq!(poll(&rig, &undecided).await, PollOutcome::Expired);
        assert_eq!(
            poll(&rig, &approved).await,
            PollOutcome::Expired,
            "approved, and not redeemed in its time"
        );
        assert_eq!(redeem(&rig, &approved).await, DeviceRedeemOutcome::Refused(PollOutcome::Expired));
        let late = decide(&rig, Approve::new(&undecided.user_code, "ada")).await;
        assert_eq!(late, DecideOutcome::Expired);
        if !sweeps {
            rig.pass(24 * 3600 - 1);
            rig.sweep().await;
        }
    }
    rig.pass(1);
    assert_eq!(poll(&rig, &undecided).await, PollOutcome::Unknown, "remembered for a day");
    assert_eq!(decide(&rig, Deny::new(&undecided.user_code, "here")).await, DecideOutcome::Unknown);
}

pub(super) async fn another_clients_code_is_a_mismatch(rig: StoreRig) {
    let device = start(&rig).await;
    assert_eq!(decide(&rig, Approve::new(&device.user_code, "ada")).await, decided());
    let codes = rig.stores.device_codes(&rig.scope);
    let answer = codes.poll(&DeviceRedeem::new(&device.device_code, "evil")).await.expect("poll");
    assert_eq!(answer, PollOutcome::Mismatch(Field::ClientId));
    let evil = DeviceRedeem::new(device.device_code.clone(), "evil");
    let answer = codes.redeem(evil.clone()).await.expect("redeem");
    assert_eq!(answer, DeviceRedeemOutcome::Refused(PollOutcome::Mismatch(Field::ClientId)));
    redeemed(&rig, &device).await;
    let garbage = DeviceRedeem::new(Secret::new("ebd_x"), "tv");
    let answer = codes.redeem(garbage.clone()).await.expect("redeem");
    assert_eq!(answer, DeviceRedeemOutcome::Refused(PollOutcome::Unknown));
}

pub(super) async fn redeeming_before_the_verdict_counts_as_a_poll(rig: StoreRig) {
    let device = start(&rig).await;
    assert_eq!(redeem(&rig, &device).await, DeviceRedeemOutcome::Refused(pending(5)));
    let slower = PollOutcome::SlowDown { interval_seconds: 10 };
    assert_eq!(redeem(&rig, &device).await, DeviceRedeemOutcome::Refused(slower));
    assert_eq!(poll(&rig, &device).await, PollOutcome::SlowDown { interval_seconds: 15 });
}

pub(super) async fn a_second_redemption_revokes_what_the_first_gave(rig: StoreRig) {
    let device = start(&rig).await;
    assert_eq!(decide(&rig, Approve::new(&device.user_code, "ada")).await, decided());
    let id = redeemed(&rig, &device).await.grant.expect("asked for").grant_id;
    // The marker stays until the grant's cap.
    rig.pass(30 * 24 * 3600);
    rig.sweep().await;
    assert_eq!(redeem(&rig, &device).await, DeviceRedeemOutcome::Reused { grant_id: Some(id) });
    let device = start(&rig).await;
    assert_eq!(decide(&rig, Approve::new(&device.user_code, "ada")).await, decided());
    let id = redeemed(&rig, &device).await.grant.expect("asked for").grant_id;
    assert_eq!(redeem(&rig, &device).await, DeviceRedeemOutcome::Reused { grant_id: Some(id) });
    assert_eq!(is_revoked(&rig, id).await, Some(Why::CodeReused));
}

pub(super) async fn a_second_redemption_revokes_a_token_without_a_grant(rig: StoreRig) {
    let device = start(&rig).await;
    assert_eq!(decide(&rig, Approve::new(&device.user_code, "ada")).await, decided());
    let codes = rig.stores.device_codes(&rig.scope);
    let redeem_as = async |client_id: &str| {
        let redeem = DeviceRedeem::new(&device.device_code, client_id).access_token(AccessDraft::default());
        codes.redeem(redeem).await.expect("redeem")
    };
    let DeviceRedeemOutcome::Redeemed(redeemed) = redeem_as("tv").await else { panic!("it is approved") };
    let token = redeemed.access_token.expect("one was asked for").access_token;
    assert_eq!(redeem_as("evil").await, DeviceRedeemOutcome::Reused { grant_id: None });
    assert!(is_active(&rig, &token).await, "who has only the code revokes nothing");
    assert_eq!(redeem_as("tv").await, DeviceRedeemOutcome::Reused { grant_id: None });
    assert!(!is_active(&rig, &token).await, "two parties have the code");
}

pub(super) async fn guesses_of_a_source_are_limited(rig: StoreRig) {
    let device = start(&rig).await;
    let wrong = Secret::new("BBBB-BBBB");
    let from = |source: &str, code: &Secret| Approve::new(code, "ada").source(source);
    for _ in 0..10 {
        assert_eq!(decide(&rig, from("203.0.113.1", &wrong)).await, DecideOutcome::Unknown);
    }
    let answer = decide(&rig, from("203.0.113.1", &device.user_code)).await;
    let DecideOutcome::TooManyGuesses { retry_at } = answer else {
        panic!("a right one is not looked at: {answer:?}")
    };
    assert_eq!(retry_at.since(rig.clock.now()).as_secs(), 600);
    let other = start(&rig).await;
    for _ in 0..15 {
        // A correct user code is no guess, decided or not.
        let answer = decide(&rig, from("203.0.113.2", &other.user_code)).await;
        assert!(matches!(answer, DecideOutcome::Decided { .. } | DecideOutcome::Used), "{answer:?}");
    }
    rig.go_to(retry_at, 0);
    let fresh = start(&rig).await;
    assert_eq!(decide(&rig, from("203.0.113.1", &fresh.user_code)).await, decided());
    for _ in 0..10 {
        assert_eq!(decide(&rig, Approve::new(&wrong, "eve")).await, DecideOutcome::Unknown);
    }
    let answer = decide(&rig, Approve::new(&wrong, "eve")).await;
    assert!(matches!(answer, DecideOutcome::TooManyGuesses { .. }), "counted by subject without a source");
}

pub(super) async fn bounds_are_named(rig: StoreRig) {
    let codes = rig.stores.device_codes(&rig.scope);
    for (request, bound) in [
        (DeviceRequest::new("tv").ttl(secs(3_601)), "3600"),
        (DeviceRequest::new("tv").interval_seconds(0), "60"),
        (DeviceRequest::new("tv").interval_seconds(61), "60"),
        (DeviceRequest::new(""), "1024"),
    ] {
        let error = codes.start(request).await.expect_err("out of bounds");
        assert!(error.message().contains(bound), "{error}");
    }
}

pub(super) async fn codes_of_another_scope_are_unknown(rig: StoreRig) {
    let device = start(&rig).await;
    let other = rig.elsewhere();
    assert_eq!(poll(&other, &device).await, PollOutcome::Unknown);
    assert_eq!(decide(&other, Approve::new(&device.user_code, "ada")).await, DecideOutcome::Unknown);
    assert_eq!(poll(&rig, &device).await, pending(5));
}
