//! Replay checks on PostgreSQL, gathered, compared with one `INSERT … ON CONFLICT DO NOTHING` per call.

use anyhow::{Context as _, Result, ensure};
use ebbtide::{Clock as _, Stores, SystemClock};
use ebbtide_bench::results::Bar;
use tokio_postgres::{Client, Statement};

use crate::context::Context;
use crate::cpu::Whose;
use crate::load::rounds::{Side, alternate};
use crate::load::{Caller, callers};
use crate::measured::{Draft, Measured};
use crate::peers::postgres::{connect, fresh, pid, plain_table};
use crate::records::{in_seconds, key, next, record, replay_check};

const CALLERS: usize = 64;

pub(super) async fn run(context: &Context, measured: &mut Measured) -> Result<()> {
    let server = context.postgres()?;
    let (store, client) = fresh(server).await?;
    let table = plain_table(&client).await?;
    let insert = format!(
        "INSERT INTO {table} (key, value, version, expires_at) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
    );
    let mut plain = Vec::new();
    for _ in 0..CALLERS {
        let client = connect(server).await?;
        let statement = client.prepare(&insert).await?;
        plain.push(Plain { client, statement });
    }
    let who = [("client", Whose::Ours), ("server", Whose::Server(pid(&client).await?))];
    let gathered = callers(&replay_check(&Stores::for_tests(store)), CALLERS);
    let mut sides = [
        Side::closed("gathered, a pool of 16", &who, gathered, context.round()),
        Side::closed("one INSERT per call, 64 connections", &who, plain, context.round()),
    ];
    let [ours, peer] =
        alternate(context.rounds(), &mut sides).await?.try_into().ok().context("a figure for each side")?;
    let draft = Draft {
        id: "postgres-64".to_owned(),
        what: "replay checks on PostgreSQL, 64 callers".to_owned(),
        unit: "per second",
        bar: Some(Bar::AtLeast(4.0)),
        note: "Both answer when it is committed, with synchronous_commit on, on the same server, without TLS. Ours \
               gathers what waits into one statement; the other side sends each call by itself over a connection of \
               its own. Callers and server share the processors."
            .to_owned(),
    };
    measured.row(draft, ours, Some(peer));
    Ok(())
}

/// Insert as one would write it by hand.
struct Plain {
    client: Client,
    statement: Statement,
}

impl Caller for Plain {
    async fn call(&mut self) -> Result<()> {
        let (key, record) = (key(next())?, record(in_seconds(SystemClock.now(), 60)?));
        let expires_at = i64::try_from(record.expires_at.as_millis())?;
        let version = record.version.as_bytes().as_slice();
        let params: [&(dyn tokio_postgres::types::ToSql + Sync); 4] =
            [&key.as_bytes(), &record.value.as_ref(), &version, &expires_at];
        ensure!(self.client.execute(&self.statement, &params).await? == 1, "a new key is taken");
        Ok(())
    }
}
