//! The fence of a restored backup: nothing that was issued, used or revoked before it comes back.
//!
//! A backup does not know what happened since. Codes in it may have been used, grants revoked, proofs seen. In a restored
//! store codes, nonces, challenges, device codes and pushed requests are therefore used, a refresh token is answered
//! `Expired`, everybody signs in again, and a replay check is refused until every proof from before the fence has ended,
//! unless the proof was made after it. Revocations and deletions that an exported audit log knows are repeated: those of
//! API keys, approvals, relationships, clients, owners, scopes and groups of records.

mod repeat;

use std::collections::{BTreeMap, HashMap, HashSet};

use minicbor::{Decode, Encode};
use serde_json::Value;

use repeat::Repeat;

use super::Ebbtide;
use crate::admin::{Admin, AdminExt as _};
use crate::backend::BackendExt as _;
use crate::layers::authenticated;
use crate::model::codec;
use crate::model::error::{ErrorKind, Result};
use crate::model::key::{Key, Prefix};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::rng::SystemRng;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Write};
use crate::stores::audit::{Action, AuditContext, Note};
use crate::stores::registry;
use crate::stores::shared::fence::Fence;

/// Kinds of what was issued before the fence, and is gone.
const ISSUED: [Kind; 6] = [
    Kind::AccessToken,
    Kind::ProviderToken,
    Kind::Grant,
    Kind::GrantIndex,
    Kind::Session,
    Kind::SessionIndex,
];

/// Kinds of what can be used once: it stays, and is used.
const ONCE: [Kind; 5] = [Kind::Code, Kind::Nonce, Kind::Challenge, Kind::DeviceCode, Kind::PushedRequest];

/// Records of one step.
const PAGE: usize = 500;

/// Result of a restore.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Fenced {
    /// Records that were removed or used up, by kind.
    pub removed: BTreeMap<Kind, u64>,
    /// Revocations and deletions of the audit log that were repeated.
    pub revoked: u64,
    /// Lines from before the time for which the log of their scope is kept. The store has dropped its own entries of that
    /// time, so that nothing tells which of them are from before the backup: they are passed over, unless they revoke an
    /// API key.
    pub outdated: u64,
    /// Changes of the audit log that this cannot repeat, in words, without duplicates: the log does not have what they
    /// need, such as the new secret of a client.
    pub unrepeated: Vec<String>,
    /// Time until which replay checks without an `iat` after the fence are refused.
    pub until: Option<Timestamp>,
}

#[derive(Encode, Decode)]
struct StoredFence {
    #[n(0)]
    at: u64,
    #[n(1)]
    until: u64,
    /// False while what was issued before the fence is being ended.
    #[n(2)]
    complete: bool,
}

/// Key of the fence.
pub(crate) fn place() -> Result<Key> {
    Key::new(Kind::System, &Scope::Global, &["fence".into()], &[])
}

/// Fence that a store has, and whether it is complete; none if it has none.
pub(crate) async fn read_fence(engine: &dyn Admin, now: Timestamp) -> Result<Option<(Fence, bool)>> {
    let Some(record) = engine.get(&place()?, now).await? else { return Ok(None) };
    if record.value.is_empty() {
        // From an earlier version: every proof is refused until its end.
        let until = record.expires_at;
        return Ok(Some((Fence { at: until, until }, true)));
    }
    let stored: StoredFence = codec::decode(&record.value)?;
    let (at, until) = (Timestamp::from_stored(stored.at)?, Timestamp::from_stored(stored.until)?);
    Ok(Some((Fence { at, until }, stored.complete)))
}

async fn write_fence(db: &Ebbtide, fence: Fence, complete: bool) -> Result<()> {
    let stored = StoredFence { at: fence.at.as_millis(), until: fence.until.as_millis(), complete };
    let record = Record::new(codec::encode(&stored), Timestamp::NEVER, &SystemRng);
    let _ = db.engine().put(place()?, record, db.time().date()).await?;
    Ok(())
}

/// Sets the fence of a restored store. Call it before the store is served; after an error, call it again.
///
/// `log` has lines of an exported audit log, each with the scope that it was exported from. Lines that the store's own
/// log has are from before the backup, and are passed over; so are those that are older than the log keeps entries, except
/// for revocations of API keys.
pub async fn restore(db: &Ebbtide, log: &[(Scope, Value)]) -> Result<Fenced> {
    let mut fenced = set(db).await?;
    // They have the time for which a log is kept.
    db.stores().policies(&Scope::Global).reload().await?;
    let mut known = HashMap::new();
    let mut repeat = Repeat::new(db)?;
    for (scope, entry) in log {
        if !known.contains_key(scope) {
            known.insert(scope.clone(), entries(db, scope).await?);
        }
        let place = (entry["chain"].as_str().unwrap_or_default().to_owned(), entry["sequence"].as_u64());
        if known[scope].contains(&place) {
            continue;
        }
        if is_outdated(db, scope, entry)? {
            fenced.outdated += 1;
            continue;
        }
        fenced.revoked += u64::from(repeat.entry(scope, entry).await?);
    }
    fenced.unrepeated = repeat.unrepeated();
    let note = Note::of(Action::Restore, &AuditContext::because("a backup was restored")?)?;
    let total: u64 = fenced.removed.values().sum();
    let (revoked, left) = (fenced.revoked, fenced.unrepeated.len());
    let note = note
        .with_detail(format!("{total} records ended, {revoked} revocations repeated, {left} changes not"));
    db.at(&Scope::Global).audit().append(&note).await?;
    db.stores().checkpoint_audit().await?;
    Ok(fenced)
}

