//! Approvals: an identity may do an action to a resource, until a time.
//!
//! A handle covers a scope. An approval without a scope of its own is in that of the handle; one with a scope that
//! the handle does not cover is refused. Checks are exact in scope and in each name: an approval for `/data` does not
//! allow `/data-secret`.
//!
//! Tenants do not see each other's approvals:
//!
//! ```
//! use ebbtide::stores::approvals::Approval;
//! use ebbtide::{Ebbtide, Ttl};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> ebbtide::Result<()> {
//! let db = Ebbtide::in_memory();
//! let (acme, widgets) = (db.scope("tenant:acme-corp")?, db.scope("tenant:widgets-inc")?);
//! let day = Ttl::from_secs(24 * 3600)?;
//! acme.approvals().grant(&Approval::new("alice@acme.com", "document-1", "GET", "admin").ttl(day)).await?;
//! widgets.approvals().grant(&Approval::new("bob@widgets.com", "document-1", "GET", "admin").ttl(day)).await?;
//!
//! assert_eq!(acme.approvals().list("alice@acme.com", None, 10).await?.items.len(), 1);
//! assert!(!acme.approvals().check("bob@widgets.com", "document-1", "GET").await?);
//! assert!(widgets.approvals().check("bob@widgets.com", "document-1", "GET").await?);
//! # Ok(())
//! # }
//! ```
//!
//! Environments of a tenant are separate too, each with its own lifetimes:
//!
//! ```
//! # use ebbtide::stores::approvals::Approval;
//! # use ebbtide::{Ebbtide, Ttl};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> ebbtide::Result<()> {
//! # let db = Ebbtide::in_memory();
//! let dev = db.scope("tenant:acme-corp/env:dev")?.approvals();
//! let prod = db.scope("tenant:acme-corp/env:prod")?.approvals();
//! let test = Approval::new("test-user", "api-endpoint", "POST", "dev-admin");
//! dev.grant(&test.ttl(Ttl::from_secs(3600)?)).await?;
//! let service = Approval::new("service-account", "api-endpoint", "POST", "prod-admin");
//! prod.grant(&service.ttl(Ttl::from_secs(30 * 24 * 3600)?)).await?;
//! assert!(!prod.check("test-user", "api-endpoint", "POST").await?);
//! # Ok(())
//! # }
//! ```
//!
//! An expired approval is absent without a sweep. A policy gives a lifetime to an approval that is granted without
//! one:
//!
//! ```
//! # use std::time::Duration;
//! # use ebbtide::stores::approvals::Approval;
//! # use ebbtide::{Ebbtide, Kind, ManualClock, Scope, Timestamp, Ttl, TtlPolicies, TtlPolicy};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> ebbtide::Result<()> {
//! # let clock = ManualClock::at(Timestamp::from_millis(1_800_000_000_000)?);
//! let mut policies = TtlPolicies::default();
//! policies.set(Kind::Approval, Scope::Global, TtlPolicy::short_lived())?;
//! let db = Ebbtide::builder("memory:").clock(clock.clone()).policies(policies).open().await?;
//! let approvals = db.scope("tenant:acme-corp")?.approvals();
//! let temporary = Approval::new("temp-user", "resource", "GET", "admin");
//! approvals.grant(&temporary.ttl(Ttl::from_secs(3600)?)).await?;
//! approvals.grant(&Approval::new("other-user", "resource", "GET", "admin")).await?;
//! clock.advance(Duration::from_secs(3600));
//! assert!(!approvals.check("temp-user", "resource", "GET").await?);
//! assert!(approvals.check("other-user", "resource", "GET").await?, "a day by the policy");
//! # Ok(())
//! # }
//! ```

mod moving;
mod request;
mod search;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use futures_util::future::join_all;
use minicbor::{Decode, Encode};

pub use request::Approval;
pub use search::ApprovalFilter;

use super::registry::{Store, question};
use super::shared::deletion::{Owned, Progress};
use super::shared::extension::{ExtendOutcome, Extension};
use super::shared::finding::Finding;
use super::shared::lifetime::{
    GrantRights, Import, Lifetime, Present, RecordHandle, RestoreTerms, Restored, restore,
};
use super::shared::paging::{Listing, bounded, check_limit};
use super::shared::parents::ParentName;
use super::shared::tombstones::Principal;
use super::{Stores, name_member};
use crate::backend::Cursor;
use crate::model::codec;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::stores::audit::{AuditContext, check_text};

/// Setters of a request that has the members `scope` and `metadata`.
macro_rules! record_setters {
    () => {
        /// Writes to `scope` instead of the scope of the handle, which must cover it.
        #[must_use]
        pub fn scope(mut self, scope: Scope) -> Self {
            self.scope = Some(scope);
            self
        }

        /// Adds a note of the caller.
        #[must_use]
        pub fn metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
            self.metadata.insert(name.into(), value.into());
            self
        }
    };
}
pub(super) use record_setters;

