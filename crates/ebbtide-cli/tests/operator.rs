//! Every command that takes a store or a server answers the same for both.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/server.rs"]
mod server;

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use server::{Server, ebbtide};

/// Commands in their order, each as text and as JSON where it changes nothing. Behind a `<` stands the input.
const COMMANDS: &[&str] = &[
    "import --scope tenant:moved --dry-run lines.jsonl",
    "import --scope tenant:moved lines.jsonl",
    "import --scope tenant:moved lines.jsonl",
    "import --scope-map tenant:away=tenant:moved lines.jsonl",
    "import --own-scopes lines.jsonl",
    "import --scope tenant:moved none.jsonl",
    "export --scope tenant:moved",
    "export --scope global --below --kind approvals --kind attributes",
    "export --scope tenant:moved --kind grants",
    "approval check --scope tenant:acme alice doc GET",
    "approval grant --scope tenant:acme alice doc GET --ttl 1h --granted-by bob --metadata ticket=T-1",
    "approval grant --scope tenant:acme alice doc PUT --ttl 1h --max-ttl 2h --sliding --granted-by bob --json",
    "approval grant --scope tenant:acme/env:dev carol doc GET --granted-by bob",
    "approval grant --scope tenant:acme alice doc GET --ttl 1s",
    "approval check --scope tenant:acme alice doc GET",
    "approval check --scope tenant:acme alice doc GET --json",
    "approval check --scope tenant:acme carol doc GET",
    "approval check --scope tenant:acme carol doc GET --below --json",
    "approval list --scope tenant:acme --identity alice",
    "approval list --scope tenant:acme --identity alice --json",
    "approval list --scope tenant:acme --resource doc --below",
    "approval list --scope tenant:acme --below --count",
    "approval list --scope tenant:acme --identity alice --resource doc --action PUT --json",
    "approval extend --scope tenant:acme alice doc GET --ttl 2h --actor bob --reason more",
    "approval extend --scope tenant:acme alice doc GET --ttl 1h --actor bob --reason less",
    "approval extend --scope tenant:acme nobody doc GET --ttl 1h --actor bob --reason none",
    "approval revoke --scope tenant:acme alice doc GET --actor bob --reason over",
    "approval revoke --scope tenant:acme alice doc GET --actor bob --reason over --json",
    "approval revoke --scope tenant:acme --all --below --actor bob --reason over",
    "approval revoke --scope tenant:acme --all --below --yes --actor bob --reason over",
    "relationship add --scope tenant:acme alice member team --type membership --ttl 1h --created-by bob",
    "relationship add --scope tenant:acme team member company --type membership --created-by bob --json",
    "relationship add --scope tenant:acme alice likes tea --type custom:taste --created-by bob",
    "relationship check --scope tenant:acme alice member team --json",
    "relationship check --scope tenant:acme alice likes tea",
    "relationship check --scope tenant:acme alice member team --type trust",
    "relationship path --scope tenant:acme alice member company",
    "relationship path --scope tenant:acme alice member nowhere --json",
    "relationship list --scope tenant:acme --subject alice",
    "relationship list --scope tenant:acme --object company --json",
    "relationship list --scope global --below --count",
    "relationship reachable --scope tenant:acme alice member --type membership",
    "relationship reachable --scope tenant:acme company member --type membership --reverse --json",
    "relationship extend --scope tenant:acme alice member team --type membership --ttl 2h --actor b --reason r",
    "relationship remove --scope tenant:acme alice member team --type membership --actor bob --reason over",
    "relationship remove --scope tenant:acme alice member team --type membership --actor bob --reason over",
    "relationship remove --scope tenant:acme --all --yes --actor bob --reason over --json",
    "policy show --scope tenant:acme --kind approvals",
    "policy show --scope tenant:acme --kind nonces",
    "policy set --scope tenant:acme --kind approvals --preset short_lived --actor bob --reason less",
    "policy set --scope tenant:acme --kind approvals --max 30d --expect 1 --actor bob --reason more --json",
    "policy set --scope tenant:acme --kind approvals --max 30d --expect 1 --actor bob --reason more",
    "policy set --scope tenant:acme --kind approvals --min 2h --max 1h --actor bob --reason wrong",
    "policy list --scope global",
    "policy list --scope global --json",
    "policy simulate --scope tenant:acme --kind approvals --preset temporary",
    "policy simulate --scope tenant:acme --kind approvals --preset temporary --json",
    "policy remove --scope tenant:acme --kind approvals --actor bob --reason over",
    "policy remove --scope tenant:acme --kind approvals --actor bob --reason over --json",
    "policy set --scope tenant:acme --kind records --collection redis --default 1h --max 30d --actor b --reason r",
    "policy set --scope tenant:acme --kind records --preset long_lived --actor b --reason r --json",
    "policy set --scope tenant:acme --kind approvals --collection redis --actor b --reason r",
    "policy show --scope tenant:acme/env:dev --kind records --collection redis",
    "policy show --scope tenant:acme/env:dev --kind records --collection other --json",
    "policy show --scope tenant:acme --kind leases --collection redis",
    "policy list --scope tenant:acme",
    "policy list --scope tenant:acme --collection redis --json",
    "policy simulate --scope tenant:acme --kind records --collection redis --preset temporary",
    "policy remove --scope tenant:acme --kind records --collection redis --actor b --reason r",
    "policy remove --scope tenant:acme --kind records --collection redis --actor b --reason r",
    "attribute set --scope tenant:acme alice settings theme \"dark\" --ttl 1h --max-ttl 2h --sliding",
    "attribute set --scope tenant:acme alice settings theme 1 --if-absent",
    "attribute set --scope tenant:acme alice settings theme \"light\" --if-value \"dark\"",
    "attribute set --scope tenant:acme alice settings theme 1 --if-value \"dark\"",
    "attribute set --scope tenant:acme alice settings theme \"dark\" --if-value \"light\" --json",
    "attribute set --scope tenant:acme alice settings stamped -1 --timestamp 1700000000000",
    "attribute get --scope tenant:acme alice settings stamped --json",
    "attribute set --scope tenant:acme alice settings other {} --json",
    "attribute set --scope tenant:acme alice settings other nonsense",
    "attribute get --scope tenant:acme alice settings theme",
    "attribute get --scope tenant:acme alice settings theme --json",
    "attribute get --scope tenant:acme alice settings none",
    "attribute list --scope tenant:acme alice",
    "attribute list --scope tenant:acme alice settings",
    "attribute list --scope tenant:acme alice settings --json",
    "attribute extend --scope tenant:acme alice settings theme --ttl 90m --actor bob --reason more",
    "attribute extend --scope tenant:acme alice settings theme --ttl 3h --actor bob --reason more",
    "attribute extend --scope tenant:acme alice settings none --ttl 3h --actor bob --reason more",
    "explain --scope tenant:acme attribute alice settings theme",
    "explain --scope tenant:acme attribute alice settings none",
    "explain --scope tenant:acme --json attribute alice settings none",
    "usage --scope tenant:acme",
    "usage --scope global --below --json",
    "usage --scope tenant:acme --owner alice --by bucket",
    "usage --by bucket",
    "approval grant --scope global dave doc GET --ttl 1h --granted-by bob",
    "attribute delete --scope tenant:acme alice settings theme",
    "attribute delete --scope tenant:acme alice settings theme --json",
    "attribute delete --scope tenant:acme alice settings",
    "attribute delete --scope tenant:acme alice settings --yes",
    "relationship add --scope tenant:acme alice peer bob --type trust --created-by carol",
    "attribute set --scope tenant:acme alice permissions bob 1 --belongs-to relationship:alice,peer,bob,trust --json",
    "attribute set --scope tenant:acme alice permissions eve 1 --belongs-to relationship:alice,peer,eve,trust",
    "attribute set --scope tenant:acme alice permissions eve 1 --belongs-to nonsense",
    "relationship add --scope tenant:acme bob reads files --type role --belongs-to owner:alice --created-by carol",
    "relationship check --scope tenant:acme bob reads files --below --json",
    "relationship remove --scope tenant:acme alice peer bob --type trust --dry-run",
    "relationship remove --scope tenant:acme alice peer bob --type trust --dry-run --json",
    "belongings list --scope tenant:acme --owner alice",
    "belongings list --scope tenant:acme --relationship alice peer bob --json",
    "belongings reconcile --scope tenant:acme",
    "belongings reconcile --scope tenant:acme --json",
    "belongings reconcile --scope global --below",
    "owner delete --scope tenant:acme alice --dry-run",
    "owner delete --scope tenant:acme alice",
    "owner delete --scope tenant:acme alice --yes --actor bob --reason over",
    "client register --scope tenant:acme --id web --owner yan --name site --redirect-uri https://a/ --require-pkce",
    "client register --scope tenant:acme --id web",
    "client register --scope tenant:acme --id page --owner yan --public --ttl 90d --unused-ttl 1d --json",
    "client register --scope tenant:acme --id page --public --unused-ttl 1s",
    "client list --scope tenant:acme yan",
    "client list --scope tenant:acme alice",
    "client show --scope tenant:acme nobody",
    "client delete --scope tenant:acme nobody --yes --actor bob --reason over",
    "client delete --scope tenant:acme nobody --dry-run",
    "subject overview --scope tenant:acme zoe",
    "subject overview --scope tenant:acme zoe --json",
    "subject overview --scope tenant:acme nobody",
    "subject sign-out --scope tenant:acme zoe --actor bob --reason left",
    "subject overview --scope tenant:acme zoe",
    "subject sign-out --scope tenant:acme zoe --actor bob --reason left --json",
    "subject sign-out --scope tenant:acme nobody",
    "client revoke --scope tenant:acme kiosk --actor bob --reason leaked",
    "client revoke --scope tenant:acme kiosk --actor bob --reason leaked --json",
    "token grants --scope tenant:acme --subject alice",
    "token grants --scope tenant:acme --client app --json",
    "token grants --scope tenant:acme --client kiosk",
    "token revoke --scope tenant:acme AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA --actor bob --reason over",
    "token revoke-grant --scope tenant:acme 00000000000000000000000000000000 --actor bob --reason over --json",
    "record put --scope tenant:acme sessions one --ttl 2d --max-ttl 3d --sliding < {\"user\":\"alice\"}",
    "record put --scope tenant:acme sessions one --if-absent < 1",
    "record put --scope tenant:acme sessions two --belongs-to client:nobody < 1",
    "record put --scope tenant:acme sessions two < nonsense",
    "record get --scope tenant:acme sessions one",
    "record get --scope tenant:acme sessions one --json",
    "record list --scope tenant:acme sessions",
    "record get --scope tenant:acme sessions none",
    "record delete --scope tenant:acme sessions none --json",
    "key list --scope tenant:acme",
    "key create --scope tenant:acme --role reader --ttl 90d --name tool --rate-limit 7 --actor bob --reason new --json",
    "key create --scope tenant:acme/env:dev --role writer --allow introspect",
    "key create --scope tenant:acme --role reader --ttl 0s",
    "key list --scope tenant:acme --below",
    "key list --scope tenant:acme --json",
    "key revoke --yes AAAAAAAAAAAAAAAAAAAAAGdsb2JhbA",
    "key revoke nonsense",
    "scope access tenant:acme tenant:acme/env:dev",
    "scope access tenant:acme tenant:other --json",
    "scope unscoped --json",
    "scope migrate --from global --to tenant:acme --actor bob --reason move",
    "scope migrate --from global --to tenant:acme --yes --actor bob --reason move",
    "approval list --scope tenant:acme --identity dave --count",
    "scope migrate --from tenant:acme --to tenant:acme --yes",
    "scope migrate --from tenant:acme --to tenant:other --dry-run",
    "sweep --kind approvals,replays",
    "sweep --kind replays,nonces --json",
    "sweep --kind replay",
    "sweep --kind codes --by-profile --budget 0.5 --time-limit 1m",
    "scope delete --scope tenant:moved",
    "scope delete --scope tenant:moved --yes --actor bob --reason over",
    "scope delete --scope tenant:moved --resume --yes --actor bob --reason over --json",
    "clock show",
    "clock accept --actor bob --reason 'looked'",
];

