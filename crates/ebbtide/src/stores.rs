//! The typed stores: one handle, a method for each store. A store knows nothing of engines or of HTTP.

pub mod access_tokens;
pub mod api_keys;
pub mod approvals;
pub mod attributes;
pub mod audit;
pub mod challenges;
pub mod clients;
pub mod codes;
pub mod device_codes;
pub mod grants;
pub mod nonces;
pub mod owners;
pub mod policies;
pub mod profile;
pub mod provider_tokens;
pub mod pushed_requests;
pub mod records;
pub mod registry;
pub mod relationships;
pub mod replays;
pub mod scopes;
pub mod sessions;
pub(crate) mod settings;
pub mod shared;

pub use shared::field::Field;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::{OnceCell, Semaphore};

use crate::admin::Admin;
use crate::keyring::shared::SharedKeyring;
use crate::keyring::{KeyId, Keyring};
use crate::layers::authenticated::{Authenticated, Untagged};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::key::{Key, Part};
use crate::model::kind::Kind;
use crate::model::record::Record;
use crate::model::rng::{Rng, SystemRng};
use crate::model::scope::Scope;
use crate::model::time::{Clock, SystemClock, Timestamp};
use crate::model::ttl::{PolicyTarget, Ttl, TtlPolicies, TtlPolicy};
use crate::stores::audit::Chains;
use crate::timekeeping::{Now, TimeSource, Timed};

use attributes::{BucketExtend, BucketTtls};
use clients::KnownClients;
use clients::hashing::Hashers;
use profile::Profile;
use scopes::Scopes;
use settings::StoreSettings;
use shared::client_epochs::{ClientEpochSource, ClientEpochs};
use shared::fence::{Fence, FenceState};
use shared::refusal::RefusalCause;
use shared::seen_epochs::SeenEpochs;

/// Every store on one backend. Cheap to clone.
#[derive(Clone)]
pub struct Stores(Arc<Shared>);

struct Shared {
    timed: Timed,
    rng: Arc<dyn Rng>,
    profile: Profile,
    profiles: BTreeMap<String, Profile>,
    hashers: Hashers,
    known_clients: KnownClients,
    keyring: SharedKeyring,
    authenticated: Arc<Authenticated>,
    bucket_lives: BucketTtls,
    /// As the stores were built with.
    configured: TtlPolicies,
    /// With those that are stored in front of them, as they were read last.
    policies: RwLock<Arc<TtlPolicies>>,
    requires_pkce: bool,
    client_epochs: ClientEpochs,
    client_epoch_source: ClientEpochSource,
    seen_epochs: SeenEpochs,
    /// Places of writes that go on beside an answer.
    beside: Arc<Semaphore>,
    /// Chains of the audit log that this process writes.
    chains: Chains,
    /// Fence of a restored backup.
    fence: FenceState,
    /// Id of the store's naming key, once it was read.
    naming_checked: OnceCell<KeyId>,
    text_counters: records::TextCounters,
}

/// Most writes that go on beside answers at once; beyond it they are left out.
const MOST_BESIDE: usize = 256;

impl Stores {
    /// The stores on `backend` with a keyring that ends with them, for tests. Applications call
    /// [`Ebbtide::open`](crate::Ebbtide::open).
    #[must_use]
    pub fn for_tests(backend: Arc<dyn Admin>) -> Self {
        Self::builder_for_tests(backend).build()
    }

    /// The stores on a backend of your own, for tests and for new engines: no clock is doubted, and without a
    /// keyring one is made that ends with them. Applications call [`Ebbtide::builder`](crate::Ebbtide::builder).
    pub fn builder_for_tests(backend: Arc<dyn Admin>) -> Builder {
        Self::over(Timed::new(backend, Arc::new(TimeSource::of_clock(SystemClock))))
    }

    pub(crate) fn over(timed: Timed) -> Builder {
        Builder {
            timed,
            rng: Arc::new(SystemRng),
            settings: StoreSettings::default(),
            keyring: None,
            untagged: Untagged::Accepted,
        }
    }

    /// The lives that records have where none is asked for.
    #[must_use]
    pub fn profile(&self) -> &Profile {
        &self.0.profile
    }

