//! Every call that changes something has a decision on its audit entries, and keeps to it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::api::Call;
use crate::examples::{Kept, files, step};
use crate::server::Server;

/// Entries that a call leaves when it succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Audited {
    /// It changes no authority, or gives only what its caller could have anyway.
    Not,
    /// One entry, in the commit of the change.
    Once,
    /// One when it begins and one when it has ended: it goes on in steps, and can be resumed.
    BeginAndEnd,
}

use Audited::{BeginAndEnd, Not, Once};

/// Decisions of law 11, by call or by the beginning of its path. Whoever adds a call that is not a GET decides here.
const DECISIONS: &[(&str, Audited)] = &[
    // Issuing is the business of the authorization server, which has its own log of sign-ins.
    ("POST /v1/access-tokens", Not),
    ("POST /v1/codes", Not),
    ("POST /v1/device-codes", Not),
    ("POST /v1/grants", Not),
    ("POST /v1/nonces", Not),
    ("POST /v1/pushed-requests", Not),
    ("POST /v1/challenges", Not),
    ("POST /v1/provider-tokens", Not),
    ("DELETE /v1/provider-tokens", Not),
    ("POST /v1/sessions", Not),
    // These read or check.
    ("POST /v1/approvals/check", Not),
    // The second one removes what a deletion that is in the log has left behind.
    ("POST /v1/belongings", Not),
    ("POST /v1/explain", Not),
    ("POST /v1/introspect", Not),
    ("POST /v1/relationships/check", Not),
    ("POST /v1/relationships/check-batch", Not),
    ("POST /v1/relationships/reachable", Not),
    ("POST /v1/relationships/reaching", Not),
    ("POST /v1/approvals/check-batch", Not),
    ("POST /v1/scopes/access", Not),
    ("POST /v1/replays", Not),
    ("POST /v1/subjects/overview", Not),
    ("POST /v1/policies/simulate", Not),
    ("POST /v1/clients/{id}/verify", Not),
    ("POST /v1/sweep", Not),
    ("POST /v1/belongings", Not),
    // Its targets have ended already, and a relationship among them leaves an entry of its own.
    ("POST /v1/belongings/reconcile", Not),
    // Data of applications.
    ("PUT /v1/attributes/", Not),
    ("POST /v1/attributes/", Not),
    ("DELETE /v1/attributes/", Not),
    ("POST /v1/records/", Not),
    // Changes of authority.
    ("POST /v1/records/groups/revoke", Once),
    ("POST /v1/sessions/delete", Once),
    ("PUT /v1/approvals", Once),
    ("DELETE /v1/approvals", Once),
    ("POST /v1/approvals/extend", Once),
    ("PUT /v1/relationships", Once),
    ("DELETE /v1/relationships", Once),
    ("POST /v1/relationships/extend", Once),
    ("POST /v1/clients", Once),
    ("POST /v1/clients/{id}/rotate-secret", Once),
    ("PUT /v1/clients/{id}", Once),
    ("POST /v1/clients/{id}/update", Once),
    ("DELETE /v1/clients/{id}", BeginAndEnd),
    ("POST /v1/keys", Once),
    ("DELETE /v1/keys/{id}", Once),
    ("DELETE /v1/grants/{id}", Once),
    ("POST /v1/revoke", Once),
    ("POST /v1/access-tokens/revoke", Once),
    ("POST /v1/policies", Once),
    ("PUT /v1/policies", Once),
    ("DELETE /v1/policies", Once),
    ("POST /v1/subjects/sign-out", Once),
    ("POST /v1/clock/accept", Once),
    ("POST /v1/scopes/migrate", BeginAndEnd),
    ("POST /v1/import", BeginAndEnd),
    ("POST /v1/attributes/{owner}/{bucket}/{name}/extend", Once),
    ("POST /v1/attributes/extend", Once),
    ("POST /v1/approvals/delete-all", BeginAndEnd),
    ("POST /v1/relationships/delete-all", BeginAndEnd),
    ("POST /v1/grants/revoke", BeginAndEnd),
    ("POST /v1/sessions/revoke", BeginAndEnd),
    ("DELETE /v1/owners/{owner}", BeginAndEnd),
    ("DELETE /v1/scopes/{scope}", BeginAndEnd),
];

