//! The command line itself: `--json` anywhere, the version, closed pipes, engines that a build lacks.

#[path = "support/server.rs"]
mod server;

use server::{ebbtide, said};

/// Exit status of a command whose reader has gone away: that of a process which SIGPIPE ended.
const BROKEN_PIPE: i32 = 141;

#[test]
fn json_is_accepted_anywhere_on_the_line() {
    for (arguments, status) in [
        (&["--json", "stats", "--store", "memory:"][..], 0),
        (&["stats", "--json", "--store", "memory:"], 0),
        (&["stats", "--store", "memory:", "--json"], 0),
        (&["--json", "scope", "stats", "--store", "memory:", "--scope", "global"], 0),
        (&["scope", "--json", "stats", "--store", "memory:", "--scope", "global"], 0),
        (&["--json", "sweep", "--store", "memory:"], 0),
        (&["--json", "config", "check", "--store", "memory:"], 0),
        (&["config", "check", "--store", "memory:", "--json"], 0),
        (&["explain", "--store", "memory:", "--scope", "global", "client", "app", "--json"], 1),
        (&["--json", "explain", "--store", "memory:", "--scope", "global", "client", "app"], 1),
    ] {
        let output = ebbtide(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", said(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        let parsed = serde_json::from_str::<serde_json::Value>(&text);
        assert!(parsed.is_ok_and(|value| value.is_object()), "{arguments:?}: {text}");
    }
}

#[test]
fn a_command_without_json_output_refuses_the_flag_before_it_does_anything() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("keyring.json");
    let arguments = ["--json", "keyring", "--keyring", file.to_str().unwrap(), "init"];
    for arguments in [&arguments[..], &["verify", "--store", "memory:", "--json"], &["man", "--json"]] {
        let output = ebbtide(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains("--json"), "{arguments:?}: {}", said(&output));
    }
    assert!(!file.exists());
}

#[test]
fn the_version_has_the_name_of_the_command() {
    let version = format!("ebbtide {}\n", env!("CARGO_PKG_VERSION"));
    for flag in ["--version", "-V"] {
        assert_eq!(said(&ebbtide(&[flag]).output().unwrap()), version);
    }
}

#[test]
fn a_closed_pipe_ends_a_command_quietly() {
    for (arguments, status) in [
        (&["--help"][..], 0),
        (&["--version"], 0),
        (&["completions", "bash"], BROKEN_PIPE),
        (&["man"], BROKEN_PIPE),
        (&["config", "check", "--store", "memory:"], BROKEN_PIPE),
        (&["stats", "--store", "memory:"], BROKEN_PIPE),
        (&["stats", "--store", "memory:", "--json"], BROKEN_PIPE),
        (&["key", "list", "--store", "memory:", "--scope", "global"], BROKEN_PIPE),
        (&["sweep", "--store", "memory:"], BROKEN_PIPE),
        (&["verify", "--store", "memory:", "--filter", "expiry::"], BROKEN_PIPE),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = ebbtide(arguments).stdout(writer).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {}", said(&output));
        assert!(output.stderr.is_empty(), "{arguments:?}: {}", said(&output));
    }
}

#[test]
fn an_error_that_nobody_reads_keeps_its_status() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = ebbtide(&["stats", "--store", "nonsense:"]);
    let output = command.env("EBBTIDE_LOG", "trace").stderr(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = ebbtide(&["sweep", "--store", "memory:"]);
    let output = command.env("EBBTIDE_LOG", "trace").stderr(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "a log that nobody reads stops no command");
}

#[test]
fn the_help_and_the_errors_say_how_to_get_an_engine_that_the_build_lacks() {
    let help = said(&ebbtide(&["--help"]).output().unwrap());
    for (engine, url, built) in [
        ("fjall", "fjall:/nowhere/at/all", cfg!(feature = "fjall")),
        ("rocksdb", "rocksdb:/nowhere/at/all", cfg!(feature = "rocksdb")),
        ("postgres", "postgres://user:hunter2@127.0.0.1:1/auth", cfg!(feature = "postgres")),
        ("dynamodb", "dynamodb:table", cfg!(feature = "dynamodb")),
    ] {
        let install = format!("--features {engine}");
        assert!(help.contains(engine), "{engine}: {help}");
        assert_eq!(help.contains(&install), !built, "{engine}: {help}");
        if built {
            continue;
        }
        let output = ebbtide(&["stats", "--store", url]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let text = said(&output);
        assert!(text.contains(&format!("this build has no {engine} engine")), "{text}");
        assert!(text.contains(&install) && !text.contains("hunter2"), "{text}");
    }
    if cfg!(not(feature = "dynamodb")) {
        let output = ebbtide(&["table", "describe", "--store", "dynamodb:table"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(said(&output).contains("--features dynamodb"), "{}", said(&output));
    }
}
