//! A sign-out that races 64 issuers over HTTP, with the real binary: nothing that was issued before it works afterwards.
//! `EBBTIDE_TEST_ROUNDS=1000` and `EBBTIDE_TEST_GRANTS=100000` are for a long look (`scripts/proof signout clients`).

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/engines.rs"]
mod engines;
#[path = "support/server.rs"]
mod server;

use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ebbtide::Stopwatch;
use engines::{ENGINES, done};
use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::{Value, json};
use server::{Answer, Client, Server};

const KEY: &str = "ebk_the-root-key-of-both-nodes";
const ISSUERS: usize = 64;
/// Most that an issuer issues while the sign-out is under way.
const MEANWHILE: usize = 4;
const URI: &str = "https://app.example/cb";

fn main() -> ExitCode {
    // The other side of a barrier would wait for ever.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        hook(panic);
        std::process::exit(101);
    }));
    let mut trials = Vec::new();
    for (name, test) in TESTS {
        trials.push(Trial::test(format!("embedded::{name}"), move || {
            let folder = tempfile::tempdir()?;
            let server = Server::start_in(folder.path(), &[]);
            test("embedded", &[&server, &server]);
            Ok(())
        }));
        for engine in ENGINES.iter().filter(|engine| engine.built) {
            let test = Trial::test(format!("{}::{name}", engine.name), move || {
                let (url, folder) = ((engine.fresh)(&engine.place()?), tempfile::tempdir()?);
                let keyring = folder.path().join("keyring.json").display().to_string();
                done(&["keyring", "--keyring", &keyring, "init"]);
                let start = || {
                    let arguments = ["--store", &url, "--keyring", &keyring];
                    Server::start_with(folder.path(), &arguments, &[("EBBTIDE_ROOT_KEY", KEY)])
                };
                test(engine.name, &[&start(), &start()]);
                Ok::<(), Failed>(())
            });
            trials.push(test.with_ignored_flag(engine.is_missing()));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

type Test = fn(&str, &[&Server; 2]);

const TESTS: [(&str, Test); 2] = [
    ("nothing_that_was_issued_before_a_sign_out_works_after_it", race),
    ("a_client_with_many_grants_is_revoked_in_one_call", revoke_client),
];

/// Number in a variable that asks for a long look.
fn asked(variable: &str) -> Option<usize> {
    std::env::var(variable).ok().and_then(|number| number.parse().ok())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Code,
    DeviceCode,
    Grant,
    TokenOfGrant,
    TokenAlone,
    Session,
}

const ALL: [What; 6] =
    [What::Code, What::DeviceCode, What::Grant, What::TokenOfGrant, What::TokenAlone, What::Session];

/// Credential, with the times at which it was asked for and answered.
#[derive(Debug)]
struct Issued {
    what: What,
    secret: Value,
    asked: Duration,
    answered: Duration,
}

/// Issues one to a subject. A token is refused if its grant was ended in between.
fn issue(client: &mut Client, what: What, subject: &str, time: &Stopwatch) -> Option<Issued> {
    let mut asked = time.elapsed();
    let mut post = |path: &str, body: Value| patient(client, path, &body);
    let of_subject = json!({"subject": subject, "client_id": "app"});
    let secret = match what {
        What::Code => {
            let request = json!({"subject": subject, "client_id": "app", "redirect_uri": URI});
            post("/v1/codes", request).ok(201)["code"].clone()
        }
        What::DeviceCode => {
            let started = post("/v1/device-codes", json!({"client_id": "app"})).ok(201);
            // Its subject is that of the approval.
            asked = time.elapsed();
            // Attempts from one source are counted while they are under way.
            let source = started["user_code"].clone();
            let approve = json!({"user_code": started["user_code"], "subject": subject, "source": source});
            let approved = post("/v1/device-codes/approve", approve);
            // A sign-out between its reading of the epoch and its commit refuses it.
            if approved.status == 404 {
                return None;
            }
            approved.ok(200);
            started["device_code"].clone()
        }
        What::Grant => post("/v1/grants", of_subject).ok(201)["refresh_token"].clone(),
        What::TokenOfGrant => {
            let grant = post("/v1/grants", of_subject).ok(201);
            let issued = post("/v1/access-tokens", json!({"grant_id": grant["grant_id"]}));
            if issued.status == 410 {
                return None;
            }
            issued.ok(201)["access_token"].clone()
        }
        What::TokenAlone => post("/v1/access-tokens", of_subject).ok(201)["access_token"].clone(),
        What::Session => post("/v1/sessions", json!({"subject": subject})).ok(201)["session_id"].clone(),
    };
    Some(Issued { what, secret, asked, answered: time.elapsed() })
}

fn works(client: &mut Client, issued: &Issued) -> bool {
    let secret = &issued.secret;
    let (path, body) = match issued.what {
        What::Code => (
            "/v1/codes/redeem",
            json!({"code": secret, "client_id": "app", "redirect_uri": URI, "grant": {}}),
        ),
        What::DeviceCode => {
            ("/v1/device-codes/redeem", json!({"device_code": secret, "client_id": "app", "grant": {}}))
        }
        What::Grant => ("/v1/grants/rotate", json!({"refresh_token": secret, "client_id": "app"})),
        What::TokenOfGrant | What::TokenAlone => {
            let form = format!("token={}", secret.as_str().unwrap());
            let answer = client.form("/v1/introspect", &form).ok(200);
            return answer["active"].as_bool().unwrap();
        }
        What::Session => ("/v1/sessions/get", json!({"session_id": secret})),
    };
    patient(client, path, &body).status == 200
}

/// Sends a request, and again while the server answers that it is busy, a few times.
fn patient(client: &mut Client, path: &str, body: &Value) -> Answer {
    let mut answer = client.post(path, &body.to_string());
    for _ in 0..5 {
        if answer.status != 503 {
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
        answer = client.post(path, &body.to_string());
    }
    assert!(answer.status < 500, "{path}: {answer:?}");
    answer
}

/// Credential, and whether it works after the sign-out.
struct Judged {
    issued: Issued,
    works: bool,
}

/// An issuer with a connection to each node, the first of which it issues with and the second of which it uses.
struct Issuer {
    number: usize,
    clients: [Client; 2],
}

impl Issuer {
    /// Issues one of the kinds before the others begin, and more until the sign-out is answered.
    fn run(&mut self, round: usize, subject: &str, race: &Race<'_>) -> (Vec<Judged>, Vec<Judged>) {
        let Self { number, clients: [here, there] } = self;
        let what = |turn: usize| ALL[(*number + round + turn) % ALL.len()];
        let before: Vec<_> = issue(here, what(0), subject, race.time).into_iter().collect();
        race.begin.wait();
        let mut meanwhile = Vec::new();
        for turn in 1..=MEANWHILE {
            let is_over = race.answered.load(Ordering::SeqCst);
            meanwhile.extend(issue(here, what(turn), subject, race.time));
            if is_over {
                break;
            }
        }
        race.end.wait();
        let mut judged = |all: Vec<Issued>| -> Vec<Judged> {
            all.into_iter().map(|issued| Judged { works: works(there, &issued), issued }).collect()
        };
        (judged(before), judged(meanwhile))
    }
}

struct Race<'a> {
    time: &'a Stopwatch,
    begin: Barrier,
    end: Barrier,
    answered: AtomicBool,
}

fn race(engine: &str, nodes: &[&Server; 2]) {
    let rounds = asked("EBBTIDE_TEST_ROUNDS").unwrap_or(3);
    let connect = |node: usize| Client::new(nodes[node % 2].address, &nodes[0].key);
    let mut issuers: Vec<_> = (0..ISSUERS)
        .map(|number| Issuer { number, clients: [connect(number), connect(number + 1)] })
        .collect();
    let mut operator = connect(0);
    let (mut ended, mut after) = (0, 0);
    for round in 0..rounds {
        let (subject, time) = (format!("user-{round}"), Stopwatch::start());
        let race = Race {
            time: &time,
            begin: Barrier::new(ISSUERS + 1),
            end: Barrier::new(ISSUERS + 1),
            answered: AtomicBool::new(false),
        };
        let (judged, answered) = std::thread::scope(|scope| {
            let (race, subject) = (&race, &subject);
            let running: Vec<_> = issuers
                .iter_mut()
                .map(|issuer| scope.spawn(move || issuer.run(round, subject, race)))
                .collect();
            race.begin.wait();
            // Rounds differ in how far the issuers have come.
            std::thread::sleep(Duration::from_millis(round as u64 % 16));
            patient(&mut operator, "/v1/subjects/sign-out", &json!({"subject": subject})).ok(200);
            let answered = time.elapsed();
            race.answered.store(true, Ordering::SeqCst);
            race.end.wait();
            let judged: Vec<_> = running.into_iter().map(|issuer| issuer.join().unwrap()).collect();
            (judged, answered)
        });
        let (before, meanwhile): (Vec<_>, Vec<_>) = judged.into_iter().unzip();
        for Judged { issued, works } in before.iter().flatten() {
            assert!(!works, "round {round}: it was issued before, and works: {issued:?}");
        }
        // Credentials that work were issued after the sign-out took effect, and so do those that were asked for later.
        let working = meanwhile.iter().flatten().filter(|one| one.works);
        let first = working.clone().map(|one| one.issued.answered).min().unwrap_or(Duration::MAX);
        for Judged { issued, works } in meanwhile.iter().flatten() {
            assert!(*works || issued.asked < first, "round {round}: a later one is dead: {issued:?}");
        }
        for Judged { issued, .. } in working.clone() {
            let late = issued.answered.checked_sub(answered);
            assert!(
                late.is_some(),
                "round {round}: it was issued before the answer at {answered:?}, and works: {issued:?}"
            );
        }
        after += working.count();
        ended += before.iter().flatten().count();
        ended += meanwhile.iter().flatten().filter(|one| !one.works).count();
    }
    println!(
        "{engine}: {rounds} rounds, {ended} credentials ended, none that was issued before the answer works; {after} issued \
         after it do"
    );
}

/// Grants of one client, which both nodes have used, and which neither honours after one call.
fn revoke_client(engine: &str, nodes: &[&Server; 2]) {
    let grants = asked("EBBTIDE_TEST_GRANTS").unwrap_or(ISSUERS);
    let connect = |node: usize| Client::new(nodes[node % 2].address, &nodes[0].key);
    let tokens: Vec<_> = std::thread::scope(|scope| {
        let issuers: Vec<_> = (0..ISSUERS)
            .map(|number| {
                let mut client = connect(number);
                scope.spawn(move || {
                    let mine = (number..grants).step_by(ISSUERS);
                    let body =
                        |user| json!({"subject": format!("user-{user}"), "client_id": "app"}).to_string();
                    mine.map(|user| client.post("/v1/grants", &body(user)).ok(201)["refresh_token"].clone())
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        issuers.into_iter().flat_map(|issuer| issuer.join().unwrap()).collect()
    });
    assert_eq!(tokens.len(), grants);
    let time = Stopwatch::start();
    connect(0).post("/v1/grants/revoke", &json!({"client_id": "app"}).to_string()).ok(200);
    let took = time.elapsed();
    let rotate = |node: usize, token: &Value| {
        connect(node)
            .post("/v1/grants/rotate", &json!({"refresh_token": token, "client_id": "app"}).to_string())
    };
    for token in tokens.iter().step_by((grants / ISSUERS).max(1)) {
        for node in 0..2 {
            rotate(node, token).refused(410, "revoked");
        }
    }
    println!("{engine}: {grants} grants of a client revoked in {took:?}");
    if asked("EBBTIDE_TEST_GRANTS").is_some() {
        let lease = if engine == "embedded" { 0 } else { 2_010 };
        assert!(took < Duration::from_millis(1_000 + lease), "{took:?}");
    }
    let body = json!({"subject": "user", "client_id": "app"}).to_string();
    let later = connect(1).post("/v1/grants", &body).ok(201)["refresh_token"].clone();
    rotate(0, &later).ok(200);
}
