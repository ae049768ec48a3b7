//! Table of the commands: arity, role and position of the keys, as `COMMAND` tells them.

use super::reply::Reply;

/// One command.
#[derive(Debug)]
pub(super) struct Spec {
    /// Place in the table.
    pub(super) place: usize,
    /// Name in lower case.
    pub(super) name: &'static str,
    /// Number of strings with the name; negative if it is the least.
    pub(super) arity: i64,
    /// Need of the command.
    pub(super) need: Need,
    /// Position of the first key, of the last one (negative: from the end), and the step between them; zero without.
    pub(super) keys: (i64, i64, i64),
}

/// Need of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Need {
    /// Allowed before a key is presented.
    Nothing,
    /// Any key.
    Key,
    /// A key that may read.
    Read,
    /// A key that may write.
    Write,
    /// A key that may write, in a scope whose quota allows another record.
    Create,
}

macro_rules! specs {
    ($($name:literal $arity:literal $need:ident $first:literal $last:literal $step:literal;)+) => {
        /// Every command.
        pub(super) static SPECS: &[Spec] = &numbered([$(Spec {
            place: 0, name: $name, arity: $arity, need: Need::$need, keys: ($first, $last, $step),
        },)+]);
    };
}

specs! {
    "append" 3 Create 1 1 1;
    "auth" -2 Nothing 0 0 0;
    "client" -2 Key 0 0 0;
    "command" -1 Key 0 0 0;
    "config" -2 Key 0 0 0;
    "decr" 2 Create 1 1 1;
    "decrby" 3 Create 1 1 1;
    "del" -2 Write 1 -1 1;
    "delex" -2 Write 1 1 1;
    "discard" 1 Key 0 0 0;
    "echo" 2 Key 0 0 0;
    "exec" 1 Key 0 0 0;
    "exists" -2 Read 1 -1 1;
    "expire" -3 Write 1 1 1;
    "expireat" -3 Write 1 1 1;
    "expiretime" 2 Read 1 1 1;
    "get" 2 Read 1 1 1;
    "getdel" 2 Write 1 1 1;
    "getex" -2 Write 1 1 1;
    "getset" 3 Create 1 1 1;
    "hello" -1 Nothing 0 0 0;
    "incr" 2 Create 1 1 1;
    "incrby" 3 Create 1 1 1;
    "incrbyfloat" 3 Create 1 1 1;
    "info" -1 Key 0 0 0;
    "mget" -2 Read 1 -1 1;
    "mset" -3 Create 1 -1 2;
    "msetnx" -3 Create 1 -1 2;
    "multi" 1 Key 0 0 0;
    "persist" 2 Write 1 1 1;
    "pexpire" -3 Write 1 1 1;
    "pexpireat" -3 Write 1 1 1;
    "pexpiretime" 2 Read 1 1 1;
    "ping" -1 Key 0 0 0;
    "psetex" 4 Create 1 1 1;
    "pttl" 2 Read 1 1 1;
    "quit" -1 Nothing 0 0 0;
    "reset" 1 Nothing 0 0 0;
    "scan" -2 Write 0 0 0;
    "select" 2 Key 0 0 0;
    "set" -3 Create 1 1 1;
    "setex" 4 Create 1 1 1;
    "setnx" 3 Create 1 1 1;
    "strlen" 2 Read 1 1 1;
    "time" 1 Key 0 0 0;
    "touch" -2 Read 1 -1 1;
    "ttl" 2 Read 1 1 1;
    "type" 2 Read 1 1 1;
    "unlink" -2 Write 1 -1 1;
    "unwatch" 1 Key 0 0 0;
    "watch" -2 Read 1 -1 1;
}

const fn numbered<const N: usize>(mut specs: [Spec; N]) -> [Spec; N] {
    let mut place = 0;
    while place < N {
        specs[place].place = place;
        place += 1;
    }
    specs
}

/// Longest name of a command.
const MAX_NAME_BYTES: usize = 16;

/// Looks a command up by its name, in either case.
pub(super) fn find(name: &[u8]) -> Option<&'static Spec> {
    let mut lower = [0; MAX_NAME_BYTES];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    let index = SPECS.binary_search_by(|spec| spec.name.as_bytes().cmp(lower)).ok()?;
    SPECS.get(index)
}

impl Spec {
    /// Checks the number of strings, the name included.
    pub(super) fn fits(&self, count: usize) -> bool {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        if self.arity < 0 { count >= -self.arity } else { count == self.arity }
    }

    /// Description of the command, as `COMMAND INFO` gives it.
    pub(super) fn describe(&self) -> Reply {
        let flags: &[&'static str] = match self.need {
            Need::Write | Need::Create => &["write"],
            Need::Read => &["readonly"],
            Need::Key => &["loading", "stale"],
            Need::Nothing => &["noauth", "loading", "stale"],
        };
        let (first, last, step) = self.keys;
        let empty = || Reply::Array(Vec::new());
        Reply::Array(vec![
            Reply::bulk(self.name),
            Reply::Integer(self.arity),
            Reply::Array(flags.iter().map(|flag| Reply::Simple(flag)).collect()),
            Reply::Integer(first),
            Reply::Integer(last),
            Reply::Integer(step),
            empty(),
            empty(),
            empty(),
            empty(),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_found_in_either_case() {
        assert!(SPECS.is_sorted_by(|one, other| one.name < other.name));
        for spec in SPECS {
            assert_eq!(find(spec.name.to_uppercase().as_bytes()).map(|found| found.name), Some(spec.name));
        }
        assert!(find(b"").is_none() && find(&[b'x'; 100]).is_none() && find(b"eval").is_none());
    }
}
