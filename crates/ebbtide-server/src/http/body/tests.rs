//! Tests of what is said about bodies and queries that cannot be read.

use ebbtide::Ttl;
use ebbtide::stores::challenges::ChallengeRequest;
use ebbtide::stores::records::body::{BatchBody, PutBody};
use ebbtide::stores::replays::Proof;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only read")]
struct Batch {
    items: Vec<Proof>,
    metadata: Option<std::collections::BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SampleRequest {
    limit: Option<usize>,
    #[serde(rename = "idle_ttl_seconds")]
    idle: Option<Ttl>,
}

fn detail<T: DeserializeOwned>(body: &str) -> (String, Value) {
    let problem = read_json::<T>(body.as_bytes()).err().expect("a bad body");
    (problem.detail().to_owned(), Value::Object(problem.members().clone()))
}

#[test]
fn a_bad_body_is_described_by_member_expectation_and_place() {
    for (body, expected) in [
        (r#"{"jti": "a"}"#, "missing member `namespace` at line 1 column 12"),
        (
            "{\"namespace\": \"n\",\n \"jti\": 5}",
            "`jti`: expected a string, found an integer at line 2 column 9",
        ),
        (
            r#"{"namespace": "n", "jti": "a", "ttl_seconds": "hunter2"}"#,
            "`ttl_seconds`: expected an integer, found a string at line 1 column 55",
        ),
        (
            r#"{"namespace": "n", "jti": "a", "ttl_second": 60}"#,
            "unknown member `ttl_second`; did you mean `ttl_seconds`?; allowed: `namespace`, `jti`, `jkt`, `ttl_seconds`, \
             `hold_seconds`, `expires_at`, `iat`, `window_seconds`, `htm`, `htu`, `profile` at line 1 column 43",
        ),
        ("[]", "the body: expected an object"),
        ("{", "the body is not JSON: EOF while parsing an object at line 1 column 1"),
        (
            r#"{"namespace": "n", "jti": "a"} hunter2"#,
            "the body is not JSON: trailing characters at line 1 column 32",
        ),
        (r#"{"jti": "a", "jti": "b"}"#, "the member `jti` is given more than once at line 1 column 18"),
    ] {
        assert_eq!(detail::<Proof>(body).0, expected, "{body}");
    }
    let (_, members) = detail::<Proof>(r#"{"namespace": "n", "jti": "a", "ttl": 60}"#);
    assert_eq!((&members["did_you_mean"], &members["member"]), (&json!("ttl_seconds"), &json!("ttl")));
    let allowed = members["allowed"].as_array().expect("a list");
    assert_eq!(allowed[..4], [json!("namespace"), json!("jti"), json!("jkt"), json!("ttl_seconds")]);
}

#[test]
fn a_member_of_an_item_is_named_by_its_path() {
    let (text, members) = detail::<Batch>(r#"{"items": [{"namespace": "n", "jti": "a"}, {"namespace": 1}]}"#);
    assert_eq!(text, "`items[1].namespace`: expected a string, found an integer at line 1 column 58");
    assert_eq!(members["member"], "items[1].namespace");
    let (text, _) = detail::<Batch>(r#"{"items": [["n", "a", null, null]]}"#);
    assert!(text.starts_with("`items[0]`: expected an object, found an array"), "{text}");
    let (text, members) = detail::<Batch>(r#"{"items": [{"namespace": "n", "jti": "a", "x": 1}]}"#);
    assert!(text.starts_with("unknown member `x`; allowed: ") && text.contains("in `items[0]`"), "{text}");
    assert_eq!(members["member"], "items[0].x");
}

#[test]
fn a_value_of_no_form_that_its_member_takes_is_json_and_names_the_member() {
    fn check<T: DeserializeOwned>(body: &str, member: &str, forms: &str) {
        let (text, members) = detail::<T>(body);
        let expected =
            format!("`{member}`: this is not one of the forms that the member takes: {forms} at line 1 ");
        assert!(text.starts_with(&expected), "{body}: {text}");
        assert_eq!(members["member"], member, "{body}: {members}");
        assert_eq!(members["expected"], format!("one of {forms}"), "{body}: {members}");
        assert!(members["line"] == 1 && members["column"].is_u64(), "{body}: {members}");
    }
    let conditions = "`absent`, `present`, `version`";
    for wrong in ["{}", "5", "[]", "true", r#"{"version": "a", "more": 1}"#] {
        let put = format!(r#"{{"collection": "c", "id": "a", "value": 1, "if": {wrong}}}"#);
        check::<PutBody>(&put, "if", conditions);
        check::<BatchBody>(&format!(r#"{{"writes": [{{"put": {put}}}]}}"#), "writes[0].put.if", conditions);
    }
    let writes = "`put`, `delete`, `check`";
    for wrong in ["5", "{}", "[{}]", "null"] {
        check::<BatchBody>(&format!(r#"{{"writes": [{wrong}]}}"#), "writes[0]", writes);
    }
    let challenge = r#"{"purpose": "login", "subject": "alice", "form": 5}"#;
    check::<ChallengeRequest>(challenge, "form", "`digits6`, `token`, `bytes32`");

    let text = |body: &str| detail::<PutBody>(body).0;
    assert_eq!(text(r#"{"if": }"#), "the body is not JSON: expected value at line 1 column 8");
    let other = text(r#"{"if": "hunter2"}"#);
    assert!(other.starts_with(&format!("`if`: expected one of {conditions} at line 1")), "{other}");
}

#[test]
fn a_member_within_one_of_several_forms_is_named_by_its_path() {
    let (text, members) = detail::<PutBody>(r#"{"if": {"version": 5}}"#);
    assert!(text.starts_with("`if.version`: expected a string, found an integer"), "{text}");
    assert_eq!(members["member"], "if.version");
    let (text, members) = detail::<BatchBody>(r#"{"writes": [{"put": {"colection": "c"}}]}"#);
    assert!(text.starts_with("unknown member `colection`; did you mean `collection`?"), "{text}");
    assert!(text.contains(", in `writes[0].put`"), "{text}");
    assert_eq!(members["member"], "writes[0].put.colection");
    let (text, _) = detail::<BatchBody>(r#"{"writes": [{"put": ["c", "a"]}]}"#);
    assert!(text.starts_with("`writes[0].put`: expected an object, found an array"), "{text}");
    let (text, _) = detail::<BatchBody>(r#"{"writes": [{"hunter2": {}}]}"#);
    assert!(text.starts_with("`writes[0]`: expected one of `put`, `delete`, `check`"), "{text}");
}

#[test]
fn neither_a_value_nor_the_key_of_a_map_is_repeated() {
    let long = format!(r#"{{"{}": 1}}"#, "hunter2".repeat(10));
    for body in [
        r#"{"items": "hunter2"}"#,
        r#"{"items": [], "metadata": {"hunter2": 1}}"#,
        r#"{"items": [{"namespace": "hunter2, expected hunter2", "jti": ["hunter2"]}]}"#,
        r#"{"items": [{"namespace": {"hunter2": "hunter2"}}]}"#,
        r#"{"items": [{"jti": "hunter2"#,
        r#""hunter2""#,
        &long,
    ] {
        let (text, members) = detail::<Batch>(body);
        assert!(!text.contains("hunter2") && !members.to_string().contains("hunter2"), "{body}: {text}");
    }
}

#[test]
fn a_ttl_is_in_seconds_or_in_milliseconds() {
    let ttl = |body: &str| {
        read_json::<Proof>(body.as_bytes()).map(|proof| proof.ttl.unwrap().duration().as_millis())
    };
    assert_eq!(ttl(r#"{"namespace": "n", "jti": "a", "ttl_seconds": 2}"#).unwrap(), 2_000);
    assert_eq!(ttl(r#"{"namespace": "n", "jti": "a", "ttl_ms": 1500}"#).unwrap(), 1_500);
    assert!(read_json::<Proof>(br#"{"namespace": "n", "jti": "a", "ttl_ms": null}"#).unwrap().ttl.is_none());
    let asked: SampleRequest = read_json(br#"{"idle_ttl_ms": 7, "limit": 1}"#).unwrap();
    assert_eq!((asked.idle.unwrap().duration().as_millis(), asked.limit), (7, Some(1)));
    for bad in ["0", "-1", "1.5", "\"2\"", "9223372036854775807"] {
        assert!(ttl(&format!(r#"{{"namespace": "n", "jti": "a", "ttl_ms": {bad}}}"#)).is_err(), "{bad}");
    }
    let (text, _) = detail::<Proof>(r#"{"namespace": "n", "jti": "a", "ttl_ms": 5, "ttl_seconds": 5}"#);
    assert!(
        text.starts_with("the member `ttl_seconds` is given more than once, or in milliseconds too"),
        "{text}"
    );
}

#[test]
fn a_bad_query_is_described_like_a_body() {
    let detail = |query: &str| {
        read_pairs::<SampleRequest>("query parameter", query.as_bytes()).err().unwrap().detail().to_owned()
    };
    assert_eq!(detail("limit=hunter2"), "`limit`: expected a whole number in range");
    assert_eq!(
        detail("limits=1"),
        "unknown query parameter `limits`; did you mean `limit`?; allowed: `limit`, `idle_ttl_seconds`"
    );
    assert_eq!(detail("limit=1&limit=2"), "the query parameter `limit` is given more than once");
}
