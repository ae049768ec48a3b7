//! Every metric in the dashboard and the alert rules exists on a server.

#[path = "support/server.rs"]
mod server;

use std::collections::BTreeSet;

use server::{Server, proof, until};

const DASHBOARD: &str = include_str!("../../../deploy/grafana/ebbtide.json");
const ALERTS: &str = include_str!("../../../deploy/prometheus/alerts.yml");

/// Metrics of shared engines; they are tested with those.
const OF_SHARED_ENGINES: [&str; 2] = ["ebbtide_pool_connections", "ebbtide_clock_engine_difference_seconds"];

/// Names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("ebbtide_")).collect()
}

#[test]
fn every_metric_of_the_dashboard_and_the_alerts_is_in_a_scrape() {
    serde_json::from_str::<serde_json::Value>(DASHBOARD).unwrap();
    let server = Server::start(&["--sweep-interval", "1s", "--limits-connections", "2"]);
    let mut client = server.client();
    // Some of everything: a record created, refused, taken, swept; a connection refused.
    let short = r#"{"namespace":"test","jti":"short","ttl_seconds":1}"#;
    assert_eq!(client.post("/v1/replays/check", short).status, 200);
    assert_eq!(client.post("/v1/replays/check", &proof("long")).status, 200);
    client.post("/v1/replays/check", &proof("long")).refused(409, "replay");
    let mut second = server.client();
    assert_eq!(second.call("GET", "/healthz", &[], "").status, 200);
    server.client().answer().unwrap().refused(503, "unavailable");
    let wanted: BTreeSet<_> = names(DASHBOARD).union(&names(ALERTS)).copied().collect();
    assert!(wanted.len() > 15, "{wanted:?}");
    let missing = |text: &str| -> Vec<_> {
        let there = names(text);
        let known = |name: &&str| OF_SHARED_ENGINES.contains(name) || there.contains(name);
        wanted.iter().copied().filter(|name| !known(name)).collect()
    };
    let mut text = String::new();
    let all = until(|| {
        assert_eq!(client.call("POST", "/v1/sweep", &[], "").status, 200);
        text = client.call("GET", "/metrics", &[], "").text;
        missing(&text).is_empty()
    });
    assert!(all, "{:?} are not in {text}", missing(&text));
}
