//! Pushed authorization requests (RFC 9126): short-lived, taken once, by the client that pushed them.

use std::time::Duration;

use minicbor::{Decode, Encode};
use serde::Deserialize;

use super::grants::MAX_NAME_BYTES;
use super::registry::{Store, question};
use super::shared::bonds::{Bonds, Moves};
use super::shared::epochs::{Parties, Stamp};
use super::shared::finding::{Finding, RecordState};
use super::shared::payload::{Payload, Resealing};
use super::shared::setters::setters;
use super::shared::token;
use super::shared::update::Step;
use super::{Field, MEMORY, Stores, check_length};
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::model::write::Write;

/// Pushed requests of one scope. The state of a request is kept for a day after its end.
///
/// ```
/// use ebbtide::Ebbtide;
/// use ebbtide::stores::pushed_requests::{Push, PushOutcome, Take, TakeOutcome};
/// use ebbtide::stores::shared::payload::Payload;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> ebbtide::Result<()> {
/// let acme = Ebbtide::in_memory().scope("tenant:acme")?;
/// let push = Push::new("app", Payload::new("response_type=code"));
/// let PushOutcome::Pushed { request_uri, .. } = acme.pushed_requests().put(push).await? else {
///     panic!("a new URI is free");
/// };
/// let take = Take::new(request_uri, "app");
/// let first = acme.pushed_requests().take(take.clone()).await?;
/// assert!(matches!(first, TakeOutcome::Taken { .. }));
/// assert_eq!(acme.pushed_requests().take(take).await?, TakeOutcome::Used);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct PushedRequests {
    stores: Stores,
    scope: Scope,
}

/// Authorization request to store.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct Push {
    /// Client that pushes the request.
    #[cfg_attr(feature = "schema", schema(min_length = 1, example = "app"))]
    pub client_id: String,
    /// Parameters, as any JSON value; stored sealed.
    #[cfg_attr(feature = "schema", schema(value_type = serde_json::Value))]
    pub params: Payload,
    /// Lifetime: 90 seconds by default, 600 at most.
    #[serde(rename = "ttl_seconds")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<i64>, minimum = 1))]
    pub ttl: Option<Ttl>,
    /// URI to keep the request under, which nobody should be able to guess; a new one by default.
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>, min_length = 1))]
    pub request_uri: Option<Secret>,
}

impl Push {
    /// Request of `client_id` with these parameters.
    pub fn new(client_id: impl Into<String>, params: impl Into<Payload>) -> Self {
        Self { client_id: client_id.into(), params: params.into(), ttl: None, request_uri: None }
    }

    setters!(ttl: Ttl, request_uri: Secret);
}

/// Request to take a pushed request.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
#[must_use]
pub struct Take {
    /// URI that the request is kept under.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub request_uri: Secret,
    /// Client that presents the URI.
    #[cfg_attr(feature = "schema", schema(example = "app"))]
    pub client_id: String,
}

impl Take {
    /// Request of `client_id` to take the request at `request_uri`.
    pub fn new(request_uri: impl Into<Secret>, client_id: impl Into<String>) -> Self {
        Self { request_uri: request_uri.into(), client_id: client_id.into() }
    }
}

/// Answer to a push.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "the request may not have been kept"]
pub enum PushOutcome {
    /// The request is stored.
    Pushed {
        /// URI to take it with.
        request_uri: Secret,
        /// End of the request.
        expires_at: Timestamp,
    },
    /// The URI is in use by another request, or was within the last day. Nothing is stored.
    Conflict,
}

/// Answer to a take.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[must_use = "only a request that was taken may be honoured"]
pub enum TakeOutcome {
    /// The request, for this caller alone.
    Taken {
        /// Client that pushed it.
        client_id: String,
        /// Parameters of the request.
        params: Payload,
    },
    /// The request was taken before.
    Used,
    /// It belongs to another client. Nothing is changed.
    Mismatch(Field),
    /// The request has expired.
    Expired,
    /// Not a request of this scope, or forgotten, or its client was deleted.
    Unknown,
}

#[derive(Encode, Decode)]
struct StoredRequest {
    /// Client that pushed the request. The key is the digest of the URI alone.
    #[n(0)]
    client_id: String,
    /// Parameters, sealed for this record; removed when the request is taken.
    #[cbor(n(1), with = "minicbor::bytes")]
    params: Option<Vec<u8>>,
    #[n(2)]
    valid_until: u64,
    #[n(3)]
    pushed_at: u64,
    /// Epoch of its client.
    #[n(4)]
    stamp: Option<Stamp>,
}

