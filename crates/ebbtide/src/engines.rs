//! Storage engines, and opening one by its URL.

pub mod blocking;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
pub mod embedded;
// Public for the tests of the crate.
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
#[doc(hidden)]
pub mod log;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod url;

use std::sync::Arc;

use crate::admin::Admin;
use crate::backend::IndexTarget;
use crate::model::error::Result;
use crate::model::kind::Kind;
use url::StoreUrl;

/// Opens the engine that `url` names, without keyring, clock guard or metrics: for engines' own tests and tools.
/// Applications call [`Ebbtide::open`](crate::Ebbtide::open).
///
/// `indexes` names the kinds of index record, each with a function to its target: an engine whose own TTL may delete
/// the two at different times reconciles them.
#[cfg_attr(
    not(any(feature = "fjall", feature = "rocksdb", feature = "postgres", feature = "dynamodb")),
    expect(clippy::unused_async, reason = "every engine but memory awaits")
)]
pub async fn open(url: &StoreUrl, indexes: &[(Kind, IndexTarget)]) -> Result<Arc<dyn Admin>> {
    #[cfg(not(feature = "dynamodb"))]
    let _ = indexes;
    match url {
        StoreUrl::Memory => Ok(Arc::new(memory::Memory::default())),
        #[cfg(feature = "fjall")]
        StoreUrl::Fjall(url) => Ok(Arc::new(embedded::open_fjall(url.as_str()).await?)),
        #[cfg(feature = "rocksdb")]
        StoreUrl::RocksDb(url) => Ok(Arc::new(embedded::open_rocksdb(url.as_str()).await?)),
        #[cfg(feature = "dynamodb")]
        StoreUrl::DynamoDb(url) => {
            let store = dynamodb::DynamoDb::open(url, crate::model::rng::SystemRng).await?;
            let reconciling =
                indexes.iter().fold(store, |store, (kind, target)| store.reconciling(*kind, *target));
            Ok(Arc::new(reconciling))
        }
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(url) => Ok(Arc::new(postgres::open(url, crate::model::rng::SystemRng).await?)),
        #[cfg(not(all(feature = "fjall", feature = "rocksdb", feature = "postgres", feature = "dynamodb")))]
        url => {
            let name = url.engine();
            Err(crate::model::error::Error::invalid(format!(
                "this build has no {name} engine; build it with `--features {name}`, or use a released binary"
            )))
        }
    }
}
