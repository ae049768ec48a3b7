//! Entries of the log, and their chain.

use std::fmt;

use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};

use super::author::Author;
use super::chain::{ChainId, Head, Link};
use super::mark::ChainMark;
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Part};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::scope::Scope;
use crate::model::time::Timestamp;

const MAX_ACTOR_BYTES: usize = 256;
const MAX_REASON_BYTES: usize = 1_024;

/// Refuses an actor or a reason that is empty, too long, or has control characters in it.
fn check_words(actor: &str, reason: &str) -> Result<()> {
    check_text("the actor of an audited change", actor, MAX_ACTOR_BYTES)
        .map_err(|error| error.about("on_behalf_of"))?;
    check_reason(reason)
}

fn check_reason(reason: &str) -> Result<()> {
    let checked = check_text("the reason of an audited change", reason, MAX_REASON_BYTES);
    checked.map_err(|error| error.about("reason"))
}

pub(crate) fn check_text(what: &str, text: &str, most: usize) -> Result<()> {
    if text.trim().is_empty() || text.len() > most || text.chars().any(char::is_control) {
        return Err(Error::invalid(format!("{what} has 1 to {most} bytes and no control characters")));
    }
    Ok(())
}

/// Reason of an audited change, and on whose behalf it is made. The author is not part of it: see
/// [`Author`](super::Author).
#[derive(Clone)]
pub struct AuditContext {
    on_behalf_of: Option<String>,
    reason: String,
}

impl AuditContext {
    /// Checks a claimed name of up to 256 bytes and a reason of up to 1,024; neither is empty.
    pub fn new(on_behalf_of: impl Into<String>, reason: impl Into<String>) -> Result<Self> {
        let (name, reason) = (on_behalf_of.into(), reason.into());
        check_words(&name, &reason)?;
        Ok(Self { on_behalf_of: Some(name), reason })
    }

    /// Context of a change that the author makes for itself.
    pub fn because(reason: impl Into<String>) -> Result<Self> {
        let reason = reason.into();
        check_reason(&reason)?;
        Ok(Self { on_behalf_of: None, reason })
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

            /// Looks up an action by its name.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                [$(Self::$variant,)+].into_iter().find(|action| action.name() == name)
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
    /// An approval or a relationship was granted, or granted again.
    Grant = 8, "grant";
    /// A client was registered, or its registration was changed.
    Register = 9, "register";
    /// The secret of a client was replaced.
    RotateSecret = 10, "rotate_secret";
    /// A used code or refresh token was presented again, and what it had led to was revoked.
    Theft = 11, "theft";
    /// Attempts were exhausted, and further ones are refused.
    Lockout = 12, "lockout";
    /// Records were imported.
    Import = 13, "import";
    /// The keyring was changed, or records were resealed.
    Keyring = 14, "keyring";
    /// A clock was confirmed.
    Clock = 15, "clock";
    /// A backup was restored.
    Restore = 16, "restore";
}

/// Content of a new entry.
#[derive(Clone)]
pub struct Note(Body);

impl Note {
    /// Records an action on behalf of `actor`, for `reason`.
    pub fn new(action: Action, actor: impl Into<String>, reason: impl Into<String>) -> Result<Self> {
        Self::of(action, &AuditContext::new(actor, reason)?)
    }

    /// Records an action with its context.
    pub fn of(action: Action, context: &AuditContext) -> Result<Self> {
        Ok(Self(Body {
            at: 0,
            action: action as u8,
            actor: context.on_behalf_of.clone().unwrap_or_default(),
            reason: context.reason.clone(),
            kind: None,
            target: Vec::new(),
            before: None,
            after: None,
            detail: None,
            key_id: None,
            subject: None,
        }))
    }

    /// Records an action that a store takes by itself, for `reason`.
    pub(crate) fn automatic(action: Action, reason: &str) -> Result<Self> {
        Self::of(action, &AuditContext::because(reason)?)
    }

