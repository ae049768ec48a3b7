//! Records through a rotation of the keyring on two nodes.

use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::KEY;
use super::engines::Engine;
use super::server::{Answer, Server, ebbtide, said, until};

/// Puts a record with a second key and a group.
fn put(node: &Server, id: &str, group: &str) -> Answer {
    let body = json!({"collection": "c", "id": id, "value": id, "keys": [format!("key-{id}")], "group": group,
        "ttl_seconds": 600});
    node.post("/v1/records/put", &body.to_string())
}

/// Status of a call on a record by its id, and by its second key.
fn by_both(node: &Server, call: &str, id: &str) -> [u16; 2] {
    let names =
        [json!({"collection": "c", "id": id}), json!({"collection": "c", "key": format!("key-{id}")})];
    names.map(|name| node.post(&format!("/v1/records/{call}"), &name.to_string()).status)
}

/// A rotation in which one node has the new key active before the other: both agree on ids, second keys and groups.
pub(super) fn find_through_rotation(engine: &Engine, place: &str) -> Result<(), Failed> {
    let (url, folder) = ((engine.fresh)(place), tempfile::tempdir()?);
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (own, files) = (file("operator.json"), ["one.json", "two.json"].map(file));
    let ring = |arguments: &[&str]| {
        let output = ebbtide(&[&["keyring", "--keyring", &own], arguments].concat()).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    ring(&["init"]);
    for file in &files {
        std::fs::copy(&own, file)?;
    }
    let nodes = files.each_ref().map(|file| {
        let arguments = ["--store", &url, "--keyring", file];
        Server::start_with(folder.path(), &arguments, &[("EBBTIDE_ROOT_KEY", KEY)])
    });
    let [one, two] = &nodes;
    let hand = |node: usize| {
        std::fs::copy(&own, &files[node]).unwrap();
        nodes[node].signal("-HUP");
    };
    let shown = || serde_json::from_str::<Value>(&ring(&["show", "--json", "--store", &url])).unwrap();
    let count = |is: &dyn Fn(&Value) -> bool| {
        shown()["nodes"].as_array().unwrap().iter().filter(|node| is(node)).count()
    };
    for id in ["before", "taken", "revoked"] {
        put(one, id, id).ok(200);
    }
    let old = shown()["active"].as_str().unwrap().to_owned();
    ring(&["add", "--standby"]);
    let new = {
        let shown = shown();
        let keys = shown["keys"].as_array().unwrap();
        keys.iter().find(|key| key["state"] == "accepted").unwrap()["id"].as_str().unwrap().to_owned()
    };
    (0..2).for_each(hand);
    assert!(until(|| count(&|node| node["keys"].as_array().unwrap().contains(&json!(new))) == 2));
    ring(&["activate", &new, "--store", &url]);
    hand(1);
    assert!(until(|| count(&|node| node["active"] == json!(new)) == 1), "{}", shown());

    assert_eq!(by_both(two, "get", "before"), [200, 200]);
    put(two, "between", "between").ok(200);
    assert_eq!(by_both(one, "get", "between"), [200, 200]);
    let absent = json!({"collection": "c", "id": "between", "value": 1, "if": "absent"}).to_string();
    assert_eq!(one.post("/v1/records/put", &absent).status, 409, "the same id is the same record");
    let key = json!({"collection": "c", "id": "thief", "value": 1, "keys": ["key-between"]}).to_string();
    assert_eq!(one.post("/v1/records/put", &key).status, 409, "and so is a second key");
    assert_eq!(by_both(two, "take", "taken"), [200, 404]);
    assert_eq!(by_both(one, "take", "taken"), [404, 404]);
    let group = json!({"collection": "c", "group": "revoked"}).to_string();
    two.post("/v1/records/groups/revoke", &group).ok(200);
    assert_eq!(by_both(one, "get", "revoked"), [404, 404]);
    assert_eq!(put(one, "late", "revoked").status, 410);

    hand(0);
    assert!(until(|| count(&|node| node["active"] == json!(new)) == 2), "{}", shown());
    ring(&["reseal", "--store", &url]);
    ring(&["retire", &old, "--store", &url]);
    (0..2).for_each(hand);
    assert!(until(|| count(&|node| node["keys"].as_array().unwrap().contains(&json!(old))) == 0));
    for (node, id) in [(one, "before"), (two, "before"), (one, "between"), (two, "between")] {
        assert_eq!(by_both(node, "get", id), [200, 200], "{id}");
    }
    assert_eq!(put(one, "late", "revoked").status, 410);
    assert_eq!(by_both(one, "take", "before"), [200, 404]);
    assert_eq!(by_both(two, "get", "before"), [404, 404]);
    Ok(())
}
