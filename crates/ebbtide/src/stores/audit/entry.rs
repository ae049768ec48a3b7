//! Entries of the log, and their chain.

use std::fmt;

use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};

use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;
use crate::timekeeping::Now;

const MAX_ACTOR_BYTES: usize = 256;
const MAX_REASON_BYTES: usize = 1_024;

/// Refuses an actor or a reason that is empty, too long, or has control characters in it.
pub(crate) fn check_words(actor: &str, reason: &str) -> Result<()> {
    check_text("the actor of an audited change", actor, MAX_ACTOR_BYTES)?;
    check_text("the reason of an audited change", reason, MAX_REASON_BYTES)
}

pub(crate) fn check_text(what: &str, text: &str, most: usize) -> Result<()> {
    if text.trim().is_empty() || text.len() > most || text.chars().any(char::is_control) {
        return Err(Error::invalid(format!("{what} has 1 to {most} bytes and no control characters")));
    }
    Ok(())
}

/// Actor and reason of an audited change.
#[derive(Clone)]
pub struct AuditContext {
    actor: String,
    reason: String,
}

impl AuditContext {
    /// Checks an actor of up to 256 bytes and a reason of up to 1,024; neither is empty.
    pub fn new(actor: impl Into<String>, reason: impl Into<String>) -> Result<Self> {
        let (actor, reason) = (actor.into(), reason.into());
        check_words(&actor, &reason)?;
        Ok(Self { actor, reason })
    }
}

impl fmt::Debug for AuditContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AuditContext(…)")
    }
}

macro_rules! actions {
    ($($(#[$doc:meta])+ $variant:ident = $code:literal, $name:literal;)+) => {
        /// Action of an entry.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Action { $($(#[$doc])+ $variant = $code,)+ }

        impl Action {
            /// Name: lower case letters and underscores.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            const fn from_code(code: u8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

actions! {
    /// A lifetime was extended.
    Extend = 1, "extend";
    /// A policy was set or removed.
    Policy = 2, "policy";
    /// A record that gave access was revoked.
    Revoke = 3, "revoke";
    /// A scope was deleted.
    DeleteScope = 4, "delete_scope";
    /// An owner was deleted.
    DeleteOwner = 5, "delete_owner";
    /// Another operation of an operator.
    Operate = 6, "operate";
    /// A record that gives access was created.
    Create = 7, "create";
}

/// Content of a new entry.
#[derive(Clone)]
pub struct Note(Body);

impl Note {
    /// Records that `actor` did `action` for `reason`.
    pub fn new(action: Action, actor: impl Into<String>, reason: impl Into<String>) -> Result<Self> {
        let (actor, reason) = (actor.into(), reason.into());
        check_words(&actor, &reason)?;
        Ok(Self(Body {
            at: 0,
            action: action as u8,
            actor,
            reason,
            kind: None,
            target: Vec::new(),
            before: None,
            after: None,
            detail: None,
        }))
    }

    /// Records an action with its context.
    pub fn of(action: Action, context: &AuditContext) -> Result<Self> {
        Self::new(action, &context.actor, &context.reason)
    }

    pub(crate) fn revoked(context: &AuditContext) -> Result<Self> {
        Self::of(Action::Revoke, context)
    }

    /// Adds the kind and the names of the record.
    #[must_use]
    pub fn about(mut self, kind: Kind, target: Vec<String>) -> Self {
        self.0.kind = Some(kind.code());
        self.0.target = target;
        self
    }

    /// Adds the expiry before and after.
    #[must_use]
    pub fn with_expiry(mut self, before: Timestamp, after: Timestamp) -> Self {
        self.0.before = Some(before.as_millis());
        self.0.after = Some(after.as_millis());
        self
    }

    /// Adds a detail in words; no secret.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.0.detail = Some(detail.into());
        self
    }
}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Note({:?}, …)", Action::from_code(self.0.action))
    }
}

/// Entry of the log.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// Number: 1, 2, 3 and so on, without a gap.
    pub sequence: u64,
    /// Time of the change.
    pub at: Timestamp,
    /// Action of an entry.
    pub action: Action,
    /// Actor.
    pub actor: String,
    /// Reason.
    pub reason: String,
    /// Kind of the record.
    pub kind: Option<Kind>,
    /// Names of the record, such as owner, bucket and name.
    pub target: Vec<String>,
    /// Previous expiry, where a lifetime was changed.
    pub before: Option<Timestamp>,
    /// New expiry.
    pub after: Option<Timestamp>,
    /// Detail in words.
    pub detail: Option<String>,
    /// Hash of the entry and of the hash of the one before.
    pub hash: Digest,
}

impl Entry {
    /// Returns its place in the chain.
    #[must_use]
    pub fn mark(&self) -> Mark {
        Mark { sequence: self.sequence, hash: self.hash }
    }

    pub(super) fn read(key: &Key, record: &Record) -> Result<Self> {
        let sealed: Sealed = codec::decode(&record.value)?;
        let body: Body = codec::decode(&sealed.body)?;
        let unknown =
            || Error::corrupt("an entry of the audit log is of a sort that this build does not know");
        let time = |millis: Option<u64>| millis.map(Timestamp::from_stored).transpose();
        Ok(Self {
            sequence: sequence_of(key)?,
            at: Timestamp::from_stored(body.at)?,
            action: Action::from_code(body.action).ok_or_else(unknown)?,
            actor: body.actor,
            reason: body.reason,
            kind: body.kind.map(|code| Kind::from_code(code).ok_or_else(unknown)).transpose()?,
            target: body.target,
            before: time(body.before)?,
            after: time(body.after)?,
            detail: body.detail,
            hash: Digest::from_bytes(*sealed.hash),
        })
    }
}

impl fmt::Debug for Entry {
    /// Without the names, which may be private.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({}, {:?} at {}, …)", self.sequence, self.action, self.at)
    }
}

