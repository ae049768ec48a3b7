//! Limit on guesses of user codes. A guess is counted before it is looked up, so concurrent guesses do not pass it.

use std::time::Duration;

use minicbor::{Decode, Encode};

use super::DeviceCodes;
use crate::model::codec;
use crate::model::digest::Digest;
use crate::model::error::Result;
use crate::model::key::Key;
use crate::model::kind::Kind;
use crate::model::time::Timestamp;
use crate::model::write::Write;
use crate::stores::audit::{Action, Note};
use crate::stores::shared::update::Step;

/// Window in which guesses are counted together.
const WINDOW: Duration = Duration::from_secs(600);

/// Most wrong guesses of one source in a window (RFC 8628 §5.1).
const MOST_OF_A_SOURCE: u64 = 10;

/// Most wrong guesses in a window of all requests without a source.
const MOST_OF_ALL: u64 = 100;

#[derive(Encode, Decode)]
struct Guesses {
    #[n(0)]
    counted: u64,
}

impl DeviceCodes {
    /// Counts a guess of `source`; the error is the time at which the next one is allowed.
    pub(super) async fn count_guess(&self, source: Option<&str>) -> Result<Result<(), Timestamp>> {
        let most = if source.is_some() { MOST_OF_A_SOURCE } else { MOST_OF_ALL };
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
                    if counted >= most {
                        return Ok(Step::answer(Err(standing.expires_at)));
                    }
                    last = counted + 1 == most;
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
            let source = source.unwrap_or("all without a source").to_owned();
            Ok(step.audited(&self.scope, note.about(Kind::UserCode, vec![source])))
        });
        update.await
    }

    /// Takes a guess off again: the code was right.
    pub(super) async fn uncount_guess(&self, source: Option<&str>) -> Result<()> {
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

    fn guesses_key(&self, source: Option<&str>) -> Result<Key> {
        let digest = source.map_or_else(
            || Digest::of("guesses", &[]),
            |source| Digest::of("guesses of a source", &[source.as_bytes()]),
        );
        Key::new(Kind::UserCode, &self.scope, &["guesses".into(), digest.part()], &[])
    }
}
