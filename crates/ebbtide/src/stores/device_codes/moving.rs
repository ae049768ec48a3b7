//! Move of device codes to another scope: a user code takes its device code along.

use super::device::{Device, DeviceState};
use super::{DeviceCodes, USER_CODES};
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::Result;
use crate::model::key::{Key, Part};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::stores::shared::bonds::{Bonds, Companions, Moves};
use crate::stores::shared::epochs::Stamp;

impl Moves for DeviceCodes {
    fn bonds(_: &Key, value: &[u8]) -> Result<Bonds> {
        let device: Device = codec::decode(value)?;
        Ok(match &device.state {
            DeviceState::Pending => {
                Bonds { client: Some(device.client_id.clone()), stamp: device.stamp(), ..Bonds::default() }
            }
            DeviceState::Approved(subject) => {
                Bonds::of_parties(subject, &device.client_id, None, device.stamp())
            }
            DeviceState::Denied | DeviceState::Redeemed(_) => Bonds::default(),
        })
    }

    fn restamped(value: &[u8], stamp: Stamp, _: &Scope) -> Result<Option<Vec<u8>>> {
        let device: Device = codec::decode(value)?;
        Ok(Some(codec::encode(&Device { stamp: Some(stamp), ..device })))
    }

    async fn companions(&self, key: &Key, record: &Record) -> Result<Companions> {
        Ok(match key.kind() {
            Kind::UserCode => Companions::of(device_of(key, record)),
            _ => Companions::default(),
        })
    }
}

/// Device code that a user code points to. Counts of wrong guesses are kept beside the user codes, and point to nothing.
pub(super) fn device_of(index: &Key, record: &Record) -> Option<Key> {
    let is_code = index.partition().first() == Some(&Part::from(USER_CODES));
    let digest = Digest::from_bytes(record.value.as_ref().try_into().ok()?);
    let key = Key::new(Kind::DeviceCode, &index.scope(), &[digest.part()], &[]);
    key.ok().filter(|_| is_code)
}
