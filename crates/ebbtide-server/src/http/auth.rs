//! Authentication and authorization of requests.

mod cache;
mod rate;

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use ebbtide::stores::api_keys::{ApiKey, KeyId, Role};
use ebbtide::stores::audit::AuditContext;
use ebbtide::{Clock as _, Digest, Scope, Secret, Stopwatch};

use crate::app::App;
use crate::http::edge::Edge;
use crate::http::problem::Problem;
use crate::http::share::Share;
use crate::http::table::Needs;
use cache::{Cache, Held};

/// Authorized caller and the scope of the request: the header `Ebbtide-Scope`, else the key's own scope. Only routes
/// of the [`Table`](crate::http::table::Table) have one.
#[derive(Debug, Clone)]
pub(crate) struct Caller(Arc<Admitted>);

/// Key and scope of a [`Caller`].
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) scope: Scope,
    /// Part of the node that the caller's tenant uses.
    pub(crate) share: Arc<Share>,
    who: Who,
}

impl std::ops::Deref for Caller {
    type Target = Admitted;

    fn deref(&self) -> &Admitted {
        &self.0
    }
}

#[derive(Debug)]
enum Who {
    Root,
    Key(Arc<Held>),
}

impl Who {
    fn scope(&self) -> &Scope {
        match self {
            // The root key's scope is the whole store.
            Self::Root => &Scope::Global,
            Self::Key(held) => &held.key.scope,
        }
    }

    fn share(&self, edge: &Edge) -> Arc<Share> {
        match self {
            Self::Root => Arc::clone(&edge.root),
            Self::Key(held) => Arc::clone(&held.share),
        }
    }

    fn role(&self) -> Role {
        match self {
            Self::Root => Role::Admin,
            Self::Key(held) => held.key.role,
        }
    }
}

impl Caller {
    /// Id of the key, for the log; that of the root key is `root`.
    pub(crate) fn key_id(&self) -> String {
        match &self.who {
            Who::Root => "root".to_owned(),
            Who::Key(held) => held.key.id.to_string(),
        }
    }

    /// Refuses a scope that the request's own scope does not cover.
    pub(crate) fn require(&self, scope: &Scope) -> Result<(), Problem> {
        if self.scope.covers(scope) { Ok(()) } else { Err(not_covered()) }
    }

    /// Scope that a query names, if the request's own scope covers it; without one, the request's own.
    pub(crate) fn named(&self, scope: Option<String>) -> Result<Scope, Problem> {
        let Some(scope) = scope else { return Ok(self.scope.clone()) };
        let scope = scope.parse()?;
        self.require(&scope)?;
        Ok(scope)
    }

    /// Audit context of the request: actor and reason; the default actor is the holder of the key.
    pub(crate) fn context(
        &self,
        actor: Option<String>,
        reason: Option<String>,
    ) -> Result<AuditContext, Problem> {
        let actor = actor.unwrap_or_else(|| match &self.who {
            Who::Root => "the root key".to_owned(),
            // An id may be longer than the maximum of an actor's name in the log.
            Who::Key(held) => match &held.key.name {
                Some(name) => format!("the API key {name} of {}", clipped(&held.key.scope.to_string())),
                None => format!("the API key {}", clipped(&held.key.id.to_string())),
            },
        });
        let reason = reason.unwrap_or_else(|| format!("requested over HTTP in {}", self.scope));
        Ok(AuditContext::new(actor, reason)?)
    }
}

fn clipped(text: &str) -> &str {
    text.get(..100).unwrap_or(text)
}

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    /// Takes the caller that the edge has authorized. A route without needs has none, and is refused.
    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, Problem> {
        parts.extensions.remove::<Self>().ok_or_else(Problem::unauthorized)
    }
}

/// Valid keys.
#[derive(Debug)]
pub(crate) struct Access {
    root_key: Digest,
    cache: Cache,
}

impl Access {
    /// Keeps only a digest of the root key.
    pub(crate) fn new(root_key: &Secret) -> Self {
        Self { root_key: digest(root_key.expose()), cache: Cache::default() }
    }

    /// Drops a key from this node's cache at once.
    pub(crate) fn forget(&self, id: &KeyId) {
        self.cache.forget(id);
    }
}

fn digest(key: &str) -> Digest {
    Digest::of("api-key", &[key.as_bytes()])
}

impl App {
    /// Authenticates and authorizes the caller, or returns the reason for the refusal.
    pub(crate) async fn admit(&self, needs: Needs, headers: &HeaderMap) -> Result<Caller, Problem> {
        let who = self.identify(headers).await?;
        if let Who::Key(held) = &who {
            held.spend(self.guard.now())?;
        }
        if who.role() < needs.role {
            return Err(Problem::forbidden(&format!("this call needs the role {}", needs.role)));
        }
        let scope = requested(headers)?.unwrap_or_else(|| who.scope().clone());
        if !who.scope().covers(&scope) {
            return Err(not_covered());
        }
        if needs.adds {
            self.quotas.check(&self.stores, &scope, self.guard.now()).await?;
        }
        Ok(Caller(Arc::new(Admitted { scope, share: who.share(&self.edge), who })))
    }

    async fn identify(&self, headers: &HeaderMap) -> Result<Who, Problem> {
        let key = bearer(headers).ok_or_else(Problem::unauthorized)?;
        let (access, digest) = (&self.access, digest(key));
        if digest == access.root_key {
            return Ok(Who::Root);
        }
        let now = self.guard.now();
        if let Some(held) = access.cache.get(&digest, now) {
            return if now < held.key.expires_at { Ok(Who::Key(held)) } else { Err(Problem::unauthorized()) };
        }
        // Take both before the read: a cached key is never younger than it seems.
        let watch = Stopwatch::start();
        // Keys that were valid a moment ago do not wait behind invented ones.
        let known = access.cache.knows(&digest);
        let _lookup = match (!known).then(|| self.edge.new_keys.try_acquire()) {
            Some(Err(_)) => return Err(Problem::overloaded()),
            permit => permit,
        };
        let found: Option<ApiKey> = self.stores.find_api_key(&Secret::new(key)).await?;
        let key = found.ok_or_else(|| {
            access.cache.drop(&digest);
            Problem::unauthorized()
        })?;
        let share = self.edge.shares.of(&key, self.edge.limits);
        Ok(Who::Key(access.cache.hold(&digest, key, share, now, watch)))
    }
}

fn not_covered() -> Problem {
    Problem::forbidden("the key's scope does not cover the requested scope")
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, more) = (values.next()?, values.next());
    let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
    let key = key.trim();
    (more.is_none() && scheme.eq_ignore_ascii_case("bearer") && !key.is_empty()).then_some(key)
}

fn requested(headers: &HeaderMap) -> Result<Option<Scope>, Problem> {
    let mut values = headers.get_all("ebbtide-scope").iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(Problem::invalid("the request must name at most one scope")),
        (Some(value), None) => {
            let text = std::str::from_utf8(value.as_bytes())
                .map_err(|_| Problem::invalid("a scope must be UTF-8"))?;
            Ok(Some(text.parse::<Scope>()?))
        }
    }
}
