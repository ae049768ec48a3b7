//! Tests of families.

use super::*;
use crate::model::codec;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_800_000_000_000 + millis).unwrap()
}

fn now(millis: u64) -> Now {
    Now::exact(at(millis))
}

fn family() -> Family {
    let beginning = Beginning {
        subject: "ada".into(),
        client_id: "app".into(),
        cnf: Confirmation::default(),
        scope: None,
        resource: None,
        data: Some(b"sealed data".to_vec()),
        key: KeyId::from_bytes([1; 4]),
        idle: Duration::from_secs(100),
        grace: Duration::from_secs(10),
        strict: false,
        access: None,
        salt: *b"a salt of exactly thirty-two byt",
        stamp: Stamp::default(),
        profile: None,
        sid: None,
    };
    Family::begin(beginning, now(0), at(1_000_000)).unwrap()
}

fn holds(family: &Family, text: &[u8]) -> bool {
    codec::encode(family).windows(text.len()).any(|window| window == text)
}

#[test]
fn revoking_wipes_what_was_sealed_and_what_it_was_sealed_with() {
    let mut family = family();
    assert!(holds(&family, b"sealed data") && holds(&family, b"thirty-two"));
    family.revoke(Why::Requested, now(1));
    assert!(!holds(&family, b"sealed data") && !holds(&family, b"thirty-two"));
    assert_eq!(family.state(now(1)).unwrap(), GrantState::Revoked { at: at(1), why: Why::Requested });
    assert_eq!(family.state(now(200_000)).unwrap(), GrantState::Revoked { at: at(1), why: Why::Requested });
}

#[test]
fn a_generation_from_the_future_changes_nothing() {
    let mut family = family();
    assert_eq!(family.judge(1, "app", &Confirmation::default(), now(1)).unwrap(), FamilyVerdict::Unknown);
    assert_eq!(
        family.judge(u64::MAX, "app", &Confirmation::default(), now(1)).unwrap(),
        FamilyVerdict::Unknown
    );
    family.advance(KeyId::from_bytes([2; 4]), now(1), at(1_000_000)).unwrap();
    assert_eq!(family.judge(1, "app", &Confirmation::default(), now(1)).unwrap(), FamilyVerdict::Advance);
    assert_eq!(family.judge(0, "app", &Confirmation::default(), now(10_000)).unwrap(), FamilyVerdict::Retry);
    assert_eq!(family.judge(0, "app", &Confirmation::default(), now(10_001)).unwrap(), FamilyVerdict::Reuse);
}

#[test]
fn a_first_token_proves_nothing_and_a_second_proves_once() {
    let mut family = family();
    assert!(!family.is_proved_by(0, now(1)).unwrap(), "there is no retry to close");
    family.advance(KeyId::from_bytes([1; 4]), now(1), at(1_000_000)).unwrap();
    assert!(!family.is_proved_by(0, now(2)).unwrap());
    assert!(family.is_proved_by(1, now(2)).unwrap());
    assert!(!family.is_proved_by(1, now(10_001)).unwrap(), "the window has closed by itself");
    family.prove_receipt();
    assert!(!family.is_proved_by(1, now(2)).unwrap());
    let judge =
        |family: &Family, millis| family.judge(0, "app", &Confirmation::default(), now(millis)).unwrap();
    assert_eq!(judge(&family, 2), FamilyVerdict::Raced);
    assert_eq!(judge(&family, 10_001), FamilyVerdict::Reuse, "its window has ended");
    family.strict = Some(true);
    assert_eq!(judge(&family, 2), FamilyVerdict::Reuse, "a strict family takes it for a theft");
}

#[test]
fn a_rotation_that_would_push_out_an_open_window_is_raced() {
    let (mut family, key) = (family(), KeyId::from_bytes([1; 4]));
    let judge = |family: &Family, generation, millis| {
        family.judge(generation, "app", &Confirmation::default(), now(millis)).unwrap()
    };
    for rotation in 0..16 {
        assert_eq!(judge(&family, rotation, rotation), FamilyVerdict::Advance);
        family.advance(key, now(rotation), at(1_000_000)).unwrap();
    }
    assert_eq!(judge(&family, 16, 16), FamilyVerdict::Raced);
    assert_eq!(judge(&family, 0, 9_999), FamilyVerdict::Raced, "the oldest window is open");
    assert_eq!(judge(&family, 0, 10_000), FamilyVerdict::Reuse);
    assert_eq!(judge(&family, 1, 10_000), FamilyVerdict::Raced);
    assert_eq!(judge(&family, 16, 10_000), FamilyVerdict::Advance);
}

/// A family as version 0.1 wrote it.
#[test]
fn a_family_of_an_earlier_version_is_read() {
    #[derive(Encode)]
    struct Earlier(
        #[n(0)] String,
        #[n(1)] String,
        #[n(2)] Option<String>,
        #[n(3)] Option<String>,
        #[cbor(n(4), with = "minicbor::bytes")] Option<Vec<u8>>,
        #[n(5)] ByteArray<8>,
        #[n(6)] ByteArray<4>,
        #[n(7)] u64,
        #[n(8)] u64,
        #[n(9)] u64,
        #[n(10)] bool,
        #[n(11)] u64,
        #[n(12)] u64,
        #[n(13)] u64,
        #[n(14)] Option<ByteArray<32>>,
        #[n(15)] Option<Revoked>,
    );
    let (created, ends) = (at(0).as_millis(), at(10_000).as_millis());
    let earlier = Earlier(
        "ada".into(),
        "app".into(),
        None,
        None,
        None,
        3_u64.to_be_bytes().into(),
        [1; 4].into(),
        created,
        created,
        ends,
        false,
        100_000,
        at(100_000).as_millis(),
        10_000,
        Some([7; 32].into()),
        None,
    );
    let mut family: Family = codec::decode(&codec::encode(&earlier)).unwrap();
    let judge = |family: &Family, generation, millis| {
        family.judge(generation, "app", &Confirmation::default(), now(millis)).unwrap()
    };
    assert_eq!(judge(&family, 2, 1), FamilyVerdict::Retry);
    assert_eq!(judge(&family, 1, 1), FamilyVerdict::Reuse, "its window is not known");
    family.advance(KeyId::from_bytes([1; 4]), now(1), at(1_000_000)).unwrap();
    assert_eq!(judge(&family, 2, 2), FamilyVerdict::Raced, "a window is remembered from then on");
}

#[test]
fn an_idle_family_leaves_a_day_later_and_a_revoked_one_at_its_cap() {
    let (mut family, cap, day) = (family(), at(90 * 86_400_000), 86_400_000);
    family.ends_at = Some(cap.as_millis());
    family.slide(now(0), cap).unwrap();
    assert_eq!((family.idle_until(), family.expires_at(cap)), (at(100_000), at(100_000 + day)));
    family.slide(now(50_000), cap).unwrap();
    assert_eq!(family.expires_at(cap), at(150_000 + day), "a rotation keeps it longer");
    assert_eq!(family.ends_at(family.expires_at(cap)), cap, "its cap does not move");
    family.revoke(Why::Requested, now(60_000));
    assert_eq!(family.expires_at(cap), cap, "evidence of a theft stays");
}
