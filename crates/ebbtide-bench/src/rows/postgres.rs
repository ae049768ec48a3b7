//! Replay checks and introspections on PostgreSQL, gathered, compared with one statement per call.

use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use ebbtide::stores::access_tokens::{AccessRequest, IntrospectOutcome, IssueOutcome};
use ebbtide::stores::grants::GrantRequest;
use ebbtide::{Clock as _, Scope, Secret, Stores, SystemClock};
use ebbtide_bench::results::Bar;
use tokio_postgres::{Client, Statement};

use crate::context::Context;
use crate::cpu::Whose;
use crate::load::rounds::{Contender, alternate};
use crate::load::{Caller, StatelessCaller, callers};
use crate::measured::{Draft, Measured};
use crate::peers::postgres::{connect, fresh, pid, plain_table};
use crate::records::{in_seconds, key, next, record, replay_check};

const CALLERS: usize = 64;

/// Number of access tokens, each under a grant of its own.
const TOKENS: u64 = 1_000;

pub(super) async fn run(context: &Context, measured: &mut Measured) -> Result<()> {
    check(context, measured).await?;
    introspect(context, measured).await
}

async fn introspect(context: &Context, measured: &mut Measured) -> Result<()> {
    let server = context.postgres()?;
    let (store, client) = fresh(server).await?;
    let stores = Stores::for_tests(store);
    let (grants, access) = (stores.grants(&Scope::Global), stores.access_tokens(&Scope::Global));
    let mut tokens = Vec::new();
    for number in 0..TOKENS {
        let grant =
            grants.issue(GrantRequest::new(format!("user {number}"), "app").scope("photos.read")).await?;
        match access.issue(AccessRequest::under(grant.grant_id).scope("photos.read")).await? {
            IssueOutcome::Issued(issued) => tokens.push(issued.access_token),
            other => bail!("a new grant gives no token: {other:?}"),
        }
    }
    let tokens: Arc<Vec<Secret>> = Arc::new(tokens);
    let gathered = StatelessCaller(move || {
        let (access, tokens) = (access.clone(), Arc::clone(&tokens));
        async move {
            let place = usize::try_from(next() % TOKENS)?;
            let answer = access.introspect(&tokens[place]).await?;
            ensure!(matches!(answer, IntrospectOutcome::Active(_)), "a good token is not active");
            anyhow::Ok(())
        }
    });
    let table = plain_table(&client).await?;
    // A token's value is the key of its grant, and a grant's that of its subject's epoch, which is absent while it is zero.
    let fill = format!(
        "INSERT INTO {table} SELECT int8send(n), int8send(n + $1::int8), decode(md5(n::text), 'hex'), \
         9000000000000 FROM generate_series(0, 2 * $1::int8 - 1) AS n"
    );
    client.execute(&fill, &[&i64::try_from(TOKENS)?]).await?;
    client.batch_execute(&format!("ANALYZE {table}")).await?;
    let select = format!(
        "SELECT t.value, t.version, t.expires_at, g.value, e.value FROM {table} AS t \
         JOIN {table} AS g ON g.key = t.value AND g.expires_at > $2 \
         LEFT JOIN {table} AS e ON e.key = g.value AND e.expires_at > $2 \
         WHERE t.key = $1 AND t.expires_at > $2"
    );
    let mut plain = Vec::new();
    for _ in 0..CALLERS {
        let client = connect(server).await?;
        let statement = client.prepare(&select).await?;
        plain.push(Reader(Plain { client, statement }));
    }
    let who = [("client", Whose::Ours), ("server", Whose::Server(pid(&client).await?))];
    let mut sides = [
        Contender::closed("gathered, a pool of 16", &who, callers(&gathered, CALLERS), context.round()),
        Contender::closed("one SELECT per call, 64 connections", &who, plain, context.round()),
    ];
    let [ours, peer] =
        alternate(context.rounds(), &mut sides).await?.try_into().ok().context("a figure for each side")?;
    let draft = Draft {
        id: "postgres-introspect".to_owned(),
        what: "introspections on PostgreSQL, 64 callers".to_owned(),
        unit: "per second",
        bar: Some(Bar::AtLeast(2.0)),
        note: "A read on both sides, of a thousand tokens, on the same server, without TLS. Ours reads the token, then its \
               grant and the epoch of its subject, and gathers what waits into one statement; the other side reads the \
               three with one statement that joins them, over a connection of its own."
            .to_owned(),
    };
    measured.row(draft, ours, Some(peer));
    Ok(())
}

/// Read as one would write it by hand.
struct Reader(Plain);

impl Caller for Reader {
    async fn call(&mut self) -> Result<()> {
        let (key, now) = ((next() % TOKENS).to_be_bytes(), i64::try_from(SystemClock.now().as_millis())?);
        let rows = self.0.client.query(&self.0.statement, &[&key.as_slice(), &now]).await?;
        ensure!(rows.len() == 1, "a row is absent");
        Ok(())
    }
}

async fn check(context: &Context, measured: &mut Measured) -> Result<()> {
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
        Contender::closed("gathered, a pool of 16", &who, gathered, context.round()),
        Contender::closed("one INSERT per call, 64 connections", &who, plain, context.round()),
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