pub(super) fn sequence_of(key: &Key) -> Result<u64> {
    match key.sort().as_slice() {
        [Part::Int(sequence)] => Ok(*sequence),
        _ => Err(Error::corrupt("the key of an entry of the audit log is not a number")),
    }
}

/// Place in the chain: number and hash of an entry.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Number of the entry.
    pub sequence: u64,
    /// Hash of the entry.
    pub hash: Digest,
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mark({self})")
    }
}

impl fmt::Display for Mark {
    /// Number, a colon, and the hash in hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.sequence)?;
        self.hash.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::str::FromStr for Mark {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong =
            || Error::invalid("a mark of the audit log is a number, a colon and 64 hexadecimal digits");
        let (sequence, hash) = text.split_once(':').ok_or_else(wrong)?;
        if hash.len() != 64 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hash[2 * index..2 * index + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self { sequence: sequence.parse().map_err(|_| wrong())?, hash: Digest::from_bytes(bytes) })
    }
}

#[derive(Clone, Encode, Decode)]
struct Body {
    #[n(0)]
    at: u64,
    #[n(1)]
    action: u8,
    #[n(2)]
    actor: String,
    #[n(3)]
    reason: String,
    #[n(4)]
    kind: Option<u8>,
    #[n(5)]
    target: Vec<String>,
    #[n(6)]
    before: Option<u64>,
    #[n(7)]
    after: Option<u64>,
    #[n(8)]
    detail: Option<String>,
}

/// Stored entry. The hash covers the stored bytes of the body, so that another encoding cannot break the chain.
#[derive(Encode, Decode)]
pub(super) struct Sealed {
    #[n(0)]
    #[cbor(with = "minicbor::bytes")]
    pub(super) body: Vec<u8>,
    #[n(1)]
    pub(super) previous: ByteArray<32>,
    /// Expiry of the entry before this one.
    #[n(2)]
    pub(super) previous_expires_at: u64,
    #[n(3)]
    pub(super) hash: ByteArray<32>,
    #[n(4)]
    pub(super) sequence: u64,
}

impl Sealed {
    pub(super) fn new(scope: &Scope, head: &Head, note: &Note, now: Now) -> Result<Self> {
        let sequence = head.sequence.checked_add(1);
        let mut sealed = Self {
            body: codec::encode(&Body { at: now.latest().as_millis(), ..note.0.clone() }),
            previous: head.hash,
            previous_expires_at: head.expires_at,
            hash: [0; 32].into(),
            sequence: sequence
                .ok_or_else(|| Error::corrupt("the head of the audit log is at its last number"))?,
        };
        sealed.hash = sealed.computed_hash(scope).into();
        Ok(sealed)
    }

    /// Computes the hash. It covers the scope and the number too, so that an entry fits nowhere else.
    pub(super) fn computed_hash(&self, scope: &Scope) -> [u8; 32] {
        let scope = scope.to_string();
        let parts: [&[u8]; 5] = [
            scope.as_bytes(),
            &self.sequence.to_be_bytes(),
            &self.previous[..],
            &self.previous_expires_at.to_be_bytes(),
            &self.body,
        ];
        *Digest::of("audit", &parts).as_bytes()
    }

    pub(super) fn head(&self, expires_at: Timestamp) -> Head {
        Head { sequence: self.sequence, hash: self.hash, expires_at: expires_at.as_millis() }
    }
}

/// End of the chain.
#[derive(Clone, PartialEq, Encode, Decode)]
pub(super) struct Head {
    #[n(0)]
    pub(super) sequence: u64,
    #[n(1)]
    pub(super) hash: ByteArray<32>,
    /// Expiry of the last entry.
    #[n(2)]
    pub(super) expires_at: u64,
}

impl Head {
    pub(super) fn genesis() -> Self {
        Self { sequence: 0, hash: [0; 32].into(), expires_at: 0 }
    }

    pub(super) fn expires_at(&self) -> Result<Timestamp> {
        Timestamp::from_stored(self.expires_at)
    }

    pub(super) fn mark(&self) -> Mark {
        Mark { sequence: self.sequence, hash: Digest::from_bytes(*self.hash) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_as_it_is_printed() {
        let mark = Mark { sequence: 7, hash: Digest::of("test", &[]) };
        assert_eq!(mark.to_string().parse::<Mark>().unwrap(), mark);
        for bad in ["", "7", "7:", "7:zz", &format!("x:{}", "0".repeat(64)), &format!("7:{}", "é".repeat(32))]
        {
            assert!(bad.parse::<Mark>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_actor_and_a_reason_are_asked_for() {
        for (actor, reason) in [("", "why"), ("who", " "), ("who\n", "why")] {
            assert!(Note::new(Action::Extend, actor, reason).is_err());
        }
        let error = Note::new(Action::Extend, "x".repeat(257), "why").unwrap_err();
        assert!(error.message().contains("256"), "{error}");
    }
}
