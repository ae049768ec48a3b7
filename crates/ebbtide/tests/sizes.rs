//! The size of a store over simulated days: it grows until the longest life has passed, and stays.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ebbtide::stores::Stores;
use ebbtide::stores::access_tokens::AccessRequest;
use ebbtide::stores::codes::{CodeRequest, Redeem, RedeemOutcome};
use ebbtide::stores::nonces::NonceRequest;
use ebbtide::stores::replays::Proof;
use ebbtide::{Admin as _, BackendExt as _, Budget, Clock as _, Kind, ManualClock, Memory, Scope, Timestamp};

const DAYS: usize = 150;
const SIGN_INS: usize = 6;

/// Sign-ins of one day: a code, its grant, an access token, a nonce and a proof each.
async fn sign_in(stores: &Stores, scope: &Scope, day: usize) {
    for number in 0..SIGN_INS {
        let request = CodeRequest::new("app", format!("user-{number}"), "https://app");
        let code = stores.codes(scope).issue(request).await.unwrap().code;
        let redeem = Redeem::new(code, "app").redirect_uri("https://app").with_grant();
        let RedeemOutcome::Redeemed(redeemed) = stores.codes(scope).redeem(redeem).await.unwrap() else {
            panic!("the code is good");
        };
        let grant = redeemed.grant.unwrap();
        let _ = stores.access_tokens(scope).issue(AccessRequest::under(grant.grant_id)).await.unwrap();
        stores.nonces(scope).issue(NonceRequest::new("as")).await.unwrap();
        let proof = Proof::new("dpop", format!("{day}-{number}"));
        let _ = stores.replays(scope).check(&proof).await.unwrap();
    }
}

#[tokio::test]
async fn the_size_of_a_store_stabilises_over_simulated_days() {
    let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000).unwrap());
    let engine = Arc::new(Memory::default());
    let stores = Stores::builder_for_tests(Arc::clone(&engine) as _).clock(clock.clone()).build();
    let scope = Scope::tenant("acme").unwrap();
    let (mut sizes, mut families) = (Vec::new(), Vec::new());
    for day in 0..DAYS {
        sign_in(&stores, &scope, day).await;
        clock.advance(Duration::from_secs(24 * 3_600));
        engine.sweep_all(clock.now(), &Budget::everything(Kind::ALL)).await.unwrap();
        // Index records of families that have left.
        stores.belongings(&scope).reconcile().await.unwrap();
        let stats = engine.stats(clock.now()).await.unwrap();
        let stored = |kind: &Kind| stats.get(kind).map_or(0, |of| of.live + of.expired);
        families.push(stored(&Kind::Grant));
        sizes.push(Kind::ALL.iter().map(stored).sum::<u64>());
    }
    // Families stay for fourteen days of idleness and one more; markers of redeemed codes stay for the cap of ninety.
    assert!(families.iter().all(|count| *count <= 15 * SIGN_INS as u64), "{families:?}");
    let (before, after) = (&sizes[95..120], &sizes[120..]);
    assert_eq!(before.iter().max(), after.iter().max(), "it does not grow any more: {sizes:?}");
    let half = sizes[45];
    assert!(sizes[DAYS - 1] < 3 * half, "the plateau is what lives, and not what ever was: {sizes:?}");
    if std::env::var_os("EBBTIDE_WRITE_PLOT").is_some() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/table-size.svg");
        std::fs::write(path, plot(&[("all records", &sizes), ("families", &families)])).unwrap();
    }
}

/// Lines over days as SVG.
fn plot(lines: &[(&str, &[u64])]) -> String {
    let (width, height, margin) = (720.0, 320.0, 48.0);
    let most = lines.iter().flat_map(|(_, line)| line.iter()).max().copied().unwrap_or(1).max(1);
    let number = |value: u64| f64::from(u32::try_from(value).unwrap());
    let x = |day: usize| margin + (width - 2.0 * margin) * number(day as u64) / number(DAYS as u64);
    let y = |value: u64| height - margin - (height - 2.0 * margin) * number(value) / number(most);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<title>Records in a store, {SIGN_INS} sign-ins a day</title>\n"
    );
    let (left, bottom) = (x(0), y(0));
    let _ =
        writeln!(svg, "<path d=\"M{left} {margin}V{bottom}H{}\" fill=\"none\" stroke=\"#888\"/>", x(DAYS));
    for day in (0..=DAYS).step_by(30) {
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{}\">day {day}</text>", x(day), bottom + 18.0);
    }
    let _ = writeln!(svg, "<text x=\"4\" y=\"{:.1}\">{most}</text>", y(most) + 4.0);
    for ((name, line), colour) in lines.iter().zip(["#1b6ca8", "#c8553d"]) {
        let points: Vec<_> =
            line.iter().enumerate().map(|(day, value)| format!("{:.1},{:.1}", x(day), y(*value))).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            points.join(" ")
        );
        let last = line.last().copied().unwrap_or_default();
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" fill=\"{colour}\">{name}</text>",
            x(DAYS) - 70.0,
            y(last) - 6.0
        );
    }
    svg + "</svg>\n"
}
