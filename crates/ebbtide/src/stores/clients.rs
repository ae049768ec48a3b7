//! Registered clients: found by id, listed by owner, with secrets that are stored as hashes and rotated with an overlap.
//!
//! ```
//! use ebbtide::Ebbtide;
//! use ebbtide::stores::clients::{ClientRequest, RegisterOutcome, VerifyOutcome};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> ebbtide::Result<()> {
//! let clients = Ebbtide::in_memory().scope("tenant:acme")?.clients();
//! let request = ClientRequest::confidential().client_id("app").redirect_uris(["https://app.example/cb"]);
//! let RegisterOutcome::Registered(registered) = clients.register(request).await? else { panic!() };
//! let secret = registered.client_secret.expect("a confidential client has a secret");
//! assert!(matches!(clients.verify("app", &secret).await?, VerifyOutcome::Verified(_)));
//! assert_eq!(clients.verify("app", &"guess".into()).await?, VerifyOutcome::Mismatch);
//! # Ok(())
//! # }
//! ```

mod change;
mod deletion;
pub(crate) mod hashing;
mod moving;
mod types;
mod usage;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use minicbor::{Decode, Encode};
use serde_json::{Map, Value};

pub use deletion::ClientDeletion;
use hashing::SecretHash;
pub use types::{
    Client, ClientRequest, ClientUpdate, RegisterOutcome, RegisteredClient, RevokeReach, RotateSecretOutcome,
    UpdateOutcome, VerifyOutcome,
};
pub(crate) use usage::KnownClients;

use super::grants::{MAX_NAME_BYTES, PAGE, listed_id};
use super::registry::{Store, listed, question};
use super::shared::deletion::{Owned, Progress};
use super::shared::finding::{Finding, RecordState};
use super::shared::paging::{FIRST_RECORDS, Listing, MAX_PAGE_BYTES, check_limit};
use super::shared::payload::{Payload, Resealing};
use super::shared::token;
use super::shared::tombstones::Principal;
use super::{Stores, check_length, check_optional};
use crate::backend::{Cursor, IndexTarget};
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::model::write::Write;
use crate::stores::audit::{Action, Note};
use crate::timekeeping::Now;

/// Clients of one scope.
#[derive(Debug, Clone)]
pub struct Clients {
    stores: Stores,
    scope: Scope,
}

/// Id of the client in a stored value.
pub(crate) fn id_of(value: &[u8]) -> Result<String> {
    Ok(codec::decode::<StoredClient>(value)?.client_id)
}

#[derive(Encode, Decode)]
struct StoredClient {
    /// Id, of which the key has only a digest.
    #[n(0)]
    client_id: String,
    #[n(1)]
    owner: Option<String>,
    /// Name, redirect URIs and metadata, sealed for this record.
    #[cbor(n(2), with = "minicbor::bytes")]
    about: Vec<u8>,
    /// Hashes of the secrets, newest first; none for a public client.
    #[n(3)]
    secrets: Vec<SecretHash>,
    #[n(4)]
    created_at: u64,
    #[n(5)]
    require_pkce: Option<bool>,
    /// True if the revocation of an access token revokes its grant too.
    #[n(6)]
    revokes_grants: Option<bool>,
    /// End that the client gets with its first use, while there was none; the record ends before.
    #[n(7)]
    used_until: Option<u64>,
}

question! {
    /// Client to explain.
    ClientQuestion {
        client_id: String,
    }
}

impl Store for Clients {
    const KINDS: &'static [Kind] = &[Kind::Client, Kind::ClientIndex];
    const INDEXES: &'static [(Kind, IndexTarget)] =
        &[(Kind::ClientIndex, |index, _| listed(Kind::Client, index))];
    type Question = ClientQuestion;

    fn reseal(stores: &Stores, at: Resealing<'_>, value: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut stored: StoredClient = codec::decode(value)?;
        let Some(about) = stores.reseal(at, &[], &stored.about)? else { return Ok(None) };
        stored.about = about;
        Ok(Some(codec::encode(&stored)))
    }

