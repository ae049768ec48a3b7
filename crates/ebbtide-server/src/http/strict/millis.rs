//! Members in milliseconds.

use std::fmt;

use serde::Deserializer;
use serde::de::Visitor;

/// Value in milliseconds. A [`Ttl`](ebbtide::Ttl) takes a newtype for milliseconds.
pub(super) struct Millis<D>(pub(super) D);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Millis<D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        visitor.visit_newtype_struct(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_option(OptionalMillis(visitor))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct OptionalMillis<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for OptionalMillis<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Millis(inner))
    }
}
