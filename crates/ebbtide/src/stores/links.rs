//! Which records the index records list, for an engine that reclaims each record on its own.

use super::grants::GrantId;
use crate::backend::Target;
use crate::digest::Digest;
use crate::key::{Key, Part};
use crate::kind::Kind;
use crate::record::Record;

/// The index kinds whose records may outlive what they list. Each was written in one commit with it.
pub(crate) const LINKS: &[(Kind, Target)] =
    &[(Kind::GrantIndex, listed), (Kind::SessionIndex, listed), (Kind::ClientIndex, listed)];

/// The record whose id stands in the sort part of the index record's key.
fn listed(index: &Key, _: &Record) -> Option<Key> {
    let sort = index.sort();
    let [Part::Bytes(id)] = sort.as_slice() else { return None };
    let kind = match (index.kind(), id.len()) {
        (Kind::GrantIndex, GrantId::BYTES) => Kind::Grant,
        (Kind::GrantIndex, Digest::BYTES) => Kind::AccessToken,
        (Kind::SessionIndex, Digest::BYTES) => Kind::Session,
        (Kind::ClientIndex, Digest::BYTES) => Kind::Client,
        _ => return None,
    };
    Key::new(kind, &index.scope(), &[id.as_ref().into()], &[]).ok()
}
