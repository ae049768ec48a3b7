//! Clients and answers, as callers see them.

use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::model::ttl::Ttl;
use crate::stores::shared::payload::Payload;

/// A client to be registered.
#[derive(Debug, Clone)]
#[must_use]
pub struct ClientRequest {
    pub(super) client_id: Option<String>,
    pub(super) owner: Option<String>,
    pub(super) name: Option<String>,
    pub(super) redirect_uris: Vec<String>,
    pub(super) metadata: Option<Payload>,
    pub(super) confidential: bool,
    pub(super) ttl: Option<Ttl>,
}

impl ClientRequest {
    /// A client that keeps a secret, such as a server.
    pub fn confidential() -> Self {
        Self {
            client_id: None,
            owner: None,
            name: None,
            redirect_uris: Vec::new(),
            metadata: None,
            confidential: true,
            ttl: None,
        }
    }

    /// A client that cannot keep one, such as a page in a browser.
    pub fn public() -> Self {
        Self { confidential: false, ..Self::confidential() }
    }

    /// Under this id instead of a new one.
    pub fn client_id(mut self, client_id: impl Into<String>) -> Self {
        self.client_id = Some(client_id.into());
        self
    }

    /// Says whose it is: it is listed and deleted with them.
    pub fn owner(mut self, owner: impl Into<String>) -> Self {
        self.owner = Some(owner.into());
        self
    }

    /// What people call it.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Where it may be redirected to.
    pub fn redirect_uris(mut self, uris: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.redirect_uris = uris.into_iter().map(Into::into).collect();
        self
    }

    /// Anything else, such as the metadata of RFC 7591.
    pub fn metadata(mut self, metadata: impl Into<Payload>) -> Self {
        self.metadata = Some(metadata.into());
        self
    }

    /// Ends it after that long.
    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.ttl = Some(ttl);
        self
    }
}

/// A client, as it stands; never its secret.
#[derive(Debug, Clone, PartialEq)]
pub struct Client {
    /// Its id.
    pub client_id: String,
    /// Whose it is.
    pub owner: Option<String>,
    /// What people call it.
    pub name: Option<String>,
    /// Where it may be redirected to.
    pub redirect_uris: Vec<String>,
    /// Anything else.
    pub metadata: Option<Payload>,
    /// Whether it has a secret.
    pub confidential: bool,
    /// When it was registered.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// A client that was registered.
#[derive(Debug, Clone, PartialEq)]
pub struct RegisteredClient {
    /// The client.
    pub client: Client,
    /// Its secret, if it keeps one. It cannot be asked for again.
    pub client_secret: Option<Secret>,
}

/// The answer to a registration.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "the client may not have been registered"]
pub enum RegisterOutcome {
    /// It is registered.
    Registered(Box<RegisteredClient>),
    /// Another client has that id. Nothing was written.
    Taken,
}

/// The answer to a secret.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "only a verified client may be honoured"]
pub enum VerifyOutcome {
    /// It is the client's.
    Verified(Box<Client>),
    /// It is not, or no longer.
    Mismatch,
    /// There is no such client in this scope, or it is being deleted.
    Unknown,
}

/// The answer to a rotation of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the secret may not have been rotated"]
pub enum RotateSecretOutcome {
    /// Here is the new one. It cannot be asked for again.
    Rotated {
        /// The new secret.
        client_secret: Secret,
        /// Until when the one before it is good.
        old_until: Timestamp,
    },
    /// A public client has no secret to rotate.
    Public,
    /// There is no such client in this scope, or it is being deleted.
    Unknown,
}
