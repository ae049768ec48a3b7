//! Expired records that are still stored, by the profile that they were issued with.

use std::collections::BTreeMap;

use crate::model::error::Result;
use crate::model::key::Prefix;
use crate::model::kind::Kind;
use crate::model::scope::{Reach, Scope};
use crate::model::time::Timestamp;
use crate::stores::profile::Profile;
use crate::stores::{Stores, access_tokens, codes, grants, sessions};

/// Kinds whose lifetimes come from a profile, and that remember it.
pub const KINDS_WITH_PROFILE: [Kind; 4] = [Kind::Code, Kind::Grant, Kind::AccessToken, Kind::Session];

/// Most records that are read at a time.
const PAGE: usize = 500;

/// Counts by the name of a profile and by kind.
pub type ByProfile = BTreeMap<String, BTreeMap<Kind, u64>>;

/// Counts the records of every scope that expired before `until` and are still stored, by profile. Records that were
/// issued without the name of a profile count for the store's own. It reads every record of the four kinds that have a
/// profile, of `kinds`.
pub async fn expired_by_profile(stores: &Stores, kinds: &[Kind], until: Timestamp) -> Result<ByProfile> {
    let everywhere = Reach::Below(Scope::Global);
    let kinds = KINDS_WITH_PROFILE.iter().filter(|kind| kinds.contains(kind));
    let prefixes = kinds.map(|kind| Prefix::reach(*kind, &everywhere)).collect::<Result<Vec<_>>>()?;
    let (own, mut counts, mut after) = (own_name(stores), ByProfile::new(), None);
    while !prefixes.is_empty() {
        // At the beginning of time nothing has expired.
        let page = stores.admin().list(&prefixes, after.as_ref(), PAGE, Timestamp::ZERO).await?;
        for (key, record) in page.items {
            if record.expires_at >= until {
                continue;
            }
            let named = match key.kind() {
                Kind::Code => codes::profile_of(&record.value),
                Kind::Grant => grants::profile_of(&record.value),
                Kind::AccessToken => access_tokens::profile_of(&record.value),
                _ => sessions::profile_of(&record.value),
            };
            let name = named?.unwrap_or_else(|| own.to_owned());
            *counts.entry(name).or_default().entry(key.kind()).or_default() += 1;
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    Ok(counts)
}

/// Counts that are gone between two looks, without those that are zero.
#[must_use]
pub fn less(before: ByProfile, after: &ByProfile) -> ByProfile {
    let gone = before.into_iter().map(|(profile, kinds)| {
        let left = |kind: &Kind| after.get(&profile).and_then(|kinds| kinds.get(kind)).copied().unwrap_or(0);
        let kinds = kinds.into_iter().map(|(kind, count)| (kind, count.saturating_sub(left(&kind))));
        let kinds: BTreeMap<_, _> = kinds.filter(|(_, count)| *count > 0).collect();
        (profile, kinds)
    });
    gone.filter(|(_, kinds)| !kinds.is_empty()).collect()
}

/// Name of the profile that the store gives where none is named.
fn own_name(stores: &Stores) -> &'static str {
    let is_own = |name: &&str| name.parse::<Profile>().is_ok_and(|profile| profile == *stores.profile());
    Profile::NAMES.into_iter().find(is_own).unwrap_or("default")
}
