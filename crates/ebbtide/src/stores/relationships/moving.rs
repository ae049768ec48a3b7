//! Move of relationships to another scope.

use super::{Relationships, edge_of, reverse_of};
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::stores::shared::bonds::{Bonds, Companions, Moves};

impl Moves for Relationships {
    fn bonds(key: &Key, _: &[u8]) -> Result<Bonds> {
        let edge = edge_of(key)?;
        let owners =
            if edge.subject == edge.object { vec![edge.subject] } else { vec![edge.subject, edge.object] };
        Ok(Bonds { owners, ..Bonds::default() })
    }

    async fn companions(&self, key: &Key, _: &Record) -> Result<Companions> {
        Ok(match key.kind() {
            Kind::Relationship => Companions::of([reverse_of(key)?]),
            _ => Companions::default(),
        })
    }
}
