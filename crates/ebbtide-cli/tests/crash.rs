//! `kill -9` of a server under load: every answer holds after the restart.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use server::{Client, Server, proof};

const CLIENTS: usize = 16;

/// Number of fresh proofs before the server is killed.
const ANSWERS: usize = 400;

/// Answers that one client received before the server was killed.
#[derive(Default)]
struct Told {
    fresh: Vec<String>,
    redeemed: Vec<String>,
    revoked: Vec<String>,
}

/// Sends requests until there is no answer: a proof, a code redeemed for a grant, the grant revoked.
fn ask(mut client: Client, name: usize, answers: &AtomicUsize) -> Told {
    let mut told = Told::default();
    for round in 0.. {
        let jti = format!("{name}-{round}");
        let Some(answer) = client.try_post("/v1/replays/check", &proof(&jti)) else { break };
        assert_eq!(answer.status, 200, "{answer:?}");
        told.fresh.push(jti);
        answers.fetch_add(1, Ordering::Relaxed);
        if round % 4 != 0 {
            continue;
        }
        let issue =
            r#"{"client_id":"app","subject":"alice","redirect_uri":"https://app/cb","ttl_seconds":600}"#;
        let Some(issued) = client.try_post("/v1/codes", issue) else { break };
        let redeem = redemption(issued.ok(201)["code"].as_str().unwrap());
        let Some(redeemed) = client.try_post("/v1/codes/redeem", &redeem) else { break };
        let grant = redeemed.ok(200)["grant"].clone();
        told.redeemed.push(redeem);
        let revoke = format!(r#"{{"grant_id":{}}}"#, grant["grant_id"]);
        let Some(revoked) = client.try_post("/v1/grants/revoke", &revoke) else { break };
        assert_eq!(revoked.ok(200)["revoked"], 1);
        told.revoked.push(format!(r#"{{"refresh_token":{},"client_id":"app"}}"#, grant["refresh_token"]));
    }
    told
}

fn redemption(code: &str) -> String {
    format!(r#"{{"code":"{code}","client_id":"app","redirect_uri":"https://app/cb","grant":{{}}}}"#)
}

#[test]
fn every_answer_that_a_client_received_holds_after_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..3 {
        let server = Server::start_in(folder.path(), &[]);
        let answers = Arc::<AtomicUsize>::default();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|name| {
                let (client, answers) = (server.client(), Arc::clone(&answers));
                std::thread::spawn(move || ask(client, round * CLIENTS + name, &answers))
            })
            .collect();
        // In the middle of the load, on a machine of any speed.
        while answers.load(Ordering::Relaxed) < ANSWERS {
            std::thread::sleep(Duration::from_millis(5));
        }
        server.kill();
        let told: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();

        let server = Server::start_in(folder.path(), &[]);
        let mut client = server.client();
        let (mut fresh, mut redeemed, mut revoked) = (0, 0, 0);
        for told in &told {
            for jti in &told.fresh {
                client.post("/v1/replays/check", &proof(jti)).refused(409, "replay");
                fresh += 1;
            }
            for redeem in &told.redeemed {
                client.post("/v1/codes/redeem", redeem).refused(409, "reused");
                redeemed += 1;
            }
            for rotate in &told.revoked {
                client.post("/v1/grants/rotate", rotate).refused(410, "revoked");
                revoked += 1;
            }
        }
        println!("round {round}: {fresh} proofs, {redeemed} redemptions, {revoked} revocations held");
        assert!(fresh >= ANSWERS && redeemed > 0 && revoked > 0, "there was load of every kind");
    }
}
