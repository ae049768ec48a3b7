//! Commands of a pipeline that run together.

use ebbtide::stores::records::RecordValue;

use super::data::{Data, Effect, Set};
use super::reply::Reply;
use super::specs::Spec;

/// Commands of a pipeline that run together, with their places among the replies.
#[derive(Default)]
pub(super) struct Group {
    pub(super) slots: Vec<Slot>,
    pub(super) runs: Vec<(&'static Spec, Data)>,
}

/// Place of a reply.
pub(super) enum Slot {
    Ready(Reply),
    Run(usize),
}

impl Group {
    /// Most commands of a pipeline that run together.
    pub(super) const MAX_TOGETHER: usize = 64;

    /// Most reads among them: the values that they find are counted as memory of the key behind them.
    const MAX_READS: usize = 16;

    /// Adds a command that does not have to [`wait`](Self::must_wait).
    pub(super) fn add(&mut self, spec: &'static Spec, data: Data) {
        let run = self.same_overwrite(&data);
        if let Some(run) = run {
            self.runs[run] = (spec, data);
        } else {
            self.runs.push((spec, data));
        }
        self.slots.push(Slot::Run(run.unwrap_or(self.runs.len() - 1)));
    }

    /// Returns true if `data` has to wait until the commands of the group have run.
    pub(super) fn must_wait(&self, data: &Data) -> bool {
        if self.runs.is_empty() || self.same_overwrite(data).is_some() {
            return false;
        }
        let is_read = |data: &Data| data.effect() == Effect::Read;
        let reads = || self.runs.iter().filter(|(_, other)| is_read(other)).count();
        self.runs.len() >= Self::MAX_TOGETHER
            || is_read(data) && reads() >= Self::MAX_READS
            || self.conflicts(data)
    }

    /// Run that `data` may be written in place of: an overwrite of the same key, on which nothing else depends.
    fn same_overwrite(&self, data: &Data) -> Option<usize> {
        let Data::Set(set) = data else { return None };
        if data.effect() != Effect::Overwrite {
            return None;
        }
        // Only where both are answered the same: with the same end, and a value that is not refused.
        let fits = |other: &Set| {
            let longest = set.value.len().max(other.value.len());
            other.key == set.key && other.end == set.end && longest <= RecordValue::MAX_BYTES
        };
        self.runs.iter().position(|(_, other)| {
            other.effect() == Effect::Overwrite && matches!(other, Data::Set(other) if fits(other))
        })
    }

    fn conflicts(&self, data: &Data) -> bool {
        let effect = data.effect();
        self.runs.iter().any(|(_, other)| {
            if data.has_many_keys() || other.has_many_keys() {
                return true;
            }
            let together =
                matches!((effect, other.effect()), (Effect::Read, Effect::Read) | (Effect::Add, Effect::Add));
            !together && other.keys().any(|key| data.keys().any(|one| one == key))
        })
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::parse::data;
    use super::super::specs::find;
    use super::*;

    fn command(words: &str) -> (&'static Spec, Data) {
        let args: Vec<Bytes> = words.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        let spec = find(&args[0]).unwrap();
        (spec, data(spec, &args).unwrap().unwrap())
    }

    #[test]
    fn a_command_waits_for_those_that_it_depends_on() {
        let many = format!("DEL {}", (0..17).map(|n| n.to_string()).collect::<Vec<_>>().join(" "));
        for (first, second, waits) in [
            ("SET a 1 NX EX 60", "SET b 1 NX EX 60", false),
            ("SET a 1 NX EX 60", "SET a 1 NX EX 60", true),
            ("SET a 1", "SET a 2", false),
            ("SET a 1", "SET a 2 EX 60", true),
            ("SET a 1", "GET a", true),
            ("GET a", "GET a", false),
            ("INCR a", "INCR a", false),
            ("INCR a", "GET a", true),
            ("MSET x 1 y 2", "DEL z y", true),
            ("MGET x y", "DEL z w", false),
            (&many, "GET elsewhere", true),
            ("GET elsewhere", &many, true),
        ] {
            let (mut group, (spec, data), later) = (Group::default(), command(first), command(second).1);
            assert!(!group.must_wait(&data), "{first}");
            group.add(spec, data);
            assert_eq!(group.must_wait(&later), waits, "{first}, {second}");
        }
    }
}
