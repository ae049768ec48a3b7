//! Author of a change: the key that was authenticated, as opposed to the name that a caller claims.

use std::fmt;
use std::sync::Arc;

tokio::task_local! {
    static AUTHOR: Author;
}

/// Authenticated author of the changes of one task.
///
/// The server runs every request as the author that it has authenticated. Each entry of the audit log takes its
/// `key_id` from here and nowhere else: no store and no route can forget it or claim another one.
///
/// ```
/// use ebbtide::stores::audit::Author;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// assert_eq!(Author::current().key_id(), "local");
/// let id = Author::new("k-7").run(async { Author::current().key_id().to_owned() }).await;
/// assert_eq!(id, "k-7");
/// # }
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Author(Arc<str>);

impl Author {
    /// Id of the root key in the audit log. It stays the same when the root key is rotated.
    pub const ROOT: &str = "root";

    /// Id of a process that has the store open itself: the command line, or an application that embeds the library.
    pub const LOCAL: &str = "local";

    /// Names the author by the id of its key.
    #[must_use]
    pub fn new(key_id: &str) -> Self {
        Self(key_id.into())
    }

    /// Runs `task` as this author.
    pub async fn run<F: Future>(self, task: F) -> F::Output {
        AUTHOR.scope(self, task).await
    }

    /// Returns the author of the current task; [`LOCAL`](Self::LOCAL) without one.
    #[must_use]
    pub fn current() -> Self {
        AUTHOR.try_with(Clone::clone).unwrap_or_else(|_| Self::new(Self::LOCAL))
    }

    /// Id of the key.
    #[must_use]
    pub fn key_id(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Author({})", self.0)
    }
}