    /// The profile of that name: one that these stores were built with, else a preset.
    pub fn profile_named(&self, name: &str) -> Result<Profile> {
        if let Some(profile) = self.0.profiles.get(name) {
            return Ok(*profile);
        }
        name.parse().map_err(|_| {
            let own = self.0.profiles.keys().map(String::as_str);
            let names: Vec<_> = Profile::NAMES.into_iter().chain(own).collect();
            let message = format!("no lifetime profile has that name; the profiles are {}", names.join(", "));
            Error::invalid(message).about("profile")
        })
    }

    pub(crate) fn hashers(&self) -> &Hashers {
        &self.0.hashers
    }

    pub(crate) fn known_clients(&self) -> &KnownClients {
        &self.0.known_clients
    }

    /// The keyring, as it was read last.
    #[must_use]
    pub fn keyring(&self) -> Arc<Keyring> {
        self.0.keyring.get()
    }

    /// The keyring, shared with every clone of these stores.
    #[must_use]
    pub fn shared_keyring(&self) -> &SharedKeyring {
        &self.0.keyring
    }

    /// The keyring for a value that was sealed: read again if it lacks the key.
    pub(crate) fn keyring_for(&self, sealed: &[u8]) -> Arc<Keyring> {
        match Keyring::sealed_under(sealed) {
            Some(id) => self.0.keyring.with_key(id),
            None => self.keyring(),
        }
    }

    /// `Invalid` if the store was opened without its keyring: what these stores sign would be a forgery to every other
    /// process.
    pub(crate) fn require_keyring(&self) -> Result<()> {
        self.0.authenticated.require_keyring()
    }

    /// Value of a record that was read past these stores, by the rules of a read.
    pub(crate) fn verified(&self, key: &Key, record: &Record) -> Result<bytes::Bytes> {
        self.0.authenticated.verified(key, record)
    }

    /// Refuses records with authority that have no tag, from now on.
    pub(crate) fn refuse_untagged(&self) {
        self.0.authenticated.refuse_untagged();
    }

    pub(crate) fn rng(&self) -> &dyn Rng {
        self.0.rng.as_ref()
    }

    /// Scopes as an operator sees them; a caller of that scope, those that it covers.
    #[must_use]
    pub fn scopes(&self, caller: &Scope) -> Scopes {
        Scopes::new(self.clone(), caller.clone())
    }

    /// The engine and its time.
    #[must_use]
    pub fn backend(&self) -> &Timed {
        &self.0.timed
    }

    pub(crate) fn admin(&self) -> &dyn Admin {
        self.0.timed.admin().as_ref()
    }

    /// The time of a request. It is taken once, and handed to every call of the request. `Unavailable` while nothing
    /// can be answered.
    pub(crate) fn now(&self) -> Result<Now> {
        self.0.timed.now()
    }

    pub(crate) fn record(&self, value: impl Into<bytes::Bytes>, expires_at: Timestamp) -> Record {
        Record::new(value, expires_at, self.0.rng.as_ref())
    }

