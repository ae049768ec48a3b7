//! Attributes: any JSON, by owner, bucket and name.
//!
//! ```
//! use ebbtide::stores::attributes::{Draft, SwapOutcome};
//! use ebbtide::{Ebbtide, Ttl};
//! use serde_json::json;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> ebbtide::Result<()> {
//! let acme = Ebbtide::in_memory().scope("tenant:acme")?;
//! let preferences = acme.attributes().bucket("alice", "preferences")?;
//! preferences.set("theme", json!("dark")).await?;
//! preferences.set("banner", Draft::new(json!(false)).ttl(Ttl::from_secs(3600)?)).await?;
//! let theme = preferences.get("theme").await?.expect("it was just set");
//! assert_eq!(theme.data, json!("dark"));
//! let swap = preferences.compare_and_swap("theme", &json!("dark"), json!("light")).await?;
//! assert!(matches!(swap, SwapOutcome::Swapped(_)));
//! # Ok(())
//! # }
//! ```

mod bucket;
mod changes;
mod draft;
mod lives;
mod moving;
pub mod presets;
mod reads;
mod stored;
mod usage;

use minicbor::{Decode, Encode};

pub use bucket::{Bucket, ChangeOutcome, SwapOutcome};
pub use changes::Changes;
pub(crate) use draft::StoredAttribute;
pub use draft::{Attribute, Draft, Stamp};
pub use lives::{BucketExtend, BucketTtls};
pub use usage::Usage;

use super::Stores;
use super::registry::{Store, question};
use super::shared::deletion::{Owned, Progress};
use super::shared::finding::Finding;
use super::shared::lifetime::Lifetime;
use super::shared::paging::{Listing, check_limit};
use super::shared::parents::ParentName;
use crate::admin::AdminExt as _;
use crate::admin::Erased;
use crate::backend::Cursor;
use crate::model::codec;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::stores::audit::{Action, AuditContext, Note};
use presets::{Holder, Preset};

/// Attributes of one scope.
#[derive(Debug, Clone)]
pub struct Attributes {
    stores: Stores,
    scope: Scope,
}

question! {
    /// Attribute to explain.
    AttributeQuestion {
        owner: String,
        bucket: String,
        name: String,
    }
}

impl Store for Attributes {
    const KINDS: &'static [Kind] = &[Kind::Attribute];
    type Question = AttributeQuestion;

    async fn explain(&self, question: &AttributeQuestion) -> Result<Finding> {
        self.bucket(&question.owner, &question.bucket)?.explain(&question.name).await
    }

    async fn remove_owned(&self, owned: &Owned<'_>, progress: &mut Progress) -> Result<bool> {
        owned.erase(Kind::Attribute, progress).await
    }
}

impl Attributes {
    /// Owner of attributes of the whole scope, such as settings and registries.
    pub const SYSTEM_OWNER: &'static str = "_system";

    /// Owner of attributes that an authorization server keeps for the whole scope, such as its index of clients.
    pub const OAUTH_OWNER: &'static str = "_oauth";

    /// Most records that one page of a listing reads: attributes may be large.
    const PAGE: usize = 100;

    /// Most pages that one call of `list_buckets` reads.
    const PAGES: usize = 20;

    pub(super) fn new(stores: Stores, scope: Scope) -> Self {
        Self { stores, scope }
    }

    /// Returns a bucket of an owner. It exists while it has an attribute.
    pub fn bucket(&self, owner: impl Into<String>, bucket: impl Into<String>) -> Result<Bucket> {
        Bucket::new(self.clone(), owner.into(), bucket.into())
    }

    /// Returns a bucket of the whole scope.
    pub fn system(&self, bucket: impl Into<String>) -> Result<Bucket> {
        self.bucket(Self::SYSTEM_OWNER, bucket)
    }

    /// Returns a predefined bucket; `owner` is required for those that each owner has.
    pub fn preset(&self, preset: &Preset, owner: Option<&str>) -> Result<Bucket> {
        let owner = match (preset.holder, owner) {
            (Holder::Shared(shared), None) => shared,
            (Holder::EachOwner, Some(owner)) => owner,
            (Holder::Shared(_), Some(_)) => {
                return Err(Error::invalid(format!(
                    "the bucket {} belongs to no single owner",
                    preset.bucket
                )));
            }
            (Holder::EachOwner, None) => {
                return Err(Error::invalid(format!(
                    "the bucket {} belongs to an owner: name one",
                    preset.bucket
                )));
            }
        };
        let bucket = self.bucket(owner, preset.bucket)?;
        let configured = bucket.default_ttl();
        Ok(bucket.with_default_ttl(configured.or(preset.ttl()?)))
    }

