//! Lines of kinds that are not for people: the stored value, authenticated by the keyring.
//!
//! A line has `kind`, `key`, `version`, `expires_at`, `value` and `mac`, in base64url. Payloads inside the value stay
//! sealed. An import needs the keyring of the export: a line that somebody else wrote or changed is refused. In another
//! scope the sealed parts are sealed anew for their new key.

use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde_json::{Map, Value, json};

use super::fields::{number, text};
use super::lines::ImportOutcome;
use crate::keyring::KeyId;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::{Record, Version};
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::model::write::Write;
use crate::stores::Stores;
use crate::stores::shared::belongings::Parent;
use crate::stores::shared::lifetime::Import;
use crate::stores::shared::payload::Resealing;
use crate::stores::{api_keys, clients, registry};
use crate::timekeeping::Now;

const PURPOSE: &str = "transfer";
const MEMBERS: [&str; 7] = ["kind", "scope", "key", "version", "expires_at", "value", "mac"];

/// Kinds whose names contain their scope.
const BOUND: [Kind; 2] = [Kind::ApiKey, Kind::Policy];

/// Line of a record whose tag was verified.
pub(super) fn line(stores: &Stores, key: &Key, record: &Record) -> Result<Value> {
    let ring = stores.keyring();
    let mac = mac(stores, ring.active(), key, record)
        .ok_or_else(|| Error::corrupt("the keyring lost its active key"))?;
    let mac = [ring.active().as_bytes().as_slice(), &mac].concat();
    let mut line = json!({
        "kind": key.kind().name(),
        "key": Base64UrlUnpadded::encode_string(key.as_bytes()),
        "version": record.version.to_string(),
        "value": Base64UrlUnpadded::encode_string(&record.value),
        "mac": Base64UrlUnpadded::encode_string(&mac),
    });
    if !record.expires_at.is_never() {
        line["expires_at"] = json!(record.expires_at.as_millis());
    }
    Ok(line)
}

fn mac(stores: &Stores, id: KeyId, key: &Key, record: &Record) -> Option<[u8; 32]> {
    let expires_at = record.expires_at.as_millis().to_be_bytes();
    let parts: [&[u8]; 5] =
        [&[key.kind().code()], key.as_bytes(), record.version.as_bytes(), &expires_at, &record.value];
    stores.keyring().mac(id, PURPOSE, &parts)
}

/// Scopes of an import.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places<'a> {
    /// Scope that the exported record must be in, or below.
    pub(super) within: &'a Scope,
    /// Scope that it is imported into.
    pub(super) to: &'a Scope,
}

/// Imports a line.
pub(super) async fn import(
    stores: &Stores,
    kind: Kind,
    fields: &Map<String, Value>,
    Places { within, to: scope }: Places<'_>,
    import: Import<'_>,
) -> Result<ImportOutcome> {
    if !super::Exporter::KINDS.contains(&kind) {
        return Err(Error::invalid(format!("{kind} are not imported; `ebbtide copy` moves them")));
    }
    if let Some(unknown) = fields.keys().find(|name| !MEMBERS.contains(&name.as_str())) {
        return Err(Error::invalid(format!("unknown member `{unknown}`")));
    }
    let (from, record) = read(stores, kind, fields)?;
    // The line opens in the scope that it is imported into: nobody reads what another tenant has sealed.
    if !within.covers(&from.scope()) {
        return Err(Error::invalid(format!(
            "it was exported from {}, which {within} does not cover",
            from.scope()
        )));
    }
    let now = stores.now()?;
    if !now.before(record.expires_at)? {
        return Ok(ImportOutcome::Skipped("it has expired".to_owned()));
    }
    let key = Key::new(kind, scope, &from.partition(), &from.sort())?;
    if key != from && BOUND.contains(&kind) {
        return Err(Error::invalid(format!("{kind} are bound to their scope, {}", from.scope())));
    }
    let places = Resealing { from: &from, to: &key };
    let value = registry::reseal(stores, places, &record.value)?.map_or(record.value, Into::into);
    let record = Record { value, ..record };
    let version = record.version;
    let present = stores.backend().get(&key, now).await?;
    let present = match present {
        None if import.dry_run => return Ok(ImportOutcome::Written(kind)),
        None if insert(stores, &key, record, import, now).await? => return Ok(ImportOutcome::Written(kind)),
        None => stores.backend().get(&key, now).await?,
        present => present,
    };
    let same = present.is_some_and(|present| present.version == version);
    let why = if same { "it is there already" } else { "it conflicts with an existing record" };
    Ok(ImportOutcome::Skipped(why.to_owned()))
}