    async fn explain(&self, question: &ClientQuestion) -> Result<Finding> {
        let mut finding = match self.standing(&question.client_id, self.stores.now()?).await? {
            Some((_, stored, record)) => Finding::new(RecordState::Live, "it is registered")
                .since(Timestamp::from_stored(stored.created_at)?)
                .until(record.expires_at),
            None => Finding::unknown("not a client of this scope, or one that was deleted or has ended"),
        };
        finding.target = Some(vec![question.client_id.clone()]);
        Ok(finding)
    }

    async fn remove_owned(&self, owned: &Owned<'_>, progress: &mut Progress) -> Result<bool> {
        self.remove_clients(owned, progress).await
    }
}

impl Clients {
    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// Registers a client and its index in one commit. The secret is only in the answer.
    pub async fn register(&self, request: ClientRequest) -> Result<RegisterOutcome> {
        let new_id = || Base64UrlUnpadded::encode_string(&self.stores.rng().bytes::<16>());
        let client_id = request.client_id.unwrap_or_else(new_id);
        check_length("client_id", &client_id, MAX_NAME_BYTES)?;
        if matches!(client_id.as_str(), "." | "..") {
            return Err(Error::invalid("`.` and `..` are not allowed as a client_id").about("client_id"));
        }
        check_optional("owner", request.owner.as_deref(), MAX_NAME_BYTES)?;
        let (client_secret, secrets) = match (&request.client_secret_hash, request.confidential) {
            (Some(_), Some(false)) => {
                return Err(Error::invalid("a public client has no secret: leave out client_secret_hash")
                    .about("client_secret_hash"));
            }
            (Some(imported), _) => (
                None,
                vec![SecretHash::imported(imported).map_err(|error| error.about("client_secret_hash"))?],
            ),
            (None, Some(false)) => (None, Vec::new()),
            (None, _) => {
                let (secret, hash) = self.mint_secret();
                (Some(secret), vec![hash])
            }
        };
        let now = self.stores.now()?;
        let used_until = self.stores.expiry(Kind::Client, &self.scope, request.ttl, now)?;
        let (expires_at, used_until) = match request.unused_ttl {
            Some(ttl) => {
                usage::check_unused_ttl(ttl)?;
                let unused_until = now.end(ttl)?;
                if unused_until < used_until {
                    (unused_until, Some(used_until.as_millis()))
                } else {
                    (used_until, None)
                }
            }
            None => (used_until, None),
        };
        let (key, digest) = self.key(&client_id)?;
        let about = write_about(request.name.as_deref(), &request.redirect_uris, request.metadata.as_ref());
        let stored = StoredClient {
            about: self.stores.seal(&key, &[], &about)?,
            client_id,
            owner: request.owner,
            secrets,
            created_at: now.latest().as_millis(),
            require_pkce: request.require_pkce,
            revokes_grants: request.revoke.map(|reach| reach == RevokeReach::Grant),
            used_until,
        };
        self.forget_use(&digest);
        let record = self.stores.record(codec::encode(&stored), expires_at);
        let client = self.open(&key, &stored, &record)?;
        let mut writes = vec![Write::Insert { key, record }];
        let mut whom = vec![Principal::Client(&stored.client_id)];
        if let Some(owner) = &stored.owner {
            let key = self.index_key(owner, &digest)?;
            // An earlier client with this id and owner may have left its index entry, which is replaced.
            writes.push(Write::Put { key, record: self.stores.record("", expires_at) });
            whom.push(Principal::Owner(owner));
        }
        let note = Note::automatic(Action::Register, "a client was registered")?
            .about(Kind::Client, vec![stored.client_id.clone()]);
        let commit =
            self.stores.commit_audited(&self.scope, &whom, writes, &note, now).await?.unless_deleted()?;
        Ok(if commit.is_applied() {
            RegisterOutcome::Registered(Box::new(RegisteredClient { client, client_secret }))
        } else {
            RegisterOutcome::Taken
        })
    }

    /// Reads a client that is not being deleted.
    pub async fn find(&self, client_id: &str) -> Result<Option<Client>> {
        let Some((key, stored, record)) = self.standing(client_id, self.stores.now()?).await? else {
            return Ok(None);
        };
        self.open(&key, &stored, &record).map(Some)
    }

