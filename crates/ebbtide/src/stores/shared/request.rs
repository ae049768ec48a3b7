//! Helpers of the request types, which routes deserialize from HTTP bodies.

use std::fmt::Display;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};

/// Consuming setters of a request's optional members.
macro_rules! setters {
    ($($(#[$doc:meta])* $member:ident: $type:ty,)+) => {$(
        $(#[$doc])*
        pub fn $member(mut self, $member: impl Into<$type>) -> Self {
            self.$member = Some($member.into());
            self
        }
    )+};
}
pub(crate) use setters;

/// Deserializes a member whose `null` is a value: only a member that is absent is `None`.
pub(crate) fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    member: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(member).map(Some)
}

/// Deserializes a member from its text form.
pub(crate) fn parsed<'de, D: Deserializer<'de>, T: FromStr<Err: Display>>(member: D) -> Result<T, D::Error> {
    String::deserialize(member)?.parse().map_err(Error::custom)
}
