//! Which record an index record leads to, for an engine whose own TTL may delete one long before the other.

use crate::backend::IndexTarget;
use crate::model::digest::Digest;
use crate::model::key::{Key, Part};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::stores::grants::GrantId;

/// Every kind of index. Each is written in one commit with the record that it leads to, so that one whose record is
/// gone leads to nothing and never will.
pub const INDEXES: [(Kind, IndexTarget); 4] = [
    (Kind::GrantIndex, grant_or_token),
    (Kind::SessionIndex, |index, _| listed(Kind::Session, index)),
    (Kind::ClientIndex, |index, _| listed(Kind::Client, index)),
    (Kind::UserCode, device_code),
];

/// The index lists both: ids of grants, and digests of tokens without one.
fn grant_or_token(index: &Key, _: &Record) -> Option<Key> {
    let sort = index.sort();
    let [Part::Bytes(id)] = sort.as_slice() else { return None };
    let kind = match id.len() {
        GrantId::BYTES => Kind::Grant,
        Digest::BYTES => Kind::AccessToken,
        _ => return None,
    };
    listed(kind, index)
}

fn listed(kind: Kind, index: &Key) -> Option<Key> {
    Key::new(kind, &index.scope(), &index.sort(), &[]).ok()
}

/// Counts of guesses stand beside the user codes, and lead nowhere.
fn device_code(index: &Key, record: &Record) -> Option<Key> {
    let is_code = index.partition().first() == Some(&Part::from(crate::stores::device_codes::USER_CODES));
    let digest = Digest::from_bytes(record.value.as_ref().try_into().ok()?);
    let key = Key::new(Kind::DeviceCode, &index.scope(), &[digest.part()], &[]);
    key.ok().filter(|_| is_code)
}
