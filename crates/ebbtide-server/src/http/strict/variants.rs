//! Enums: the name of a variant is a step to the value in it.

use std::fmt;

use serde::Deserializer;
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, EnumAccess, VariantAccess, Visitor};

use super::{Below, Notes, PathSegment, Watch};

/// Enum whose variants are watched.
pub(super) struct Variants<'n, A> {
    pub(super) inner: A,
    pub(super) notes: &'n Notes,
    pub(super) names: &'static [&'static str],
}

impl<'de, 'n, A: EnumAccess<'de>> EnumAccess<'de> for Variants<'n, A> {
    type Error = A::Error;
    type Variant = Variant<'n, A::Variant>;

    fn variant_seed<K: DeserializeSeed<'de>>(self, seed: K) -> Result<(K::Value, Self::Variant), A::Error> {
        let mut step = PathSegment::Key;
        let name = VariantName { seed, variants: self.names, step: &mut step };
        let (key, inner) = self.inner.variant_seed(name)?;
        Ok((key, Variant { inner, notes: self.notes, step }))
    }
}

/// Variant whose value is watched.
pub(super) struct Variant<'n, A> {
    inner: A,
    notes: &'n Notes,
    step: PathSegment,
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Variant<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, A::Error> {
        let Self { inner, notes, step } = self;
        let below = Below { seed, notes, millis: false };
        inner.newtype_variant_seed(below).inspect_err(|_| notes.step(step))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        let Self { inner, notes, step } = self;
        inner.tuple_variant(len, Watch::new(visitor, notes, None)).inspect_err(|_| notes.step(step))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        members: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let Self { inner, notes, step } = self;
        let watch = Watch::new(visitor, notes, Some(members));
        inner.struct_variant(members, watch).inspect_err(|_| notes.step(step))
    }
}

/// Name of a variant.
struct VariantName<'n, K> {
    seed: K,
    variants: &'static [&'static str],
    step: &'n mut PathSegment,
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for VariantName<'_, K> {
    type Value = K::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<K::Value, D::Error> {
        inner.deserialize_identifier(self)
    }
}

impl<'de, K: DeserializeSeed<'de>> Visitor<'de> for VariantName<'_, K> {
    type Value = K::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a variant")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<K::Value, E> {
        if let Some(found) = self.variants.iter().copied().find(|variant| *variant == name) {
            *self.step = PathSegment::Member(found);
        }
        self.seed.deserialize(StrDeserializer::new(name))
    }
}
