//! Every call that changes something has a decision on its audit entries, and keeps to it.

use std::collections::{BTreeMap, BTreeSet};

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
    /// As many as each success among the examples needs, in their order.
    Each(&'static [usize]),
}

use Audited::{BeginAndEnd, Each, Not, Once};

/// Decisions of law 11, by call. Whoever adds a call that is not a GET decides here.
const DECISIONS: &[(&str, Audited)] = &[
    // Issuing and using is the business of the authorization server, which has its own log of sign-ins. The decision on a
    // device code is part of it: the person who decides signs in there.
    ("POST /v1/access-tokens", Not),
    ("POST /v1/challenges", Not),
    ("POST /v1/challenges/peek", Not),
    ("POST /v1/challenges/verify", Not),
    ("POST /v1/codes", Not),
    ("POST /v1/codes/redeem", Not),
    ("POST /v1/device-codes", Not),
    ("POST /v1/device-codes/approve", Not),
    ("POST /v1/device-codes/deny", Not),
    ("POST /v1/device-codes/inspect", Not),
    ("POST /v1/device-codes/poll", Not),
    ("POST /v1/device-codes/redeem", Not),
    ("POST /v1/grants", Not),
    ("POST /v1/grants/rotate", Not),
    ("POST /v1/nonces", Not),
    ("POST /v1/nonces/accept", Not),
    ("POST /v1/nonces/check", Not),
    ("POST /v1/provider-tokens/acquire", Not),
    ("POST /v1/provider-tokens/delete", Not),
    ("POST /v1/provider-tokens/get", Not),
    ("POST /v1/provider-tokens/put", Not),
    ("POST /v1/provider-tokens/release", Not),
    ("POST /v1/pushed-requests", Not),
    ("POST /v1/pushed-requests/peek", Not),
    ("POST /v1/pushed-requests/take", Not),
    ("POST /v1/replays/check", Not),
    ("POST /v1/replays/check-batch", Not),
    ("POST /v1/sessions", Not),
    ("POST /v1/sessions/claim", Not),
    ("POST /v1/sessions/get", Not),
    ("POST /v1/sessions/touch", Not),
    // These read or check.
    ("POST /v1/approvals/check", Not),
    ("POST /v1/approvals/check-batch", Not),
    ("POST /v1/belongings", Not),
    ("POST /v1/clients/{id}/verify", Not),
    ("POST /v1/explain", Not),
    ("POST /v1/introspect", Not),
    ("POST /v1/policies/simulate", Not),
    ("POST /v1/relationships/check", Not),
    ("POST /v1/relationships/check-batch", Not),
    ("POST /v1/relationships/reachable", Not),
    ("POST /v1/relationships/reaching", Not),
    ("POST /v1/scopes/access", Not),
    ("POST /v1/subjects/overview", Not),
    ("POST /v1/sweep", Not),
    // Its targets have ended already, and a relationship among them leaves an entry of its own.
    ("POST /v1/belongings/reconcile", Not),
    // Data of applications. Everything of an owner is deleted with an entry, which a restored store repeats.
    ("PUT /v1/attributes/{owner}/{bucket}/{name}", Not),
    ("DELETE /v1/attributes/{owner}/{bucket}/{name}", Not),
    ("POST /v1/attributes/{owner}/{bucket}/{name}/compare-and-swap", Not),
    ("POST /v1/attributes/{owner}/{bucket}/delete-all", Not),
    ("POST /v1/attributes/commit", Not),
    ("POST /v1/attributes/compare-and-swap", Not),
    ("POST /v1/attributes/delete", Not),
    ("POST /v1/attributes/get", Not),
    ("POST /v1/attributes/list", Not),
    ("POST /v1/attributes/list-buckets", Not),
    ("POST /v1/attributes/set", Not),
    ("POST /v1/attributes/take", Not),
    ("POST /v1/attributes/{owner}/delete-all", BeginAndEnd),
    ("POST /v1/attributes/delete-all", BeginAndEnd),
    ("POST /v1/records/acquire", Not),
    ("POST /v1/records/batch", Not),
    ("POST /v1/records/consume", Not),
    ("POST /v1/records/delete", Not),
    ("POST /v1/records/get", Not),
    ("POST /v1/records/get-many", Not),
    ("POST /v1/records/increment", Not),
    ("POST /v1/records/list", Not),
    ("POST /v1/records/put", Not),
    ("POST /v1/records/release", Not),
    ("POST /v1/records/take", Not),
    ("POST /v1/records/touch", Not),
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
    // A token of another client and one that is unknown: nothing is revoked.
    ("POST /v1/revoke", Each(&[0, 1, 0])),
    ("POST /v1/access-tokens/revoke", Once),
    ("PUT /v1/policies", Once),
    ("DELETE /v1/policies", Once),
    ("POST /v1/subjects/sign-out", Once),
    ("POST /v1/clock/accept", Once),
    // The first call is in the logs of both scopes, and each call once more for each kind that it has moved.
    ("POST /v1/scopes/migrate", Each(&[3, 0])),
    // Its beginning, the approval that it wrote, and its end.
    ("POST /v1/import", Each(&[3])),
    ("POST /v1/attributes/{owner}/{bucket}/{name}/extend", Once),
    ("POST /v1/attributes/extend", Once),
    ("POST /v1/approvals/delete-all", BeginAndEnd),
    ("POST /v1/relationships/delete-all", BeginAndEnd),
    ("POST /v1/grants/revoke", Once),
    ("POST /v1/sessions/revoke", BeginAndEnd),
    ("DELETE /v1/owners/{owner}", BeginAndEnd),
    ("DELETE /v1/scopes/{scope}", BeginAndEnd),
];

/// Decision on exactly this call.
fn decision(call: &Call) -> Option<Audited> {
    let text = call.to_string();
    DECISIONS.iter().find(|(decided, _)| *decided == text).map(|(_, audited)| *audited)
}

#[test]
fn every_call_that_changes_something_has_a_decision() {
    let calls: BTreeSet<_> =
        Call::all().iter().filter(|call| call.method != "GET").map(ToString::to_string).collect();
    let decided: BTreeSet<_> = DECISIONS.iter().map(|(call, _)| (*call).to_owned()).collect();
    assert_eq!(decided.len(), DECISIONS.len(), "a call has one decision");
    let undecided: Vec<_> = calls.difference(&decided).collect();
    assert!(
        undecided.is_empty(),
        "decide in tests/http/audited.rs whether these leave audit entries: {undecided:#?}"
    );
    let gone: Vec<_> = decided.difference(&calls).collect();
    assert!(gone.is_empty(), "no call has these names: {gone:#?}");
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
                Some(Each(counts)) => {
                    let earlier = seen.iter().filter(|seen| **seen == call.to_string()).count();
                    *counts.get(earlier).unwrap_or_else(|| panic!("{place}: decide on one more {call}"))
                }
            };
            let found = new.len() - thefts;
            assert_eq!(found, expected, "{place}: {call} answers {status} and leaves {new:?}");
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