    /// The life of a record: what was asked for, else what the policy says, else the store's own default; within
    /// the policy's bounds where one is set.
    pub(crate) fn ttl<'a>(
        &self,
        target: impl Into<PolicyTarget<'a>>,
        scope: &Scope,
        asked: Option<Ttl>,
        default: Ttl,
    ) -> Result<Ttl> {
        match self.policy(target, scope) {
            Some(policy) => Ok(policy.apply(asked.or(policy.default).or(Some(default)))?.unwrap_or(default)),
            None => Ok(asked.unwrap_or(default)),
        }
    }

    /// The same for a call that may have named a profile: its lifetime, within the bounds of the policy, comes before the
    /// policy's default.
    pub(crate) fn ttl_of_profile(
        &self,
        kind: Kind,
        scope: &Scope,
        (asked, is_named): (Option<Ttl>, bool),
        profile: Ttl,
    ) -> Result<Ttl> {
        let bounded =
            || self.policy(kind, scope).map_or(profile, |policy| profile.max(policy.min).min(policy.max));
        self.ttl(kind, scope, asked.or_else(|| is_named.then(bounded)), profile)
    }

    /// When a record that may live for ever ends: by what was asked for, else what the policy says, else never.
    pub(crate) fn expiry<'a>(
        &self,
        target: impl Into<PolicyTarget<'a>>,
        scope: &Scope,
        asked: Option<Ttl>,
        now: Now,
    ) -> Result<Timestamp> {
        let ttl = match self.policy(target, scope) {
            Some(policy) => policy.apply(asked)?,
            None => asked,
        };
        ttl.map_or(Ok(Timestamp::NEVER), |ttl| now.end(ttl))
    }

    /// The latest end of a life that began at `began_at`: its own cap, and the longest that an enforced policy
    /// allows.
    pub(crate) fn cap<'a>(
        &self,
        target: impl Into<PolicyTarget<'a>>,
        scope: &Scope,
        began_at: Timestamp,
        own: Option<Timestamp>,
    ) -> Result<Timestamp> {
        let own = own.unwrap_or(Timestamp::MAX);
        match self.policy(target, scope).filter(|policy| policy.enforce) {
            Some(policy) => Ok(own.min(began_at.checked_add(policy.max.duration())?)),
            None => Ok(own),
        }
    }

    pub(crate) fn bucket_ttl(&self, owner: &str, bucket: &str) -> Option<Ttl> {
        self.0.bucket_lives.of(owner, bucket)
    }

    pub(crate) fn bucket_extend(&self, owner: &str, bucket: &str) -> BucketExtend {
        self.0.bucket_lives.extend_of(owner, bucket)
    }

    fn policy<'a>(&self, target: impl Into<PolicyTarget<'a>>, scope: &Scope) -> Option<TtlPolicy> {
        self.0.policies.read().unwrap_or_else(PoisonError::into_inner).of(target, scope)
    }

    fn configured_policies(&self) -> &TtlPolicies {
        &self.0.configured
    }

    fn take_over(&self, policies: TtlPolicies) {
        *self.0.policies.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(policies);
    }

    pub(crate) fn client_epochs(&self) -> &ClientEpochs {
        &self.0.client_epochs
    }

    pub(crate) fn client_epoch_source(&self) -> ClientEpochSource {
        self.0.client_epoch_source
    }

    pub(crate) fn seen_epochs(&self) -> &SeenEpochs {
        &self.0.seen_epochs
    }

    pub(crate) fn requires_pkce(&self) -> bool {
        self.0.requires_pkce
    }

    /// The profile of that name, or the default one without a name.
    pub(crate) fn profile_or_default(&self, name: Option<&str>) -> Result<Profile> {
        name.map_or(Ok(self.0.profile), |name| self.profile_named(name))
    }

    /// Runs a write beside the answer of the caller, who does not wait for it: nothing may depend on it. It is left out
    /// when too many are under way.
    pub(crate) fn beside(&self, write: impl Future<Output = Result<()>> + Send + 'static) {
        let Ok(place) = Arc::clone(&self.0.beside).try_acquire_owned() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            if let Err(error) = write.await {
                tracing::debug!(%error, "a write beside an answer failed");
            }
            drop(place);
        });
    }

    /// Waits for the writes that go on beside answers.
    pub async fn settle(&self) {
        let most = u32::try_from(MOST_BESIDE).unwrap_or(u32::MAX);
        let _ = self.0.beside.acquire_many(most).await;
    }

    /// Sets the fence: a backup was restored.
    pub(crate) fn set_fence(&self, fence: Fence) {
        self.0.fence.set(fence);
    }

    /// Fence of a restored backup; none if there was none.
    pub(crate) fn fence(&self) -> Option<Fence> {
        self.0.fence.get()
    }

    /// Notes the fence of a restored backup as the cause of a refusal, if a record that has ended at `end` at the earliest,
    /// and lives for `life`, may be from before it. Those that are issued after the fence end later.
    pub(crate) fn note_fence(&self, end: Timestamp, life: Ttl) {
        let last = self.fence().and_then(|fence| fence.at.checked_add(life.duration()).ok());
        if last.is_some_and(|last| end <= last) {
            RefusalCause::Fence.note();
        }
    }

    pub(crate) fn naming_checked(&self) -> &OnceCell<KeyId> {
        &self.0.naming_checked
    }

    pub(crate) fn text_counters(&self) -> &records::TextCounters {
        &self.0.text_counters
    }

    pub(crate) fn chains(&self) -> &Chains {
        &self.0.chains
    }
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stores({})", self.backend().info().engine)
    }
}

/// For how long after its end it is remembered what became of a code, a pushed request or a device code.
pub(crate) const MEMORY: Duration = Duration::from_secs(24 * 3600);

