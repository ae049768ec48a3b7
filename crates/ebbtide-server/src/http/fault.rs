//! Description of a request that cannot be read: the member, the expectation and the place, and never the value, which
//! may be a secret.

use std::fmt::{Display, Write as _};

use serde_json::Value;

use crate::http::problem::Problem;
use crate::http::strict::ErrorLocation;

/// Longest name of an unknown member that is repeated. Longer ones may be a value in the wrong place.
const MOST_NAME_BYTES: usize = 32;

/// Problem for a JSON body.
pub(crate) fn of_json(error: &serde_json::Error, place: &ErrorLocation, bytes: &[u8]) -> Problem {
    use serde_json::error::Category;
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    let told = match (error.classify(), place.forms) {
        // A value of the wrong type is a syntax error to the parser, if an enum is expected.
        (Category::Syntax, Some(forms)) if is_json(bytes) => of_no_form(forms, place),
        // The parser's own words about the syntax; they quote nothing.
        (Category::Syntax | Category::Eof, _) => Told::new(format!("the body is not JSON: {text}")),
        (Category::Data | Category::Io, _) => tell("member", text, place),
    };
    let (line, column) = (error.line(), error.column());
    if line == 0 {
        return told.problem("");
    }
    told.problem(&format!(" at line {line} column {column}")).with("line", line).with("column", column)
}

/// Problem for a form (`member`) or a query (`query parameter`).
pub(crate) fn of_pairs(noun: &str, error: &impl Display, place: &ErrorLocation) -> Problem {
    tell(noun, &error.to_string(), place).problem("")
}

/// Problem for a query parameter that the call does not take.
pub(crate) fn unknown_parameter(name: &str, allowed: &[String]) -> Problem {
    unknown("query parameter", name, &allowed.iter().map(String::as_str).collect::<Vec<_>>()).problem("")
}

/// Problem for a body of another type.
pub(crate) fn content_type(wanted: &str) -> Problem {
    let detail = format!("the body must be sent with `Content-Type: {wanted}`");
    Problem::invalid(detail).with("expected", wanted)
}

/// Sentence, and the members of the problem that go with it.
struct Told {
    detail: String,
    member: Option<String>,
    expected: Option<String>,
    allowed: Option<Value>,
    did_you_mean: Option<String>,
}

impl Told {
    fn new(detail: String) -> Self {
        Self { detail, member: None, expected: None, allowed: None, did_you_mean: None }
    }

    fn problem(self, position: &str) -> Problem {
        let mut problem = Problem::invalid(format!("{}{position}", self.detail));
        let given =
            [("member", self.member), ("expected", self.expected), ("did_you_mean", self.did_you_mean)];
        for (name, value) in given {
            if let Some(value) = value {
                problem = problem.with(name, value);
            }
        }
        match self.allowed {
            Some(allowed) => problem.with("allowed", allowed),
            None => problem,
        }
    }
}

fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok()
}

/// Description of a value that has none of the forms that it may have.
fn of_no_form(forms: &[&str], place: &ErrorLocation) -> Told {
    let path = place.path();
    let (subject, owner) =
        if path.is_empty() { ("the body".to_owned(), "body") } else { (format!("`{path}`"), "member") };
    let forms = format!("`{}`", forms.join("`, `"));
    let detail = format!("{subject}: this is not one of the forms that the {owner} takes: {forms}");
    let member = (!path.is_empty()).then_some(path);
    Told { member, expected: Some(format!("one of {forms}")), ..Told::new(detail) }
}