/// Returns whether the log of a scope has dropped the entries of that time, so that the entry may be from before the
/// backup. The id of an API key is never given again: its revocation is repeated at any age.
fn is_outdated(db: &Ebbtide, scope: &Scope, entry: &Value) -> Result<bool> {
    let Some(at) = entry["at"].as_u64().filter(|_| entry["kind"] != Kind::ApiKey.name()) else {
        return Ok(false);
    };
    let kept = db.stores().audit(scope).retention()?;
    let end = Timestamp::from_millis(at)?.checked_add(kept.duration())?;
    Ok(!db.time().now()?.before(end)?)
}

/// Sets the fence at the present time: what was issued before it is over. Without the keyring only its note is written,
/// and the next process that has the keyring completes it when it opens the store.
pub(crate) async fn set(db: &Ebbtide) -> Result<Fenced> {
    let present = db.time().now()?;
    let profile = db.stores().profile();
    let fence = Fence { at: present.latest(), until: present.end(profile.replay.max(profile.nonce))? };
    write_fence(db, fence, false).await?;
    db.stores().set_fence(fence);
    complete(db, fence).await
}

/// Ends what was issued before the fence. A part that was done before is passed over.
pub(crate) async fn complete(db: &Ebbtide, fence: Fence) -> Result<Fenced> {
    db.stores().require_keyring()?;
    let (engine, now) = (db.engine(), db.time().date());
    let mut fenced = Fenced { until: Some(fence.until), ..Fenced::default() };
    for kind in ISSUED {
        let removed = engine.erase_all(&Prefix::kind_wide(kind), now).await?;
        if removed > 0 {
            fenced.removed.insert(kind, removed);
        }
    }
    for kind in ONCE {
        // A record that another caller changes meanwhile is met in the next pass.
        let mut spent = 0;
        while let Some(done) = spend(db, kind, now).await? {
            spent += done;
        }
        if spent > 0 {
            fenced.removed.insert(kind, spent);
        }
    }
    write_fence(db, fence, true).await?;
    Ok(fenced)
}

/// Uses up the records of a kind, and returns their number; none if there was none.
async fn spend(db: &Ebbtide, kind: Kind, now: Timestamp) -> Result<Option<u64>> {
    let (engine, stores) = (db.engine(), db.stores());
    let (mut after, mut met, mut spent) = (None, false, 0);
    loop {
        let page = engine.list(&[Prefix::kind_wide(kind)], after.as_ref(), PAGE, now).await?;
        let mut batches = Vec::new();
        for (key, record) in page.items {
            let value = match stores.verified(&key, &record) {
                Ok(value) => value,
                // A record of another hand is refused wherever it is read.
                Err(error) if error.kind() == ErrorKind::Corrupt => continue,
                // One of a key that this ring lacks is good once the ring has it.
                Err(error) => return Err(error),
            };
            let Some(value) = registry::spent(kind, &value)? else { continue };
            let mut new = Record::new(value, record.expires_at, &SystemRng);
            new.value = authenticated::protected(stores.shared_keyring(), &key, &new, &SystemRng);
            batches.push(Batch::new(vec![Write::Replace { key, expected: record.version, record: new }])?);
        }
        if !batches.is_empty() {
            met = true;
            let commits = engine.commit_each(batches, now).await?;
            spent += commits.iter().filter(|commit| commit.is_applied()).count() as u64;
        }
        after = page.next;
        if after.is_none() {
            return Ok(met.then_some(spent));
        }
    }
}

/// Places of the entries that the store's own log has.
async fn entries(db: &Ebbtide, scope: &Scope) -> Result<HashSet<(String, Option<u64>)>> {
    let (audit, mut known, mut after) = (db.at(scope).audit(), HashSet::new(), None);
    loop {
        let page = audit.list(after.as_ref(), PAGE).await?;
        known.extend(page.items.iter().map(|entry| {
            (entry.chain.map(|chain| chain.to_string()).unwrap_or_default(), Some(entry.sequence))
        }));
        after = page.next;
        if after.is_none() {
            return Ok(known);
        }
    }
}

#[cfg(all(test, feature = "fjall"))]
mod tests {
    use super::*;
    use crate::stores::codes::{CodeRequest, Redeem, RedeemOutcome};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_fence_without_the_keyring_is_completed_by_the_next_process_that_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("fjall:{}", dir.path().join("data").display());
        let db = Ebbtide::open(&url).await.unwrap();
        let codes = db.scope("global").unwrap().codes();
        let code = codes.issue(CodeRequest::new("app", "alice", "https://a")).await.unwrap().code;
        drop(codes);
        db.close().await;
        let tool = Ebbtide::builder(&url).must_exist().without_keyring().open().await.unwrap();
        assert_eq!(set(&tool).await.unwrap_err().kind(), ErrorKind::Invalid);
        tool.close().await;
        let db = Ebbtide::open(&url).await.unwrap();
        assert!(read_fence(db.engine().as_ref(), db.time().date()).await.unwrap().unwrap().1, "complete");
        let redeem = Redeem::new(code, "app").redirect_uri("https://a");
        let redeemed = db.scope("global").unwrap().codes().redeem(redeem).await.unwrap();
        assert_eq!(redeemed, RedeemOutcome::Reused { grant_id: None });
    }
}