    /// Verifies a secret against the client's newest one, and those that a rotation has left valid. A public client has
    /// none. An imported hash is computed on a thread of its own. The first success is the first use of the client.
    pub async fn verify(&self, client_id: &str, secret: &Secret) -> Result<VerifyOutcome> {
        let now = self.stores.now()?;
        let Some((key, stored, record)) = self.standing(client_id, now).await? else {
            return Ok(VerifyOutcome::Unknown);
        };
        let good = good_secrets(&stored, now)?;
        let ends = good.iter().filter_map(|kept| kept.valid_until).min();
        if !self.stores.hashers().fits((&self.scope, client_id), secret, good).await? {
            return Ok(VerifyOutcome::Mismatch);
        }
        let mut client = self.open(&key, &stored, &record)?;
        client.secrets_until = ends.map_or(Ok(Timestamp::NEVER), Timestamp::from_stored)?;
        if stored.used_until.is_some() {
            match self.mark_used(client_id).await? {
                Some(expires_at) => (client.expires_at, client.used) = (expires_at, true),
                None => return Ok(VerifyOutcome::Unknown),
            }
        }
        Ok(VerifyOutcome::Verified(Box::new(client)))
    }

    /// Returns whether a client gets no code without a PKCE challenge. It is one read.
    pub(super) async fn requires_pkce(&self, client_id: &str) -> Result<bool> {
        let client = self.read(client_id, self.stores.now()?).await?;
        Ok(client.is_some_and(|(_, stored, _)| stored.require_pkce == Some(true)))
    }

    /// Reach of the revocation of an access token of a client. It is one read.
    pub(super) async fn revoke_reach(&self, client_id: &str) -> Result<RevokeReach> {
        let client = self.read(client_id, self.stores.now()?).await?;
        let reaches_grant = client.is_some_and(|(_, stored, _)| stored.revokes_grants == Some(true));
        Ok(if reaches_grant { RevokeReach::Grant } else { RevokeReach::Token })
    }

    /// Lists up to `limit` clients of an owner after `after`. A page may have fewer items and still a next page.
    pub async fn list(&self, owner: &str, after: Option<&Cursor>, limit: usize) -> Result<Listing<Client>> {
        check_limit(limit)?;
        if self.stores.is_deleted(&self.scope, &[Principal::Owner(owner)], self.stores.now()?).await? {
            return Ok(Listing { items: Vec::new(), next: None });
        }
        let (mut items, mut read, mut bytes, mut next) = (Vec::new(), 0, 0, after.cloned());
        loop {
            let (digests, rest) = self.digests(owner, next.as_ref(), FIRST_RECORDS.min(limit - read)).await?;
            (next, read) = (rest, read + digests.len());
            for digest in digests {
                let (key, now) = (self.digest_key(&digest)?, self.stores.now()?);
                let Some(record) = self.stores.backend().get(&key, now).await? else { continue };
                bytes += record.value.len();
                let stored: StoredClient = codec::decode(&record.value)?;
                let client = [Principal::Client(&stored.client_id)];
                if stored.owner.as_deref() == Some(owner)
                    && !self.stores.is_deleted(&self.scope, &client, now).await?
                {
                    items.push(self.open(&key, &stored, &record)?);
                }
            }
            if next.is_none() || read >= limit || bytes >= MAX_PAGE_BYTES {
                return Ok(Listing { items, next });
            }
        }
    }

    fn mint_secret(&self) -> (Secret, SecretHash) {
        let (secret, _) = token::mint(token::CLIENT_SECRET, &[], self.stores.rng());
        let hash = SecretHash::minted(&secret);
        (secret, hash)
    }

    /// Reads a client, unless it or its owner is being deleted.
    async fn standing(&self, client_id: &str, now: Now) -> Result<Option<(Key, StoredClient, Record)>> {
        let Some((key, stored, record)) = self.read(client_id, now).await? else { return Ok(None) };
        let mut whom = vec![Principal::Client(client_id)];
        whom.extend(stored.owner.iter().map(|owner| Principal::Owner(owner)));
        let is_deleted = self.stores.is_deleted(&self.scope, &whom, now).await?;
        Ok(if is_deleted { None } else { Some((key, stored, record)) })
    }

    /// Birth of a client that is there.
    pub(super) async fn born(&self, client_id: &str, now: Now) -> Result<Option<u64>> {
        Ok(self.standing(client_id, now).await?.map(|(_, stored, _)| stored.created_at))
    }

