//! Causes of refusals that an answer does not tell, for operators.

use std::cell::Cell;

use crate::stores::grants::GrantId;

tokio::task_local! {
    static CAUSE: Cell<Option<RefusalCause>>;
}

/// Cause of a refusal that the caller is not told: to it, a session that was idle and one that has reached its cap have
/// both expired. The stores note it where they decide; an answer never depends on it.
///
/// ```
/// use ebbtide::stores::shared::refusal::RefusalCause;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let (answer, cause) = RefusalCause::watch(async { 7 }).await;
/// assert_eq!((answer, cause), (7, None));
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalCause {
    /// It was not used for too long.
    Idle,
    /// Its owner or its client was deleted.
    Deleted,
    /// It is from before a restored backup, or could be.
    Fence,
    /// Its grant was revoked: [`Grants::revocation`](crate::stores::grants::Grants::revocation) tells by whom.
    Revoked(GrantId),
    /// Its subject was signed out.
    SignedOut,
    /// Everything of its client was revoked.
    ClientRevoked,
    /// Its session was ended.
    SessionEnded,
}

impl RefusalCause {
    /// Runs `task`, and returns the last cause that a store noted in it.
    pub async fn watch<F: Future>(task: F) -> (F::Output, Option<Self>) {
        let noted = async {
            let answer = task.await;
            (answer, CAUSE.try_with(Cell::get).ok().flatten())
        };
        CAUSE.scope(Cell::new(None), noted).await
    }

    /// Notes the cause of the refusal that the current task is about to answer with. Whoever [watches](Self::watch) a part
    /// of a task notes its cause for the whole.
    pub fn note(self) {
        // Nobody asks in a task that is not watched.
        let _ = CAUSE.try_with(|cause| cause.set(Some(self)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_last_cause_of_a_task_is_told_and_that_of_no_other() {
        RefusalCause::Idle.note();
        let one = RefusalCause::watch(async {
            RefusalCause::Idle.note();
            tokio::task::yield_now().await;
            RefusalCause::Fence.note();
        });
        let other = RefusalCause::watch(tokio::task::yield_now());
        let (one, other) = tokio::join!(one, other);
        assert_eq!((one.1, other.1), (Some(RefusalCause::Fence), None));
    }
}
