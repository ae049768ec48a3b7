//! What the embedded engines share: the folder, the committer, the ledger, sweeps.

mod committer;
mod control;
mod engine;
mod folder;
mod ledger;
mod pace;
mod priority;
mod stored;
mod sweep;
mod turns;

use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{Mutex, oneshot};

use committer::{Committer, Job, Shared};
use control::Control;
pub(super) use engine::{Engine, Op, Visitor, Walk};
use folder::Folder;
pub(super) use folder::is_store;
pub(super) use pace::Pace;
pub(super) use priority::lower_priority;
use sweep::Worth;

use crate::admin::{Admin, Erased, Stats};
use crate::backend::{Backend, Budget, Cursor, Info, Page, Swept};
use crate::model::alteration::{Alteration, Altered};
use crate::model::error::{Error, Result};
use crate::model::key::{Key, Prefix};
use crate::model::record::Record;
use crate::model::time::Timestamp;
use crate::model::write::{Batch, Commit};
use crate::provide;

/// The milliseconds at which a stored record ends, for the engines' compaction filters.
pub(super) fn stored_millis(bytes: &[u8]) -> Option<u64> {
    stored::millis(bytes)
}

/// How an embedded store is opened.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder.
    pub path: PathBuf,
    /// The most memory for cached blocks.
    pub cache_bytes: u64,
    /// A sweep compacts a kind of which at least this share has expired, in percent.
    pub sweep_share_percent: u64,
    /// Or of which something has been expired for longer than this.
    pub sweep_overdue: Duration,
    /// The clock mark moves by at most this in one commit; more is a leap that an operator must confirm.
    pub clock_leap: Duration,
}

impl Options {
    /// The store in that folder, with what suits most.
    #[must_use]
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            cache_bytes: 256 << 20,
            sweep_share_percent: 25,
            sweep_overdue: Duration::from_secs(3_600),
            clock_leap: Duration::from_secs(24 * 3_600),
        }
    }

    /// Reads what stands behind the scheme of a URL: `PATH?cache_mib=…&sweep_share_percent=…&sweep_overdue_seconds=…
    /// &clock_leap_seconds=…`.
    pub fn parse(rest: &str) -> Result<Self> {
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut options = Self::at(path);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let number = || -> Result<u64> {
                let wrong =
                    || Error::invalid(format!("{name} in the store URL must be a whole number above zero"));
                value.parse().ok().filter(|number| *number > 0 && *number < 1 << 32).ok_or_else(wrong)
            };
            match name {
                "cache_mib" => options.cache_bytes = number()? << 20,
                "sweep_share_percent" => options.sweep_share_percent = number()?,
                "sweep_overdue_seconds" => options.sweep_overdue = Duration::from_secs(number()?),
                "clock_leap_seconds" => options.clock_leap = Duration::from_secs(number()?),
                _ => {
                    return Err(Error::invalid(format!(
                        "no option {name} in the URL of an embedded store; there are cache_mib, \
                         sweep_share_percent, sweep_overdue_seconds and clock_leap_seconds"
                    )));
                }
            }
        }
        Ok(options)
    }
}

/// A store in a folder of this machine, on an engine of type `E`.
pub(super) struct Embedded<E> {
    // Dropped first of all: it holds what the rest is made of.
    _control: Option<Control>,
    // Then the committer: its thread ends before the engine is closed and the folder let go.
    committer: Arc<Committer>,
    shared: Arc<Shared<E>>,
    worth: Worth,
    /// One sweep or backup at a time: a sweep would take records from under a backup's count of them.
    maintenance: Arc<Mutex<()>>,
    folder: Arc<Folder>,
}

impl<E: Engine> Embedded<E> {
    pub(super) fn open(options: &Options) -> Result<Self> {
        let folder = Folder::take(&options.path, E::NAME)?;
        let engine = E::open(&folder.data(), options.cache_bytes)?;
        let (shared, folder) = (Arc::new(Shared::load(engine)?), Arc::new(folder));
        let committer = Arc::new(Committer::start(Arc::clone(&shared), options.clock_leap)?);
        let maintenance = Arc::<Mutex<()>>::default();
        let control = {
            let (shared, folder, alone) =
                (Arc::clone(&shared), Arc::clone(&folder), Arc::clone(&maintenance));
            Control::listen(&options.path, move |target| {
                let _alone = alone.blocking_lock();
                copy(&shared, &folder, target)
            })?
        };
        Ok(Self {
            _control: control,
            committer,
            shared,
            worth: Worth { share_percent: options.sweep_share_percent, overdue: options.sweep_overdue },
            maintenance,
            folder,
        })
    }

    /// Does long work in a thread of its own. It keeps the folder until it ends, also if nobody waits any more.
    async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Shared<E>, &Committer, &Folder) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let committer = Arc::clone(&self.committer);
        let (shared, folder) = (Arc::clone(&self.shared), Arc::clone(&self.folder));
        let alone = Arc::clone(&self.maintenance).lock_owned().await;
        std::thread::Builder::new()
            .name("ebbtide-maintenance".to_owned())
            .spawn(move || {
                lower_priority();
                let outcome = work(&shared, &committer, &folder);
                drop((committer, shared, folder, alone));
                let _ = answer.send(outcome);
            })
            .map_err(|error| Error::unavailable("cannot start a thread").caused_by(error))?;
        answered.await.map_err(|_| Error::unavailable("the operation was abandoned"))?
    }
}