    /// Reads a client, also while it or its owner is being deleted.
    async fn read(&self, client_id: &str, now: Now) -> Result<Option<(Key, StoredClient, Record)>> {
        if client_id.is_empty() || client_id.len() > MAX_NAME_BYTES {
            return Ok(None);
        }
        let (key, _) = self.key(client_id)?;
        let Some(record) = self.stores.backend().get(&key, now).await? else { return Ok(None) };
        let stored: StoredClient = codec::decode(&record.value)?;
        if stored.client_id != client_id {
            return Err(Error::corrupt("a client is stored under the key of another"));
        }
        Ok(Some((key, stored, record)))
    }

    fn open(&self, key: &Key, stored: &StoredClient, record: &Record) -> Result<Client> {
        let (name, redirect_uris, metadata) = read_about(self.stores.open(key, &[], &stored.about)?)?;
        Ok(Client {
            client_id: stored.client_id.clone(),
            owner: stored.owner.clone(),
            name,
            redirect_uris,
            metadata,
            confidential: !stored.secrets.is_empty(),
            require_pkce: stored.require_pkce.unwrap_or(false),
            revoke: if stored.revokes_grants == Some(true) { RevokeReach::Grant } else { RevokeReach::Token },
            used: stored.used_until.is_none(),
            created_at: Timestamp::from_stored(stored.created_at)?,
            expires_at: record.expires_at,
            secrets_until: Timestamp::NEVER,
        })
    }

    async fn digests(
        &self,
        owner: &str,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<(Vec<Digest>, Option<Cursor>)> {
        let partition = owner_digest(owner);
        let prefix = Prefix::partition(Kind::ClientIndex, &self.scope, &[partition.part()], &[])?;
        let page = self.stores.backend().scan(&prefix, after, limit.min(PAGE), self.stores.now()?).await?;
        let digests = page.items.iter().map(|(key, _)| Ok(Digest::from_bytes(listed_id(key)?)));
        Ok((digests.collect::<Result<_>>()?, page.next))
    }

    fn key(&self, client_id: &str) -> Result<(Key, Digest)> {
        let digest = Digest::of("client id", &[client_id.as_bytes()]);
        Ok((self.digest_key(&digest)?, digest))
    }

    fn digest_key(&self, digest: &Digest) -> Result<Key> {
        Key::new(Kind::Client, &self.scope, &[digest.part()], &[])
    }

    fn index_key(&self, owner: &str, digest: &Digest) -> Result<Key> {
        let partition = owner_digest(owner);
        Key::new(Kind::ClientIndex, &self.scope, &[partition.part()], &[digest.part()])
    }
}

/// Partition of an owner: a digest, since names may be longer than a key allows.
fn owner_digest(owner: &str) -> Digest {
    Digest::of("clients", &[b"owner", owner.as_bytes()])
}

/// The secrets that are valid now.
fn good_secrets(client: &StoredClient, now: Now) -> Result<Vec<SecretHash>> {
    let mut good = Vec::with_capacity(client.secrets.len());
    for kept in &client.secrets {
        let until = kept.valid_until.map_or(Ok(Timestamp::NEVER), Timestamp::from_stored)?;
        if now.before(until)? {
            good.push(kept.clone());
        }
    }
    Ok(good)
}

fn write_about(name: Option<&str>, redirect_uris: &[String], metadata: Option<&Payload>) -> Payload {
    let mut about = Map::new();
    about.insert("redirect_uris".to_owned(), redirect_uris.into());
    if let Some(name) = name {
        about.insert("name".to_owned(), name.into());
    }
    if let Some(metadata) = metadata {
        about.insert("metadata".to_owned(), metadata.expose().clone());
    }
    Payload::new(about)
}

fn read_about(about: Payload) -> Result<(Option<String>, Vec<String>, Option<Payload>)> {
    let wrong = || Error::corrupt("the contents of a client cannot be read");
    let Value::Object(mut about) = about.into_inner() else { return Err(wrong()) };
    let text = |value: Value| if let Value::String(text) = value { Ok(text) } else { Err(wrong()) };
    let name = about.remove("name").map(text).transpose()?;
    let Some(Value::Array(uris)) = about.remove("redirect_uris") else { return Err(wrong()) };
    let uris = uris.into_iter().map(text).collect::<Result<_>>()?;
    Ok((name, uris, about.remove("metadata").map(Payload::new)))
}
