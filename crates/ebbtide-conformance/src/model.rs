//! Seeded random run on the engine and on the memory model, with sweeps on the engine alone: every answer must agree.

use std::sync::Arc;

use super::Rig;
use ebbtide::backend::{Backend, BackendExt, Budget};
use ebbtide::engines::memory::Memory;
use ebbtide::model::key::{Key, Prefix};
use ebbtide::model::kind::Kind;
use ebbtide::model::record::Version;
use ebbtide::model::scope::{Reach, Scope};
use ebbtide::model::write::Write;

const STEPS: usize = 1_500;

pub(super) async fn a_random_run_answers_as_the_model_does(rig: Rig) {
    Run::new(rig).steps(1).await;
}

pub(super) async fn a_random_run_of_batches_answers_as_the_model_does(rig: Rig) {
    Run::new(rig).steps(5).await;
}

struct Run {
    rig: Rig,
    model: Arc<Memory>,
    keys: Vec<Key>,
    versions: Vec<Version>,
    now: u64,
}

impl Run {
    fn new(rig: Rig) -> Self {
        let scopes = [rig.scope.clone(), Scope::tenant("ebbtide-verify").expect("a good name")];
        let mut keys = Vec::new();
        for kind in [Kind::Probe, Kind::ProbeIndex] {
            for scope in &scopes {
                for partition in ["p", "q"] {
                    for sort in 0..3u64 {
                        let key = Key::new(kind, scope, &[partition.into()], &[sort.into()]);
                        keys.push(key.expect("good names"));
                    }
                }
            }
        }
        let versions = vec![rig.record("", 0).version];
        Self { rig, model: Arc::default(), keys, versions, now: 0 }
    }

    fn below(&self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("a small number");
        usize::try_from(self.rig.rng.below(bound)).expect("a small number")
    }

    fn key(&self) -> Key {
        self.keys[self.below(self.keys.len())].clone()
    }

    /// Mostly a recently stored version, so that conditions hold often enough.
    fn version(&self) -> Version {
        let recent = self.versions.len().min(12);
        self.versions[self.versions.len() - 1 - self.below(recent)]
    }

    fn write(&mut self, key: Key) -> Write {
        // TTLs are short and time moves in the same small steps, so that the expiry instant itself is hit often.
        let expires = self.now + self.rig.rng.below(6) * 5;
        let record = self.rig.record(&self.below(1_000).to_string(), expires);
        let expected = self.version();
        let write = match self.below(9) {
            0 => Write::Put { key, record },
            1..=3 => Write::Insert { key, record },
            4 | 5 => Write::Replace { key, expected, record },
            6 => Write::Remove { key, expected },
            7 => Write::Check { key, expected },
            _ if self.below(2) == 0 => Write::Delete { key },
            _ => Write::Absent { key },
        };
        if let ebbtide::model::write::Effect::Store(record) = write.effect() {
            self.versions.push(record.version);
        }
        write
    }

    async fn steps(mut self, most_writes: usize) {
        for step in 0..STEPS {
            if self.below(3) == 0 {
                self.now += self.rig.rng.below(3) * 5;
            }
            self.step(step, most_writes).await;
        }
    }

    async fn step(&mut self, step: usize, most_writes: usize) {
        let engine = Arc::clone(&self.rig.backend);
        let now = self.rig.at(self.now);
        match self.below(12) {
            0..=5 => {
                let mut writes: Vec<Write> = Vec::new();
                for _ in 0..=self.below(most_writes) {
                    let key = self.key();
                    if writes.iter().all(|write| *write.key() != key) {
                        let write = self.write(key);
                        writes.push(write);
                    }
                }
                let batch = ebbtide::model::write::Batch::new(writes).expect("distinct keys");
                let ours = self.model.commit(batch.clone(), now).await.expect("memory");
                let theirs = engine.commit(batch.clone(), now).await.expect("commit");
                assert_eq!(theirs, ours, "step {step}: {batch:?} at {now}");
            }
            6 | 7 => {
                let key = self.key();
                let ours = self.model.take(&key, now).await.expect("memory");
                assert_eq!(
                    engine.take(&key, now).await.expect("take"),
                    ours,
                    "step {step}: take {key:?} at {now}"
                );
            }
            8 | 9 => {
                let key = self.key();
                let ours = self.model.get(&key, now).await.expect("memory");
                assert_eq!(
                    engine.get(&key, now).await.expect("get"),
                    ours,
                    "step {step}: get {key:?} at {now}"
                );
            }
            10 => self.compare_scans(step).await,
            _ => {
                let budget =
                    Budget { records: 1 + self.rig.rng.below(5), ..Budget::everything(Kind::PROBES) };
                engine.sweep(now, &budget).await.expect("sweep");
            }
        }
    }

    async fn compare_scans(&self, step: usize) {
        let now = self.rig.at(self.now);
        let key = self.key();
        let within = Prefix::partition(key.kind(), &key.scope(), &key.partition(), &[]).expect("a good key");
        let ours = self.model.scan_all(&within, now).await.expect("memory");
        let theirs = self.rig.backend.scan_all(&within, now).await.expect("scan");
        assert_eq!(theirs, ours, "step {step}: a partition at {now}");

        let wide = Prefix::reach(key.kind(), &Reach::Below(key.scope())).expect("a good scope");
        let ours = self.model.scan_all(&wide, now).await.expect("memory");
        let mut theirs = self.rig.backend.scan_all(&wide, now).await.expect("scan");
        // The order across partitions depends on the engine.
        theirs.sort_by(|(left, _), (right, _)| left.cmp(right));
        assert_eq!(theirs, ours, "step {step}: below a scope at {now}");
    }
}
