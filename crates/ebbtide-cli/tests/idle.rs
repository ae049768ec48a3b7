//! Ten thousand idle connections beside served requests.

#[path = "support/server.rs"]
mod server;

use std::net::TcpStream;

use ebbtide::Stopwatch;
use server::{Server, proof};

#[test]
fn idle_connections_are_held_and_the_rest_is_served() {
    const WANTED: u64 = 10_000;
    // The server inherits the limit, and needs some files for its store.
    let files = rlimit::increase_nofile_limit(u64::MAX).unwrap();
    let idle = WANTED.min(files.saturating_sub(1_000));
    println!("limit of {files} open files: {idle} connections are held");
    assert!(idle >= 1_000, "the limit of open files is too low for this test");
    // Idle connections are closed after a while: opening so many may take longer than the default on a busy machine.
    let server =
        Server::start(&["--log-filter", "info,ebbtide::request=debug", "--limits-header-timeout", "15m"]);
    let held: Vec<_> = (0..idle).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    let stopwatch = Stopwatch::start();
    let mut client = server.client();
    for number in 0..200 {
        assert_eq!(client.post("/v1/replays/check", &proof(&format!("jti-{number}"))).status, 200);
    }
    println!("200 requests beside {} idle connections took {:?}", held.len(), stopwatch.elapsed());
    let text = server.get("/metrics").text;
    let open = text.lines().find_map(|line| line.strip_prefix("ebbtide_connections ")).unwrap();
    assert!(open.parse::<u64>().unwrap() >= idle, "{open} are open");
    // The log is written in order: once this line is there, all before it are.
    let last = client.call("POST", "/v1/replays/check", &[("x-request-id", "the-last")], &proof("last"));
    assert_eq!(last.status, 200);
    let log = server.logged_with(&["the-last"]);
    assert!(!log.contains("cannot accept a connection"), "{log}");
}
