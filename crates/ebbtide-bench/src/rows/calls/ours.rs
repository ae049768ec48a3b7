//! Calls of the library.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use ebbtide::stores::access_tokens::{AccessRequest, AccessTokens, IntrospectOutcome, IssueOutcome};
use ebbtide::stores::attributes::{Bucket, SwapOutcome};
use ebbtide::stores::codes::{CodeRequest, Codes, Redeem, RedeemOutcome};
use ebbtide::stores::grants::{GrantRequest, Grants, IssuedGrant, Rotate, RotateOutcome};
use ebbtide::stores::sessions::{SessionRequest, Sessions, TouchOutcome};
use ebbtide::{Secret, Stores, Ttl};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::CALLERS;
use crate::load::{Caller, StatelessCaller, callers, closed};
use crate::records::{next, scope};

const CLIENT: &str = "photo-app";
const REDIRECT: &str = "https://photos.example/callback";

/// Number of records of each kind that is read.
pub(super) const READ: u64 = 10_000;

/// Codes that are issued and not yet redeemed.
pub(super) type Stock = Arc<Mutex<Vec<Secret>>>;

pub(super) fn stock() -> Stock {
    Stock::default()
}

fn data() -> Value {
    json!({ "acr": "mfa", "auth_time": 1_800_000_000 })
}

/// Picks an item; calls spread over all of them.
fn pick<T>(all: &[T]) -> &T {
    let spread = next().wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
    &all[usize::try_from(spread).expect("44 bits") % all.len()]
}

/// Issues codes in advance.
pub(super) fn issuing(
    stores: &Stores,
    stock: &Stock,
    codes: u64,
) -> impl Fn() -> BoxFuture<'static, Result<()>> + use<> {
    let (stores, stock) = (stores.clone(), Arc::clone(stock));
    move || {
        let (codes_store, stock) = (stores.codes(&scope()), Arc::clone(&stock));
        let issue = StatelessCaller(move || issue(codes_store.clone(), Arc::clone(&stock)));
        Box::pin(async move {
            closed::calls(&mut callers(&issue, CALLERS), codes).await?;
            Ok(())
        })
    }
}

async fn issue(codes: Codes, stock: Stock) -> Result<()> {
    let ttl = Ttl::from_secs(600)?;
    let request = CodeRequest::new(CLIENT, "ada", REDIRECT).scope("photos.read").data(data()).ttl(ttl);
    let issued = codes.issue(request).await?;
    stock.lock().unwrap_or_else(PoisonError::into_inner).push(issued.code);
    Ok(())
}

pub(super) fn redeeming(stores: &Stores, stock: &Stock) -> Vec<impl Caller + use<>> {
    let (codes, stock) = (stores.codes(&scope()), Arc::clone(stock));
    let redeem = StatelessCaller(move || {
        let (codes, code) = (codes.clone(), stock.lock().unwrap_or_else(PoisonError::into_inner).pop());
        async move {
            let presented =
                Redeem::new(code.context("no code is left")?, CLIENT).redirect_uri(REDIRECT).with_grant();
            match codes.redeem(presented.clone()).await? {
                RedeemOutcome::Redeemed(_) => Ok(()),
                other => bail!("a good code is refused: {other:?}"),
            }
        }
    });
    callers(&redeem, CALLERS)
}

/// A family without a retry window: sixteen windows that are open refuse the next rotation.
async fn grant(grants: &Grants) -> Result<IssuedGrant> {
    let request = GrantRequest::new("ada", CLIENT).scope("photos.read").data(data());
    Ok(grants.issue(request.grace(Duration::ZERO)).await?)
}

/// Each caller has a family of its own.
pub(super) async fn rotating(stores: &Stores) -> Result<Vec<impl Caller + use<>>> {
    let grants = stores.grants(&scope());
    let mut rotating = Vec::new();
    for _ in 0..CALLERS {
        rotating.push(Rotating { token: grant(&grants).await?.refresh_token, grants: grants.clone() });
    }
    Ok(rotating)
}

struct Rotating {
    grants: Grants,
    token: Secret,
}

impl Caller for Rotating {
    async fn call(&mut self) -> Result<()> {
        match self.grants.rotate(Rotate::new(&self.token, CLIENT)).await? {
            RotateOutcome::Rotated(rotated) => self.token = rotated.refresh_token,
            other => bail!("a good token is refused: {other:?}"),
        }
        Ok(())
    }
}

/// Each caller has an attribute of its own.
pub(super) async fn swapping(stores: &Stores) -> Result<Vec<impl Caller + use<>>> {
    let bucket = stores.attributes(&scope()).bucket("ada", "counters")?;
    let mut swapping = Vec::new();
    for number in 0..CALLERS {
        let (name, value) = (format!("counter-{number}"), attribute(0));
        bucket.set(&name, value.clone()).await?;
        swapping.push(Swapping { bucket: bucket.clone(), name, value, count: 0 });
    }
    Ok(swapping)
}