question! {
    /// Pushed request to explain.
    PushedRequestQuestion {
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        request_uri: Secret,
    }
}

impl Moves for PushedRequests {
    fn bonds(_: &Key, value: &[u8]) -> Result<Bonds> {
        let stored: StoredRequest = codec::decode(value)?;
        let stamp = stored.stamp.unwrap_or_default();
        Ok(Bonds { client: Some(stored.client_id), stamp, ..Bonds::default() })
    }

    fn restamped(value: &[u8], stamp: Stamp, _: &Scope) -> Result<Option<Vec<u8>>> {
        let stored: StoredRequest = codec::decode(value)?;
        Ok(Some(codec::encode(&StoredRequest { stamp: Some(stamp), ..stored })))
    }
}

impl Store for PushedRequests {
    const KINDS: &'static [Kind] = &[Kind::PushedRequest];
    const DEFAULT_TTL: Option<Ttl> = Some(Ttl::secs(90));
    type Question = PushedRequestQuestion;

    fn reseal(stores: &Stores, at: Resealing<'_>, value: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut stored: StoredRequest = codec::decode(value)?;
        let moved = stores.reseal_some(at, &mut stored.params)?;
        Ok(moved.then(|| codec::encode(&stored)))
    }

    fn spent(value: &[u8]) -> Result<Option<Vec<u8>>> {
        let stored: StoredRequest = codec::decode(value)?;
        Ok(stored.params.is_some().then(|| codec::encode(&StoredRequest { params: None, ..stored })))
    }

    async fn explain(&self, question: &PushedRequestQuestion) -> Result<Finding> {
        let now = self.stores.now()?;
        let Some(standing) = self.stores.backend().get(&self.key(&question.request_uri)?, now).await? else {
            return Ok(Finding::unknown("not a request of this scope, or one from long ago"));
        };
        let stored: StoredRequest = codec::decode(&standing.value)?;
        let valid_until = Timestamp::from_stored(stored.valid_until)?;
        let finding = match stored.params {
            None => Finding::new(RecordState::Used, "it was taken"),
            Some(_) if now.before(valid_until)? => {
                let (parties, stamp) = (Parties::client(&stored.client_id), stored.stamp.unwrap_or_default());
                let death = self.stores.death(&self.scope, parties, stamp, now).await?;
                death.map_or_else(|| Finding::new(RecordState::Live, "it was not taken yet"), Finding::dead)
            }
            Some(_) => Finding::new(RecordState::Expired, "it was not taken in its time"),
        };
        Ok(finding.until(valid_until))
    }
}

impl PushedRequests {
    /// Prefix of a new URI (RFC 9126 §2.2).
    pub const URI_PREFIX: &'static str = "urn:ietf:params:oauth:request_uri:";

    /// Default lifetime of a request.
    pub const DEFAULT_TTL_SECONDS: u64 = 90;

    /// Longest lifetime of a request; RFC 9126 §2.2 asks for a short one.
    pub const MAX_TTL_SECONDS: u64 = 600;

    /// Longest URI, in bytes.
    pub const MAX_URI_BYTES: usize = 1_024;

    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// Stores a request, for 90 seconds by default.
    pub async fn put(&self, push: Push) -> Result<PushOutcome> {
        check_length("client_id", &push.client_id, MAX_NAME_BYTES)?;
        let default = Ttl::secs(Self::DEFAULT_TTL_SECONDS);
        let ttl = self.stores.ttl(Kind::PushedRequest, &self.scope, push.ttl, default)?;
        if ttl.duration() > Duration::from_secs(Self::MAX_TTL_SECONDS) {
            return Err(Error::invalid(format!(
                "a pushed request lives at most {} s",
                Self::MAX_TTL_SECONDS
            ))
            .about("ttl_seconds"));
        }
        let request_uri = push.request_uri.unwrap_or_else(|| {
            token::write(Self::URI_PREFIX, &zeroize::Zeroizing::new(self.stores.rng().bytes::<32>())[..])
        });
        let key = &self.key(&request_uri)?;
        let params = self.stores.seal(key, &[], &push.params)?;
        let issue = self.stores.issue(&self.scope, Parties::client(&push.client_id), |stamp, now| {
            let expires_at = now.end(ttl)?;
            let stored = StoredRequest {
                client_id: push.client_id.clone(),
                params: Some(params.clone()),
                valid_until: expires_at.as_millis(),
                pushed_at: now.latest().as_millis(),
                stamp: Some(stamp),
            };
            Ok((expires_at, vec![Write::Insert { key: key.clone(), record: self.record(&stored)? }]))
        });
        Ok(match issue.await? {
            Some(expires_at) => PushOutcome::Pushed { request_uri, expires_at },
            None => PushOutcome::Conflict,
        })
    }

