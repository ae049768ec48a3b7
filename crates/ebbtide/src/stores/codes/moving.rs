//! Move of codes to another scope.

use super::{Code, CodeState, Codes};
use crate::model::codec;
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::scope::Scope;
use crate::stores::shared::bonds::{Bonds, Moves};
use crate::stores::shared::epochs::Stamp;

/// Profile that was named for a stored code.
pub(crate) fn profile_of(value: &[u8]) -> Result<Option<String>> {
    let code: Code = codec::decode(value)?;
    Ok(match code.state {
        CodeState::Open(open) => open.profile,
        CodeState::Redeemed(..) | CodeState::Burned => code.profile,
    })
}

impl Moves for Codes {
    fn bonds(_: &Key, value: &[u8]) -> Result<Bonds> {
        let code: Code = codec::decode(value)?;
        Ok(match &code.state {
            CodeState::Open(open) => {
                Bonds::of_parties(&open.subject, &open.client_id, open.sid.as_deref(), open.stamp())
            }
            // A marker refuses, whoever has ended.
            CodeState::Redeemed(..) | CodeState::Burned => Bonds::default(),
        })
    }

    fn restamped(value: &[u8], stamp: Stamp, _: &Scope) -> Result<Option<Vec<u8>>> {
        let mut code: Code = codec::decode(value)?;
        let CodeState::Open(open) = &mut code.state else { return Ok(None) };
        open.restamp(stamp);
        Ok(Some(codec::encode(&code)))
    }
}
