//! Challenges are verified once, and guesses at them are counted in the step that judges them.

use std::sync::Arc;

use serde_json::json;

use super::owned_records::context;
use super::rig::{StoreRig, secs};
use ebbtide::keyring::Keyring;
use ebbtide::model::error::ErrorKind;
use ebbtide::model::kind::Kind;
use ebbtide::model::rng::SeededRng;
use ebbtide::model::secret::Secret;
use ebbtide::model::time::Clock as _;
use ebbtide::stores::audit::{Action, AuditEntry};
use ebbtide::stores::challenges::{
    ChallengeRequest, Challenges, Form, IssuedChallenge, Peek, Siblings, Verify, VerifyOutcome,
};

const FORMS: [Form; 3] = [Form::Digits6, Form::Token, Form::Bytes32];

fn request(form: Form) -> ChallengeRequest {
    ChallengeRequest::new("login", "ada", form).data(json!({"next": "/home"}))
}

async fn issue(rig: &StoreRig, request: ChallengeRequest) -> IssuedChallenge {
    rig.stores.challenges(&rig.scope).issue(request).await.expect("issue")
}

fn by_id(issued: &IssuedChallenge) -> Verify {
    Verify::new("login", &issued.secret).id(issued.id.to_string())
}

/// A secret of the same form that is wrong.
fn wrong(issued: &IssuedChallenge) -> Verify {
    let right = issued.secret.expose();
    let other = if right.len() == 6 {
        format!("{:06}", (right.parse::<u32>().expect("six digits") + 1) % 1_000_000)
    } else {
        let last = if right.ends_with('A') { "E" } else { "A" };
        format!("{}{last}", &right[..right.len() - 1])
    };
    Verify::new("login", Secret::new(other)).id(issued.id.to_string())
}

async fn verify(rig: &StoreRig, verify: &Verify) -> VerifyOutcome {
    rig.stores.challenges(&rig.scope).verify(verify).await.expect("verify")
}

async fn peek(rig: &StoreRig, peek: &Peek) -> VerifyOutcome {
    rig.stores.challenges(&rig.scope).peek(peek).await.expect("peek")
}

fn is_verified(answer: &VerifyOutcome) -> bool {
    matches!(answer, VerifyOutcome::Verified(_))
}

pub(super) async fn a_challenge_is_verified_once(rig: StoreRig) {
    for form in FORMS {
        let issued = issue(&rig, request(form)).await;
        let VerifyOutcome::Verified(seen) = verify(&rig, &by_id(&issued)).await else { panic!("{form:?}") };
        assert_eq!((seen.id, seen.form, seen.purpose.as_str()), (issued.id, form, "login"));
        assert_eq!((seen.subject.as_str(), seen.attempts_left), ("ada", 5));
        assert_eq!(seen.data.expect("kept").into_inner(), json!({"next": "/home"}));
        assert_eq!(verify(&rig, &by_id(&issued)).await, VerifyOutcome::Used);
        assert_eq!(verify(&rig, &wrong(&issued)).await, VerifyOutcome::Used, "it is not compared any more");
    }
    let digits = issue(&rig, request(Form::Digits6)).await;
    let typed = format!("{} {}", &digits.secret.expose()[..3], &digits.secret.expose()[3..]);
    let typed = Verify::new("login", Secret::new(typed)).id(digits.id.to_string());
    assert!(is_verified(&verify(&rig, &typed).await), "as people type it");
}

