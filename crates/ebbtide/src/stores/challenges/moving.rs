//! Move of challenges to another scope: those of one purpose and subject go together.

use super::Challenges;
use super::stored::{Index, StoredChallenge};
use crate::model::codec;
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::stores::shared::bonds::{Bonds, Companions, Moves};

impl Moves for Challenges {
    fn bonds(_: &Key, value: &[u8]) -> Result<Bonds> {
        Ok(Bonds::of_owner(codec::decode::<StoredChallenge>(value)?.subject))
    }

    async fn companions(&self, key: &Key, record: &Record) -> Result<Companions> {
        if key.kind() != Kind::ChallengeIndex {
            return Ok(Companions::default());
        }
        let index: Index = codec::decode(&record.value)?;
        let keys = index.listed.iter().map(|listed| self.key(listed.id()));
        Ok(Companions::of(keys.collect::<Result<Vec<_>>>()?))
    }
}
