//! The commands `import`, `export`, `audit` and `copy`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

fn ebbtide(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ebbtide")).args(args).env_remove("EBBTIDE_STORE").output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn import_reports_skipped_lines_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lines.jsonl");
    let approval = r#"{"identity": "alice", "resource": "doc", "action": "GET", "granted_by": "admin"}"#;
    let relationship =
        r#"{"subject": "a", "relation": "r", "object": "b", "relation_type": "role", "created_by": "x"}"#;
    std::fs::write(&file, format!("{approval}\n\n{approval}\n{relationship}\nnonsense\n")).unwrap();
    let path = file.to_str().unwrap();
    let output = ebbtide(&["import", "--store", "memory:", "--scope", "tenant:acme", path]);
    assert_eq!(output.status.code(), Some(1), "a line is invalid");
    assert!(
        stdout(&output).starts_with("wrote 1 approvals and 1 relationships in tenant:acme; 2 lines skipped")
    );
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("line 5 is skipped: it is not a JSON object"), "{told}");
    let dry = ebbtide(&["import", "--store", "memory:", "--scope", "tenant:acme", "--dry-run", path]);
    assert!(
        stdout(&dry).starts_with("would write 2 approvals"),
        "a dry run writes nothing, so the second line is no duplicate"
    );
}

#[test]
fn an_empty_store_is_exported_copied_and_verified() {
    let export = ebbtide(&["export", "--store", "memory:", "--scope", "global"]);
    assert_eq!((export.status.code(), stdout(&export).as_str()), (Some(0), ""));
    let list = ebbtide(&["audit", "list", "--store", "memory:", "--scope", "global"]);
    assert_eq!((list.status.code(), stdout(&list).as_str()), (Some(0), ""));
    let verify = ebbtide(&["audit", "verify", "--store", "memory:", "--scope", "tenant:acme"]);
    assert_eq!(stdout(&verify), "the log of tenant:acme is whole: 0 entries\n");
    let below = ebbtide(&["audit", "verify", "--store", "memory:", "--scope", "global", "--below"]);
    assert_eq!(stdout(&below), "the log of global is whole: 0 entries\n");
    let mark = format!("3:{}", "0".repeat(64));
    let kept = ebbtide(&["audit", "verify", "--store", "memory:", "--scope", "global", "--mark", &mark]);
    assert_eq!(kept.status.code(), Some(1));
    assert_eq!(stdout(&kept), "the log of global is NOT whole: entry 3 is missing\n");
    let copy = ebbtide(&["copy", "--from", "memory:", "--to", "memory:", "--below", "tenant:acme"]);
    assert_eq!(copy.status.code(), Some(0));
    assert!(stdout(&copy).starts_with("0 copied"), "{}", stdout(&copy));
}

#[test]
fn a_command_that_fails_has_status_2() {
    for args in [
        &["audit", "verify", "--store", "nonsense:", "--scope", "global"][..],
        &["audit", "verify", "--store", "memory:", "--scope", "nonsense"],
        &["import", "--store", "memory:", "--scope", "global", "no-such-file"],
        &["copy", "--from", "memory:"],
    ] {
        assert_eq!(ebbtide(args).status.code(), Some(2), "{args:?}");
    }
}
