//! Replies to commands that are not run.

use super::reply::Reply;

/// Reply to a command before a key was presented.
pub(super) fn no_auth() -> Reply {
    Reply::error("NOAUTH Authentication required.")
}

/// Reply to a command that is not there. It does not repeat the arguments: a slip may have put a secret among them.
pub(super) fn unknown(name: &[u8]) -> Reply {
    let shown: String = String::from_utf8_lossy(name)
        .chars()
        .take(32)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    let lower = shown.to_ascii_lowercase();
    let why = match lower.as_str() {
        "eval" | "evalsha" | "eval_ro" | "evalsha_ro" | "script" | "function" | "fcall" | "fcall_ro" => {
            "scripts do not run here; SET with NX, GETDEL, DELEX with IFEQ, and MULTI with WATCH are atomic"
        }
        "publish" | "subscribe" | "psubscribe" | "ssubscribe" | "spublish" | "unsubscribe"
        | "punsubscribe" | "pubsub" | "monitor" => "there are no channels",
        "keys" | "dbsize" | "randomkey" => "walk through the keys with SCAN",
        "flushdb" | "flushall" => "delete the scope over HTTP, or with `ebbtide scope delete`",
        _ => "Ebbtide keeps strings and counters; the guide to the Redis protocol lists the commands",
    };
    Reply::error(format!("ERR unknown command '{shown}': {why}"))
}
