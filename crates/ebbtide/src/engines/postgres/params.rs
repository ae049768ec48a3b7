//! Conversion of parameters and rows.

use std::error::Error as StdError;
use std::fmt;

use bytes::{Bytes, BytesMut};
use tokio_postgres::Row;
use tokio_postgres::types::{IsNull, ToSql, Type, accepts, to_sql_checked};

use super::wire::explain;
use crate::model::error::{Error, Result};
use crate::model::record::{Record, Version};
use crate::model::time::Timestamp;

/// Bytes that do not print: the driver logs parameters.
#[derive(Clone, Copy)]
pub(super) struct Bytea<'a>(pub(super) &'a [u8]);

impl fmt::Debug for Bytea<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytea({} bytes)", self.0.len())
    }
}

impl ToSql for Bytea<'_> {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        self.0.to_sql(ty, out)
    }

    accepts!(BYTEA);
    to_sql_checked!();
}

/// A parameter that names its type, so that a statement needs no round trip to learn it.
pub(super) trait Param: ToSql + Sync {
    fn of_type(&self) -> Type;

    fn as_sql(&self) -> &(dyn ToSql + Sync);
}

pub(super) type Params<'a> = &'a [&'a dyn Param];

macro_rules! param {
    ($($type:ty => $name:ident)+) => {
        $(impl Param for $type {
            fn of_type(&self) -> Type {
                Type::$name
            }

            fn as_sql(&self) -> &(dyn ToSql + Sync) {
                self
            }
        })+
    };
}

param! {
    i64 => INT8
    Bytea<'_> => BYTEA
    Vec<i16> => INT2_ARRAY
    Vec<i64> => INT8_ARRAY
    Vec<Option<i64>> => INT8_ARRAY
    Vec<Bytea<'_>> => BYTEA_ARRAY
    Vec<Option<Bytea<'_>>> => BYTEA_ARRAY
}

/// Encodes a time.
pub(super) fn millis(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Decodes a time.
pub(super) fn timestamp(stored: i64) -> Result<Timestamp> {
    u64::try_from(stored).ok().map_or_else(
        || Err(malformed("a time")),
        |millis| Timestamp::from_stored(millis).map_err(|error| malformed("a time").caused_by(error)),
    )
}

/// Decodes the record in these columns of a row: value, version and expiry.
pub(super) fn record(row: &Row, first: usize) -> Result<Record> {
    let value: &[u8] = column(row, first)?;
    let version: &[u8] = column(row, first + 1)?;
    let version = version.try_into().map_err(|_| malformed("a version"))?;
    Ok(Record {
        value: Bytes::copy_from_slice(value),
        version: Version::from_bytes(version),
        expires_at: timestamp(column(row, first + 2)?)?,
    })
}

/// Decodes a column of a row.
pub(super) fn column<'a, T>(row: &'a Row, index: usize) -> Result<T>
where
    T: tokio_postgres::types::FromSql<'a>,
{
    row.try_get(index).map_err(|error| malformed("a column").caused_by(explain(&error)))
}

/// Returns the only row of an answer that always has one.
pub(super) fn only(rows: &[Row]) -> Result<&Row> {
    rows.first().ok_or_else(|| malformed("an answer"))
}

pub(super) fn malformed(what: &str) -> Error {
    Error::corrupt(format!("{what} in the database is malformed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_does_not_print_its_bytes() {
        assert_eq!(format!("{:?}", [Bytea(b"hunter2")]), "[Bytea(7 bytes)]");
    }

    #[test]
    fn times_are_read_as_they_are_stored() {
        for time in [Timestamp::ZERO, Timestamp::MAX, Timestamp::NEVER] {
            assert_eq!(timestamp(millis(time)).unwrap(), time);
        }
        assert!(timestamp(-1).is_err());
        assert!(timestamp(i64::MAX - 1).is_err());
    }
}