pub(super) async fn a_challenge_is_found_by_id_subject_or_secret(rig: StoreRig) {
    for form in FORMS {
        let first = issue(&rig, request(form)).await;
        let second = issue(&rig, request(form)).await;
        let of_subject = |issued: &IssuedChallenge| Verify::new("login", &issued.secret).subject("ada");
        if form == Form::Digits6 {
            if first.secret != second.secret {
                let answer = verify(&rig, &of_subject(&first)).await;
                assert_eq!(answer, VerifyOutcome::Mismatch { attempts_left: 4 }, "the latest counts");
            }
            let alone = rig.stores.challenges(&rig.scope).verify(&Verify::new("login", "123456")).await;
            assert_eq!(alone.expect_err("six digits name nothing").kind(), ErrorKind::Invalid);
        } else {
            assert!(is_verified(&verify(&rig, &of_subject(&first)).await), "a token names its challenge");
        }
        assert!(is_verified(&verify(&rig, &of_subject(&second)).await));
        let third = issue(&rig, request(form)).await;
        let alone = Verify::new("login", &third.secret);
        if form != Form::Digits6 {
            assert!(is_verified(&verify(&rig, &alone).await));
        }
    }
    for garbage in ["", "x", &"x".repeat(5_000), "ebh_"] {
        let verify_it = Verify::new("login", garbage).id("not an id");
        assert_eq!(verify(&rig, &verify_it).await, VerifyOutcome::Unknown);
    }
}

pub(super) async fn a_secret_is_of_its_purpose_subject_and_scope(rig: StoreRig) {
    for form in FORMS {
        let issued = issue(&rig, request(form)).await;
        let mut other = by_id(&issued);
        "reset".clone_into(&mut other.purpose);
        assert_eq!(verify(&rig, &other).await, VerifyOutcome::Unknown);
        let alone = Verify::new("reset", &issued.secret).subject("ada");
        assert_eq!(verify(&rig, &alone).await, VerifyOutcome::Unknown);
        assert_eq!(verify(&rig, &by_id(&issued).subject("eve")).await, VerifyOutcome::Unknown);
        assert_eq!(verify(&rig.elsewhere(), &by_id(&issued)).await, VerifyOutcome::Unknown);
        let VerifyOutcome::Verified(seen) = verify(&rig, &by_id(&issued)).await else { panic!("{form:?}") };
        assert_eq!(seen.attempts_left, 5, "none of these was an attempt");
    }
}

pub(super) async fn a_challenge_ends_at_the_instant(rig: StoreRig) {
    let began = rig.clock.now();
    for (ttl, seconds) in [(None, 600), (Some(secs(30)), 30)] {
        let request = || ttl.map_or_else(|| request(Form::Token), |ttl| request(Form::Token).ttl(ttl));
        rig.clock.set(began);
        let (early, late) = (issue(&rig, request()).await, issue(&rig, request()).await);
        assert_eq!(late.expires_at.since(began).as_secs(), seconds);
        rig.go_to(late.expires_at, 1);
        assert!(is_verified(&verify(&rig, &by_id(&early)).await));
        rig.go_to(late.expires_at, 0);
        assert_eq!(verify(&rig, &by_id(&late)).await, VerifyOutcome::Expired);
        assert_eq!(verify(&rig, &wrong(&late)).await, VerifyOutcome::Expired);
        rig.pass(24 * 3600 - 1);
        rig.sweep().await;
        assert_eq!(verify(&rig, &by_id(&late)).await, VerifyOutcome::Expired, "remembered for a day");
        assert_eq!(verify(&rig, &by_id(&early)).await, VerifyOutcome::Used);
        rig.pass(1);
        assert_eq!(verify(&rig, &by_id(&late)).await, VerifyOutcome::Unknown, "and then forgotten");
    }
}

pub(super) async fn wrong_secrets_are_counted_and_close_it(rig: StoreRig) {
    for form in FORMS {
        let issued = issue(&rig, request(form).attempts(3_u32)).await;
        for attempts_left in [2, 1] {
            assert_eq!(verify(&rig, &wrong(&issued)).await, VerifyOutcome::Mismatch { attempts_left });
        }
        let good = issue(&rig, request(form).attempts(1_u32)).await;
        assert!(is_verified(&verify(&rig, &by_id(&good)).await), "the last attempt may be right");
        assert_eq!(verify(&rig, &wrong(&issued)).await, VerifyOutcome::Mismatch { attempts_left: 0 });
        assert_eq!(verify(&rig, &wrong(&issued)).await, VerifyOutcome::Exceeded);
        assert_eq!(verify(&rig, &by_id(&issued)).await, VerifyOutcome::Exceeded, "right is too late");
        let log = rig.stores.audit(&rig.scope).list(None, 1_000).await.expect("read").items;
        let locked =
            |entry: &&AuditEntry| entry.action == Action::Lockout && entry.target == [issued.id.to_string()];
        assert_eq!(log.iter().filter(locked).count(), 1, "the lockout is in the audit log, once");
    }
}

