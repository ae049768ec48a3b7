//! Confirmation keys and resources: the key that a token is bound to, and the servers that it is meant for.

use minicbor::{Decode, Encode};
use serde::Deserialize;

use super::field::Field;
use crate::model::error::{Error, Result};
use crate::stores::check_optional;
use crate::stores::grants::MAX_THUMBPRINT_BYTES;

/// Key that a token is bound to: `cnf` of RFC 7800, by the thumbprint of a DPoP key (RFC 9449 §6) or of a client
/// certificate (RFC 8705 §3.1).
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Encode, Decode)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(try_from = "Members", deny_unknown_fields)]
#[non_exhaustive]
pub struct Confirmation {
    /// Thumbprint of a DPoP key.
    #[n(0)]
    pub jkt: Option<String>,
    /// SHA-256 thumbprint of a client certificate.
    #[serde(rename = "x5t#S256")]
    #[n(1)]
    pub x5t_s256: Option<String>,
}

/// Members of `cnf`. One of them is required: without a key, what is issued would be bound to nothing.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members {
    jkt: Option<String>,
    #[serde(rename = "x5t#S256")]
    x5t_s256: Option<String>,
}

impl TryFrom<Members> for Confirmation {
    type Error = Error;

    fn try_from(Members { jkt, x5t_s256 }: Members) -> Result<Self> {
        let cnf = Self { jkt, x5t_s256 };
        if cnf.is_none() {
            return Err(Error::invalid("cnf names a key, by jkt or x5t#S256").about("cnf"));
        }
        Ok(cnf)
    }
}

impl Confirmation {
    /// Confirmation by the thumbprint of a DPoP key.
    pub fn jkt(jkt: impl Into<String>) -> Self {
        Self { jkt: Some(jkt.into()), x5t_s256: None }
    }

    /// Confirmation by the SHA-256 thumbprint of a client certificate.
    pub fn x5t_s256(x5t_s256: impl Into<String>) -> Self {
        Self { jkt: None, x5t_s256: Some(x5t_s256.into()) }
    }

    /// Joins the two members of a request that name a key. Returns `Invalid` if they contradict each other.
    pub(crate) fn of(dpop_jkt: Option<&String>, cnf: Option<&Self>) -> Result<Self> {
        let mut joined = cnf.cloned().unwrap_or_default();
        if let Some(dpop_jkt) = dpop_jkt
            && joined.jkt.get_or_insert_with(|| dpop_jkt.clone()) != dpop_jkt
        {
            return Err(Error::invalid("dpop_jkt and cnf.jkt name different keys").about("cnf"));
        }
        check_optional("jkt", joined.jkt.as_deref(), MAX_THUMBPRINT_BYTES)?;
        check_optional("x5t#S256", joined.x5t_s256.as_deref(), MAX_THUMBPRINT_BYTES)?;
        Ok(joined)
    }

    /// Returns whether no key is named.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.jkt.is_none() && self.x5t_s256.is_none()
    }

    /// Checks a presented key against this binding: what is bound must be presented; what is not bound may be anything.
    pub(crate) fn check(&self, presented: &Self) -> Result<(), Field> {
        if self.jkt.is_some() && presented.jkt != self.jkt {
            return Err(Field::DpopJkt);
        }
        if self.x5t_s256.is_some() && presented.x5t_s256 != self.x5t_s256 {
            return Err(Field::Certificate);
        }
        Ok(())
    }

    /// Adds what `other` is bound to, where this has nothing.
    pub(crate) fn or(mut self, other: &Self) -> Self {
        self.jkt = self.jkt.or_else(|| other.jkt.clone());
        self.x5t_s256 = self.x5t_s256.or_else(|| other.x5t_s256.clone());
        self
    }
}

/// Resources that a token is meant for (RFC 8707): one URI, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Encode, Decode)]
#[serde(try_from = "OneOrMany")]
#[cbor(transparent)]
pub struct Resources(#[n(0)] Vec<String>);

#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a URI or a list of URIs")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl TryFrom<OneOrMany> for Resources {
    type Error = Error;

    fn try_from(resources: OneOrMany) -> Result<Self> {
        match resources {
            OneOrMany::One(one) => Self::new([one]),
            OneOrMany::Many(many) => Self::new(many),
        }
    }
}

impl Resources {
    /// Most resources of one token.
    pub const MAX: usize = 16;

    /// Longest URI of a resource, in bytes.
    pub const MAX_URI_BYTES: usize = 2_048;

    /// Checks 1 to 16 absolute URIs without a fragment (RFC 8707 §2).
    pub fn new<T: Into<String>>(resources: impl IntoIterator<Item = T>) -> Result<Self> {
        let resources: Vec<String> = resources.into_iter().map(Into::into).collect();
        if resources.is_empty() || resources.len() > Self::MAX {
            return Err(Error::invalid(format!("resource names 1 to {} URIs", Self::MAX)).about("resource"));
        }
        for uri in &resources {
            let scheme = uri.split_once(':').map_or("", |(scheme, _)| scheme);
            let is_absolute = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
            if !is_absolute || uri.contains('#') || uri.len() > Self::MAX_URI_BYTES {
                return Err(Error::invalid(format!(
                    "a resource is an absolute URI without a fragment, of at most {} bytes",
                    Self::MAX_URI_BYTES
                )));
            }
        }
        Ok(Self(resources))
    }

    /// URIs of the resources.
    #[must_use]
    pub fn uris(&self) -> &[String] {
        &self.0
    }

    /// Returns whether every resource is one of `others`.
    pub(crate) fn within(&self, others: &Self) -> bool {
        self.0.iter().all(|uri| others.0.contains(uri))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_is_an_absolute_uri_without_a_fragment() {
        for good in ["https://api.example", "https://api.example/v1?x=y", "urn:example:api"] {
            assert!(Resources::new([good]).is_ok(), "{good}");
        }
        for bad in ["", "api.example", "/v1", "https://api.example/#part", ":x", "1a:x"] {
            assert!(Resources::new([bad]).is_err(), "{bad}");
        }
        assert!(Resources::new(Vec::<String>::new()).is_err());
    }

    #[test]
    fn what_is_bound_must_be_presented() {
        let both = Confirmation::jkt("a").or(&Confirmation::x5t_s256("b"));
        assert_eq!(both.check(&both), Ok(()));
        assert_eq!(both.check(&Confirmation::jkt("a")), Err(Field::Certificate));
        assert_eq!(both.check(&Confirmation::x5t_s256("b")), Err(Field::DpopJkt));
        assert_eq!(Confirmation::default().check(&both), Ok(()));
        let (jkt, cnf) = ("a".to_owned(), Confirmation::jkt("b"));
        assert!(Confirmation::of(Some(&jkt), Some(&cnf)).is_err());
    }
}