    /// Encodes the note with its time and the author of the current task.
    pub(super) fn encoded(&self, at: Timestamp) -> Vec<u8> {
        let key_id = Some(Author::current().key_id().to_owned());
        codec::encode(&Body { at: at.as_millis(), key_id, ..self.0.clone() })
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

    /// Adds names of what is affected, where it is no record.
    #[must_use]
    pub(crate) fn with_target(mut self, target: Vec<String>) -> Self {
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

    /// Adds the expiry of a new record.
    pub(crate) fn with_new_expiry(mut self, after: Timestamp) -> Self {
        self.0.after = Some(after.as_millis());
        self
    }

    /// Adds the subject that is affected, where the target does not name it.
    #[must_use]
    pub fn of_subject(mut self, subject: impl Into<String>) -> Self {
        self.0.subject = Some(subject.into());
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
pub struct AuditEntry {
    /// Chain of the entry; none for an entry from before there was one for each process.
    pub chain: Option<ChainId>,
    /// Number in its chain: 1, 2, 3 and so on, without a gap.
    pub sequence: u64,
    /// Time of the change.
    pub at: Timestamp,
    /// Action of an entry.
    pub action: Action,
    /// Id of the authenticated key; none in an entry from before it was kept.
    pub key_id: Option<String>,
    /// Name that the caller claimed to act for. Nobody has checked it.
    pub on_behalf_of: Option<String>,
    /// Name to show: the claimed one, else the id of the key.
    pub actor: String,
    /// Reason.
    pub reason: String,
    /// Kind of the record.
    pub kind: Option<Kind>,
    /// Names of the record, such as owner, bucket and name.
    pub target: Vec<String>,
    /// Subject that is affected, where the target does not name it.
    pub subject: Option<String>,
    /// Previous expiry, where a lifetime was changed.
    pub before: Option<Timestamp>,
    /// New expiry.
    pub after: Option<Timestamp>,
    /// Detail in words.
    pub detail: Option<String>,
    /// Hash of the entry and of the hash of the one before.
    pub hash: Digest,
}

impl AuditEntry {
    /// Returns its place in its chain.
    #[must_use]
    pub fn mark(&self) -> ChainMark {
        ChainMark { chain: self.chain, sequence: self.sequence, hash: self.hash, expires_at: None }
    }

    pub(super) fn read(key: &Key, record: &Record) -> Result<Self> {
        let (chain, sequence) = match EntryPosition::of(key)? {
            EntryPosition::Legacy { sequence } => (None, sequence),
            EntryPosition::Chain { chain, sequence, .. } => (Some(chain), sequence),
        };
        let (body, hash) = if chain.is_some() {
            let link: Link = codec::decode(&record.value)?;
            (link.body, link.hash)
        } else {
            let sealed: Sealed = codec::decode(&record.value)?;
            (sealed.body, sealed.hash)
        };
        let body: Body = codec::decode(&body)?;
        let unknown =
            || Error::corrupt("an entry of the audit log is of a sort that this build does not know");
        let time = |millis: Option<u64>| millis.map(Timestamp::from_stored).transpose();
        let on_behalf_of = Some(body.actor).filter(|actor| !actor.is_empty());
        Ok(Self {
            chain,
            sequence,
            at: Timestamp::from_stored(body.at)?,
            action: Action::from_code(body.action).ok_or_else(unknown)?,
            actor: on_behalf_of.clone().or_else(|| body.key_id.clone()).unwrap_or_default(),
            key_id: body.key_id,
            on_behalf_of,
            reason: body.reason,
            kind: body.kind.map(|code| Kind::from_code(code).ok_or_else(unknown)).transpose()?,
            target: body.target,
            subject: body.subject,
            before: time(body.before)?,
            after: time(body.after)?,
            detail: body.detail,
            hash: Digest::from_bytes(*hash),
        })
    }
}

impl fmt::Debug for AuditEntry {
    /// Without the names, which may be private.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuditEntry({}, {:?} at {}, …)", self.sequence, self.action, self.at)
    }
}

/// Place of an entry, as its key has it. Entries of chains sort by time, after those from before.
pub(super) enum EntryPosition {
    Legacy { sequence: u64 },
    Chain { at: u64, chain: ChainId, sequence: u64 },
}

impl EntryPosition {
    pub(super) fn of(key: &Key) -> Result<Self> {
        match key.sort().as_slice() {
            [Part::Int(sequence)] => Ok(Self::Legacy { sequence: *sequence }),
            [Part::Int(at), Part::Bytes(chain), Part::Int(sequence)] => {
                Ok(Self::Chain { at: *at, chain: ChainId::from_bytes(chain)?, sequence: *sequence })
            }
            _ => Err(Error::corrupt("the key of an entry of the audit log is not a place in a chain")),
        }
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
    #[n(9)]
    key_id: Option<String>,
    #[n(10)]
    subject: Option<String>,
}

/// Stored entry from before there were chains. The hash covers the stored bytes of the body, so that another encoding cannot break the chain.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_actor_and_a_reason_are_asked_for() {
        for (actor, reason) in [("", "why"), ("who", " "), ("who\n", "why")] {
            assert!(Note::new(Action::Extend, actor, reason).is_err());
        }
        let error = Note::new(Action::Extend, "x".repeat(257), "why").unwrap_err();
        assert!(error.message().contains("256"), "{error}");
    }
}