pub(super) async fn one_of_many_verifications_wins(rig: StoreRig) {
    for form in FORMS {
        let issued = issue(&rig, request(form)).await;
        let answers = rig.together(64, |rig, _| {
            let issued = issued.clone();
            async move { verify(&rig, &by_id(&issued)).await }
        });
        let answers = answers.await;
        let used = answers.iter().filter(|answer| **answer == VerifyOutcome::Used).count();
        assert_eq!((answers.iter().filter(|answer| is_verified(answer)).count(), used), (1, 63));
    }
}

pub(super) async fn guesses_at_once_do_not_pass_the_limit(rig: StoreRig) {
    for form in [Form::Digits6, Form::Token] {
        let issued = issue(&rig, request(form).attempts(5_u32)).await;
        let answers = rig.together(64, |rig, _| {
            let issued = issued.clone();
            async move { verify(&rig, &wrong(&issued)).await }
        });
        let mut left = Vec::new();
        let mut exceeded = 0;
        for answer in answers.await {
            match answer {
                VerifyOutcome::Mismatch { attempts_left } => left.push(attempts_left),
                VerifyOutcome::Exceeded => exceeded += 1,
                other => panic!("{other:?}"),
            }
        }
        left.sort_unstable();
        assert_eq!((left, exceeded), (vec![0, 1, 2, 3, 4], 59), "each attempt is counted once");
    }
}

pub(super) async fn a_verification_that_was_overtaken_finds_it_used(rig: StoreRig) {
    let issued = issue(&rig, request(Form::Digits6)).await;
    let (other, theirs) = (rig.clone(), by_id(&issued));
    let overtaken = rig.meanwhile(Kind::Challenge, async move {
        assert!(is_verified(&verify(&other, &theirs).await));
    });
    assert_eq!(verify(&overtaken, &by_id(&issued)).await, VerifyOutcome::Used);
    let issued = issue(&rig, request(Form::Digits6)).await;
    let (other, last) = (rig.clone(), request(Form::Digits6).siblings(Siblings::Invalidate));
    let overtaken = rig.meanwhile(Kind::Challenge, async move {
        issue(&other, last).await;
    });
    assert_eq!(verify(&overtaken, &by_id(&issued)).await, VerifyOutcome::Superseded);
}

pub(super) async fn a_peek_uses_nothing_up_and_helps_nobody_to_guess(rig: StoreRig) {
    for form in FORMS {
        let issued = issue(&rig, request(form).attempts(2_u32)).await;
        let id = issued.id.to_string();
        for _ in 0..3 {
            let VerifyOutcome::Verified(seen) = peek(&rig, &Peek::new("login").id(&id)).await else {
                panic!()
            };
            assert_eq!((seen.data, seen.attempts_left), (None, 2), "no secret, no data");
            let with_secret = Peek::new("login").id(&id).secret(&issued.secret);
            let VerifyOutcome::Verified(seen) = peek(&rig, &with_secret).await else { panic!() };
            assert_eq!(seen.data.expect("kept").into_inner(), json!({"next": "/home"}));
        }
        if form != Form::Digits6 {
            let alone = Peek::new("login").secret(&issued.secret);
            assert!(is_verified(&peek(&rig, &alone).await), "a link alone");
        }
        assert!(is_verified(&peek(&rig, &Peek::new("login").subject("ada")).await));
        let guess = Peek::new("login").id(&id).secret(&wrong(&issued).secret);
        assert_eq!(peek(&rig, &guess).await, VerifyOutcome::Mismatch { attempts_left: 1 });
        assert!(is_verified(&verify(&rig, &by_id(&issued)).await));
        assert_eq!(peek(&rig, &Peek::new("login").id(&id)).await, VerifyOutcome::Used);
    }
}