    /// Begins several changes to buckets of this scope that are committed together.
    pub fn changes(&self) -> Changes {
        Changes::new(self.clone())
    }

    /// Lists the names of an owner's buckets, in order.
    ///
    /// It reads the attributes of the owner, about 2,000 in one call. A page may therefore have fewer names than
    /// `limit`, even none, and still have a next page.
    pub async fn list_buckets(
        &self,
        owner: &str,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<Listing<String>> {
        check_limit(limit)?;
        let prefix = self.owner_prefix(owner)?;
        let now = self.stores.now()?;
        let mut place = after.map_or(Ok(BucketCursor::default()), BucketCursor::read)?;
        let mut names = Vec::new();
        for _ in 0..Self::PAGES {
            let from = place.cursor();
            let page = self.stores.backend().scan(&prefix, from.as_ref(), Self::PAGE, now).await?;
            for (key, _) in page.items {
                let (bucket, _) = names_of(&key)?;
                if place.last.as_ref().is_some_and(|last| bucket <= *last) {
                    continue;
                }
                if names.len() == limit {
                    // The next call reads this page again, and skips the names that were listed.
                    return Ok(Listing { items: names, next: Some(place.write()) });
                }
                place.last = Some(bucket.clone());
                names.push(bucket);
            }
            let Some(next) = page.next else { return Ok(Listing { items: names, next: None }) };
            place.cursor = Some(next.as_bytes().to_vec().into());
        }
        Ok(Listing { items: names, next: Some(place.write()) })
    }

    /// Deletes every attribute of an owner, in exactly this scope, and returns their number. One that is set
    /// meanwhile may be left. After an error, call it again to delete the rest.
    pub async fn delete_owner(&self, owner: &str) -> Result<u64> {
        self.stores.admin().erase_all(&self.owner_prefix(owner)?, self.stores.now()?.earliest()).await
    }

    /// Deletes every attribute of an owner, and appends to the audit log before and after.
    pub async fn delete_owner_audited(&self, owner: &str, context: &AuditContext) -> Result<u64> {
        let audit = self.stores.audit(&self.scope);
        let note = |how: String| -> Result<Note> {
            let note = Note::of(Action::DeleteOwner, context)?.about(Kind::Attribute, vec![owner.to_owned()]);
            Ok(note.with_detail(how))
        };
        self.owner_prefix(owner)?;
        audit.append(&note("begins".to_owned())?).await?;
        let removed = self.delete_owner(owner).await?;
        audit.append(&note(format!("ended, {removed} records"))?).await?;
        Ok(removed)
    }

    /// One step of [`delete_owner`](Self::delete_owner), for showing progress or stopping in between.
    pub async fn delete_owner_step(&self, owner: &str) -> Result<Erased> {
        self.stores.admin().erase(&self.owner_prefix(owner)?, self.stores.now()?.earliest()).await
    }

    fn owner_prefix(&self, owner: &str) -> Result<Prefix> {
        Prefix::partition(Kind::Attribute, &self.scope, &[owner.into()], &[])
    }
}

/// Record that a stored attribute belongs to; none if an earlier version wrote it.
pub(crate) fn parent_of(record: &Record) -> Result<Option<ParentName>> {
    Ok(StoredAttribute::decode(record)?.parent().cloned())
}

/// Lifetime of a stored attribute.
pub(crate) fn lifetime_of(record: &Record) -> Result<Lifetime> {
    Ok(StoredAttribute::decode(record)?.lifetime())
}

/// Bucket and name of an attribute.
fn names_of(key: &Key) -> Result<(String, String)> {
    match <[Part<'static>; 2]>::try_from(key.sort()) {
        Ok([Part::Text(bucket), Part::Text(name)]) => Ok((bucket.into_owned(), name.into_owned())),
        _ => Err(Error::corrupt("the key of an attribute is not a bucket and a name")),
    }
}

/// Position of a listing of buckets: the cursor of the engine, and the last name that was listed.
#[derive(Default, Encode, Decode)]
struct BucketCursor {
    #[n(0)]
    cursor: Option<minicbor::bytes::ByteVec>,
    #[n(1)]
    last: Option<String>,
}

impl BucketCursor {
    fn read(cursor: &Cursor) -> Result<Self> {
        codec::decode(cursor.as_bytes())
            .map_err(|_| Error::invalid("that is not where a listing of buckets goes on"))
    }

    fn write(&self) -> Cursor {
        Cursor::from_bytes(codec::encode(self))
    }

    fn cursor(&self) -> Option<Cursor> {
        self.cursor.as_ref().map(|bytes| Cursor::from_bytes(bytes.to_vec()))
    }
}
