//! Arguments of the commands on keys. Errors are those of Redis, word for word, where a client may look at them.

use bytes::Bytes;
use ebbtide::stores::records::TouchCondition;

use super::data::{Data, End, Set, SetAnswer, Test, TtlForm, When};
use super::reply::Reply;
use super::specs::Spec;

pub(super) const SYNTAX: Reply = Reply::Error(std::borrow::Cow::Borrowed("ERR syntax error"));
pub(super) const NOT_AN_INTEGER: Reply =
    Reply::Error(std::borrow::Cow::Borrowed("ERR value is not an integer or out of range"));
pub(super) const NOT_A_FLOAT: Reply =
    Reply::Error(std::borrow::Cow::Borrowed("ERR value is not a valid float"));

/// Reads a whole number as Redis does: no plus sign, no zeros in front, no spaces.
pub(super) fn integer(text: &[u8]) -> Result<i64, Reply> {
    let number: Option<i64> = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.filter(|number| number.to_string().as_bytes() == text).ok_or(NOT_AN_INTEGER)
}

/// Reads a finite number with a fraction.
pub(super) fn float(text: &[u8]) -> Result<f64, Reply> {
    let number: Option<f64> = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.filter(|number| number.is_finite()).ok_or(NOT_A_FLOAT)
}

pub(super) fn wrong_arity(name: &str) -> Reply {
    Reply::error(format!("ERR wrong number of arguments for '{name}' command"))
}

fn invalid_expiry(name: &str) -> Reply {
    Reply::error(format!("ERR invalid expire time in '{name}' command"))
}

/// Unit and reference of an end, by the option that names it.
fn end_option(option: &[u8]) -> Option<fn(i64) -> Option<End>> {
    Some(match () {
        () if option.eq_ignore_ascii_case(b"ex") => |number| number.checked_mul(1_000).map(End::In),
        () if option.eq_ignore_ascii_case(b"px") => |number| Some(End::In(number)),
        () if option.eq_ignore_ascii_case(b"exat") => |number| number.checked_mul(1_000).map(End::At),
        () if option.eq_ignore_ascii_case(b"pxat") => |number| Some(End::At(number)),
        () => return None,
    })
}

/// End that must lie in the future where it is relative, and be positive where it is absolute.
fn positive(name: &str, number: &[u8], make: fn(i64) -> Option<End>) -> Result<End, Reply> {
    let number = integer(number)?;
    let end = Some(number).filter(|number| *number > 0).and_then(make);
    // A hundred years is the most that a record lives.
    end.filter(|end| end.life().is_ok()).ok_or_else(|| invalid_expiry(name))
}

/// Command on keys; none if the command is not one of them. The number of strings is checked already.
pub(super) fn data(spec: &Spec, args: &[Bytes]) -> Result<Option<Data>, Reply> {
    let name = spec.name;
    let key = || args[1].clone();
    let keys = || args[1..].to_vec();
    let set = |value: usize, end, when, answer| {
        Data::Set(Box::new(Set { key: args[1].clone(), value: args[value].clone(), end, when, answer }))
    };
    Ok(Some(match name {
        "get" => Data::Get { key: key() },
        "set" => Data::Set(Box::new(parse_set(args)?)),
        "setnx" => set(2, None, When::Absent, SetAnswer::Number),
        "setex" => set(
            3,
            Some(positive(name, &args[2], |n| n.checked_mul(1_000).map(End::In))?),
            When::Always,
            SetAnswer::Ok,
        ),
        "psetex" => {
            set(3, Some(positive(name, &args[2], |n| Some(End::In(n)))?), When::Always, SetAnswer::Ok)
        }
        "getset" => set(2, None, When::Always, SetAnswer::Previous),
        "getdel" => Data::GetDel { key: key() },
        "getex" => Data::GetEx { key: key(), end: getex_end(args)? },
        "mget" => Data::MGet { keys: keys() },
        "mset" | "msetnx" => {
            if args.len().is_multiple_of(2) {
                return Err(wrong_arity(name));
            }
            let pairs = args[1..].chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
            Data::MSet { pairs, only_new: name == "msetnx" }
        }
        "del" | "unlink" => Data::Del { keys: keys() },
        "delex" => Data::DelEx { key: key(), test: delex_test(args)? },
        "exists" | "touch" => Data::Exists { keys: keys() },
        "expire" => expire(args, |number| number.checked_mul(1_000).map(End::In), name)?,
        "pexpire" => expire(args, |number| Some(End::In(number)), name)?,
        "expireat" => expire(args, |number| number.checked_mul(1_000).map(End::At), name)?,
        "pexpireat" => expire(args, |number| Some(End::At(number)), name)?,
        "persist" => Data::Persist { key: key() },
        "ttl" => Data::Ttl { key: key(), form: TtlForm { millis: false, absolute: false } },
        "pttl" => Data::Ttl { key: key(), form: TtlForm { millis: true, absolute: false } },
        "expiretime" => Data::Ttl { key: key(), form: TtlForm { millis: false, absolute: true } },
        "pexpiretime" => Data::Ttl { key: key(), form: TtlForm { millis: true, absolute: true } },
        "incr" => Data::IncrBy { key: key(), by: 1 },
        "decr" => Data::IncrBy { key: key(), by: -1 },
        "incrby" => Data::IncrBy { key: key(), by: integer(&args[2])? },
        "decrby" => {
            let by = integer(&args[2])?.checked_neg();
            Data::IncrBy { key: key(), by: by.ok_or_else(|| Reply::error("ERR decrement would overflow"))? }
        }
        "incrbyfloat" => {
            float(&args[2])?;
            Data::IncrByFloat { key: key(), by: args[2].clone() }
        }
        "append" => Data::Append { key: key(), value: args[2].clone() },
        "strlen" => Data::Strlen { key: key() },
        "type" => Data::Type { key: key() },
        _ => return Ok(None),
    }))
}

