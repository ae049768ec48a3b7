//! Approval checks and relationships beside a raw read of the engine, and what scope costs.
//!
//! `cargo bench --bench approvals`: 100,000 approvals and a graph of 100,000 edges on fjall, one caller, in alternating
//! rounds. `QUICK=1` uses a tenth of both.

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]
#![expect(clippy::cast_precision_loss, reason = "figures are rounded anyway")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ebbtide::stores::approvals::Approval;
use ebbtide::stores::relationships::{Edge, RelationType, Relationship};
use ebbtide::{
    Backend, BackendExt as _, Batch, Clock, Key, Kind, Prefix, Record, Scope, Stopwatch, Stores,
    SystemChance, SystemClock, Ttl, Write, open,
};

const ROUNDS: usize = 5;
const CALLS: u64 = 20_000;
const MEMBER: &str = "member";

/// The graph, in levels: everyone belongs to a team, a team to a group, and so on. Each level has so many members.
const LEVELS: [u64; 5] = [60_000, 20_000, 11_000, 8_000, 1_000];

#[tokio::main]
async fn main() {
    checks().await;
    scope_cost().await;
}

fn scaled(records: u64) -> u64 {
    if std::env::var_os("QUICK").is_some() { records / 10 } else { records }
}

/// Microseconds of each call of a round, sorted.
async fn round<F: Future<Output = bool>>(call: impl Fn(u64) -> F) -> Vec<f64> {
    let mut took = Vec::new();
    for number in 0..CALLS {
        // Spread over everything, and the same in each round.
        let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
        let stopwatch = Stopwatch::start();
        assert!(call(spread).await);
        took.push(stopwatch.elapsed().as_secs_f64() * 1e6);
    }
    took.sort_unstable_by(f64::total_cmp);
    took
}

