//! Every metric in the dashboard and the alert rules exists on a server.

#[path = "support/server.rs"]
mod server;

use std::collections::BTreeSet;

use server::{Client, Server, proof, request, until};

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
    let mut server = Server::start(&[
        "--sweep-interval",
        "1s",
        "--limits-connections",
        "2",
        "--operator-listen",
        "127.0.0.1:0",
    ]);
    let operator = server.operator().unwrap();
    let scrape = || Client::new(operator, "").call("GET", "/metrics", &[], "").text;
    // A connection is refused while all are busy.
    let whole = request("POST", "/v1/replays/check", &server.key, &[], &proof("slow"));
    let held: Vec<_> = (0..2)
        .map(|_| {
            let mut client = server.client();
            client.send(&whole[..whole.len() - 5]);
            client
        })
        .collect();
    assert!(until(|| scrape().contains("ebbtide_http_requests_in_flight 2\n")), "{}", scrape());
    server.client().answer().unwrap().refused(503, "unavailable");
    drop(held);
    assert!(until(|| scrape().contains("ebbtide_http_requests_in_flight 0\n")), "{}", scrape());
    let mut client = server.client();
    // Some of everything: a record created, refused, taken, swept.
    let short = r#"{"namespace":"test","jti":"short","ttl_seconds":1}"#;
    assert_eq!(client.post("/v1/replays/check", short).status, 200);
    assert_eq!(client.post("/v1/replays/check", &proof("long")).status, 200);
    client.post("/v1/replays/check", &proof("long")).refused(409, "replay");
    let bucket = "/v1/attributes/_oauth/client_index";
    assert_eq!(client.call("PUT", &format!("{bucket}/app"), &[], r#"{"data":1}"#).status, 200);
    assert_eq!(client.call("GET", "/v1/attributes/_oauth?usage=true", &[], "").status, 200);
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
        text = scrape();
        missing(&text).is_empty()
    });
    assert!(all, "{:?} are not in {text}", missing(&text));
}
