//! Move of approvals to another scope.

use super::Approvals;
use crate::model::error::Result;
use crate::model::key::Key;
use crate::stores::shared::bonds::{Bonds, Moves, first_name};

impl Moves for Approvals {
    fn bonds(key: &Key, _: &[u8]) -> Result<Bonds> {
        first_name(key).map(Bonds::of_owner)
    }
}
