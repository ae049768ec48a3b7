//! Basic authentication, for the two endpoints whose callers are OAuth software: introspection (RFC 7662) and revocation
//! (RFC 7009).
//!
//! The password is an API key, with any user name; or user name and password are the id and the secret of a client that is
//! registered in the scope of the request. A client introspects every token of its scope, and revokes its own alone.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::{HeaderMap, header};
use base64ct::{Base64, Encoding as _};
use ebbtide::stores::audit::Author;
use ebbtide::stores::clients::VerifyOutcome;
use ebbtide::timekeeping::{Lease, TimeSource};
use ebbtide::{Digest, Reach, Scope, Secret, Timestamp};

use super::cache::LIFE;
use crate::app::App;
use crate::http::problem::Problem;
use crate::http::share::Share;

/// Calls that accept Basic authentication.
pub(super) const CALLS: [&str; 2] = ["introspect", "revoke"];

/// Maximum number of clients in the cache.
const MOST: usize = 10_000;

/// User name and password of a request.
pub(super) struct Basic {
    user: String,
    password: Secret,
}

impl Basic {
    /// Reads the only credentials of a request, if they are Basic ones.
    pub(super) fn read(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(header::AUTHORIZATION).iter();
        let (value, more) = (values.next()?, values.next());
        let (scheme, credentials) = value.to_str().ok()?.split_once(' ')?;
        if more.is_some() || !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let text = String::from_utf8(Base64::decode_vec(credentials.trim()).ok()?).ok()?;
        let (user, password) = text.split_once(':')?;
        Some(Self { user: user.to_owned(), password: Secret::new(password) })
    }

    /// API key of the request: the password, or the user name if there is no password.
    pub(super) fn key(&self) -> &str {
        if self.password.expose().is_empty() { &self.user } else { self.password.expose() }
    }

    /// Forms in which user name and password may have been written: as they are, and encoded as RFC 6749 §2.3.1 has it.
    fn forms(self) -> Vec<Self> {
        let decode = |text: &str| {
            let pair = form_urlencoded::parse(text.as_bytes()).next();
            pair.map(|(name, _)| name.into_owned()).unwrap_or_default()
        };
        let plain = |text: &str| !text.contains(['%', '+', '&', '=']);
        if plain(&self.user) && plain(self.password.expose()) {
            return vec![self];
        }
        let decoded =
            Self { user: decode(&self.user), password: Secret::new(decode(self.password.expose())) };
        vec![self, decoded]
    }

    fn digest(&self, scope: &Scope) -> [u8; 32] {
        let scope = scope.to_string();
        let parts = [scope.as_bytes(), self.user.as_bytes(), self.password.expose().as_bytes()];
        *Digest::of("basic client", &parts).as_bytes()
    }
}

/// Verified client.
#[derive(Debug, Clone)]
pub(super) struct ClientCaller {
    pub(super) client_id: Arc<str>,
    pub(super) scope: Scope,
    pub(super) author: Author,
    pub(super) share: Arc<Share>,
    /// End of the client, or of the first of its secrets to end.
    until: Timestamp,
}

/// Clients that were verified a moment ago, by a digest of their credentials.
#[derive(Default)]
pub(super) struct ClientCache(Mutex<HashMap<[u8; 32], (ClientCaller, Lease)>>);

impl fmt::Debug for ClientCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientCache(…)")
    }
}

impl ClientCache {
    /// Verified client, and whether the credentials were valid when they were looked up last.
    fn get(&self, digest: &[u8; 32], time: &TimeSource) -> (Option<ClientCaller>, bool) {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((client, lease)) = held.get(digest) else { return (None, false) };
        (time.holds(lease).then(|| client.clone()), true)
    }

    fn hold(&self, digest: [u8; 32], client: ClientCaller, lease: Lease, time: &TimeSource) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.len() >= MOST {
            held.retain(|_, (_, lease)| time.holds(lease));
        }
        if held.len() < MOST {
            held.insert(digest, (client, lease));
        }
    }

    /// Drops a client of a scope.
    pub(super) fn forget(&self, scope: &Scope, client_id: &str) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|_, (client, _)| client.scope != *scope || *client.client_id != *client_id);
    }

    /// Drops the clients of deleted scopes, or of a scope of which an owner was deleted.
    pub(super) fn forget_scope(&self, reach: &Reach) {
        let is_of = |scope: &Scope| match reach {
            Reach::Exact(exact) => exact == scope,
            Reach::Below(above) => above.covers(scope),
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, (client, _)| !is_of(&client.scope));
    }

    fn drop(&self, digest: &[u8; 32]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(digest);
    }
}

impl App {
    /// Authenticates a client of `scope`.
    pub(super) async fn identify_client(&self, basic: Basic, scope: &Scope) -> Result<ClientCaller, Problem> {
        for form in basic.forms() {
            if let Some(client) = self.identify_form(form, scope).await? {
                return Ok(client);
            }
        }
        Err(Problem::unauthorized().challenge("Basic realm=\"ebbtide\", Bearer"))
    }

    async fn identify_form(&self, basic: Basic, scope: &Scope) -> Result<Option<ClientCaller>, Problem> {
        let digest = basic.digest(scope);
        let (held, known) = self.access.clients.get(&digest, self.time());
        if let Some(held) = held
            && self.now()?.before(held.until)?
        {
            return Ok(Some(held));
        }
        // Taken before the read: a client is never younger in the cache than it seems.
        let lease = self.time().lease(LIFE);
        // Clients that were valid a moment ago do not wait behind invented ones.
        let _lookup = match (!known).then(|| self.edge.new_keys.try_acquire()) {
            Some(Err(_)) => return Err(Problem::overloaded()),
            permit => permit,
        };
        let verified = self.stores.clients(scope).verify(&basic.user, &basic.password).await?;
        let VerifyOutcome::Verified(client) = verified else {
            self.access.clients.drop(&digest);
            return Ok(None);
        };
        let client = ClientCaller {
            author: Author::new(&format!("client:{}", client.client_id)),
            until: client.expires_at.min(client.secrets_until),
            share: self.edge.shares.of_client(scope, &client.client_id, self.edge.limits),
            client_id: client.client_id.into(),
            scope: scope.clone(),
        };
        self.access.clients.hold(digest, client.clone(), lease, self.time());
        Ok(Some(client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &str) -> Option<(String, String)> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, value.parse().unwrap());
        let basic = Basic::read(&headers)?;
        Some((basic.user, basic.password.expose().to_owned()))
    }

    fn encode(text: &str) -> String {
        Base64::encode_string(text.as_bytes())
    }

    #[test]
    fn credentials_are_a_user_and_a_password() {
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(read(&format!("Basic {}", encode("app:s:e:c"))), pair("app", "s:e:c"));
        assert_eq!(read(&format!("basic  {}", encode(":x"))), pair("", "x"));
        for bad in ["Basic", "Basic ?", "Bearer x"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(read(&format!("Basic {}", encode("no colon"))), None);
    }

    #[test]
    fn encoded_credentials_are_tried_both_ways() {
        let basic = |user: &str| Basic { user: user.to_owned(), password: Secret::new("a%2Bb") };
        let users: Vec<_> = basic("x%3Ay").forms().into_iter().map(|form| form.user).collect();
        assert_eq!(users, ["x%3Ay", "x:y"]);
        let plain = Basic { user: "app".to_owned(), password: Secret::new("ebp_x") };
        assert_eq!(plain.forms().len(), 1);
    }
}
