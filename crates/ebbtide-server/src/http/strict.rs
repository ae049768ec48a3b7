//! Strict deserialization of request bodies and queries.
//!
//! A wrapper around any deserializer. It notes where an error happened, refuses arrays where an object is expected
//! (serde accepts both for a struct), and reads `ttl_ms` wherever a struct has `ttl_seconds`.

mod millis;
mod variants;

use std::cell::RefCell;
use std::fmt;

use serde::Deserializer;
use serde::de::value::StrDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, EnumAccess, Error as _, MapAccess, SeqAccess, Unexpected, Visitor,
};

use millis::Millis;
use variants::Variants;

/// Deserializes `T`. If it fails, `notes` has the place.
pub(crate) fn deserialize<'de, T, D>(inner: D, notes: &Notes) -> Result<T, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    T::deserialize(Strict { inner, notes })
}

/// Place of an error.
#[derive(Debug, Default)]
pub(crate) struct Notes(RefCell<ErrorLocation>);

/// Place of an error in a document, and the members of the struct that it happened in.
#[derive(Debug, Default)]
pub(crate) struct ErrorLocation {
    /// Steps from the innermost to the outermost.
    steps: Vec<PathSegment>,
    pub(crate) members: Option<&'static [&'static str]>,
    /// Name of a member that the struct does not have.
    pub(crate) unknown: Option<String>,
    /// Forms of the value that the error happened in, if it has several.
    pub(crate) forms: Option<&'static [&'static str]>,
}

#[derive(Debug, Clone, Copy)]
enum PathSegment {
    Member(&'static str),
    Index(usize),
    /// Key of a map. It is data of the caller, and is not repeated.
    Key,
}

impl Notes {
    pub(crate) fn into_place(self) -> ErrorLocation {
        self.0.into_inner()
    }

    fn step(&self, step: PathSegment) {
        self.0.borrow_mut().steps.push(step);
    }

    fn within(&self, members: Option<&'static [&'static str]>) {
        let mut place = self.0.borrow_mut();
        if place.steps.is_empty() && place.members.is_none() {
            place.members = members;
        }
    }

    fn of_forms(&self, forms: &'static [&'static str]) {
        let mut place = self.0.borrow_mut();
        if place.steps.is_empty() && place.members.is_none() {
            place.forms.get_or_insert(forms);
        }
    }

    fn unknown(&self, name: &str) {
        self.0.borrow_mut().unknown = Some(name.to_owned());
    }
}

impl ErrorLocation {
    /// Path of the member, such as `items[3].jti`; empty for the document itself.
    pub(crate) fn path(&self) -> String {
        use fmt::Write as _;
        let mut path = String::new();
        for step in self.steps.iter().rev() {
            let dot = if path.is_empty() { "" } else { "." };
            let written = match step {
                PathSegment::Member(name) => write!(path, "{dot}{name}"),
                PathSegment::Index(index) => write!(path, "[{index}]"),
                PathSegment::Key => write!(path, "{dot}*"),
            };
            debug_assert!(written.is_ok(), "a string takes any text");
        }
        path
    }
}

struct Strict<'n, D> {
    inner: D,
    notes: &'n Notes,
}

