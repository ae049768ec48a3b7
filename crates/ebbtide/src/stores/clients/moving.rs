//! Move of clients to another scope.

use super::{Clients, StoredClient};
use crate::model::codec;
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::stores::shared::bonds::{Bonds, Companions, Moves};

impl Moves for Clients {
    fn bonds(_: &Key, value: &[u8]) -> Result<Bonds> {
        let client: StoredClient = codec::decode(value)?;
        Ok(Bonds {
            owners: client.owner.into_iter().collect(),
            of_client: Some(client.client_id),
            ..Bonds::default()
        })
    }

    async fn companions(&self, key: &Key, record: &Record) -> Result<Companions> {
        if key.kind() != Kind::Client {
            return Ok(Companions::default());
        }
        let client: StoredClient = codec::decode(&record.value)?;
        let (_, digest) = self.key(&client.client_id)?;
        // The noted use of the client is that of the other scope.
        self.forget_use(&digest);
        let entry = client.owner.map(|owner| self.index_key(&owner, &digest)).transpose()?;
        Ok(Companions::of(entry))
    }
}
