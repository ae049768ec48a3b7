//! Hashes of client secrets.
//!
//! Minted secrets have 256 random bits: one SHA-256 of them cannot be guessed, and verifying it costs nothing. Imported
//! hashes are of secrets that people may have chosen. They stay as they are, Argon2, and are verified on threads of
//! their own: one at a time for each scope, so that the guesses in one scope take no time from another, and in it one
//! client after the other, so that the guesses at one client take no place from another.

mod turns;

use std::fmt;
use std::sync::Arc;
use std::thread;

use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{Error as HashError, PasswordVerifier};
use argon2::{Algorithm, Argon2, Params, Version};
use minicbor::bytes::ByteArray;
use minicbor::{Decode, Encode};
use subtle::ConstantTimeEq;
use tokio::sync::{Semaphore, oneshot};
use zeroize::Zeroizing;

use turns::{LinePosition, Turns};

use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::scope::Scope;
use crate::model::secret::Secret;
use crate::stores::shared::token;

/// Maximum number of concurrent hashes: each takes a core, and its memory.
const AT_ONCE: usize = 2;

/// Most memory of an imported hash, in KiB.
const MOST_MEMORY_KIB: u32 = 256 * 1024;

/// Most work of an imported hash: KiB of memory times passes.
const MOST_WORK: u64 = 1024 * 1024;

/// Longest PHC string, in bytes.
const MAX_PHC_BYTES: usize = 512;

/// Longest secret that is compared with an imported hash, in bytes.
const MAX_SECRET_BYTES: usize = 1_024;

/// Stored hash of a client secret.
#[derive(Clone, Encode, Decode)]
pub(super) struct SecretHash {
    #[n(0)]
    salt: ByteArray<16>,
    #[n(1)]
    hash: ByteArray<32>,
    /// Cost of Argon2id, as earlier versions hashed minted secrets; zero for SHA-256.
    #[n(2)]
    memory_kib: u32,
    #[n(3)]
    passes: u32,
    /// End of validity, once there is a newer secret.
    #[n(4)]
    pub(super) valid_until: Option<u64>,
    /// Imported hash in the PHC string format, in place of the others.
    #[n(5)]
    phc: Option<String>,
}

impl SecretHash {
    /// Hash of a minted secret.
    pub(super) fn minted(secret: &Secret) -> Self {
        Self {
            salt: [0; 16].into(),
            hash: digest(secret).into(),
            memory_kib: 0,
            passes: 0,
            valid_until: None,
            phc: None,
        }
    }

    /// Hash that another system has made: Argon2 in the PHC string format, of a bounded cost.
    pub(super) fn imported(phc: &Secret) -> Result<Self> {
        let invalid = |why: &str| Err(Error::invalid(format!("client_secret_hash: {why}")));
        let text = phc.expose();
        if text.len() > MAX_PHC_BYTES {
            return invalid("the hash is too long");
        }
        let Ok(hash) = PasswordHash::new(text) else {
            return invalid("expected a PHC string, such as $argon2id$v=19$m=19456,t=2,p=1$salt$hash");
        };
        if Algorithm::new(hash.algorithm.as_str()).is_err() {
            return invalid("expected argon2id, argon2i or argon2d");
        }
        let (Ok(params), Some(_), Some(_)) = (Params::try_from(&hash), &hash.salt, &hash.hash) else {
            return invalid("expected the parameters m, t and p, a salt and a hash");
        };
        let work = u64::from(params.m_cost()) * u64::from(params.t_cost());
        if params.m_cost() > MOST_MEMORY_KIB || work > MOST_WORK {
            return invalid("m is at most 262144 (256 MiB), and m times t at most 1048576");
        }
        let phc = Some(text.to_owned());
        Ok(Self {
            salt: [0; 16].into(),
            hash: [0; 32].into(),
            memory_kib: 0,
            passes: 0,
            valid_until: None,
            phc,
        })
    }

    /// Returns whether verifying it takes no more than a digest.
    fn is_quick(&self) -> bool {
        self.phc.is_none() && self.passes == 0
    }

