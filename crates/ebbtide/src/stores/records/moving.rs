//! Move of records to another scope, with their second keys.

use super::Records;
use super::belonging::collection_of;
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::stores::shared::bonds::{Companions, Moves};

impl Moves for Records {
    async fn companions(&self, key: &Key, record: &Record) -> Result<Companions> {
        if key.kind() != Kind::Record {
            return Ok(Companions::default());
        }
        let (naming, collection) = (self.naming().await?, collection_of(key)?);
        let state = self.stores.open_record(key, record.clone())?.state;
        let keys = state.keys.iter().map(|second| naming.second_key(&collection, second));
        let group = state.group.as_deref().map(|group| naming.group(&collection, group)).transpose()?;
        Ok(Companions { keys: keys.collect::<Result<_>>()?, markers: group.into_iter().collect() })
    }
}
