//! Authentication and authorization of requests.

mod basic;
mod cache;
mod rate;

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use ebbtide::stores::api_keys::{ApiKey, KeyId, Role};
use ebbtide::stores::audit::{AuditContext, Author};
use ebbtide::timekeeping::TimeSource;
use ebbtide::{Digest, Reach, Scope, Secret};

use crate::app::App;
use crate::http::edge::Edge;
use crate::http::problem::Problem;
use crate::http::route::Route;
use crate::http::share::Share;
use crate::http::table::Needs;
use basic::{Basic, ClientCache, ClientCaller};
use cache::{Cache, Held, Tied};

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
    /// True if the request names no scope, and the answer warns about it.
    pub(crate) warned: bool,
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
    /// Root key, with its id in the audit log.
    Root(&'static str),
    Key(Arc<Held>),
    /// Client that has authenticated itself, for two calls.
    Client(ClientCaller),
}

impl Who {
    fn scope(&self) -> &Scope {
        match self {
            // The root key's scope is the whole store.
            Self::Root(_) => &Scope::Global,
            Self::Key(held) => &held.key.scope,
            Self::Client(client) => &client.scope,
        }
    }

    fn share(&self, edge: &Edge) -> Arc<Share> {
        match self {
            Self::Root(_) => Arc::clone(&edge.root),
            Self::Key(held) => Arc::clone(&held.share),
            Self::Client(client) => Arc::clone(&client.share),
        }
    }