#[async_trait]
impl<E: Engine> Backend for Embedded<E> {
    async fn get(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        self.shared.check()?;
        let Some(bytes) = self.shared.engine.get(key.kind(), key.as_bytes())? else { return Ok(None) };
        Ok(Some(stored::decode(&bytes)?).filter(|record| record.is_live(now)))
    }

    async fn take(&self, key: &Key, now: Timestamp) -> Result<Option<Record>> {
        let key = key.clone();
        self.committer.ask(|answer| Job::Take { key, now, answer }).await
    }

    async fn alter(&self, key: &Key, alteration: &Alteration, now: Timestamp) -> Result<Altered> {
        self.committer.alter(key, alteration, now).await
    }

    async fn commit(&self, batch: Batch, now: Timestamp) -> Result<Commit> {
        self.committer.commit(batch, now).await
    }

    async fn commit_each(&self, batches: Vec<Batch>, now: Timestamp) -> Result<Vec<Commit>> {
        self.committer.commit_each(batches, now).await
    }

    async fn scan(
        &self,
        prefix: &Prefix,
        after: Option<&Cursor>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Page> {
        self.shared.check()?;
        let start = match after {
            Some(cursor) if cursor.as_bytes() >= prefix.as_bytes() => Bound::Excluded(cursor.as_bytes()),
            _ => Bound::Included(prefix.as_bytes()),
        };
        // What has expired is passed over; a page that met too much of it ends early.
        let most = limit.saturating_mul(2).saturating_add(1_000);
        let mut looked_at = 0;
        let mut last = Bytes::new();
        let mut rows: Vec<(Vec<u8>, Bytes)> = Vec::new();
        let mut more = false;
        self.shared.engine.walk(
            prefix.kind(),
            Walk { start, prefix: prefix.as_bytes() },
            &mut |key, value| {
                if rows.len() >= limit.max(1) || looked_at == most {
                    more = true;
                    return ControlFlow::Break(());
                }
                looked_at += 1;
                last = Bytes::copy_from_slice(key);
                if stored::millis(value).is_none_or(|millis| now.as_millis() < millis) {
                    rows.push((key.to_vec(), Bytes::copy_from_slice(value)));
                }
                ControlFlow::Continue(())
            },
        )?;
        let items =
            rows.iter().map(|(key, value)| Ok((Key::decode(prefix.kind(), key)?, stored::decode(value)?)));
        Ok(Page {
            items: items.collect::<Result<_>>()?,
            next: more.then(|| Cursor::from_bytes(last.to_vec())),
        })
    }

    async fn sweep(&self, until: Timestamp, budget: &Budget) -> Result<Swept> {
        let mut swept = Swept::default();
        let kinds = sweep::worthwhile(&self.shared.ledger(), until, budget, self.worth);
        for kind in kinds {
            if swept.total() >= budget.records {
                swept.more = true;
                break;
            }
            let pace = Arc::new(Pace::new(budget.share));
            // When nobody waits any more, the folder is to be free soon.
            let _hurry = SkipPause(Arc::clone(&pace));
            let step = self.aside(move |shared, committer, _| {
                let removed = sweep::sweep_kind(shared, committer, kind, until, &pace)?;
                Ok((removed, pace.rested()))
            });
            let (removed, rested) = step.await?;
            swept.add(kind, removed);
            swept.rested += rested;
        }
        Ok(swept)
    }

    provide!(get_many);

    fn info(&self) -> Info {
        Info { reclaims_within: 2 * self.worth.overdue, ..Info::new(E::NAME) }
    }
}

#[async_trait]
impl<E: Engine> Admin for Embedded<E> {
    provide!(stats_at_hand list count clear engine_clock warnings);

    async fn stats(&self, now: Timestamp) -> Result<Stats> {
        self.shared.check()?;
        Ok(self.shared.ledger().stats(now))
    }

    async fn erase(&self, prefix: &Prefix, now: Timestamp) -> Result<Erased> {
        let prefix = prefix.clone();
        self.committer.ask(|answer| Job::Erase { prefix, now, answer }).await
    }

    async fn clock_mark(&self) -> Result<Option<Timestamp>> {
        Ok(self.shared.mark())
    }

    async fn set_clock_mark(&self, mark: Timestamp) -> Result<()> {
        self.committer.ask(|answer| Job::SetMark { mark, answer }).await
    }

    async fn backup(&self, dir: &Path) -> Result<()> {
        let target = dir.to_owned();
        self.aside(move |shared, _, folder| copy(shared, folder, &target)).await
    }
}

/// Has a step rest no more when this is dropped.
struct SkipPause(Arc<Pace>);

impl Drop for SkipPause {
    fn drop(&mut self) {
        self.0.hurry();
    }
}

fn copy<E: Engine>(shared: &Shared<E>, folder: &Folder, target: &Path) -> Result<()> {
    shared.check()?;
    shared.engine.checkpoint(&folder.begin_copy(target)?)?;
    Folder::finish_copy(target, E::NAME)
}

/// Has the process that serves the embedded store behind `url` copy it into `dir`, and waits until it has.
pub fn backup_served(folder: &Path, dir: &Path) -> Result<()> {
    control::ask_backup(folder, dir)
}