/// The decision on a call: the most specific one.
fn decision(call: &Call) -> Option<Audited> {
    let text = call.to_string();
    let fits = |prefix: &str| {
        text.strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || prefix.ends_with('/'))
    };
    let fitting = DECISIONS.iter().filter(|(prefix, _)| fits(prefix));
    fitting.max_by_key(|(prefix, _)| prefix.len()).map(|(_, audited)| *audited)
}

#[test]
fn every_call_that_changes_something_has_a_decision() {
    let undecided: Vec<_> = Call::all()
        .into_iter()
        .filter(|call| call.method != "GET" && decision(call).is_none())
        .map(|call| call.to_string())
        .collect();
    assert!(
        undecided.is_empty(),
        "decide in tests/http/audited.rs whether these leave audit entries: {undecided:#?}"
    );
}

/// Entries of every scope: the id of the key and the action, by place.
async fn entries(server: &Server) -> BTreeMap<String, (String, String)> {
    let mut all = BTreeMap::new();
    for scope in server.audited_scopes().await {
        let mut after = String::new();
        loop {
            let path = format!("/v1/audit?limit=1000&scope={}{after}", scope.replace('/', "%2F"));
            let page = server.call("GET", &path, &[], Value::Null).await.ok(200);
            for entry in page["items"].as_array().unwrap() {
                let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
                let place = format!("{scope} {} {}", text("chain"), entry["sequence"]);
                all.insert(place, (text("key_id"), text("action")));
            }
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
    }
    all
}

#[tokio::test]
async fn every_example_leaves_the_entries_of_its_decision_under_the_key_that_asked() {
    let (calls, mut seen) = (Call::all(), Vec::new());
    for (name, file) in files() {
        let (server, mut kept) = (Server::start().await, Kept::new());
        let mut ids = BTreeMap::new();
        let mut before = entries(&server).await;
        for (number, one) in file["steps"].as_array().unwrap().iter().enumerate() {
            let place = format!("{name}.json, step {number}");
            let Some((method, path, status)) = step(&server, one, &mut kept, &place).await else { continue };
            for (name, value) in &kept {
                if value.starts_with("ebk_") && !ids.contains_key(value) {
                    ids.insert(value.clone(), (name.clone(), server.key_id(value).await));
                }
            }
            let after = entries(&server).await;
            let new: Vec<_> = after.iter().filter(|(place, _)| !before.contains_key(*place)).collect();
            let call =
                calls.iter().filter(|call| call.matches(&method, &path)).max_by_key(|call| call.names());
            let call = call.unwrap();
            let asked = one["request"]["key"].as_str().unwrap_or_default();
            let author = kept
                .iter()
                .find(|(name, _)| asked == format!("${{{name}}}"))
                .map_or("root", |(_, key)| ids[key].1.as_str());
            let thefts =
                new.iter().filter(|(_, (_, action))| action == "theft" || action == "lockout").count();
            let expected = match decision(call) {
                _ if status >= 300 => 0,
                None | Some(Not) => 0,
                Some(Once) => 1,
                Some(BeginAndEnd) => 2,
            };
            let found = new.len() - thefts;
            // A revocation of one thing is one entry, and of nothing is none.
            let fits = found == expected
                || (expected == 2 && found == 1)
                || (call.path == "/v1/revoke" && found == 0);
            assert!(fits, "{place}: {call} answers {status} and leaves {new:?}, not {expected}");
            for (_, (key, _)) in new {
                assert_eq!(key, author, "{place}: {call}");
            }
            if status < 300 {
                seen.push(call.to_string());
            }
            before = after;
        }
    }
    let audited = calls.iter().filter(|call| decision(call).is_some_and(|audited| audited != Not));
    // The clock of these servers is never in doubt, so that there is nothing to accept.
    let audited = audited.filter(|call| call.path != "/v1/clock/accept");
    let unseen: Vec<_> = audited.map(ToString::to_string).filter(|call| !seen.contains(call)).collect();
    assert!(unseen.is_empty(), "no example succeeds with {unseen:?}");
}
