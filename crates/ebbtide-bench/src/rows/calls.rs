//! Other calls of an authorization server, by 64 callers, compared with the nearest equivalent in Redis.

mod ours;
mod theirs;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use ebbtide::Stores;
use ebbtide_bench::results::Bar;

use self::ours::Population;
use self::theirs::Keys;
use crate::context::{Context, embedded};
use crate::cpu::Whose;
use crate::load::Caller;
use crate::load::rounds::{Contender, alternate};
use crate::measured::{Draft, Measured};
use crate::peers::redis::{Log, Redis};

const CALLERS: usize = 64;

/// Calls that must be faster than their peers.
const WITH_FLOOR: [&str; 4] = ["redeem", "rotate", "introspect", "session-touch"];

const FAIR: &str = "Redis answers writes when they are on the disk (AOF always), and so do we; it is asked over 64 \
     connections on loopback by a client of ours, one command at a time on each, and the library in the process by 64 \
     callers.";

pub(super) async fn run(context: &Context, measured: &mut Measured) -> Result<()> {
    let redis = Redis::start(context, Log::Always).await?;
    let folder = context.folder("calls")?;
    let stores = Stores::for_tests(embedded("fjall", folder.path()).await?);
    let population = Population::new(&stores).await?;
    let keys = Keys::new(&redis).await?;
    let mut rows = Rows { context, redis: &redis, measured };

    let (calls, codes, stock) = (if context.quick { 5_000 } else { 40_000 }, ours::stock(), theirs::stock());
    let issue = ours::issuing(&stores, &codes, calls);
    let put = theirs::putting(&redis, &stock, calls);
    let ours = Contender::counted("fjall, redeem", &OURS, ours::redeeming(&stores, &codes), calls, issue);
    let popping = theirs::popping(&redis, &stock).await?;
    let peer = Contender::counted("Redis, GETDEL", &rows.who(), popping, calls, put);
    rows.add("redeem", "redeeming an authorization code, with its grant", ours, peer, REDEEM).await?;

    let peer = keys.swapping().await?;
    rows.timed(
        "rotate",
        "rotating a refresh token",
        ours::rotating(&stores).await?,
        "script: GET, SET EX",
        peer,
        ROTATE,
    )
    .await?;
    let (ours, peer) = (population.introspecting(), keys.getting().await?);
    rows.timed("introspect", "introspecting an access token", ours, "GET", peer, INTROSPECT).await?;
    let (ours, peer) = (population.finding(), keys.getting().await?);
    rows.timed("introspect-refresh", "introspecting a refresh token", ours, "GET", peer, REFRESH).await?;
    let (ours, peer) = (population.reading()?, keys.getting().await?);
    rows.timed("attribute-get", "reading an attribute", ours, "GET", peer, GET).await?;
    let (ours, peer) = (ours::swapping(&stores).await?, keys.swapping().await?);
    rows.timed(
        "attribute-swap",
        "comparing and swapping an attribute",
        ours,
        "script: GET, SET EX",
        peer,
        SWAP,
    )
    .await?;
    let (ours, peer) = (population.touching(), keys.touching().await?);
    rows.timed("session-touch", "touching a session", ours, "GETEX", peer, TOUCH).await
}

const REDEEM: &str = "Ours checks what the code is bound to, issues the grant in the same commit, and leaves a marker, so that a \
     code that comes back is seen; GETDEL forgets it.";
const ROTATE: &str = "Ours checks a MAC, client and key, sees a token that comes back, and allows a retry; the script \
     compares one value with another and replaces it.";
const INTROSPECT: &str = "A read on both sides. Ours looks at the token, its grant, and the tombstones of its subject and \
     client, and unseals its data: four reads in two steps; GET knows nothing of a revoked grant.";
const REFRESH: &str = "A read on both sides. Ours checks a MAC, reads the family and unseals its data.";
const GET: &str = "A read on both sides. Ours also looks for a tombstone of the owner.";
const SWAP: &str = "Ours reads, compares as JSON and replaces by version; the script compares bytes.";
const TOUCH: &str = "Ours reads the session, and writes its new end within its cap; GETEX has no cap.";

const OURS: [(&str, Whose); 1] = [("both", Whose::Ours)];

struct Rows<'a> {
    context: &'a Context,
    redis: &'a Arc<Redis>,
    measured: &'a mut Measured,
}

impl Rows<'_> {
    fn who(&self) -> [(&'static str, Whose); 2] {
        [("client", Whose::Ours), ("server", Whose::Server(self.redis.pid))]
    }

    /// Adds a row of calls that can be made for any time.
    async fn timed<C: Caller, P: Caller>(
        &mut self,
        id: &str,
        what: &str,
        ours: Vec<C>,
        command: &str,
        peer: Vec<P>,
        note: &str,
    ) -> Result<()> {
        let time = self.context.round() * 2 / 3;
        let ours = Contender::closed(format!("fjall, {id}"), &OURS, ours, time);
        let peer = Contender::closed(format!("Redis, {command}"), &self.who(), peer, time);
        self.add(id, what, ours, peer, note).await
    }

    async fn add(
        &mut self,
        id: &str,
        what: &str,
        ours: Contender,
        peer: Contender,
        note: &str,
    ) -> Result<()> {
        let figures = alternate(self.context.rounds(), &mut [ours, peer]).await?;
        let [ours, peer] = figures.try_into().ok().context("a figure for each side")?;
        let draft = Draft {
            id: format!("calls-{id}"),
            what: what.to_owned(),
            unit: "per second",
            bar: WITH_FLOOR.contains(&id).then_some(Bar::AtLeast(1.5)),
            note: format!("{note} {FAIR}"),
        };
        self.measured.row(draft, ours, Some(peer));
        Ok(())
    }
}