pub(crate) fn check_length(member: &'static str, text: &str, most: usize) -> Result<()> {
    if text.is_empty() || text.len() > most {
        let message = format!("a {member} has 1 to {most} bytes; this one has {}", text.len());
        return Err(Error::invalid(message).about(member));
    }
    Ok(())
}

/// Names the member of a request that a key refuses: the first that is no name, else the longest.
pub(crate) fn name_member<T>(made: Result<T>, names: &[(&'static str, &str)]) -> Result<T> {
    made.map_err(|error| {
        let is_wrong = |(_, name): &&(&'static str, &str)| Part::from(*name).check().is_err();
        let longest = || names.iter().max_by_key(|(_, name)| name.len());
        match names.iter().find(is_wrong).or_else(longest) {
            Some((member, _)) if error.kind() == ErrorKind::Invalid => error.about(member),
            _ => error,
        }
    })
}

pub(crate) fn check_optional(member: &'static str, text: Option<&str>, most: usize) -> Result<()> {
    text.map_or(Ok(()), |text| check_length(member, text, most))
}

/// Builds [`Stores`].
#[must_use]
pub struct Builder {
    timed: Timed,
    rng: Arc<dyn Rng>,
    settings: StoreSettings,
    keyring: Option<SharedKeyring>,
    untagged: Untagged,
}

impl Builder {
    /// Takes every instant from `clock`, and doubts none of them. For tests.
    pub fn clock(self, clock: impl Clock) -> Self {
        self.time(Arc::new(TimeSource::of_clock(clock)))
    }

    /// Takes the time from `time`, which may be in doubt.
    pub fn time(mut self, time: Arc<TimeSource>) -> Self {
        self.timed = Timed::new(Arc::clone(self.timed.admin()), time);
        self
    }

    /// Takes random bytes from `rng`.
    pub fn rng(mut self, rng: impl Rng) -> Self {
        self.rng = Arc::new(rng);
        self
    }

    /// Derives refresh tokens and seals payloads with `keyring`. Without one, a new one is made up, and its tokens
    /// end with these stores.
    pub fn keyring(self, keyring: Keyring) -> Self {
        self.shared_keyring(SharedKeyring::new(keyring))
    }

    /// The same with a keyring that is read again when its file changes.
    pub fn shared_keyring(mut self, keyring: SharedKeyring) -> Self {
        self.keyring = Some(keyring);
        self
    }

    /// Uses these settings in place of all that were set before.
    pub(crate) fn settings(mut self, settings: StoreSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Treats records with authority that have no tag like this; by default they are accepted.
    pub fn untagged(mut self, untagged: Untagged) -> Self {
        self.untagged = untagged;
        self
    }

    /// The stores.
    #[must_use]
    pub fn build(self) -> Stores {
        let Self { timed, rng, settings, keyring, untagged } = self;
        let StoreSettings { policies, bucket_lives, profile, profiles, requires_pkce, holds_leases } =
            settings;
        let client_epoch_source = match (timed.info().shared, holds_leases) {
            (false, _) => ClientEpochSource::Commit,
            (true, true) => ClientEpochSource::Lease,
            (true, false) => ClientEpochSource::Read,
        };
        let keyring = keyring
            .unwrap_or_else(|| SharedKeyring::new(Keyring::generate(rng.as_ref(), timed.time().date())));
        let (ring, random) = (keyring.clone(), Arc::clone(&rng));
        let authenticated = Arc::new(Authenticated::new(Arc::clone(timed.admin()), ring, random, untagged));
        let timed = timed.over(Arc::clone(&authenticated) as Arc<dyn Admin>);
        Stores(Arc::new(Shared {
            client_epochs: ClientEpochs::default(),
            client_epoch_source,
            seen_epochs: SeenEpochs::default(),
            timed,
            rng,
            profile,
            profiles,
            hashers: Hashers::new(),
            known_clients: KnownClients::default(),
            keyring,
            authenticated,
            policies: RwLock::new(Arc::new(policies.clone())),
            configured: policies,
            requires_pkce,
            beside: Arc::new(Semaphore::new(MOST_BESIDE)),
            bucket_lives,
            chains: Chains::default(),
            fence: FenceState::default(),
            naming_checked: OnceCell::new(),
            text_counters: records::TextCounters::default(),
        }))
    }
}

settings::store_setters!(Builder);

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Builder(…)")
    }
}
