//! Changes that answer with the record.

use super::{ATTEMPTS, Timed, contended};
use crate::model::alteration::{Alteration, Altered, Outcome};
use crate::model::error::{Error, Result};
use crate::model::key::Key;
use crate::model::write::{Batch, Write};
use crate::timekeeping::Now;

impl Timed {
    /// Changes the record at `key`, and answers with it, in one atomic step.
    pub async fn alter(&self, key: &Key, alteration: &Alteration, now: Now) -> Result<Altered> {
        if alteration.expires_at().is_some_and(|end| !now.may_write(end)) {
            return Err(Error::expired("the record would have ended before it was written"));
        }
        if !now.is_exact() {
            return self.alter_between(key, alteration, now).await;
        }
        let altered = self.backend.alter(key, alteration, now.earliest()).await?;
        if altered.applied {
            self.note_commit().await;
        }
        let end = match alteration {
            Alteration::Take { .. } => None,
            Alteration::Swap { record } => Some(record.expires_at),
            Alteration::Add(_) | Alteration::Touch { .. } => {
                altered.record.as_ref().map(|record| record.expires_at)
            }
        };
        if let Some(end) = end.filter(|end| altered.applied && !end.is_never()) {
            self.time.check_written(end)?;
        }
        Ok(altered)
    }

    /// Reads, judges by both ends, and commits on the version that was read.
    async fn alter_between(&self, key: &Key, alteration: &Alteration, now: Now) -> Result<Altered> {
        alteration.check()?;
        for _ in 0..ATTEMPTS {
            let standing = self.backend.get(key, now.earliest()).await?;
            let expected = standing.as_ref().map(|record| record.version);
            let mut live = None;
            if let Some(record) = standing {
                if now.before(record.expires_at)? {
                    live = Some(record);
                } else if matches!(alteration, Alteration::Add(_)) {
                    return Err(Error::unavailable(
                        "a counter that may have expired is in the way, and the clock does not tell yet",
                    ));
                }
            }
            let ended = expected.is_some() && live.is_none();
            let (outcome, altered) = alteration.judge(live)?;
            let key = key.clone();
            let write = match (outcome, expected) {
                // To the engine the one that has ended is live, and no version condition on it holds.
                (Outcome::Store(record), Some(_)) if ended => Write::Put { key, record },
                (Outcome::Store(record), Some(expected)) => Write::Replace { key, expected, record },
                (Outcome::Store(record), None) => Write::Insert { key, record },
                (Outcome::Erase, Some(expected)) => Write::Remove { key, expected },
                (Outcome::Erase, None) | (Outcome::Nothing, _) => return Ok(altered),
            };
            if self.commit(Batch::try_from(write)?, now).await?.is_applied() {
                return Ok(altered);
            }
        }
        Err(contended())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engines::memory::Memory;
    use crate::model::alteration::{Add, decode_count};
    use crate::model::error::ErrorKind;
    use crate::model::kind::Kind;
    use crate::model::record::{Record, Version};
    use crate::model::rng::SystemRng;
    use crate::model::scope::Scope;
    use crate::model::time::{ManualClock, Timestamp};
    use crate::timekeeping::TimeSource;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis).unwrap()
    }

    fn add(end: u64) -> Alteration {
        let version = Version::mint(&SystemRng);
        Alteration::Add(Add { by: 1, limit: i64::MAX, expires_if_new: at(end), version })
    }

    #[tokio::test]
    async fn an_alteration_is_judged_by_both_ends() {
        let clock = ManualClock::at(at(0));
        let timed = Timed::new(Arc::new(Memory::default()), Arc::new(TimeSource::of_clock(clock)));
        let key = |name: &str| Key::new(Kind::Probe, &Scope::Global, &[name.into()], &[]).unwrap();
        let exact = Now::exact(at(0));
        assert!(timed.alter(&key("n"), &add(10), exact).await.unwrap().applied);
        let counted = timed.alter(&key("n"), &add(10), Now::held(at(5), at(9))).await.unwrap();
        assert_eq!(decode_count(&counted.record.unwrap().value).unwrap(), 2);
        let held = Now::held(at(5), at(10));
        let refused = timed.alter(&key("n"), &add(90), held).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable, "a counter that ended after `earliest`");
        let record = Record::new("plain", at(10), &SystemRng);
        let swap = Alteration::Swap { record: record.clone() };
        assert!(timed.alter(&key("a"), &swap, exact).await.unwrap().applied);
        let take = Alteration::Take { first: b'p' };
        assert_eq!(timed.alter(&key("a"), &take, held).await.unwrap(), Altered::refused(None));
        let doubt = Now::unconfirmed(at(5), at(10));
        assert_eq!(timed.alter(&key("a"), &take, doubt).await.unwrap_err().kind(), ErrorKind::Unavailable);
        let over = Alteration::Swap { record: Record::new("new", at(50), &SystemRng) };
        let swapped = timed.alter(&key("a"), &over, held).await.unwrap();
        assert_eq!(swapped, Altered::applied(None), "what has ended at `latest` is not answered");
        let past = Alteration::Swap { record };
        assert!(timed.alter(&key("a"), &past, held).await.is_err(), "nothing is written with a past end");
    }
}