struct Figures(Vec<(&'static str, Vec<f64>, Vec<f64>)>);

impl Figures {
    fn note(&mut self, name: &'static str, took: &[f64]) {
        let (median, high) = (took[took.len() / 2], took[took.len() * 99 / 100]);
        match self.0.iter_mut().find(|(known, ..)| *known == name) {
            Some((_, medians, highs)) => {
                medians.push(median);
                highs.push(high);
            }
            None => self.0.push((name, vec![median], vec![high])),
        }
    }

    fn print(&mut self) {
        let middle = |figures: &mut Vec<f64>| {
            figures.sort_unstable_by(f64::total_cmp);
            figures[figures.len() / 2]
        };
        let first = self.0.first_mut().map_or(1.0, |(_, medians, _)| middle(medians));
        for (name, medians, highs) in &mut self.0 {
            let (low, high) = (
                medians.iter().copied().fold(f64::MAX, f64::min),
                medians.iter().copied().fold(0.0, f64::max),
            );
            let (median, p99) = (middle(medians), middle(highs));
            println!(
                "  {name:28} p50 {median:8.2} us ({low:.2} to {high:.2})  p99 {p99:8.2} us  {:6.2} x",
                median / first
            );
        }
    }
}

/// The name of a member of a level.
fn name(level: usize, number: u64) -> String {
    format!("level{level}:{number}")
}

fn size(level: usize) -> u64 {
    LEVELS.get(level).map_or(100, |size| scaled(*size))
}

async fn fill(stores: &Stores, scope: &Scope, approvals: u64) {
    let mut tasks = tokio::task::JoinSet::new();
    for part in 0..64 {
        let (stores, scope) = (stores.clone(), scope.clone());
        tasks.spawn(async move {
            let ttl = Ttl::from_secs(86_400).unwrap();
            for number in (part..approvals).step_by(64) {
                let approval = Approval::new(
                    format!("user{number}"),
                    format!("/doc/{}", number % 1_000),
                    "read",
                    "admin",
                );
                stores.approvals(&scope).grant(&approval.with_ttl(ttl)).await.unwrap();
            }
            for level in 0..LEVELS.len() {
                for number in (part..size(level)).step_by(64) {
                    let (member, group) = (name(level, number), name(level + 1, number % size(level + 1)));
                    let edge = Relationship::membership(member, MEMBER, group, "admin").with_ttl(ttl);
                    stores.relationships(&scope).add(&edge).await.unwrap();
                }
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
}

/// From someone to what they belong to, so many levels up.
fn up(number: u64, hops: usize) -> Edge {
    let start = number % size(0);
    let mut at = start;
    for level in 1..=hops {
        at %= size(level);
    }
    Edge::new(name(0, start), MEMBER, name(hops, at), RelationType::Membership)
}

async fn checks() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(&format!("fjall:{}", dir.path().display())).await.unwrap();
    let stores = Stores::new(Arc::clone(&store));
    let (scope, approvals) = (Scope::tenant_env("acme", "prod").unwrap(), scaled(100_000));
    fill(&stores, &scope, approvals).await;
    let edges: u64 = (0..LEVELS.len()).map(size).sum();
    println!("{approvals} approvals and {edges} edges on fjall, one caller, {ROUNDS} rounds of {CALLS}");
    let now = SystemClock.now();
    let keys: Vec<Key> = store
        .scan_all(&Prefix::kind_wide(Kind::Approval), now)
        .await
        .unwrap()
        .into_iter()
        .map(|(key, _)| key)
        .collect();
    let mut figures = Figures(Vec::new());
    let (granted, related) = (stores.approvals(&scope), stores.relationships(&scope));
    for warm in 0..=ROUNDS {
        let mut note = |name, took: Vec<f64>| {
            if warm > 0 {
                figures.note(name, &took);
            }
        };
        let pick = |number: u64| &keys[usize::try_from(number).unwrap() % keys.len()];
        note("raw read of the engine", round(|number| store_get(&store, pick(number), now)).await);
        let check = |number: u64| {
            let (granted, number) = (&granted, number % approvals);
            async move {
                let (user, doc) = (format!("user{number}"), format!("/doc/{}", number % 1_000));
                granted.check(&user, &doc, "read").await.unwrap()
            }
        };
        note("approval check", round(check).await);
        let direct = |number| {
            let related = &related;
            async move { related.check(&up(number, 1)).await.unwrap() }
        };
        note("relationship, direct", round(direct).await);
        for (name, hops) in [("relationship, 2 hops", 2), ("relationship, 5 hops", 5)] {
            let hops = |number| {
                let related = &related;
                async move { related.check_transitive(&up(number, hops), 10).await.unwrap().is_related() }
            };
            note(name, round(hops).await);
        }
    }
    figures.print();
}

async fn store_get(store: &Arc<dyn Backend>, key: &Key, now: ebbtide::Timestamp) -> bool {
    store.get(key, now).await.unwrap().is_some()
}

/// The same records in the global scope and in a tenant's environment: lookups in alternating rounds, and bytes.
async fn scope_cost() {
    let records = scaled(100_000);
    println!("{records} records of 200 bytes in one scope, beside the same without one");
    let now = SystemClock.now();
    let ends = now.checked_add(Duration::from_secs(86_400)).unwrap();
    let mut sides = Vec::new();
    for (name, scope) in
        [("global", Scope::Global), ("tenant:acme/env:prod", Scope::tenant_env("acme", "prod").unwrap())]
    {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&format!("fjall:{}", dir.path().display())).await.unwrap();
        let key = move |number: u64| {
            let digest = ebbtide::Digest::of("bench", &[&number.to_be_bytes()]);
            Key::new(Kind::AccessToken, &scope, &[digest.part()], &[]).unwrap()
        };
        for some in (0..records).collect::<Vec<_>>().chunks(100) {
            let put = |number: &u64| Write::Put {
                key: key(*number),
                record: Record::new(vec![b'x'; 200], ends, &SystemChance),
            };
            assert!(
                store
                    .commit(Batch::new(some.iter().map(put).collect()).unwrap(), now)
                    .await
                    .unwrap()
                    .is_applied()
            );
        }
        sides.push((name, dir, store, key));
    }
    let mut figures = Figures(Vec::new());
    for warm in 0..=ROUNDS {
        for (name, _, store, key) in &sides {
            let took =
                round(|number| async move { store_get(store, &key(number % records), now).await }).await;
            if warm > 0 {
                figures.note(name, &took);
            }
        }
    }
    figures.print();
    let mut bytes = Vec::new();
    for (name, dir, store, _) in sides {
        drop(store);
        bytes.push(folder_bytes(dir.path()));
        println!("  {name:28} {} bytes on disk", bytes[bytes.len() - 1]);
    }
    println!(
        "  scope costs {:.2} % of the bytes (bar: 5)",
        (bytes[1] as f64 / bytes[0] as f64 - 1.0) * 100.0
    );
}

fn folder_bytes(path: &Path) -> u64 {
    let of = |entry: std::fs::DirEntry| {
        let kind = entry.metadata().unwrap();
        if kind.is_dir() { folder_bytes(&entry.path()) } else { kind.len() }
    };
    std::fs::read_dir(path).unwrap().map(|entry| of(entry.unwrap())).sum()
}
