//! `ebbtide-bench-instructions ROW COUNT`: runs a number of operations in sequence, for a tool that counts processor
//! instructions. Time and random numbers are the same in every run. `scripts/instructions` runs it.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use ebbtide::stores::grants::{GrantRequest, Rotate, RotateOutcome};
use ebbtide::stores::replays::{Proof, ReplayOutcome};
use ebbtide::{ManualClock, Scope, SeededRng, Stores, Timestamp, open_engine as open};
use serde_json::json;

/// Thumbprint of the key that proofs and tokens are bound to.
const KEY: &str = "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I";

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [row, count] = arguments.as_slice() else {
        bail!(
            "usage: ebbtide-bench-instructions replay-memory|replay-fjall|rotate-memory|rotate-fjall COUNT"
        );
    };
    let count: u32 = count.parse().context("the count is a number")?;
    let (operation, engine) = row.split_once('-').context("a row is an operation and an engine")?;
    let folder = tempfile::tempdir()?;
    let url = match engine {
        "memory" => "memory:".to_owned(),
        engine => format!("{engine}:{}", folder.path().join("data").display()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let stores = Stores::builder_for_tests(open(&url).await?)
            .clock(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)?))
            .rng(SeededRng::new(1))
            .build();
        let scope = Scope::tenant("acme")?;
        match operation {
            "replay" => replays(&stores, &scope, count).await,
            "rotate" => rotations(&stores, &scope, count).await,
            _ => bail!("an operation is replay or rotate"),
        }
    })
}

async fn replays(stores: &Stores, scope: &Scope, count: u32) -> anyhow::Result<()> {
    let replays = stores.replays(scope);
    for number in 0..count {
        let proof = Proof::new("https://api.example/token", format!("{number:032}")).jkt(KEY);
        let seen = replays.check(&proof).await?;
        ensure!(matches!(seen, ReplayOutcome::Fresh { .. }), "{seen:?}");
    }
    Ok(())
}

async fn rotations(stores: &Stores, scope: &Scope, count: u32) -> anyhow::Result<()> {
    let grants = stores.grants(scope);
    // Without a retry window: sixteen that are open refuse the next rotation, and the clock stands still.
    let request =
        GrantRequest::new("alice", "app").scope("openid profile").dpop_jkt(KEY).grace(Duration::ZERO);
    let mut token = grants.issue(request.data(json!({"email": "alice@example.org"}))).await?.refresh_token;
    for _ in 0..count {
        token = match grants.rotate(Rotate::new(&token, "app").dpop_jkt(KEY)).await? {
            RotateOutcome::Rotated(rotated) => rotated.refresh_token,
            other => bail!("{other:?}"),
        };
    }
    Ok(())
}
