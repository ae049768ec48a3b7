//! Turns of verifications: one at a time for each scope, and in it one client after the other.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::model::scope::Scope;

/// Verifications of one client that wait for their turn.
pub(super) const MOST_WAITING: usize = 8;

/// Lines of the scopes that have a verification under way.
#[derive(Clone, Default)]
pub(super) struct Turns(Arc<Mutex<HashMap<Scope, Line>>>);

/// Clients of a scope with verifications that wait, in the order of their turns.
#[derive(Default)]
struct Line(VecDeque<(String, VecDeque<oneshot::Sender<Turn>>)>);

/// Turn of a scope, which the next one gets when it is dropped.
pub(super) struct Turn {
    turns: Turns,
    scope: Scope,
}

/// Place in the line of a scope.
pub(super) enum LinePosition {
    First(Turn),
    Waiting(oneshot::Receiver<Turn>),
}

impl Turns {
    /// Takes a place for a verification of a client; none if too many of the client wait. Guesses at one client leave
    /// the places of the others, and each of those waits for one guess at the most.
    pub(super) fn enter(&self, scope: &Scope, client_id: &str) -> Option<LinePosition> {
        let mut lines = self.lines();
        let Some(Line(clients)) = lines.get_mut(scope) else {
            lines.insert(scope.clone(), Line::default());
            return Some(LinePosition::First(Turn { turns: self.clone(), scope: scope.clone() }));
        };
        let (turn, later) = oneshot::channel();
        match clients.iter_mut().find(|(client, _)| client == client_id) {
            Some((_, waiting)) => {
                // Callers that have gone need no place.
                waiting.retain(|turn| !turn.is_closed());
                if waiting.len() >= MOST_WAITING {
                    return None;
                }
                waiting.push_back(turn);
            }
            None => clients.push_back((client_id.to_owned(), [turn].into())),
        }
        Some(LinePosition::Waiting(later))
    }

    #[cfg(test)]
    pub(super) fn waiting(&self, scope: &Scope) -> Option<usize> {
        self.lines().get(scope).map(|Line(clients)| clients.iter().map(|(_, waiting)| waiting.len()).sum())
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Scope, Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Next caller in the line of a scope. Without one, the line ends.
    fn next(&self, scope: &Scope) -> Option<oneshot::Sender<Turn>> {
        let mut lines = self.lines();
        let next = lines.get_mut(scope).and_then(Line::next);
        if next.is_none() {
            lines.remove(scope);
        }
        next
    }
}

impl Line {
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        while let Some((client, mut waiting)) = self.0.pop_front() {
            waiting.retain(|turn| !turn.is_closed());
            let next = waiting.pop_front();
            if !waiting.is_empty() {
                self.0.push_back((client, waiting));
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(next) = self.turns.next(&self.scope) {
            // If the next one has gone in this moment, the turn is dropped, and passed on, again.
            drop(next.send(Self { turns: self.turns.clone(), scope: self.scope.clone() }));
        }
    }
}