fn parse_set(args: &[Bytes]) -> Result<Set, Reply> {
    let (mut end, mut when, mut answer) = (None, When::Always, SetAnswer::Ok);
    let mut options = args[3..].iter();
    while let Some(option) = options.next() {
        let condition = |wanted| if when == When::Always { Ok(wanted) } else { Err(SYNTAX) };
        if option.eq_ignore_ascii_case(b"nx") {
            when = condition(When::Absent)?;
        } else if option.eq_ignore_ascii_case(b"xx") {
            when = condition(When::Present)?;
        } else if option.eq_ignore_ascii_case(b"get") {
            answer = SetAnswer::Previous;
        } else if option.eq_ignore_ascii_case(b"keepttl") && end.is_none() {
            end = Some(End::Keep);
        } else if let (Some(make), None) = (end_option(option), end) {
            end = Some(positive("set", options.next().ok_or(SYNTAX)?, make)?);
        } else {
            return Err(SYNTAX);
        }
    }
    Ok(Set { key: args[1].clone(), value: args[2].clone(), end, when, answer })
}

fn getex_end(args: &[Bytes]) -> Result<Option<End>, Reply> {
    match &args[2..] {
        [] => Ok(None),
        [option] if option.eq_ignore_ascii_case(b"persist") => Ok(Some(End::Never)),
        [option, number] => {
            let make = end_option(option).ok_or(SYNTAX)?;
            positive("getex", number, make).map(Some)
        }
        _ => Err(SYNTAX),
    }
}

fn delex_test(args: &[Bytes]) -> Result<Option<Test>, Reply> {
    match &args[2..] {
        [] => Ok(None),
        [option, value] => {
            let equal = option.eq_ignore_ascii_case(b"ifeq");
            if !equal && !option.eq_ignore_ascii_case(b"ifne") {
                return Err(SYNTAX);
            }
            Ok(Some(Test { equal, value: value.clone() }))
        }
        _ => Err(SYNTAX),
    }
}

fn expire(args: &[Bytes], make: fn(i64) -> Option<End>, name: &str) -> Result<Data, Reply> {
    let only_if = expire_condition(&args[3..])?;
    let number = integer(&args[2])?;
    let end = make(number).filter(|end| end.life().is_ok()).ok_or_else(|| invalid_expiry(name))?;
    Ok(Data::Expire { key: args[1].clone(), end, only_if })
}