/// Text between the first two backticks.
fn quoted(text: &str) -> Option<&str> {
    text.split('`').nth(1)
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn tell(noun: &str, text: &str, place: &ErrorLocation) -> Told {
    let path = place.path();
    if let Some(name) = &place.unknown {
        let mut told = unknown(noun, name, place.members.unwrap_or_default());
        if !path.is_empty() {
            let _ = write!(told.detail, ", in `{path}`");
            told.member = told.member.map(|member| join(&path, &member));
        }
        return told;
    }
    if let Some(name) = text.strip_prefix("missing field ").and_then(quoted) {
        let member = join(&path, name);
        return Told { member: Some(member.clone()), ..Told::new(format!("missing {noun} `{member}`")) };
    }
    if let Some(name) = text.strip_prefix("duplicate field ").and_then(quoted) {
        let member = join(&path, name);
        let also = if name.ends_with("ttl_seconds") { ", or in milliseconds too" } else { "" };
        let detail = format!("the {noun} `{member}` is given more than once{also}");
        return Told { member: Some(member), ..Told::new(detail) };
    }
    // From a buffered body: the names in the message are those of the code, except the first.
    if let Some(rest) = text.strip_prefix("unknown field ") {
        let allowed: Vec<_> = rest
            .rsplit_once(", expected ")
            .map_or_else(Vec::new, |(_, names)| names.split('`').skip(1).step_by(2).collect());
        return unknown(noun, quoted(rest).unwrap_or_default(), &allowed);
    }
    let (expected, found) = expectation(text);
    let subject = if path.is_empty() { "the body".to_owned() } else { format!("`{path}`") };
    let detail = match (&expected, found) {
        (Some(expected), Some(found)) => format!("{subject}: expected {expected}, found {found}"),
        (Some(expected), None) => format!("{subject}: expected {expected}"),
        (None, _) => format!("{subject}: {text}"),
    };
    Told { member: (!path.is_empty()).then_some(path), expected, ..Told::new(detail) }
}

/// Expectation of a parser, and the type that it found. Parsers quote a value only before `, expected `.
fn expectation(text: &str) -> (Option<String>, Option<&'static str>) {
    const TYPES: [(&str, &str); 8] = [
        ("null", "null"),
        ("unit", "null"),
        ("boolean", "a boolean"),
        ("integer", "an integer"),
        ("floating point", "a number with a fraction"),
        ("string", "a string"),
        ("sequence", "an array"),
        ("map", "an object"),
    ];
    if ["invalid digit", "cannot parse integer", "number too"].iter().any(|start| text.starts_with(start)) {
        return (Some("a whole number in range".to_owned()), None);
    }
    let Some((before, expected)) = text.rsplit_once(", expected ") else { return (None, None) };
    let found = before
        .strip_prefix("invalid type: ")
        .and_then(|found| TYPES.iter().find(|(start, _)| found.starts_with(start)).map(|(_, name)| *name));
    let expected = match expected {
        "i8" | "i16" | "i32" | "i64" => "an integer",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "an array",
        "a map" => "an object",
        "unit" => "null",
        other if other.starts_with("struct ") || other.starts_with("internally tagged enum ") => "an object",
        other => other,
    };
    (Some(expected.to_owned()), found)
}

fn unknown(noun: &str, name: &str, allowed: &[&str]) -> Told {
    let mut detail = format!("unknown {noun}");
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    let shown = (1..=MOST_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_name);
    if shown {
        let _ = write!(detail, " `{name}`");
    }
    let near = nearest(name, allowed);
    if let Some(near) = near {
        let _ = write!(detail, "; did you mean `{near}`?");
    }
    if allowed.is_empty() {
        let _ = write!(detail, "; this call takes no {noun}");
    } else {
        let _ = write!(detail, "; allowed: `{}`", allowed.join("`, `"));
    }
    Told {
        detail,
        member: shown.then(|| name.to_owned()),
        expected: None,
        allowed: Some(allowed.iter().copied().collect()),
        did_you_mean: near.map(str::to_owned),
    }
}

/// Allowed name that is close to the given one.
fn nearest<'a>(name: &str, allowed: &[&'a str]) -> Option<&'a str> {
    let folded: String =
        name.chars().take(64).filter(|c| *c != '_' && *c != '-').collect::<String>().to_lowercase();
    let near = |other: &str| {
        let other = other.replace('_', "");
        // `ttl` and `ttl_seconds`, or a letter in three that differs.
        let begins = folded.len() >= 3 && (other.starts_with(&folded) || folded.starts_with(&other));
        if begins { 0 } else { strsim::osa_distance(&folded, &other) }
    };
    let best = allowed.iter().copied().min_by_key(|other| near(other))?;
    (near(best) <= best.len().min(folded.len()) / 3).then_some(best)
}
