//! Move of attributes to another scope.

use super::Attributes;
use crate::model::error::Result;
use crate::model::key::Key;
use crate::stores::shared::bonds::{Bonds, Moves, first_name};

impl Moves for Attributes {
    fn bonds(key: &Key, _: &[u8]) -> Result<Bonds> {
        first_name(key).map(Bonds::of_owner)
    }
}