/// Condition of an `EXPIRE`. `XX` goes together with `GT` or `LT`, and everything else excludes each other.
fn expire_condition(options: &[Bytes]) -> Result<Option<TouchCondition>, Reply> {
    let (mut nx, mut xx, mut gt, mut lt) = (false, false, false, false);
    for option in options {
        match () {
            () if option.eq_ignore_ascii_case(b"nx") => nx = true,
            () if option.eq_ignore_ascii_case(b"xx") => xx = true,
            () if option.eq_ignore_ascii_case(b"gt") => gt = true,
            () if option.eq_ignore_ascii_case(b"lt") => lt = true,
            () => {
                let option = String::from_utf8_lossy(option);
                return Err(Reply::error(format!("ERR Unsupported option {option}")));
            }
        }
    }
    Ok(match (nx, xx, gt, lt) {
        (false, false, false, false) => None,
        (true, false, false, false) => Some(TouchCondition::Endless),
        (true, ..) => {
            return Err(Reply::error("ERR NX and XX, GT or LT options at the same time are not compatible"));
        }
        (_, _, true, true) => {
            return Err(Reply::error("ERR GT and LT options at the same time are not compatible"));
        }
        // No end is later than every other: a record without one is never given a later one.
        (_, _, true, _) => Some(TouchCondition::Later),
        (_, true, _, true) => Some(TouchCondition::Shortens),
        (_, _, _, true) => Some(TouchCondition::Sooner),
        (_, true, ..) => Some(TouchCondition::Ends),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resp::specs::find;

    fn parse(line: &str) -> Result<Option<Data>, Reply> {
        let args: Vec<Bytes> = line.split(' ').map(|word| Bytes::copy_from_slice(word.as_bytes())).collect();
        data(find(&args[0]).unwrap(), &args)
    }

    fn refusal(line: &str) -> String {
        match parse(line).unwrap_err() {
            Reply::Error(message) => message.into_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn errors_are_those_of_redis() {
        for line in [
            "set k v nx xx",
            "set k v ex",
            "set k v ex 1 px 1",
            "set k v keepttl ex 1",
            "set k v bogus",
            "getex k ex",
            "getex k bogus 1",
            "getex k persist ex 1",
            "delex k ifeq",
            "delex k bogus v",
        ] {
            assert_eq!(refusal(line), "ERR syntax error", "{line}");
        }
        for line in
            ["set k v ex x", "incrby k 1.5", "incrby k +1", "expire k 01", "decrby k 9223372036854775808"]
        {
            assert_eq!(refusal(line), "ERR value is not an integer or out of range", "{line}");
        }
        for (line, name) in [
            ("set k v ex 0", "set"),
            ("set k v px -1", "set"),
            ("setex k 0 v", "setex"),
            ("getex k ex 0", "getex"),
            ("set k v ex 9223372036854775807", "set"),
            ("expire k 9223372036854775807", "expire"),
        ] {
            assert_eq!(refusal(line), format!("ERR invalid expire time in '{name}' command"), "{line}");
        }
        assert_eq!(refusal("mset a 1 b"), "ERR wrong number of arguments for 'mset' command");
        assert_eq!(
            refusal("expire k 1 nx xx"),
            "ERR NX and XX, GT or LT options at the same time are not compatible"
        );
        assert_eq!(refusal("incrbyfloat k nan"), "ERR value is not a valid float");
    }

    #[test]
    fn options_are_read_in_either_case_and_order() {
        let Ok(Some(Data::Set(set))) = parse("set k v GET pX 5 nX") else { panic!() };
        assert_eq!((set.end, set.when, set.answer), (Some(End::In(5)), When::Absent, SetAnswer::Previous));
        assert!(!set.is_plain());
        let Ok(Some(Data::Set(set))) = parse("setex k 5 v") else { panic!() };
        assert_eq!((set.end, set.value.as_ref()), (Some(End::In(5_000)), &b"v"[..]));
        assert!(set.is_plain());
        assert_eq!(
            parse("expire k -1").unwrap(),
            Some(Data::Expire { key: "k".into(), end: End::In(-1_000), only_if: None })
        );
        for (line, condition) in [
            ("expire k 1 xx gt", TouchCondition::Later),
            ("expire k 1 lt xx", TouchCondition::Shortens),
            ("expire k 1 LT lt", TouchCondition::Sooner),
        ] {
            let parsed = parse(line).unwrap();
            assert!(
                matches!(parsed, Some(Data::Expire { only_if: Some(it), .. }) if it == condition),
                "{line}"
            );
        }
        assert_eq!(parse("decr k").unwrap(), Some(Data::IncrBy { key: "k".into(), by: -1 }));
        assert_eq!(parse("ping").unwrap(), None);
    }
}