    /// Returns true for the same key, as it was read at the same time.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Root(one), Self::Root(other)) => one == other,
            (Self::Key(one), Self::Key(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Id of the key, for reports.
    fn id(&self) -> &str {
        match self {
            Self::Root(id) => id,
            Self::Key(held) => held.author.key_id(),
            Self::Client(client) => client.author.key_id(),
        }
    }

    fn role(&self) -> Role {
        match self {
            Self::Root(_) => Role::Admin,
            Self::Key(held) => held.key.role,
            Self::Client(_) => Role::Writer,
        }
    }
}

impl Caller {
    /// Id of the key, for the log; that of the root key is `root`.
    pub(crate) fn key_id(&self) -> String {
        self.who.id().to_owned()
    }

    /// Role of the key.
    pub(crate) fn role(&self) -> Role {
        self.who.role()
    }

    /// Returns true for the root key.
    pub(crate) fn is_root(&self) -> bool {
        matches!(self.who, Who::Root(_))
    }

    /// Counts one request against the key's rate limit.
    pub(crate) fn spend(&self, time: &TimeSource) -> Result<(), Problem> {
        match &self.who {
            Who::Key(held) => held.spend(time),
            Who::Root(_) | Who::Client(_) => Ok(()),
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

    /// Author of the request, for the audit log: the key that was authenticated.
    pub(crate) fn author(&self) -> Author {
        match &self.who {
            Who::Root(id) => Author::new(id),
            Who::Key(held) => held.author.clone(),
            Who::Client(client) => client.author.clone(),
        }
    }

    /// Id of the client that has authenticated itself, if it was one.
    pub(crate) fn client_id(&self) -> Option<&str> {
        match &self.who {
            Who::Client(client) => Some(&client.client_id),
            Who::Root(_) | Who::Key(_) => None,
        }
    }

    /// Returns whether the caller may lengthen lives with the call of that path.
    pub(crate) fn may_extend(&self, call: &str) -> bool {
        match &self.who {
            Who::Root(_) => true,
            Who::Client(_) => false,
            Who::Key(held) => held.key.names(call) || held.key.role == Role::Admin && held.key.allows(call),
        }
    }

    /// Audit context of the request: the name that it claims to act for, and the reason.
    pub(crate) fn context(
        &self,
        on_behalf_of: Option<String>,
        reason: Option<String>,
    ) -> Result<AuditContext, Problem> {
        let reason = reason.unwrap_or_else(|| format!("requested over HTTP in {}", self.scope));
        Ok(match on_behalf_of {
            Some(name) => AuditContext::new(name, reason)?,
            None => AuditContext::because(reason)?,
        })
    }
}

impl FromRequestParts<App> for Caller {
    type Rejection = Problem;

    /// Takes the caller that the edge has authorized. A route without needs has none, and is refused.
    async fn from_request_parts(parts: &mut Parts, _app: &App) -> Result<Self, Problem> {
        parts.extensions.remove::<Self>().ok_or_else(Problem::unauthorized)
    }
}

/// Key that was presented on a connection, and the scope that was asked for with it. Its digest is computed once.
pub(crate) struct Presented {
    key: Secret,
    digest: Digest,
    scope: Option<Scope>,
}

impl Presented {
    pub(crate) fn new(key: &str, scope: Option<Scope>) -> Self {
        Self { key: Secret::new(key), digest: digest(key), scope }
    }
}

/// Call that a command of the Redis protocol counts as in a key's list of allowed calls: one on records.
const REDIS_CALL: &str = "records/redis";

/// Valid keys.
#[derive(Debug)]
pub(crate) struct Access {
    /// Several while the root key is being rotated.
    root_keys: Vec<Digest>,
    root_id: &'static str,
    cache: Cache,
    clients: ClientCache,
}

impl Access {
    /// Keeps only digests of the root keys.
    pub(crate) fn new<'a>(root_keys: impl IntoIterator<Item = &'a Secret>) -> Self {
        let root_keys = root_keys.into_iter().map(|key| digest(key.expose())).collect();
        Self { root_keys, root_id: Author::ROOT, cache: Cache::default(), clients: ClientCache::default() }
    }

    /// Keys of a process that has the store open itself.
    pub(crate) fn local(key: &Secret) -> Self {
        Self { root_id: Author::LOCAL, ..Self::new([key]) }
    }

    fn is_root(&self, key: &Digest) -> bool {
        // All of them are compared, so that the time does not tell which one is near.
        self.root_keys.iter().filter(|root| *root == key).count() > 0
    }

    /// Drops the keys of a deleted scope from this node's cache at once.
    pub(crate) fn forget_scope(&self, reach: &Reach) {
        self.cache.forget_scope(reach);
        self.clients.forget_scope(reach);
    }

    /// Drops the clients of a scope from this node's cache at once: an owner was deleted, and its clients with it.
    pub(crate) fn forget_clients(&self, scope: &Scope) {
        self.clients.forget_scope(&Reach::Exact(scope.clone()));
    }

    /// Drops a client whose secret or registration has ended from this node's cache at once.
    pub(crate) fn forget_client(&self, scope: &Scope, client_id: &str) {
        self.clients.forget(scope, client_id);
    }

    /// Drops a key, and the keys below it, from this node's cache at once.
    pub(crate) fn forget(&self, id: &KeyId) {
        self.cache.forget(id);
    }
}

fn digest(key: &str) -> Digest {
    Digest::of("api-key", &[key.as_bytes()])
}

impl App {
    /// Authenticates and authorizes the caller, or returns the reason for the refusal.
    pub(crate) async fn admit(
        &self,
        needs: Needs,
        route: &Route,
        headers: &HeaderMap,
    ) -> Result<Caller, Problem> {
        let call = route.call();
        let who = self.identify(headers, call).await?;
        if let Who::Key(held) = &who {
            held.spend(self.time())?;
        }
        if let Who::Key(held) = &who
            && !held.key.allows(call)
        {
            return Err(Problem::forbidden("the key's list of allowed calls does not have this one"));
        }
        let named = matches!(&who, Who::Key(held) if call.ends_with("/extend") && held.key.names(call));
        if who.role() < needs.role && !named {
            return Err(Problem::forbidden(&format!("this call needs the role {}", needs.role)));
        }
        let asked = requested(headers)?;
        let scope = asked.clone().unwrap_or_else(|| who.scope().clone());
        if !who.scope().covers(&scope) {
            return Err(not_covered());
        }
        if scope == Scope::Global && self.scoping.rules.global_for_admins && who.role() < Role::Admin {
            return Err(Problem::forbidden("the global scope is kept for keys with the role admin"));
        }
        // Calls of administration concern the whole store, or name their scope otherwise.
        let unscoped = asked.is_none() && scope == Scope::Global && needs.role < Role::Admin;
        if unscoped {
            self.scoping.note(who.id(), route, self.now()?.latest())?;
        }
        if needs.adds {
            self.quotas.check(&self.stores, &scope, self.time()).await?;
        }
        let warned = unscoped && self.scoping.rules.warn;
        Ok(Caller(Arc::new(Admitted { scope, share: who.share(&self.edge), warned, who })))
    }

    /// Authenticates the holder of a key, for a protocol without headers. The scope is the key's own, unless another one
    /// that it covers is asked for.
    pub(crate) async fn caller(&self, presented: &Presented) -> Result<Caller, Problem> {
        self.judge(self.identify_digest(presented.key.expose(), &presented.digest).await?, presented)
    }

    /// The same for a caller who was authenticated before: what was judged of the same key still holds.
    pub(crate) async fn caller_again(
        &self,
        presented: &Presented,
        before: &Caller,
    ) -> Result<Option<Caller>, Problem> {
        let who = self.identify_digest(presented.key.expose(), &presented.digest).await?;
        if who.is_same(&before.who) { Ok(None) } else { self.judge(who, presented).map(Some) }
    }

    fn judge(&self, who: Who, presented: &Presented) -> Result<Caller, Problem> {
        let scope = presented.scope.as_ref().unwrap_or_else(|| who.scope()).clone();
        if !who.scope().covers(&scope) {
            return Err(not_covered());
        }
        if scope == Scope::Global && self.scoping.rules.global_for_admins && who.role() < Role::Admin {
            return Err(Problem::forbidden("the global scope is kept for keys with the role admin"));
        }
        if let Who::Key(held) = &who
            && !held.key.allows(REDIS_CALL)
        {
            return Err(Problem::forbidden("the key's list of allowed calls does not have records"));
        }
        Ok(Caller(Arc::new(Admitted { scope, share: who.share(&self.edge), warned: false, who })))
    }

    async fn identify(&self, headers: &HeaderMap, call: &str) -> Result<Who, Problem> {
        if basic::CALLS.contains(&call)
            && let Some(basic) = Basic::read(headers)
        {
            if ApiKey::is_secret(basic.key()) || self.access.is_root(&digest(basic.key())) {
                return self.identify_key(basic.key()).await;
            }
            let scope = requested(headers)?.unwrap_or(Scope::Global);
            // Rare, and large: apart from the futures of all other calls.
            return Box::pin(self.identify_client(basic, &scope)).await.map(Who::Client);
        }
        self.identify_key(bearer(headers).ok_or_else(Problem::unauthorized)?).await
    }

    async fn identify_key(&self, key: &str) -> Result<Who, Problem> {
        self.identify_digest(key, &digest(key)).await
    }

    async fn identify_digest(&self, key: &str, digest: &Digest) -> Result<Who, Problem> {
        let access = &self.access;
        if access.is_root(digest) {
            return Ok(Who::Root(access.root_id));
        }
        if let Some(held) = access.cache.get(digest, self.time()) {
            let is_live = self.now()?.before(held.key.expires_at)?;
            return if is_live { Ok(Who::Key(held)) } else { Err(Problem::unauthorized()) };
        }
        Box::pin(self.look_up_key(key, digest)).await
    }

    /// Looks up a key that is not in the cache.
    async fn look_up_key(&self, key: &str, digest: &Digest) -> Result<Who, Problem> {
        let access = &self.access;
        let look = access.cache.look(self.time());
        // Keys that were valid a moment ago do not wait behind invented ones.
        let known = access.cache.knows(digest);
        let _lookup = match (!known).then(|| self.edge.new_keys.try_acquire()) {
            Some(Err(_)) => return Err(Problem::overloaded()),
            permit => permit,
        };
        let found: Option<ApiKey> = self.stores.find_api_key(&Secret::new(key)).await?;
        let ancestors = match &found {
            Some(key) => self.stores.api_key_ancestors(key).await?,
            None => None,
        };
        let (Some(key), Some(ancestors)) = (found, ancestors) else {
            access.cache.drop(digest);
            return Err(Problem::unauthorized());
        };
        let share = self.edge.shares.of(&key, self.edge.limits);
        Ok(Who::Key(access.cache.hold(digest, key, Tied { ancestors, share }, look, self.time())))
    }
}

/// Path of a call as `allow` names it: without the version and without parameters.
pub(crate) fn call_of(route: &str) -> String {
    let segments = route.trim_start_matches("/v1/").split('/').filter(|segment| !segment.starts_with('{'));
    segments.collect::<Vec<_>>().join("/")
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
        (Some(_), Some(_)) => {
            Err(Problem::invalid("the request must name at most one scope").with("member", "Ebbtide-Scope"))
        }
        (Some(value), None) => {
            let text = std::str::from_utf8(value.as_bytes())
                .map_err(|_| Problem::invalid("a scope must be UTF-8").with("member", "Ebbtide-Scope"))?;
            let scope = text.parse::<Scope>().map_err(|error| error.about("Ebbtide-Scope"))?;
            Ok(Some(scope))
        }
    }
}
