//! Answers about a family, and the notes and counts that go with them.

use super::{Family, FamilyRecord, Grant, GrantId, RotateOutcome, Rotated};
use crate::model::error::Result;
use crate::model::kind::Kind;
use crate::model::secret::Secret;
use crate::stores::access_tokens::IssuedAccessToken;
use crate::stores::audit::{Action, Note};
use crate::stores::shared::confirmation::Confirmation;
use crate::stores::shared::payload::Payload;
use crate::timekeeping::Now;

/// Entry of the audit log about a refresh token that was used again after its window.
pub(super) fn theft(
    id: GrantId,
    client_id: &str,
    cnf: &Confirmation,
    generation: u64,
    family: &Family,
) -> Result<Note> {
    let note = Note::automatic(Action::Theft, "a refresh token was used again; its family is revoked")?;
    let key = match (&cnf.jkt, &cnf.x5t_s256) {
        (None, None) => "no key".to_owned(),
        (jkt, x5t) => format!("the key {}", jkt.as_ref().or(x5t.as_ref()).map_or("", |key| key)),
    };
    let present = family.generation();
    let detail = format!("generation {generation} of {present}, presented by {client_id} with {key}");
    Ok(note.about(Kind::Grant, vec![id.to_string()]).of_subject(&family.subject).with_detail(detail))
}

/// Counts and logs the answers that a client developer or an operator may want to know of.
pub(super) fn count_rotation(id: GrantId, generation: u64, answer: &RotateOutcome) {
    let outcome = match answer {
        RotateOutcome::Rotated(_) => "rotated",
        RotateOutcome::Retried(_) => {
            tracing::info!(grant = %id, generation, "a rotation was retried");
            "retried"
        }
        RotateOutcome::Raced { .. } => {
            tracing::info!(grant = %id, generation, "rotations of a family race");
            "raced"
        }
        RotateOutcome::Reused { .. } => {
            tracing::warn!(grant = %id, generation, "a refresh token was used twice; its family is revoked");
            "reused"
        }
        _ => "refused",
    };
    metrics::counter!("ebbtide_rotations_total", "outcome" => outcome).increment(1);
}

pub(super) fn successor(
    grant_id: GrantId,
    (refresh_token, access_token): (Secret, Option<IssuedAccessToken>),
    standing: FamilyRecord,
    data: Option<Payload>,
) -> Box<Rotated> {
    let FamilyRecord { family, ends_at, .. } = standing;
    Box::new(Rotated {
        refresh_token,
        generation: family.generation(),
        grant_id,
        expires_at: family.idle_until(),
        ends_at,
        subject: family.subject,
        client_id: family.client_id,
        scope: family.scope,
        dpop_jkt: family.dpop_jkt,
        resource: family.resource,
        access_token,
        data,
    })
}

pub(super) fn describe(
    id: GrantId,
    standing: FamilyRecord,
    data: Option<Payload>,
    now: Now,
) -> Result<Grant> {
    let FamilyRecord { family, ends_at, .. } = standing;
    Ok(Grant {
        id,
        data,
        generation: family.generation(),
        created_at: family.created_at(),
        rotated_at: family.rotated_at(),
        expires_at: family.idle_until(),
        ends_at,
        state: family.state(now)?,
        x5t_s256: family.cnf().x5t_s256,
        resource: family.resource,
        sid: family.sid,
        subject: family.subject,
        client_id: family.client_id,
        scope: family.scope,
        dpop_jkt: family.dpop_jkt,
    })
}