pub(super) async fn siblings_end_only_where_they_are_told_to(rig: StoreRig) {
    let other_purpose = ChallengeRequest::new("reset", "ada", Form::Token);
    let other_subject = ChallengeRequest::new("login", "bob", Form::Token);
    let (reset, bobs) = (issue(&rig, other_purpose).await, issue(&rig, other_subject).await);
    let first = issue(&rig, request(Form::Digits6)).await;
    let second = issue(&rig, request(Form::Token).siblings(Siblings::Keep)).await;
    assert!(is_verified(&peek(&rig, &Peek::new("login").id(first.id.to_string())).await));
    let third = issue(&rig, request(Form::Digits6).siblings(Siblings::Invalidate)).await;
    assert_eq!(verify(&rig, &by_id(&first)).await, VerifyOutcome::Superseded);
    assert_eq!(verify(&rig, &by_id(&second)).await, VerifyOutcome::Superseded);
    let alone = Verify::new("login", &second.secret);
    assert_eq!(verify(&rig, &alone).await, VerifyOutcome::Superseded);
    assert!(is_verified(&verify(&rig, &by_id(&third)).await));
    assert!(is_verified(&verify(&rig, &by_id(&bobs)).await));
    assert!(is_verified(&verify(&rig, &Verify::new("reset", &reset.secret)).await));
}

pub(super) async fn a_used_challenge_stays_used(rig: StoreRig) {
    let invalidating = || request(Form::Token).siblings(Siblings::Invalidate);
    let used = issue(&rig, request(Form::Token)).await;
    assert!(is_verified(&verify(&rig, &by_id(&used)).await));
    let next = issue(&rig, invalidating()).await;
    assert_eq!(verify(&rig, &by_id(&used)).await, VerifyOutcome::Used, "it was used before it was ended");
    assert!(is_verified(&verify(&rig, &by_id(&next)).await));
    // Verified and ended at once, it is one of the two for good.
    for _ in 0..8 {
        let contended = Arc::new(issue(&rig, invalidating()).await);
        let answers = rig.together(2, |rig, index| {
            let contended = Arc::clone(&contended);
            async move {
                if index == 0 {
                    return Some(verify(&rig, &by_id(&contended)).await);
                }
                issue(&rig, request(Form::Token).siblings(Siblings::Invalidate)).await;
                None
            }
        });
        let answers: Vec<_> = answers.await.into_iter().flatten().collect();
        let later = verify(&rig, &by_id(&contended)).await;
        match &answers[0] {
            VerifyOutcome::Superseded => assert_eq!(later, VerifyOutcome::Superseded),
            answer if is_verified(answer) => assert_eq!(later, VerifyOutcome::Used),
            other => panic!("{other:?}"),
        }
    }
}

