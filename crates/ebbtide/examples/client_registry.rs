//! A registry of clients on attributes: each owner's clients in a bucket of its own, and one index for all, which
//! says whose a client is. Record and index are written in one commit, so that there is never one without the other.
//!
//! ```text
//! cargo run --example client_registry [STORE]
//! ```

use ebbtide::stores::attributes::{Bucket, presets};
use ebbtide::{Ebbtide, Result, Scoped};
use serde_json::{Value, json};

struct ClientRegistry {
    acme: Scoped,
}

impl ClientRegistry {
    fn clients(&self, owner: &str) -> Result<Bucket> {
        self.acme.attributes().preset(&presets::CLIENTS, Some(owner))
    }

    fn index(&self) -> Result<Bucket> {
        self.acme.attributes().preset(&presets::CLIENT_INDEX, None)
    }

    /// Registers a client; false if that identifier is taken, whoever by.
    async fn register(&self, owner: &str, id: &str, client: Value) -> Result<bool> {
        let changes = self.acme.attributes().changes();
        let changes = changes.insert(&self.index()?, id, json!(owner));
        let changes = changes.insert(&self.clients(owner)?, id, client);
        Ok(changes.commit().await?.is_applied())
    }

    /// The client and its owner.
    async fn find(&self, id: &str) -> Result<Option<(String, Value)>> {
        let Some(entry) = self.index()?.get(id).await? else { return Ok(None) };
        let Some(owner) = entry.data.as_str() else { return Ok(None) };
        let client = self.clients(owner)?.get(id).await?;
        Ok(client.map(|client| (owner.to_owned(), client.data)))
    }

    /// Deletes a client and its index entry; false if `owner` has no such client.
    async fn delete(&self, owner: &str, id: &str) -> Result<bool> {
        let (clients, index) = (self.clients(owner)?, self.index()?);
        let (Some(client), Some(entry)) = (clients.get(id).await?, index.get(id).await?) else {
            return Ok(false);
        };
        // By version: if someone else has deleted it, and perhaps registered it anew, this deletes nothing.
        let changes = self.acme.attributes().changes();
        let changes = changes.remove_if(&clients, id, client.version).remove_if(&index, id, entry.version);
        Ok(changes.commit().await?.is_applied())
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let store = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let registry = ClientRegistry { acme: Ebbtide::open(&store).await?.scope("tenant:acme")? };

    let client = json!({"name": "My client", "redirect_uris": ["https://example.com/callback"]});
    println!("alice registers c1: {}", registry.register("alice", "c1", client.clone()).await?);
    println!("bob registers c1:   {}", registry.register("bob", "c1", client).await?);
    match registry.find("c1").await? {
        Some((owner, client)) => println!("c1 is {owner}'s:      {client}"),
        None => println!("c1 is nobody's"),
    }
    println!("bob deletes c1:     {}", registry.delete("bob", "c1").await?);
    println!("alice deletes c1:   {}", registry.delete("alice", "c1").await?);
    println!("c1 is gone:         {}", registry.find("c1").await?.is_none());
    Ok(())
}