/// Longest metadata, in bytes of its names and values.
pub const MAX_METADATA_BYTES: usize = 16 * 1024;

/// Longest name of a grantor or creator, in bytes.
pub const MAX_GRANTOR_BYTES: usize = 256;

/// Approval that exists.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Granted {
    /// Identity that may act.
    pub identity: String,
    /// Resource that it may act on.
    pub resource: String,
    /// Action that it may do.
    pub action: String,
    /// Grantor.
    pub granted_by: String,
    /// Time of the grant.
    pub granted_at: Timestamp,
    /// Time at which it expires.
    pub expires_at: Timestamp,
    /// TTL that it began with; none without an end.
    pub ttl: Option<Duration>,
    /// Latest expiry that checks and extensions can give it, where there is a cap.
    pub cap_at: Option<Timestamp>,
    /// Lifetime after a check, where checks renew it.
    pub sliding_ttl: Option<Duration>,
    /// Notes of the caller.
    pub metadata: BTreeMap<String, String>,
    /// Scope of the approval.
    pub scope: Scope,
    /// Version of the record.
    pub version: Version,
}

impl fmt::Debug for Granted {
    /// Without names, which may be private.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Granted({:?} in {}, expires_at {}, …)", self.version, self.scope, self.expires_at)
    }
}

/// Answer to a grant by a caller that may not extend.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "only `Granted` is a grant"]
#[non_exhaustive]
pub enum GrantOutcome {
    /// It was granted, and the audit log has an entry.
    Granted(Box<Granted>),
    /// There is one already, and the new one would live longer: extend it instead.
    Longer {
        /// Time at which the present one expires.
        expires_at: Timestamp,
    },
}

/// Origin of a relationship: the record that it belongs to, and its birth.
pub(super) struct Origin {
    pub(super) parent: ParentName,
    pub(super) born: Option<u64>,
}

/// Value of the record of an approval or a relationship.
#[derive(Encode, Decode)]
pub(super) struct StoredGrant {
    /// Grantor or creator.
    #[n(0)]
    pub(super) by: String,
    #[n(1)]
    pub(super) metadata: BTreeMap<String, String>,
    #[n(2)]
    pub(super) lifetime: Lifetime,
    /// Record that a relationship belongs to; none for an approval, and where an earlier version wrote it.
    #[n(3)]
    pub(super) parent: Option<ParentName>,
    /// Birth of a relationship, which a grant over a live one keeps.
    #[n(4)]
    pub(super) born: Option<u64>,
}

impl StoredGrant {
    /// Checks the grantor or creator, which `what` names in an error, and the metadata, and encodes the value.
    pub(super) fn encode(
        what: &str,
        by: &str,
        metadata: &BTreeMap<String, String>,
        lifetime: Lifetime,
        of: Option<Origin>,
    ) -> Result<Vec<u8>> {
        let member = if what.contains("creator") { "created_by" } else { "granted_by" };
        check_text(what, by, MAX_GRANTOR_BYTES).map_err(|error| error.about(member))?;
        let bytes: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > MAX_METADATA_BYTES {
            return Err(Error::invalid(format!(
                "metadata has at most {MAX_METADATA_BYTES} bytes; this has {bytes}"
            ))
            .about("metadata"));
        }
        let (parent, born) = of.map_or((None, None), |Origin { parent, born }| (Some(parent), born));
        Ok(codec::encode(&Self { by: by.to_owned(), metadata: metadata.clone(), lifetime, parent, born }))
    }

    /// Writes an imported record with its mirrors, if none exists. One without a date is equal to an existing one
    /// whatever the date of that.
    pub(super) async fn restore(
        stores: &Stores,
        keys: Vec<Key>,
        whose: &[Principal<'_>],
        record: Record,
        dated: bool,
        terms: RestoreTerms<'_>,
    ) -> Result<Restored> {
        let (ours, new): (Self, _) = (codec::decode(&record.value)?, record.clone());
        restore(stores, keys, whose, record, terms, |there| {
            let stored: Self = codec::decode(&there.value)?;
            let alike = stored.by == ours.by && stored.metadata == ours.metadata;
            let same = (stored.lifetime, there.expires_at) == (ours.lifetime, new.expires_at);
            Ok(alike && (!dated || same))
        })
        .await
    }
}

/// Check of one approval in a batch.
#[derive(Debug, Clone, Copy)]
pub struct ApprovalQuery<'a> {
    /// Identity.
    pub identity: &'a str,
    /// Resource that it may act on.
    pub resource: &'a str,
    /// Action.
    pub action: &'a str,
}