pub(super) async fn issuing_at_once_leaves_one_open(rig: StoreRig) {
    let all = rig.together(12, |rig, _| async move {
        issue(&rig, request(Form::Token).siblings(Siblings::Invalidate)).await
    });
    let all = all.await;
    let mut open = Vec::new();
    for issued in &all {
        match verify(&rig, &by_id(issued)).await {
            VerifyOutcome::Superseded => {}
            answer if is_verified(&answer) => open.push(issued.id),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(open.len(), 1, "of {}", all.len());
}

pub(super) async fn the_oldest_sibling_ends_beyond_the_limit(rig: StoreRig) {
    let mut all = Vec::new();
    for _ in 0..=Challenges::MAX_SIBLINGS {
        all.push(issue(&rig, request(Form::Token)).await);
    }
    assert_eq!(verify(&rig, &by_id(&all[0])).await, VerifyOutcome::Superseded);
    assert!(is_verified(&verify(&rig, &by_id(&all[1])).await));
    let last = issue(&rig, request(Form::Token).siblings(Siblings::Invalidate)).await;
    assert_eq!(verify(&rig, &by_id(&all[64])).await, VerifyOutcome::Superseded);
    assert!(is_verified(&verify(&rig, &by_id(&last)).await));
}

pub(super) async fn six_digits_are_good_until_their_key_is_retired(rig: StoreRig) {
    let mut ring = Keyring::generate(&SeededRng::new(9), rig.clock.now());
    let old = ring.active();
    let first = rig.with_keyring(ring.clone());
    let before = issue(&first, ChallengeRequest::new("login", "ada", Form::Digits6)).await;
    let new = ring.add(&SeededRng::new(10), rig.clock.now()).expect("room");
    ring.activate(new).expect("there");
    let rotated = rig.with_keyring(ring.clone());
    let peek_it = Peek::new("login").id(before.id.to_string()).secret(&before.secret);
    assert!(is_verified(&peek(&rotated, &peek_it).await));
    ring.retire(old).expect("not active");
    let retired = rig.with_keyring(ring);
    let fault = retired.stores.challenges(&rig.scope).verify(&by_id(&before)).await;
    assert_eq!(fault.expect_err("no answer").kind(), ErrorKind::Unavailable, "not a wrong secret");
    let VerifyOutcome::Verified(seen) = verify(&rotated, &by_id(&before)).await else { panic!() };
    assert_eq!(seen.attempts_left, 5);
}

pub(super) async fn challenges_of_a_deleted_subject_are_gone(rig: StoreRig) {
    let issued = issue(&rig, request(Form::Token).ttl(secs(86_400))).await;
    let reset = ChallengeRequest::new("reset", "ada", Form::Token).ttl(secs(86_400));
    let reset = issue(&rig, reset).await;
    let bobs = issue(&rig, ChallengeRequest::new("login", "bob", Form::Token).ttl(secs(86_400))).await;
    let owners = rig.stores.owners(&rig.scope);
    let deletion = owners.delete("ada", &context()).await.expect("begin");
    let refused = rig.stores.challenges(&rig.scope).issue(request(Form::Token)).await;
    assert_eq!(refused.expect_err("being deleted").kind(), ErrorKind::Invalid);
    assert_eq!(verify(&rig, &by_id(&issued)).await, VerifyOutcome::Unknown);
    let peeked = peek(&rig, &Peek::new("login").secret(&issued.secret)).await;
    assert_eq!(peeked, VerifyOutcome::Unknown);
    let removed = deletion.finish().await.expect("delete");
    assert_eq!(removed.records.get(&Kind::Challenge), Some(&2));
    // The tombstone is gone after an hour; the challenges would have lived for a day.
    rig.pass(7_200);
    assert_eq!(verify(&rig, &by_id(&issued)).await, VerifyOutcome::Unknown);
    assert_eq!(verify(&rig, &Verify::new("reset", &reset.secret)).await, VerifyOutcome::Unknown);
    assert!(is_verified(&verify(&rig, &by_id(&bobs)).await));
}

pub(super) async fn challenge_bounds_are_named(rig: StoreRig) {
    let long = "x".repeat(5_000);
    let wrong = [
        (ChallengeRequest::new("", "ada", Form::Token), "purpose"),
        (ChallengeRequest::new("login", "", Form::Token), "subject"),
        (ChallengeRequest::new(&long, "ada", Form::Token), "purpose"),
        (ChallengeRequest::new("login", &long, Form::Token), "subject"),
        (request(Form::Token).attempts(0_u32), "attempts"),
        (request(Form::Token).attempts(101_u32), "attempts"),
        (request(Form::Token).ttl(secs(31 * 24 * 3600)), "2592000"),
    ];
    for (request, names) in wrong {
        let error = rig.stores.challenges(&rig.scope).issue(request).await.expect_err(names);
        assert!(error.kind() == ErrorKind::Invalid && error.message().contains(names), "{error}");
    }
}