    /// Returns whether it may be the hash of a secret of this form.
    fn may_be_of(&self, secret: &Secret) -> bool {
        match self.phc {
            Some(_) => (1..=MAX_SECRET_BYTES).contains(&secret.expose().len()),
            // Text that is no minted secret is not worth a hash.
            None => token::decode::<32>(token::CLIENT_SECRET, secret).is_some(),
        }
    }

    /// Verifies a secret, at the cost of the hash.
    fn fits(&self, secret: &Secret) -> Result<bool> {
        let broken = || Error::corrupt("the hash of a client secret cannot be read");
        let secret = secret.expose().as_bytes();
        if let Some(phc) = &self.phc {
            let hash = PasswordHash::new(phc).map_err(|error| broken().caused_by(error.to_string()))?;
            return match Argon2::default().verify_password(secret, &hash) {
                Ok(()) => Ok(true),
                Err(HashError::PasswordInvalid) => Ok(false),
                Err(error) => Err(broken().caused_by(error.to_string())),
            };
        }
        let params = Params::new(self.memory_kib, self.passes, 1, Some(32));
        let params = params.map_err(|error| broken().caused_by(error.to_string()))?;
        let mut hash = Zeroizing::new([0; 32]);
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
            .hash_password_into(secret, self.salt.as_slice(), hash.as_mut_slice())
            .map_err(|error| broken().caused_by(error.to_string()))?;
        Ok(hash.as_slice().ct_eq(self.hash.as_slice()).into())
    }
}

fn digest(secret: &Secret) -> [u8; 32] {
    *Digest::of("client secret", &[secret.expose().as_bytes()]).as_bytes()
}

/// Verifies imported hashes on threads of its own, a few at once, one at a time for each scope. It needs no async
/// runtime.
pub(crate) struct Hashers {
    at_once: Arc<Semaphore>,
    turns: Turns,
}

impl Hashers {
    pub(crate) fn new() -> Self {
        Self { at_once: Arc::new(Semaphore::new(AT_ONCE)), turns: Turns::default() }
    }

    /// Compares `secret` with each of the `hashes` of a client, in constant time. `Unavailable` if too many verifications
    /// of the client are waiting.
    pub(super) async fn fits(
        &self,
        (scope, client_id): (&Scope, &str),
        secret: &Secret,
        hashes: Vec<SecretHash>,
    ) -> Result<bool> {
        let (quick, slow): (Vec<_>, Vec<_>) = hashes.into_iter().partition(SecretHash::is_quick);
        let digest = digest(secret);
        // All of them are compared, so that the time does not tell which one is near.
        let quick = quick.iter().filter(|kept| bool::from(digest.ct_eq(kept.hash.as_slice())));
        if quick.count() > 0 {
            return Ok(true);
        }
        let slow: Vec<_> = slow.into_iter().filter(|kept| kept.may_be_of(secret)).collect();
        if slow.is_empty() {
            return Ok(false);
        }
        let secret = secret.clone();
        self.aside((scope, client_id), move || {
            for kept in &slow {
                if kept.fits(&secret)? {
                    return Ok(true);
                }
            }
            Ok(false)
        })
        .await?
    }

    async fn aside<T: Send + 'static>(
        &self,
        (scope, client_id): (&Scope, &str),
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        let failed = || Error::unavailable("a secret could not be hashed");
        let crowd = || Error::unavailable("too many imported secrets of this client are being verified");
        let turn = match self.turns.enter(scope, client_id).ok_or_else(crowd)? {
            LinePosition::First(turn) => turn,
            LinePosition::Waiting(later) => later.await.map_err(|_| failed())?,
        };
        let permit = Arc::clone(&self.at_once).acquire_owned().await.map_err(|_| failed())?;
        let (tell, told) = oneshot::channel();
        let hasher = thread::Builder::new().name("ebbtide-hash".to_owned());
        hasher
            .spawn(move || {
                // The caller may have gone; the turn and the permit are held until the work is done.
                let _ = tell.send(work());
                drop((permit, turn));
            })
            .map_err(|error| failed().caused_by(error))?;
        told.await.map_err(|_| failed())
    }
}

