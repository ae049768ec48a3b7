//! Approval and relationship checks compared with a raw read of the engine, by one caller; cost of scopes.

mod graph;
mod scoped;

use anyhow::{Result, ensure};
use ebbtide::{BackendExt as _, Clock as _, Kind, Prefix, Stopwatch, Stores, SystemClock};
use ebbtide_bench::results::Figure;
use futures_util::future::LocalBoxFuture;

use self::graph::Graph;
use crate::context::{Context, embedded};
use crate::measured::{Draft, Measured, plain};

/// Number of calls of one kind before the next kind.
const BLOCK: u64 = 500;

/// Number of calls of each kind in a round.
const CALLS: u64 = 20_000;

const NOTE: &str = "One caller on fjall; nothing is written. The kinds of call take turns after every 500 calls, and a round's \
     figure is the middle one of its calls. The raw read is of the same approvals, with the key at hand. Nothing waits for the disk: \
     what a call takes is the processor's time.";

/// Call that is repeated, and always answered yes.
struct RepeatedCheck<'a> {
    id: &'static str,
    name: &'static str,
    ask: Box<dyn Fn(u64) -> LocalBoxFuture<'a, Result<bool>> + 'a>,
}

pub(super) async fn run(context: &Context, measured: &mut Measured) -> Result<()> {
    let folder = context.folder("approvals")?;
    let store = embedded("fjall", folder.path()).await?;
    let stores = Stores::for_tests(store.clone());
    let graph = Graph::new(context);
    graph.fill(&stores).await?;
    let now = SystemClock.now();
    let found = store.scan_all(&Prefix::kind_wide(Kind::Approval), now).await?;
    let keys: Vec<_> = found.into_iter().map(|(key, _)| key).collect();
    let raw = |number: u64| -> LocalBoxFuture<'_, Result<bool>> {
        let key = &keys[usize::try_from(number).expect("44 bits") % keys.len()];
        let store = &store;
        Box::pin(async move { Ok(store.get(key, now).await?.is_some()) })
    };
    let (approvals, relationships) =
        (stores.approvals(&Graph::scope()?), stores.relationships(&Graph::scope()?));
    let (approvals, relationships, graph) = (&approvals, &relationships, &graph);
    let check = |number: u64| -> LocalBoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let (user, resource) = graph.approval(number);
            Ok(approvals.check(&user, &resource, "read").await?)
        })
    };
    let direct = |number: u64| -> LocalBoxFuture<'_, Result<bool>> {
        Box::pin(async move { Ok(relationships.check(&graph.up(number, 1)).await?) })
    };
    let far = |hops: usize| {
        move |number: u64| -> LocalBoxFuture<'_, Result<bool>> {
            Box::pin(async move {
                Ok(relationships.check_transitive(&graph.up(number, hops), 10).await?.is_related())
            })
        }
    };
    let questions = [
        RepeatedCheck { id: "raw", name: "raw read of the engine", ask: Box::new(raw) },
        RepeatedCheck { id: "check", name: "approval check", ask: Box::new(check) },
        RepeatedCheck { id: "direct", name: "relationship check, direct", ask: Box::new(direct) },
        RepeatedCheck { id: "2-hops", name: "relationship check, 2 hops", ask: Box::new(far(2)) },
        RepeatedCheck { id: "5-hops", name: "relationship check, 5 hops", ask: Box::new(far(5)) },
    ];
    let mut figures = ask(context, &questions).await?;
    let peer = figures.remove(0);
    for (question, ours) in questions.iter().skip(1).zip(figures) {
        let draft = Draft {
            id: format!("approvals-{}", question.id),
            what: format!(
                "{}, among {} approvals and {} edges",
                question.name,
                graph.approvals,
                graph.edges()
            ),
            unit: "µs",
            bar: None,
            note: NOTE.to_owned(),
        };
        measured.row(draft, ours, Some(peer.clone()));
    }
    scoped::run(context, measured).await
}

/// Median time of each question's calls in microseconds, by round.
async fn ask(context: &Context, questions: &[RepeatedCheck<'_>]) -> Result<Vec<Figure>> {
    let calls = context.scaled(CALLS).max(BLOCK);
    let mut rounds = vec![Vec::new(); questions.len()];
    for round in 0..=context.rounds() {
        let mut took = vec![Vec::new(); questions.len()];
        for block in 0..calls / BLOCK {
            for (question, took) in questions.iter().zip(&mut took) {
                for number in block * BLOCK..(block + 1) * BLOCK {
                    // Spread over all records, and the same in each round.
                    let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
                    let stopwatch = Stopwatch::start();
                    let answer = (question.ask)(spread).await?;
                    took.push(stopwatch.elapsed().as_secs_f64() * 1e6);
                    ensure!(answer, "{}: no", question.name);
                }
            }
        }
        if round > 0 {
            for (rounds, took) in rounds.iter_mut().zip(took) {
                rounds.push(middle(took));
            }
        }
    }
    Ok(questions.iter().zip(rounds).map(|(question, rounds)| plain(question.name, rounds)).collect())
}

fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}