/// Approvals of one scope.
#[derive(Debug, Clone)]
pub struct Approvals {
    stores: Stores,
    scope: Scope,
}

question! {
    /// Approval to explain.
    ApprovalQuestion {
        identity: String,
        resource: String,
        action: String,
    }
}

impl Store for Approvals {
    const KINDS: &'static [Kind] = &[Kind::Approval];
    type Question = ApprovalQuestion;

    async fn explain(&self, question: &ApprovalQuestion) -> Result<Finding> {
        Finding::of(&self.handle(&question.identity, &question.resource, &question.action)?).await
    }

    async fn remove_owned(&self, owned: &Owned<'_>, progress: &mut Progress) -> Result<bool> {
        owned.erase(Kind::Approval, progress).await
    }
}

impl Approvals {
    /// Most checks of one batch.
    pub const MAX_QUESTIONS: usize = MAX_BATCH;

    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// Approvals of a scope that this one covers. Returns `Invalid` for any other.
    pub fn within(&self, scope: &Scope) -> Result<Self> {
        self.scope.require(scope)?;
        Ok(Self { stores: self.stores.clone(), scope: scope.clone() })
    }

    /// Grants an approval, replaces the one that exists, with its lifetime, and appends to the audit log in the same
    /// commit.
    pub async fn grant(&self, approval: &Approval) -> Result<Granted> {
        match self.grant_as(approval, true).await? {
            GrantOutcome::Granted(granted) => Ok(*granted),
            GrantOutcome::Longer { .. } => {
                Err(Error::invalid("the grant would lengthen the approval's life"))
            }
        }
    }

    /// Grants an approval for a caller that may not extend one: a live approval is not replaced by one that lives
    /// longer.
    pub async fn grant_no_longer(&self, approval: &Approval) -> Result<GrantOutcome> {
        self.grant_as(approval, false).await
    }

    async fn grant_as(&self, approval: &Approval, may_lengthen: bool) -> Result<GrantOutcome> {
        let there = self.within(approval.scope.as_ref().unwrap_or(&self.scope))?;
        let handle = there.handle(&approval.identity, &approval.resource, &approval.action)?;
        let terms = GrantRights { granted_by: &approval.granted_by, may_lengthen };
        let update = self.stores.update(&handle.keys[0], |present, now| {
            let present = present.map(Present::Live);
            let (lifetime, expires_at) =
                approval.lifetime().begin(&self.stores, Kind::Approval, &there.scope, None, now)?;
            let (key, record) = self.prepare(approval, lifetime, expires_at)?;
            let granted = GrantOutcome::Granted(Box::new(read(&key, &record)?));
            let longer = |expires_at| GrantOutcome::Longer { expires_at };
            handle.grant(present, (lifetime, &record), &terms, granted, longer)
        });
        update.await
    }

    /// Writes an imported approval with its lifetime, if none exists, and appends to the audit log in the same commit.
    pub(crate) async fn restore(
        &self,
        approval: &Approval,
        lifetime: Lifetime,
        expires_at: Timestamp,
        dated: bool,
        import: Import<'_>,
    ) -> Result<Restored> {
        let (key, record) = self.prepare(approval, lifetime, expires_at)?;
        let Approval { identity, resource, action, .. } = approval;
        let target = [identity, resource, action].map(Clone::clone).into();
        let note = Some(&import.note(Kind::Approval, target, expires_at)?);
        let terms = RestoreTerms { dry_run: import.dry_run, note, links: Vec::new() };
        let identity = [Principal::Owner(identity)];
        StoredGrant::restore(&self.stores, vec![key], &identity, record, dated, terms).await
    }

    fn prepare(
        &self,
        approval: &Approval,
        lifetime: Lifetime,
        expires_at: Timestamp,
    ) -> Result<(Key, Record)> {
        let scope = approval.scope.as_ref().unwrap_or(&self.scope);
        self.scope.require(scope)?;
        let Approval { identity, resource, action, granted_by, metadata, .. } = approval;
        let value = StoredGrant::encode("the grantor of an approval", granted_by, metadata, lifetime, None)?;
        Ok((key(scope, identity, resource, action)?, self.stores.record(value, expires_at)))
    }

    /// Returns whether exactly this is approved, in exactly this scope. An error is no answer: refuse.
    pub async fn check(&self, identity: &str, resource: &str, action: &str) -> Result<bool> {
        Ok(self.get(identity, resource, action).await?.is_some())
    }