macro_rules! forward {
    ($($method:ident($($name:ident: $type:ty),*);)+) => {
        $(fn $method<V: Visitor<'de>>(self, $($name: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            self.inner.$method($($name,)* Watch::new(visitor, self.notes, None))
        })+
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<'_, D> {
    type Error = D::Error;

    forward! {
        deserialize_any();
        deserialize_bool();
        deserialize_i8();
        deserialize_i16();
        deserialize_i32();
        deserialize_i64();
        deserialize_i128();
        deserialize_u8();
        deserialize_u16();
        deserialize_u32();
        deserialize_u64();
        deserialize_u128();
        deserialize_f32();
        deserialize_f64();
        deserialize_char();
        deserialize_str();
        deserialize_string();
        deserialize_bytes();
        deserialize_byte_buf();
        deserialize_option();
        deserialize_unit();
        deserialize_unit_struct(name: &'static str);
        deserialize_newtype_struct(name: &'static str);
        deserialize_seq();
        deserialize_tuple(len: usize);
        deserialize_tuple_struct(name: &'static str, len: usize);
        deserialize_map();
        deserialize_identifier();
        deserialize_ignored_any();
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let notes = self.notes;
        let watch = Watch { visitor, notes, members: None, variants };
        self.inner.deserialize_enum(name, variants, watch).inspect_err(|_| notes.of_forms(variants))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        members: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let watch = Watch::new(visitor, self.notes, Some(members));
        // A visitor may take `true` for an object without members, which `deserialize_struct` would not show it.
        self.inner.deserialize_any(watch)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// Visitor that watches another one.
struct Watch<'n, V> {
    visitor: V,
    notes: &'n Notes,
    /// Members of the struct that is visited.
    members: Option<&'static [&'static str]>,
    /// Variants of the enum that is visited.
    variants: &'static [&'static str],
}

impl<'n, V> Watch<'n, V> {
    fn new(visitor: V, notes: &'n Notes, members: Option<&'static [&'static str]>) -> Self {
        Self { visitor, notes, members, variants: &[] }
    }
}

macro_rules! visit {
    ($($method:ident($type:ty);)+) => {
        $(fn $method<E: serde::de::Error>(self, value: $type) -> Result<V::Value, E> {
            self.visitor.$method(value)
        })+
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Watch<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.members.is_some() { f.write_str("an object") } else { self.visitor.expecting(f) }
    }

    visit! {
        visit_bool(bool);
        visit_i8(i8);
        visit_i16(i16);
        visit_i32(i32);
        visit_i64(i64);
        visit_i128(i128);
        visit_u8(u8);
        visit_u16(u16);
        visit_u32(u32);
        visit_u64(u64);
        visit_u128(u128);
        visit_f32(f32);
        visit_f64(f64);
        visit_char(char);
        visit_str(&str);
        visit_borrowed_str(&'de str);
        visit_string(String);
        visit_bytes(&[u8]);
        visit_borrowed_bytes(&'de [u8]);
        visit_byte_buf(Vec<u8>);
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(Strict { inner, notes: self.notes })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_newtype_struct(Strict { inner, notes: self.notes })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        if self.members.is_some() {
            return Err(A::Error::invalid_type(Unexpected::Seq, &self));
        }
        self.visitor.visit_seq(Items { inner, notes: self.notes, index: 0 })
    }

    fn visit_map<A: MapAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        let (notes, members) = (self.notes, self.members);
        let entries = Entries { inner, notes, members, step: PathSegment::Key, millis: false };
        self.visitor.visit_map(entries).inspect_err(|_| notes.within(members))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, inner: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(Variants { inner, notes: self.notes, names: self.variants })
    }
}

struct Items<'n, A> {
    inner: A,
    notes: &'n Notes,
    index: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Items<'_, A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        let notes = self.notes;
        let item = self.inner.next_element_seed(Below { seed, notes, millis: false });
        if item.is_err() {
            notes.step(PathSegment::Index(self.index));
        }
        self.index += 1;
        item
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

struct Entries<'n, A> {
    inner: A,
    notes: &'n Notes,
    members: Option<&'static [&'static str]>,
    /// Step to the present value.
    step: PathSegment,
    /// True if the present value is in milliseconds, for a member in seconds.
    millis: bool,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Entries<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        let Some(members) = self.members else { return self.inner.next_key_seed(seed) };
        self.millis = false;
        let name = Name { seed, notes: self.notes, members, step: &mut self.step, millis: &mut self.millis };
        self.inner.next_key_seed(name)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        let (notes, step, millis) = (self.notes, self.step, self.millis);
        self.inner.next_value_seed(Below { seed, notes, millis }).inspect_err(|_| notes.step(step))
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// Value below the present one.
struct Below<'n, T> {
    seed: T,
    notes: &'n Notes,
    millis: bool,
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Below<'_, T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<T::Value, D::Error> {
        if self.millis {
            self.seed.deserialize(Millis(inner))
        } else {
            self.seed.deserialize(Strict { inner, notes: self.notes })
        }
    }
}

/// Name of a member.
struct Name<'n, K> {
    seed: K,
    notes: &'n Notes,
    members: &'static [&'static str],
    step: &'n mut PathSegment,
    millis: &'n mut bool,
}

impl<'de, K: DeserializeSeed<'de>> DeserializeSeed<'de> for Name<'_, K> {
    type Value = K::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<K::Value, D::Error> {
        inner.deserialize_identifier(self)
    }
}

impl<'de, K: DeserializeSeed<'de>> Visitor<'de> for Name<'_, K> {
    type Value = K::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<K::Value, E> {
        let found = self.members.iter().find(|member| **member == name).copied();
        let found = found.or_else(|| {
            let seconds = in_seconds(name, self.members);
            *self.millis = seconds.is_some();
            seconds
        });
        *self.step = found.map_or(PathSegment::Key, PathSegment::Member);
        let key = self.seed.deserialize(StrDeserializer::new(found.unwrap_or(name)));
        // A struct may ignore unknown members.
        if found.is_none() && key.is_err() {
            self.notes.unknown(name);
        }
        key
    }
}

/// Member in seconds of which `name` is the form in milliseconds.
fn in_seconds(name: &str, members: &'static [&'static str]) -> Option<&'static str> {
    let stem = name.strip_suffix("ttl_ms")?;
    members.iter().copied().find(|member| member.strip_suffix("ttl_seconds") == Some(stem))
}