impl fmt::Debug for Hashers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hashers(…)")
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinHandle;

    use super::turns::MOST_WAITING;
    use super::*;

    /// Hash at the least cost that there is, which claims another one.
    fn phc(secret: &str, cost: &str) -> Secret {
        let params = Params::new(8, 1, 1, Some(32)).unwrap();
        let mut hash = [0; 32];
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        argon.hash_password_into(secret.as_bytes(), b"0123456789abcdef", &mut hash).unwrap();
        let encode = |bytes: &[u8]| {
            use base64ct::{Base64Unpadded, Encoding as _};
            Base64Unpadded::encode_string(bytes)
        };
        Secret::new(format!("$argon2id$v=19${cost}${}${}", encode(b"0123456789abcdef"), encode(&hash)))
    }

    fn earlier(secret: &Secret) -> SecretHash {
        let mut hash = [0; 32];
        let params = Params::new(8, 1, 1, Some(32)).unwrap();
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        argon.hash_password_into(secret.expose().as_bytes(), &[7; 16], &mut hash).unwrap();
        let (memory_kib, passes) = (8, 1);
        SecretHash {
            salt: [7; 16].into(),
            hash: hash.into(),
            memory_kib,
            passes,
            valid_until: None,
            phc: None,
        }
    }

    #[tokio::test]
    async fn a_secret_fits_its_own_hash_and_no_other() {
        let (hashers, at) = (Hashers::new(), (&Scope::Global, "app"));
        let secret = token::write(token::CLIENT_SECRET, &[1; 32]);
        let other = token::write(token::CLIENT_SECRET, &[2; 32]);
        let imported = SecretHash::imported(&phc("correct horse", "m=8,t=1,p=1")).unwrap();
        let all = vec![earlier(&secret), SecretHash::minted(&other), imported.clone()];
        for (presented, fits) in [
            (secret.clone(), true),
            (other.clone(), true),
            (Secret::new("correct horse"), true),
            (Secret::new("correct hors"), false),
            (Secret::new(""), false),
            (token::write(token::CLIENT_SECRET, &[3; 32]), false),
        ] {
            let answer = hashers.fits(at, &presented, all.clone()).await.unwrap();
            assert_eq!(answer, fits, "{}", presented.expose());
        }
        let bytes = crate::model::codec::encode(&imported);
        let read: SecretHash = crate::model::codec::decode(&bytes).unwrap();
        assert!(hashers.fits(at, &Secret::new("correct horse"), vec![read]).await.unwrap());
    }

    #[test]
    fn an_imported_hash_is_argon2_of_a_bounded_cost() {
        let read = |text: &Secret| SecretHash::imported(text).map(|_| ());
        assert!(read(&phc("x", "m=65536,t=3,p=4")).is_ok());
        for bad in [
            phc("x", "m=262145,t=1,p=1"),
            phc("x", "m=262144,t=5,p=1"),
            phc("x", "m=65536,t=4000000,p=1"),
            phc("x", "m=1,t=1,p=1"),
            Secret::new("$argon2id$v=19$m=8,t=1,p=1"),
            Secret::new("$scrypt$ln=16,r=8,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo"),
            Secret::new("$2b$12$abcdefghijklmnopqrstuv"),
            Secret::new("plain"),
            Secret::new(""),
            Secret::new("$".repeat(600)),
        ] {
            let error = read(&bad).unwrap_err();
            assert!(error.message().starts_with("client_secret_hash: "), "{error}");
            assert!(!error.message().contains(bad.expose()) || bad.expose().is_empty(), "{error}");
        }
    }

    type Order = std::sync::mpsc::Sender<&'static str>;

    /// Verification of a client that notes its turn.
    fn noted(
        hashers: &Arc<Hashers>,
        (scope, client_id): (&Scope, &'static str),
        order: &Order,
    ) -> JoinHandle<Result<()>> {
        let (hashers, scope, order) = (Arc::clone(hashers), scope.clone(), order.clone());
        let work = move || order.send(client_id).unwrap();
        tokio::spawn(async move { hashers.aside((&scope, client_id), work).await })
    }

    /// Verification that is under way until the gate is opened, and as many others of the client as there are guesses:
    /// those that were refused are done.
    async fn crowd(
        hashers: &Arc<Hashers>,
        (scope, client_id): (&Scope, &'static str),
        guesses: usize,
        order: &Order,
    ) -> (std::sync::mpsc::Sender<()>, Vec<JoinHandle<Result<()>>>) {
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let first = tokio::spawn({
            let (hashers, scope) = (Arc::clone(hashers), scope.clone());
            async move { hashers.aside((&scope, client_id), move || gone.recv().unwrap()).await }
        });
        while hashers.turns.waiting(scope).is_none() {
            tokio::task::yield_now().await;
        }
        let mut all: Vec<_> =
            (0..guesses).map(|_| noted(hashers, (scope, client_id), order)).chain([first]).collect();
        let done = |all: &[JoinHandle<_>]| all.iter().filter(|one| one.is_finished()).count();
        while done(&all) < guesses - MOST_WAITING || hashers.turns.waiting(scope) != Some(MOST_WAITING) {
            tokio::task::yield_now().await;
        }
        all.rotate_right(1);
        (go, all)
    }

    #[tokio::test]
    async fn a_scope_that_is_crowded_takes_no_turn_from_another() {
        let (hashers, (order, _came)) = (Arc::new(Hashers::new()), std::sync::mpsc::channel());
        let (busy, calm) = (Scope::Global, "tenant:acme".parse::<Scope>().unwrap());
        let (go, all) = crowd(&hashers, (&busy, "app"), MOST_WAITING, &order).await;
        hashers.aside((&calm, "app"), || ()).await.unwrap();
        let error = hashers.aside((&busy, "app"), || ()).await.unwrap_err();
        assert!(error.message().contains("too many imported secrets"), "{error}");
        go.send(()).unwrap();
        for one in all {
            one.await.unwrap().unwrap();
        }
        hashers.aside((&busy, "app"), || ()).await.unwrap();
    }

    #[tokio::test]
    async fn guesses_at_one_client_leave_another_its_turn() {
        for guesses in [48, 512] {
            let (hashers, scope) = (Arc::new(Hashers::new()), Scope::Global);
            let (order, came) = std::sync::mpsc::channel();
            let (go, all) = crowd(&hashers, (&scope, "victim"), guesses, &order).await;
            let secret = token::write(token::CLIENT_SECRET, &[1; 32]);
            let minted = vec![SecretHash::minted(&secret)];
            assert!(hashers.fits((&scope, "victim"), &secret, minted).await.unwrap(), "it needs no turn");
            let good = noted(&hashers, (&scope, "good"), &order);
            while hashers.turns.waiting(&scope) != Some(MOST_WAITING + 1) {
                tokio::task::yield_now().await;
            }
            go.send(()).unwrap();
            good.await.unwrap().unwrap();
            let mut refused = 0;
            for one in all {
                refused += usize::from(one.await.unwrap().is_err());
            }
            assert_eq!(refused, guesses - MOST_WAITING, "the others are told to come again");
            drop(order);
            let order: Vec<_> = came.into_iter().collect();
            assert_eq!((order.len(), order[1]), (MOST_WAITING + 1, "good"), "after one guess: {order:?}");
        }
    }

    #[tokio::test]
    async fn clients_take_turns_and_callers_that_have_gone_take_none() {
        let turns = Turns::default();
        let scope = Scope::Global;
        let Some(LinePosition::First(first)) = turns.enter(&scope, "a") else { panic!("nobody is there") };
        let mut waiting: Vec<_> = ["a", "a", "a", "b", "c", "b"]
            .into_iter()
            .map(|client| match turns.enter(&scope, client) {
                Some(LinePosition::Waiting(later)) => (client, later),
                _ => panic!("the first one is not done"),
            })
            .collect();
        drop(waiting.remove(1));
        let (mut turn, mut order) = (Some(first), String::new());
        while turn.take().is_some() {
            for (client, later) in &mut waiting {
                if let Ok(next) = later.try_recv() {
                    order.push_str(client);
                    turn = Some(next);
                }
            }
        }
        assert_eq!(order, "abcab");
        assert_eq!(turns.waiting(&scope), None);
    }
}
