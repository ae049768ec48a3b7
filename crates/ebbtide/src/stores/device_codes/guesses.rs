//! Limit on guesses of user codes. A guess is counted before it is looked up, so concurrent guesses do not pass it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use minicbor::{Decode, Encode};

use super::DeviceCodes;
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::secret::Secret;
use crate::model::time::Timestamp;
use crate::model::write::Write;
use crate::stores::audit::{Action, Note};
use crate::stores::shared::token;
use crate::stores::shared::update::Step;

/// Window in which guesses are counted together.
const WINDOW: Duration = Duration::from_secs(600);

/// Most wrong guesses of one source in a window (RFC 8628 §5.1).
const MOST_OF_A_SOURCE: u64 = 10;

/// Text of a source for the audit log: an address as it is. Anything else may be a bearer secret: a session is shown by its
/// handle, and the rest by a digest.
pub(super) fn shown(source: &Secret) -> String {
    let text = source.expose();
    if text.parse::<IpAddr>().is_ok() || text.parse::<SocketAddr>().is_ok() {
        return text.to_owned();
    }
    let digest = token::read(token::SESSION, &[], source).unwrap_or_else(|| digest(text));
    Base64UrlUnpadded::encode_string(digest.as_bytes())
}

fn digest(source: &str) -> Digest {
    Digest::of("guesses of a source", &[source.as_bytes()])
}

#[derive(Encode, Decode)]
struct Guesses {
    #[n(0)]
    counted: u64,
}

impl DeviceCodes {
    /// Counts a guess of `source`, which the audit log shows as `shown`; the error is the time at which the next one is
    /// allowed.
    pub(super) async fn count_guess(&self, source: &str, shown: &str) -> Result<Result<(), Timestamp>> {
        if source.is_empty() {
            // All that send none would be counted, and locked out, together.
            return Err(Error::invalid("source must not be empty").about("source"));
        }
        let key = self.guesses_key(source)?;
        let update = self.stores.update(&key, |standing, now| {
            let mut last = false;
            let write = match standing {
                None => {
                    let record = codec::encode(&Guesses { counted: 1 });
                    let record = self.stores.record(record, now.end_after(WINDOW)?);
                    Write::Insert { key: key.clone(), record }
                }
                Some(standing) => {
                    let Guesses { counted } = codec::decode(&standing.value)?;
                    if counted >= MOST_OF_A_SOURCE {
                        return Ok(Step::answer(Err(standing.expires_at)));
                    }
                    last = counted + 1 == MOST_OF_A_SOURCE;
                    let record = codec::encode(&Guesses { counted: counted + 1 });
                    let record = self.stores.record(record, standing.expires_at);
                    Write::Replace { key: key.clone(), expected: standing.version, record }
                }
            };
            let step = Step::write(vec![write], Ok(()));
            if !last {
                return Ok(step);
            }
            let note = Note::automatic(Action::Lockout, "the guesses of user codes are used up")?;
            Ok(step.audited(&self.scope, note.about(Kind::UserCode, vec![shown.to_owned()])))
        });
        update.await
    }

    /// Takes a guess off again: the code was right.
    pub(super) async fn uncount_guess(&self, source: &str) -> Result<()> {
        let key = self.guesses_key(source)?;
        let update = self.stores.update(&key, |standing, _| {
            let Some(standing) = standing else { return Ok(Step::answer(())) };
            let Guesses { counted } = codec::decode(&standing.value)?;
            let expected = standing.version;
            let write = if counted <= 1 {
                Write::Remove { key: key.clone(), expected }
            } else {
                let record = codec::encode(&Guesses { counted: counted - 1 });
                let record = self.stores.record(record, standing.expires_at);
                Write::Replace { key: key.clone(), expected, record }
            };
            Ok(Step::write(vec![write], ()))
        });
        update.await
    }

    fn guesses_key(&self, source: &str) -> Result<Key> {
        Key::new(Kind::UserCode, &self.scope, &["guesses".into(), digest(source).part()], &[])
    }
}