    /// Checks several approvals concurrently. An error answers none of them.
    pub async fn check_many(&self, questions: &[ApprovalQuery<'_>]) -> Result<Vec<bool>> {
        check_batch(questions.len())?;
        let checks = questions.iter().map(|asked| self.check(asked.identity, asked.resource, asked.action));
        join_all(checks).await.into_iter().collect()
    }

    /// Returns the approval, if there is one. A sliding one is renewed.
    pub async fn get(&self, identity: &str, resource: &str, action: &str) -> Result<Option<Granted>> {
        let handle = self.handle(identity, resource, action)?;
        handle.read().await?.map(|record| read(&handle.keys[0], &record)).transpose()
    }

    /// Lists the approvals of an identity, by resource and action. It renews nothing.
    pub async fn list(
        &self,
        identity: &str,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Listing<Granted>> {
        check_limit(limit)?;
        if self.stores.is_deleted(&self.scope, &[Principal::Owner(identity)], self.stores.now()?).await? {
            return Ok(Listing { items: Vec::new(), next: None });
        }
        let page = bounded(&self.stores, &self.prefix(identity)?, after, limit, self.stores.now()?).await?;
        Listing::read(page, |key, record| read(&key, &record))
    }

    /// Counts the approvals of an identity. It reads them all.
    pub async fn count(&self, identity: &str) -> Result<u64> {
        super::shared::paging::count(&self.stores, &self.prefix(identity)?).await
    }

    /// Revokes an approval, and appends to the audit log. True only for the caller that revoked it.
    pub async fn revoke(
        &self,
        identity: &str,
        resource: &str,
        action: &str,
        context: &AuditContext,
    ) -> Result<bool> {
        self.handle(identity, resource, action)?.revoke(context).await
    }

    /// Extends an approval, and appends to the audit log in the same commit.
    pub async fn extend(
        &self,
        identity: &str,
        resource: &str,
        action: &str,
        extension: &Extension,
    ) -> Result<ExtendOutcome> {
        self.handle(identity, resource, action)?.extend(extension).await
    }

    /// Deletes every approval of exactly this scope, appends to the audit log, and returns their number. After an
    /// error, call it again to delete the rest.
    pub async fn delete_scope(&self, context: &AuditContext) -> Result<u64> {
        self.delete_all(false, context).await
    }

    fn handle<'a>(&'a self, identity: &'a str, resource: &str, action: &str) -> Result<RecordHandle<'a>> {
        Ok(RecordHandle {
            stores: &self.stores,
            scope: &self.scope,
            keys: vec![key(&self.scope, identity, resource, action)?],
            target: vec![identity.to_owned(), resource.to_owned(), action.to_owned()],
            whose: vec![Principal::Owner(identity)],
            lifetime: lifetime_of,
            parent: |_| Ok(None),
        })
    }

    pub(super) fn prefix(&self, identity: &str) -> Result<Prefix> {
        Prefix::partition(Kind::Approval, &self.scope, &[identity.into()], &[])
    }
}

fn key(scope: &Scope, identity: &str, resource: &str, action: &str) -> Result<Key> {
    let key = Key::new(Kind::Approval, scope, &[identity.into()], &[resource.into(), action.into()]);
    name_member(key, &[("identity", identity), ("resource", resource), ("action", action)])
}

/// Lifetime of a stored approval or relationship.
pub(crate) fn lifetime_of(record: &Record) -> Result<Lifetime> {
    Ok(codec::decode::<StoredGrant>(&record.value)?.lifetime)
}

pub(crate) fn read(key: &Key, record: &Record) -> Result<Granted> {
    let strange = || Error::corrupt("an approval has the key of another kind");
    let (partition, sort) = (key.partition(), key.sort());
    let ([Part::Text(identity)], [Part::Text(resource), Part::Text(action)]) =
        (partition.as_slice(), sort.as_slice())
    else {
        return Err(strange());
    };
    let stored: StoredGrant = codec::decode(&record.value)?;
    Ok(Granted {
        identity: identity.to_string(),
        resource: resource.to_string(),
        action: action.to_string(),
        granted_by: stored.by,
        granted_at: stored.lifetime.began_at()?,
        expires_at: record.expires_at,
        ttl: stored.lifetime.ttl(record.expires_at),
        cap_at: stored.lifetime.cap_at()?,
        sliding_ttl: stored.lifetime.sliding_ttl(),
        metadata: stored.metadata,
        scope: key.scope(),
        version: record.version,
    })
}

/// Most checks of one batch.
pub(super) const MAX_BATCH: usize = 1_000;

pub(super) fn check_batch(checks: usize) -> Result<()> {
    if checks > MAX_BATCH {
        let message = format!("a batch has at most {MAX_BATCH} questions; this one has {checks}");
        return Err(Error::invalid(message).about("items"));
    }
    Ok(())
}
