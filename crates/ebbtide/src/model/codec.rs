//! Encoding of the typed stores' values: a format byte, then CBOR with numbered fields, so that fields can be added
//! later and old records stay readable.

use minicbor::{Decode, Encode};

use crate::model::error::{Error, Result};

/// Format that this build writes. Any other format is corrupt.
const FORMAT: u8 = 1;

/// Room for most values, so that their buffers do not grow while they are encoded.
const USUAL_BYTES: usize = 128;

pub(crate) fn encode<T: Encode<()>>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    bytes.push(FORMAT);
    minicbor::encode(value, &mut bytes).expect("a vector takes all that is written to it");
    bytes
}

pub(crate) fn decode<'b, T: Decode<'b, ()>>(bytes: &'b [u8]) -> Result<T> {
    match bytes.split_first() {
        Some((&FORMAT, body)) => minicbor::decode(body)
            .map_err(|error| Error::corrupt("stored value cannot be decoded").caused_by(error)),
        Some((format, _)) => {
            Err(Error::corrupt(format!("stored value has format {format}; this build reads {FORMAT}")))
        }
        None => Err(Error::corrupt("stored value is empty")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Encode, Decode)]
    struct OldLayout {
        #[n(0)]
        name: String,
    }

    #[derive(Debug, PartialEq, Encode, Decode)]
    struct New {
        #[n(0)]
        name: String,
        #[n(1)]
        more: Option<u64>,
    }

    #[test]
    fn a_field_can_be_added() {
        let old = encode(&OldLayout { name: "a".into() });
        assert_eq!(decode::<New>(&old).unwrap(), New { name: "a".into(), more: None });
        let new = encode(&New { name: "a".into(), more: Some(1) });
        assert_eq!(decode::<OldLayout>(&new).unwrap(), OldLayout { name: "a".into() });
    }

    #[test]
    fn what_is_not_ours_is_corrupt() {
        for bytes in [&b""[..], b"\x01", b"\x02\x81\x61a", b"\x01\xff\xff"] {
            assert_eq!(decode::<OldLayout>(bytes).unwrap_err().kind(), crate::ErrorKind::Corrupt);
        }
    }
}