/// Inserts a record. One with authority has an entry of the audit log in the same commit. Returns false if there is a
/// record.
async fn insert(stores: &Stores, key: &Key, record: Record, import: Import<'_>, now: Now) -> Result<bool> {
    let target = match key.kind() {
        Kind::Client => vec![clients::id_of(&record.value)?],
        Kind::ApiKey => vec![api_keys::id_of(key)?.to_string()],
        Kind::Policy => vec![key.scope().to_string()],
        Kind::Record => return insert_linked(stores, key, record, now).await,
        _ => return Ok(stores.backend().insert(key.clone(), record, now).await?.is_applied()),
    };
    let note = import.note(key.kind(), target, record.expires_at)?;
    let writes = vec![Write::Insert { key: key.clone(), record }];
    let outcome = stores.commit_audited(&key.scope(), &[], writes, &note, now).await?;
    Ok(outcome.unless_deleted()?.is_applied())
}

/// Inserts a record with its links to what it belongs to, which must be there.
async fn insert_linked(stores: &Stores, key: &Key, record: Record, now: Now) -> Result<bool> {
    let scope = key.scope();
    let (links, name) = stores.records(&scope).links_of_imported(key, &record)?;
    if let Some(name) = &name
        && stores.belongings(&scope).has_ended(name, now).await?
    {
        return Err(Error::invalid("what the record belongs to does not exist"));
    }
    let parent = name.map(|name| name.parent()).transpose()?.flatten();
    let owners: Vec<_> = parent.iter().filter_map(Parent::owner).collect();
    let writes = [Write::Insert { key: key.clone(), record }].into_iter().chain(links).collect();
    Ok(stores.commit_for(&scope, &owners, writes, now).await?.unless_deleted()?.is_applied())
}

fn read(stores: &Stores, kind: Kind, fields: &Map<String, Value>) -> Result<(Key, Record)> {
    let wrong = |name: &str| Error::invalid(format!("{name} is malformed"));
    let bytes = |name: &str| Base64UrlUnpadded::decode_vec(&text(fields, name)?).map_err(|_| wrong(name));
    let key = Key::decode(kind, &bytes("key")?).map_err(|_| wrong("key"))?;
    let version = u128::from_str_radix(&text(fields, "version")?, 16).map_err(|_| wrong("version"))?;
    let expires_at = number(fields, "expires_at")?.map(Timestamp::from_millis).transpose()?;
    let record = Record {
        value: bytes("value")?.into(),
        version: Version::from_bytes(version.to_be_bytes()),
        expires_at: expires_at.unwrap_or(Timestamp::NEVER),
    };
    let given = bytes("mac")?;
    let (id, given) = given.split_first_chunk().ok_or_else(|| wrong("mac"))?;
    let id = KeyId::from_bytes(*id);
    let expires = record.expires_at.as_millis().to_be_bytes();
    let parts: [&[u8]; 5] =
        [&[kind.code()], key.as_bytes(), record.version.as_bytes(), &expires, &record.value];
    if !stores.keyring().verify(id, PURPOSE, &parts, given) {
        return Err(Error::invalid("it was not exported with this keyring, or was changed since"));
    }
    Ok((key, record))
}