    /// Reads a request without taking it, for the page that comes before.
    pub async fn peek(&self, request: &Take) -> Result<TakeOutcome> {
        let Take { request_uri, client_id } = request;
        if request_uri.expose().is_empty() || request_uri.expose().len() > Self::MAX_URI_BYTES {
            return Ok(TakeOutcome::Unknown);
        }
        let (key, now) = (self.key(request_uri)?, self.stores.now()?);
        let Some(record) = self.stores.backend().get(&key, now).await? else {
            return Ok(TakeOutcome::Unknown);
        };
        let stored: StoredRequest = codec::decode(&record.value)?;
        if stored.client_id != *client_id {
            return Ok(TakeOutcome::Mismatch(Field::ClientId));
        }
        let (parties, stamp) = (Parties::client(client_id), stored.stamp.unwrap_or_default());
        if self.stores.death(&self.scope, parties, stamp, now).await?.is_some() {
            return Ok(TakeOutcome::Unknown);
        }
        let Some(sealed) = stored.params else { return Ok(TakeOutcome::Used) };
        if !now.before(Timestamp::from_stored(stored.valid_until)?)? {
            return Ok(TakeOutcome::Expired);
        }
        let params = self.stores.open(&key, &[], &sealed)?;
        Ok(TakeOutcome::Taken { client_id: stored.client_id, params })
    }

    /// Takes a request. Of any number of takes by its client, one is answered `Taken`; a take by another client changes
    /// nothing.
    pub async fn take(&self, request: Take) -> Result<TakeOutcome> {
        let Take { request_uri, client_id } = &request;
        if request_uri.expose().is_empty() || request_uri.expose().len() > Self::MAX_URI_BYTES {
            return Ok(TakeOutcome::Unknown);
        }
        let key = self.key(request_uri)?;
        let update = self.stores.update(&key, |standing, now| {
            let Some(standing) = standing else { return Ok(Step::answer(TakeOutcome::Unknown)) };
            let mut stored: StoredRequest = codec::decode(&standing.value)?;
            if stored.client_id != *client_id {
                return Ok(Step::answer(TakeOutcome::Mismatch(Field::ClientId)));
            }
            let Some(sealed) = stored.params.take() else {
                if let Some(life) = Self::DEFAULT_TTL {
                    self.stores.note_fence(Timestamp::from_stored(stored.valid_until)?, life);
                }
                return Ok(Step::answer(TakeOutcome::Used));
            };
            if !now.before(Timestamp::from_stored(stored.valid_until)?)? {
                return Ok(Step::answer(TakeOutcome::Expired));
            }
            let params = self.stores.open(&key, &[], &sealed)?;
            let (record, stamp) = (self.record(&stored)?, stored.stamp.unwrap_or_default());
            let replace = Write::Replace { key: key.clone(), expected: standing.version, record };
            let taken = TakeOutcome::Taken { client_id: stored.client_id, params };
            let parties = Parties::client(client_id);
            Step::write(vec![replace], taken)
                .while_live(&self.scope, parties, stamp, |_| TakeOutcome::Unknown)
        });
        update.await
    }

    /// Record of a request, kept for a day after the end of the request.
    fn record(&self, stored: &StoredRequest) -> Result<Record> {
        let expires_at = Timestamp::from_stored(stored.valid_until)?.checked_add(MEMORY)?;
        Ok(self.stores.record(codec::encode(stored), expires_at))
    }

    fn key(&self, request_uri: &Secret) -> Result<Key> {
        check_length("request_uri", request_uri.expose(), Self::MAX_URI_BYTES)?;
        let digest = Digest::of("request_uri", &[request_uri.expose().as_bytes()]);
        Key::new(Kind::PushedRequest, &self.scope, &[digest.part()], &[])
    }
}