/// Words in the output of commands, so that two equal failures are not taken for success.
const SAID: &[(&str, &str)] = &[
    (
        "import --scope tenant:moved --dry-run lines.jsonl",
        "would write 1 approvals and 1 relationships and 1 other records in tenant:moved; 4 lines skipped",
    ),
    ("import --own-scopes lines.jsonl", "wrote 1 approvals and 0 relationships; 6 lines skipped"),
    ("export --scope tenant:moved", r#""identity":"mia""#),
    ("export --scope global --below --kind approvals --kind attributes", r#""scope":"tenant:away""#),
    ("subject overview --scope tenant:acme zoe --json", r#""client_id":"app""#),
    (
        "subject sign-out --scope tenant:acme zoe --actor bob --reason left",
        "zoe is signed out: 1 grants, 1 access tokens without a grant and 1 sessions ended",
    ),
    ("subject sign-out --scope tenant:acme zoe --actor bob --reason left --json", r#""revoked":0"#),
    (
        "client revoke --scope tenant:acme kiosk --actor bob --reason leaked",
        "revoked 1 grants and tokens of kiosk",
    ),
    ("client revoke --scope tenant:acme kiosk --actor bob --reason leaked --json", r#"{"revoked":0}"#),
    ("token grants --scope tenant:acme --client kiosk", "revoked"),
    ("relationship remove --scope tenant:acme alice peer bob --type trust --dry-run", "1 records"),
    ("attribute get --scope tenant:acme alice settings theme", r#""dark""#),
    ("client list --scope tenant:acme yan", "public"),
    ("record get --scope tenant:acme sessions one --json", r#""user":"alice""#),
    (
        "policy remove --scope tenant:acme --kind approvals --actor bob --reason over --json",
        r#"{"removed":false}"#,
    ),
    ("scope migrate --from global --to tenant:acme --yes --actor bob --reason move", "1 approvals"),
    ("sweep --kind approvals,replays", "0 removed in"),
    ("sweep --kind replays,nonces --json", r#"{"nonces":0,"replays":0}"#),
    (
        "scope delete --scope tenant:moved --yes --actor bob --reason over",
        "records deleted of exactly tenant:moved",
    ),
    ("clock show", "own time"),
];

/// Commands that read, over the same records.
const READS: &[&str] = &[
    "sweep --dry-run",
    "sweep --dry-run --json",
    "clock show --json",
    "audit list --scope tenant:acme --json",
    "audit list --scope tenant:acme --action grant --subject dave",
    "audit list --scope tenant:acme --action nonsense",
    "audit verify --scope tenant:acme",
    "audit verify --scope global --below --json",
    "audit export --scope global --below",
    "stats",
    "stats --json",
    "scope list --scope global",
    "scope list --scope global --json",
    "scope stats --scope tenant:acme",
    "scope stats --scope tenant:acme --below --json",
    "usage --scope global --below",
    "export --scope tenant:acme",
    "export --scope global --below",
    "approval list --scope global --below --json",
    "relationship list --scope global --below",
    "policy list --scope global --json",
    "subject overview --scope tenant:acme zoe",
    "subject overview --scope tenant:acme zoe --json",
    "audit list --scope tenant:acme",
    "explain --scope tenant:acme approval dave doc GET",
    "explain --scope tenant:acme --json approval dave doc GET",
];

/// Output without what differs from run to run: times, durations, ids and digests.
fn neutral(text: &str) -> String {
    let mut words = Vec::new();
    for word in text.split_inclusive(|c: char| !c.is_ascii_alphanumeric() && !"-_.:+".contains(c)) {
        let digits = word.chars().filter(char::is_ascii_digit).count();
        // A digest in base64url may have few digits, and no word is that long.
        let differs = digits >= 8 || word.len() > 32;
        words.push(if differs { "#".to_owned() } else { word.to_owned() });
    }
    // "(in 59 min 59 s)" and "(in 1 h)" are the same life.
    let mut out = String::new();
    let mut rest = words.concat();
    while let Some(at) = rest.find('(') {
        let end = rest[at..].find(')').map_or(rest.len(), |end| at + end + 1);
        out.push_str(&rest[..at]);
        let inside = &rest[at..end];
        let relative = inside.starts_with("(in ") || inside.ends_with("ago)");
        out.push_str(if relative { "(…)" } else { inside });
        rest = rest[end..].to_owned();
    }
    out.push_str(&rest);
    // Columns are as wide as their cells.
    out.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Text without digits and signs.
fn masked(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit() && !"+-".contains(*c)).collect()
}

/// Line without the time that a sweep took.
fn without_time(line: &str) -> String {
    match line.split_once(" removed in ") {
        Some((count, _)) => format!("{count} removed in …"),
        None => line.to_owned(),
    }
}

/// Exit status, output and messages.
type Run = (Option<i32>, String, String);

/// Lines of an import, two of them invalid.
const LINES: &str = r#"
{"identity":"mia","resource":"doc","action":"GET","granted_by":"bob","granted_at":1700000000}
{"subject":"mia","relation":"editor","object":"doc","relation_type":"role","created_by":"bob","created_at":1700000000}
nonsense
{"owner":"mia","bucket":"settings","name":"theme","data":{"x":1.5},"created_at":1700000000}
{"identity":"mia","resource":"doc","action":"PUT","granted_by":"bob","ttl_secnds":60}
{"identity":"mia","resource":"doc","action":"POST","granted_by":"bob","expires_at":1700000000}
{"identity":"mia","resource":"doc","action":"PATCH","granted_by":"bob","granted_at":1700000000,"scope":"tenant:away"}
"#;

fn run(command: &str, variables: &[(&str, &str)], folder: &Path) -> Run {
    let (command, input) = command.split_once(" < ").unwrap_or((command, ""));
    let words: Vec<&str> = command.split(' ').collect();
    let mut command = ebbtide(&words);
    command.envs(variables.iter().copied()).env("TZ", "UTC").current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // One that reads no input may have ended.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let is_clock = words.first() == Some(&"clock");
    let text = |bytes: Vec<u8>| {
        let text = neutral(&String::from_utf8(bytes).unwrap());
        // Readings of a clock, and the time that a sweep took.
        if is_clock { masked(&text) } else { text.lines().map(without_time).collect::<Vec<_>>().join("\n") }
    };
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// Commands whose output or status differs.
fn differing(commands: &[&str], local: &[Run], remote: &[Run]) -> Vec<String> {
    let mut differ = Vec::new();
    for ((command, local), remote) in commands.iter().zip(local).zip(remote) {
        assert_ne!(local.0, None, "{command}");
        // A failure names the server, or does not.
        let same = local.0 == remote.0 && local.1 == remote.1 && local.2.is_empty() == remote.2.is_empty();
        if !same {
            differ.push(format!("{command}\n  --store:  {local:?}\n  --server: {remote:?}"));
        }
    }
    differ
}

/// Issues what no command issues: grants, an access token without one, a session and a client.
fn fill(server: &Server) {
    let mut client = server.client();
    for (path, body) in [
        ("/v1/grants", r#"{"subject":"zoe","client_id":"app","scope":"read"}"#),
        ("/v1/grants", r#"{"subject":"yan","client_id":"kiosk"}"#),
        ("/v1/access-tokens", r#"{"subject":"zoe","client_id":"app"}"#),
        ("/v1/sessions", r#"{"subject":"zoe"}"#),
        ("/v1/clients", r#"{"client_id":"of-zoe","owner":"zoe","name":"a tool"}"#),
    ] {
        client.call("POST", path, &[("ebbtide-scope", "tenant:acme")], body).ok(201);
    }
}

/// Commands for a store and for a server that are not compared, with the reason.
const NOT_COMPARED: &[(&str, &str)] = &[("why", "only a server keeps its refusals")];

/// Names of the commands within a command, from its help.
fn within(help: &str) -> Vec<String> {
    let section = help.split("\nCommands:\n").nth(1).unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

#[test]
fn every_command_that_takes_a_store_or_a_server_is_compared() {
    let compared = |words: &str| {
        let mut all = COMMANDS.iter().chain(READS);
        all.any(|command| *command == words || command.starts_with(&format!("{words} ")))
    };
    let (mut left, mut found, mut missing) = (vec![Vec::<String>::new()], 0, Vec::new());
    while let Some(words) = left.pop() {
        let mut line: Vec<&str> = words.iter().map(String::as_str).collect();
        line.push("--help");
        let help = String::from_utf8(ebbtide(&line).output().unwrap().stdout).unwrap();
        let inner = within(&help);
        let name = words.join(" ");
        // The kinds of `explain` are its arguments.
        if inner.is_empty() || name == "explain" {
            let both = help.contains("--store <URL>") && help.contains("--server <URL>");
            found += usize::from(both);
            if both && !compared(&name) && !NOT_COMPARED.iter().any(|(other, _)| *other == name) {
                missing.push(name);
            }
        } else {
            left.extend(inner.into_iter().map(|one| words.iter().cloned().chain([one]).collect()));
        }
    }
    assert!(found > 40, "{found} commands");
    assert_eq!(missing, [""; 0]);
}

#[test]
fn every_command_answers_the_same_for_a_store_and_for_a_server() {
    let [folder, other, lines] = [(); 3].map(|()| tempfile::tempdir().unwrap());
    std::fs::write(lines.path().join("lines.jsonl"), LINES).unwrap();
    // A store that a server made, and has closed.
    let server = Server::start_in(folder.path(), &[]);
    fill(&server);
    server.kill();
    let store = |folder: &tempfile::TempDir| format!("fjall:{}", folder.path().join("data").display());
    let server = Server::start_in(other.path(), &[]);
    fill(&server);
    let (url, key) = (server.url(), server.key.clone());
    let by_server = [("EBBTIDE_SERVER", url.as_str()), ("EBBTIDE_API_KEY", key.as_str())];
    let of = |commands: &[&str], variables: &[(&str, &str)]| -> Vec<Run> {
        commands.iter().map(|command| run(command, variables, lines.path())).collect()
    };
    let (local, remote) = std::thread::scope(|threads| {
        let local = threads.spawn(|| of(COMMANDS, &[("EBBTIDE_STORE", &store(&folder))]));
        let remote = of(COMMANDS, &by_server);
        (local.join().unwrap(), remote)
    });
    for (command, expected) in SAID {
        let at = COMMANDS.iter().position(|known| known == command).unwrap();
        assert!(local[at].1.contains(expected), "{command}: {:?}", local[at]);
    }
    let mut differ = differing(COMMANDS, &local, &remote);
    // A new process has nothing to add to the checkpoints of the audit log, which are records too.
    server.kill();
    let server = Server::start_in(other.path(), &[]);
    let url = server.url();
    let remote = of(READS, &[("EBBTIDE_SERVER", url.as_str()), ("EBBTIDE_API_KEY", key.as_str())]);
    server.kill();
    differ.extend(differing(READS, &of(READS, &[("EBBTIDE_STORE", &store(&other))]), &remote));
    assert!(differ.is_empty(), "{} differ:\n{}", differ.len(), differ.join("\n"));
}
