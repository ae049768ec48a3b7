//! Catalogue of problem types: the cause and the remedy of each. `docs/problems` and the pages at `/problems/NAME` are
//! made from it.

use std::fmt::Write as _;

/// Problem type.
pub(crate) struct ProblemType {
    /// Name: the last part of the `type`, and the `title`.
    pub(crate) name: &'static str,
    /// Statuses that it is answered with.
    pub(crate) statuses: &'static str,
    cause: &'static str,
    remedy: &'static str,
}

/// Path of the pages.
pub(crate) const BASE: &str = "/problems/";

macro_rules! catalogue {
    ($($name:literal $statuses:literal $cause:literal $remedy:literal;)+) => {
        /// Every problem type.
        pub(crate) const CATALOGUE: &[ProblemType] = &[$(
            ProblemType { name: $name, statuses: $statuses, cause: $cause, remedy: $remedy },
        )+];
    };
}

catalogue! {
    "replay" "409"
        "The proof was seen before, within its time. Of several callers with one proof, one is answered 200 and all \
         others are answered this."
        "Refuse the request that carried the proof. The client makes a new proof with another `jti`. After a lost answer \
         the first attempt may have been recorded: it is a replay too.";
    "reused" "409"
        "A code or a refresh token that is good for one use was presented again. The grant that it gave is revoked: one \
         of the two holders is not the client."
        "The user signs in again. `grant_id` names the grant, and the audit log has what presented it.";
    "raced" "409"
        "A refresh token was presented while another request rotated it. Nothing was revoked."
        "Read the stored token again, and try once more later.";
    "used" "409"
        "A nonce, session, pushed request, device code or challenge that is good for one use was used before, or a record \
         was consumed before."
        "Start the flow again.";
    "expired" "410"
        "The record was there, and its lifetime has ended."
        "Start the flow again. If it ends too early, choose a longer `ttl_seconds`, a profile or a policy.";
    "revoked" "410"
        "The record was revoked before its end: by a call, by a sign-out, with its owner or client, or because a token was \
         reused. The member `revoked` has the reason."
        "The user signs in again. `ebbtide why` and the audit log tell who revoked it.";
    "unknown" "404"
        "Nothing of this name is in this scope, or it was never issued here. An expired record that is not retained is \
         answered like one that never existed."
        "Check the name and the `Ebbtide-Scope` of the request. A secret must be sent exactly as it was issued.";
    "not-found" "404"
        "No call has this path."
        "Compare the path with `/docs` or `/openapi.json`. A name in a path is percent-encoded, `/` included.";
    "mismatch" "422"
        "A member differs from the value that the record is bound to; `field` names it."
        "Send the value that was bound when the record was issued. A code that was presented with a wrong value is \
         consumed; of a challenge `attempts_left` tells how many more wrong secrets it allows.";
    "conflict" "409, 412"
        "A condition does not hold: the record has another version or value, exists already, does not allow the change, or \
         another holds the lease."
        "Read the record again, and repeat the change on what it is now.";
    "exceeded" "429"
        "A limit is reached: the `limit` of a counter, or the number of wrong secrets of a challenge. Nothing was counted."
        "Wait until the counter expires, or use a higher limit; issue a new challenge.";
    "limited" "429"
        "The key has reached its rate limit, or has too much in flight on this node."
        "Wait for the seconds in `Retry-After`. An administrator can create a key with a higher `rate_limit`.";
    "quota" "429"
        "The scope has reached its record quota. Reading, revoking and deleting still work."
        "Delete records, wait until some expire, or raise the quota in the configuration of the server.";
    "pending" "409"
        "The user has not decided on the device code yet."
        "Poll again after `interval` seconds.";
    "slow_down" "429"
        "The device polls more often than its interval allows."
        "Wait for the seconds in `Retry-After` from one poll to the next.";
    "denied" "403"
        "The user has refused the device."
        "Start again only if the user asks for it.";
    "too_many_guesses" "429"
        "Too many wrong user codes came from one source."
        "Wait for the seconds in `Retry-After`.";
    "invalid" "400, 405, 408, 413"
        "The request is malformed. `detail` names the member, the expected type and the place (`member`, `expected`, \
         `allowed`, `line`, `column`), and never repeats a value. 405: the path has no such method. 408: the body took too \
         long. 413: the body is too large."
        "Fix the request before you repeat it. An unknown member or query parameter is an error, so that `ttl_second` \
         cannot create a record that never expires.";
    "unauthorized" "401"
        "The key is missing, unknown, expired or revoked."
        "Send `Authorization: Bearer KEY` with a valid key.";
    "forbidden" "403"
        "The key is valid, but its role is too low, or its scope does not cover the scope of the request."
        "Use a key with the role and scope that `/docs` names for the call.";
    "unavailable" "500, 503"
        "The server has no answer: it is overloaded or shutting down, its engine did not answer, or its clock is in doubt. \
         A write may have happened, unless `detail` says that the request was not started."
        "Treat it as a refusal. Repeat the request later; a consumed secret stays consumed. 500: stored data is damaged, \
         and an operator must look.";
}

/// Returns the entry of a problem type.
pub(crate) fn find(name: &str) -> Option<&'static ProblemType> {
    CATALOGUE.iter().find(|entry| entry.name == name)
}

impl ProblemType {
    /// Page in Markdown.
    pub(crate) fn page(&self) -> String {
        let mut page = format!("# {}\n\nStatus {}.\n", self.name, self.statuses);
        for (heading, text) in [("Cause", self.cause), ("Remedy", self.remedy)] {
            let _ = write!(page, "\n## {heading}\n\n{}\n", wrapped(text));
        }
        page
    }
}

/// Breaks a paragraph into lines of at most 119 characters.
fn wrapped(text: &str) -> String {
    let (mut lines, mut width) = (String::new(), 0);
    for word in text.split_whitespace() {
        if width > 0 && width + 1 + word.len() > 119 {
            lines.push('\n');
            width = 0;
        } else if width > 0 {
            lines.push(' ');
            width += 1;
        }
        lines.push_str(word);
        width += word.len();
    }
    lines
}

/// Files of `docs/problems`: their names and contents. For the test that keeps them up to date.
#[must_use]
pub fn files() -> Vec<(String, String)> {
    let mut index =
        "# Problems\n\nEvery refusal has one of these types; the last part of its `type` is the name.\n\n\
                     | type | status |\n|---|---|\n"
            .to_owned();
    for entry in CATALOGUE {
        let _ = writeln!(index, "| [`{0}`]({0}.md) | {1} |", entry.name, entry.statuses);
    }
    let pages = CATALOGUE.iter().map(|entry| (format!("{}.md", entry.name), entry.page()));
    std::iter::once(("README.md".to_owned(), index)).chain(pages).collect()
}
