//! Changes of a registered client, and of its secret.

use std::time::Duration;

use super::types::{ClientUpdate, RotateSecretOutcome, UpdateOutcome};
use super::{Clients, RevokeReach, good_secrets, read_about, write_about};
use crate::model::codec;
use crate::model::error::{Error, Result};
use crate::model::kind::Kind;
use crate::model::write::Write;
use crate::stores::audit::{Action, Note};
use crate::stores::shared::tombstones::Principal;
use crate::stores::shared::update::Step;

impl Clients {
    /// Longest overlap of an old and a new secret.
    pub const MAX_OVERLAP: Duration = Duration::from_secs(30 * 24 * 3600);

    /// Most secrets of a client that are valid at once.
    pub const MOST_SECRETS: usize = 16;

    /// Changes a client. The audit log has an entry.
    pub async fn update(&self, client_id: &str, update: ClientUpdate) -> Result<UpdateOutcome> {
        let update = &update;
        let change = self.stores.retry(|now| async move {
            let Some((key, mut stored, record)) = self.standing(client_id, now).await? else {
                return Ok(Step::answer(UpdateOutcome::Unknown));
            };
            let (name, uris, metadata) = read_about(self.stores.open(&key, &[], &stored.about)?)?;
            let name = update.name.clone().unwrap_or(name);
            let uris = update.redirect_uris.clone().unwrap_or(uris);
            let metadata = update.metadata.clone().or(metadata);
            let about = write_about(name.as_deref(), &uris, metadata.as_ref());
            stored.about = self.stores.seal(&key, &[], &about)?;
            stored.require_pkce = update.require_pkce.or(stored.require_pkce);
            let reach = update.revoke.map(|reach| reach == RevokeReach::Grant);
            stored.revokes_grants = reach.or(stored.revokes_grants);
            let changed = self.stores.record(codec::encode(&stored), record.expires_at);
            let client = self.open(&key, &stored, &changed)?;
            let replace = Write::Replace { key, expected: record.version, record: changed };
            let note = Note::automatic(Action::Register, "a client was changed")?
                .about(Kind::Client, vec![client_id.to_owned()])
                .with_detail(members(update));
            let step = Step::write(vec![replace], UpdateOutcome::Updated(Box::new(client)));
            let client = [Principal::Client(client_id)];
            step.audited(&self.scope, note).unless_deleted_or(&self.scope, &client, UpdateOutcome::Unknown)
        });
        change.await
    }

    /// Gives a client a new secret. The present one stays valid for `overlap`, and older ones until the end that was
    /// promised for each. Without an overlap the new one alone is valid.
    pub async fn rotate_secret(&self, client_id: &str, overlap: Duration) -> Result<RotateSecretOutcome> {
        if overlap > Self::MAX_OVERLAP {
            return Err(Error::invalid(format!(
                "an overlap is 0 to {} seconds",
                Self::MAX_OVERLAP.as_secs()
            ))
            .about("overlap_seconds"));
        }
        let (client_secret, hash) = self.mint_secret();
        let (secret, hash) = (&client_secret, &hash);
        let rotate = self.stores.retry(|now| async move {
            let Some((key, mut stored, record)) = self.standing(client_id, now).await? else {
                return Ok(Step::answer(RotateSecretOutcome::Unknown));
            };
            if stored.secrets.is_empty() {
                return Ok(Step::answer(RotateSecretOutcome::Public));
            }
            let old_until = now.end_after(overlap)?;
            if overlap.is_zero() {
                stored.secrets.clear();
            }
            stored.secrets = good_secrets(&stored, now)?;
            for kept in &mut stored.secrets {
                kept.valid_until.get_or_insert(old_until.as_millis());
            }
            if stored.secrets.len() >= Self::MOST_SECRETS {
                return Ok(Step::answer(RotateSecretOutcome::TooMany));
            }
            stored.secrets.insert(0, hash.clone());
            let renewed = self.stores.record(codec::encode(&stored), record.expires_at);
            let replace = Write::Replace { key, expected: record.version, record: renewed };
            let rotated = RotateSecretOutcome::Rotated { client_secret: secret.clone(), old_until };
            let client = [Principal::Client(client_id)];
            let unknown = RotateSecretOutcome::Unknown;
            let note = Note::automatic(Action::RotateSecret, "the secret of a client was replaced")?
                .about(Kind::Client, vec![client_id.to_owned()]);
            let step = Step::write(vec![replace], rotated).audited(&self.scope, note);
            step.unless_deleted_or(&self.scope, &client, unknown)
        });
        rotate.await
    }
}

/// Names of the members that a change sets, for the audit log.
fn members(update: &ClientUpdate) -> String {
    let members = [
        ("name", update.name.is_some()),
        ("redirect_uris", update.redirect_uris.is_some()),
        ("metadata", update.metadata.is_some()),
        ("require_pkce", update.require_pkce.is_some()),
        ("revoke", update.revoke.is_some()),
    ];
    let set: Vec<_> = members.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect();
    set.join(", ")
}
