//! Storage engines, and opening one by its URL.

pub mod blocking;
#[cfg(feature = "dynamodb")]
pub mod dynamodb;
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
pub mod embedded;
#[cfg(feature = "fjall")]
mod fjall;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "rocksdb")]
mod rocksdb;

use std::sync::Arc;

use crate::backend::Backend;
use crate::model::error::{Error, Result};

/// The schemes that [`open`] knows, whether or not this build has their engine.
const SCHEMES: &[(&str, &str)] = &[
    ("memory:", "memory:"),
    ("fjall:", "fjall:PATH"),
    ("rocksdb:", "rocksdb:PATH"),
    ("postgres:", "postgres://…"),
    ("postgresql:", "postgresql://…"),
    ("dynamodb:", "dynamodb:TABLE?region=…&endpoint=…"),
];

/// Opens the store that `url` names. An unknown scheme is answered with the known ones; the URL itself is not
/// repeated, since it may hold a password.
pub async fn open(url: &str) -> Result<Arc<dyn Backend>> {
    let Some((scheme, _)) = SCHEMES.iter().find(|(scheme, _)| url.starts_with(scheme)) else {
        let forms: Vec<_> = SCHEMES.iter().map(|(_, form)| *form).collect();
        return Err(Error::invalid(format!("no engine for this store URL; known are {}", forms.join(", "))));
    };
    match *scheme {
        "memory:" if url == "memory:" => Ok(Arc::new(memory::Memory::default())),
        #[cfg(feature = "fjall")]
        "fjall:" => Ok(Arc::new(fjall::open(&url["fjall:".len()..])?)),
        #[cfg(feature = "rocksdb")]
        "rocksdb:" => Ok(Arc::new(rocksdb::open(&url["rocksdb:".len()..])?)),
        "memory:" => Err(Error::invalid("the memory engine's URL is memory: and nothing more")),
        #[cfg(feature = "dynamodb")]
        "dynamodb:" => {
            let store = dynamodb::DynamoDb::open(url, crate::model::rng::SystemRng).await?;
            // An engine knows nothing of stores; who opens one for them says what their indexes lead to.
            let indexes = crate::stores::registry::indexes();
            Ok(Arc::new(indexes.fold(store, |store, (index, leads_to)| store.reconciling(index, leads_to))))
        }
        #[cfg(feature = "postgres")]
        "postgres:" | "postgresql:" => Ok(Arc::new(postgres::open(url).await?)),
        scheme => {
            let name = scheme.trim_end_matches(':');
            Err(Error::invalid(format!("this build has no {name} engine: build it with that feature")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unknown_scheme_is_answered_with_the_known_ones() {
        let error = open("redis://user:hunter2@host").await.err().unwrap();
        for scheme in ["memory:", "fjall:", "rocksdb:", "postgres:", "dynamodb:"] {
            assert!(error.message().contains(scheme), "{error}");
        }
        assert!(!error.message().contains("hunter2"));
    }

    #[tokio::test]
    async fn memory_opens_and_takes_no_path() {
        assert_eq!(open("memory:").await.unwrap().engine(), "memory");
        assert!(open("memory:/tmp").await.is_err());
    }
}