fn attribute(count: u64) -> Value {
    json!({ "theme": "dark", "language": "en", "count": count })
}

struct Swapping {
    bucket: Bucket,
    name: String,
    value: Value,
    count: u64,
}

impl Caller for Swapping {
    async fn call(&mut self) -> Result<()> {
        self.count += 1;
        let new = attribute(self.count);
        match self.bucket.compare_and_swap(&self.name, &self.value, new.clone()).await? {
            SwapOutcome::Swapped(_) => self.value = new,
            _ => bail!("a value that nobody else changes was changed"),
        }
        Ok(())
    }
}

/// Records that are read repeatedly.
pub(super) struct Population {
    stores: Stores,
    refresh_tokens: Arc<Vec<Secret>>,
    access_tokens: Arc<Vec<Secret>>,
    sessions: Arc<Vec<Secret>>,
}

impl Population {
    pub(super) async fn new(stores: &Stores) -> Result<Self> {
        let mut tasks = JoinSet::new();
        for _ in 0..CALLERS {
            let stores = stores.clone();
            tasks.spawn(async move {
                let mut made = Vec::new();
                for _ in 0..READ / CALLERS as u64 {
                    made.push(Self::one(&stores).await?);
                }
                anyhow::Ok(made)
            });
        }
        let (mut refresh_tokens, mut access_tokens, mut sessions) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(made) = tasks.join_next().await {
            for [refresh, access, session] in made?? {
                refresh_tokens.push(refresh);
                access_tokens.push(access);
                sessions.push(session);
            }
        }
        let bucket = stores.attributes(&scope()).bucket("ada", "settings")?;
        for number in 0..READ / 10 {
            bucket.set(&format!("setting-{number}"), attribute(number)).await?;
        }
        Ok(Self {
            stores: stores.clone(),
            refresh_tokens: Arc::new(refresh_tokens),
            access_tokens: Arc::new(access_tokens),
            sessions: Arc::new(sessions),
        })
    }

    /// Creates a grant's refresh token, an access token under it, and a session.
    async fn one(stores: &Stores) -> Result<[Secret; 3]> {
        let grant = grant(&stores.grants(&scope())).await?;
        let request = AccessRequest::under(grant.grant_id).scope("photos.read").data(data());
        let access = match stores.access_tokens(&scope()).issue(request).await? {
            IssueOutcome::Issued(issued) => issued.access_token,
            other => bail!("a new grant gives no token: {other:?}"),
        };
        let request = SessionRequest::new().data(data()).subject("ada");
        let session = stores.sessions(&scope()).create(request).await?.session_id;
        Ok([grant.refresh_token, access, session])
    }

    pub(super) fn introspecting(&self) -> Vec<impl Caller + use<>> {
        let (store, tokens) = (self.stores.access_tokens(&scope()), Arc::clone(&self.access_tokens));
        callers(&StatelessCaller(move || introspect(store.clone(), Arc::clone(&tokens))), CALLERS)
    }

    pub(super) fn finding(&self) -> Vec<impl Caller + use<>> {
        let (store, tokens) = (self.stores.grants(&scope()), Arc::clone(&self.refresh_tokens));
        callers(&StatelessCaller(move || find(store.clone(), Arc::clone(&tokens))), CALLERS)
    }

    pub(super) fn touching(&self) -> Vec<impl Caller + use<>> {
        let (store, sessions) = (self.stores.sessions(&scope()), Arc::clone(&self.sessions));
        callers(&StatelessCaller(move || touch(store.clone(), Arc::clone(&sessions))), CALLERS)
    }

    pub(super) fn reading(&self) -> Result<Vec<impl Caller + use<>>> {
        let bucket = self.stores.attributes(&scope()).bucket("ada", "settings")?;
        Ok(callers(&StatelessCaller(move || read(bucket.clone())), CALLERS))
    }
}

async fn introspect(store: AccessTokens, tokens: Arc<Vec<Secret>>) -> Result<()> {
    let answer = store.introspect(pick(&tokens)).await?;
    ensure!(matches!(answer, IntrospectOutcome::Active(_)), "a good token is not active");
    Ok(())
}

async fn find(store: Grants, tokens: Arc<Vec<Secret>>) -> Result<()> {
    ensure!(store.find(pick(&tokens)).await?.is_some(), "a good token is not found");
    Ok(())
}

async fn touch(store: Sessions, sessions: Arc<Vec<Secret>>) -> Result<()> {
    let answer = store.touch(pick(&sessions), None).await?;
    ensure!(matches!(answer, TouchOutcome::Touched { .. }), "a live session is not touched: {answer:?}");
    Ok(())
}

async fn read(bucket: Bucket) -> Result<()> {
    let name = format!("setting-{}", next() % (READ / 10));
    ensure!(bucket.get(&name).await?.is_some(), "an attribute is absent");
    Ok(())
}
