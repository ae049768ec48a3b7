//! Stored size of a family of refresh tokens, by the number of rotations.

use anyhow::{Result, bail};
use ebbtide::stores::grants::{GrantRequest, Rotate, RotateOutcome};
use ebbtide::{Admin, BackendExt as _, Clock as _, Key, Kind, Prefix, Record, Stores, SystemClock};
use ebbtide_bench::results::{Bar, Line};

use super::grouped;
use crate::context::{Context, embedded};
use crate::measured::{Draft, Measured, axis, log_axis, plain};
use crate::records::scope;

const LEVELS: [u64; 5] = [1, 10, 100, 1_000, 10_000];

pub(super) async fn run(context: &Context, measured: &mut Measured) -> Result<()> {
    let folder = context.folder("families")?;
    let store = embedded("fjall", folder.path()).await?;
    let stores = Stores::for_tests(store.clone());
    let grants = stores.grants(&scope());
    let data = serde_json::json!({ "acr": "mfa", "auth_time": 1_800_000_000 });
    let request = GrantRequest::new("ada", "photo-app").scope("photos.read photos.write").data(data);
    let mut token = grants.issue(request).await?.refresh_token;
    let (mut rotations, mut points) = (0, Vec::new());
    for level in LEVELS {
        while rotations < level {
            token = match grants.rotate(Rotate::new(&token, "photo-app")).await? {
                RotateOutcome::Rotated(rotated) => rotated.refresh_token,
                other => bail!("the present token is not rotated: {other:?}"),
            };
            rotations += 1;
        }
        points.push((rotations as f64, stored_bytes(store.as_ref(), Kind::ALL).await?));
    }
    let first = points[0].1;
    let figure = |rotations: u64, bytes: f64| {
        let plural = if rotations == 1 { "rotation" } else { "rotations" };
        plain(format!("after {} {plural}", grouped(rotations)), vec![bytes])
    };
    for (&level, &(_, bytes)) in LEVELS.iter().zip(&points).skip(1) {
        let draft = Draft {
            id: format!("families-{level}"),
            what: format!("bytes of a family after {} rotations", grouped(level)),
            unit: "bytes",
            bar: (level == 10_000).then_some(Bar::AtMost(1.1)),
            note: "Keys, values, versions and expiries of every record in a store that holds one family, as a scan \
                   finds them: the family and its two index records."
                .to_owned(),
        };
        measured.row(draft, figure(level, bytes), Some(figure(1, first)));
    }
    let lines = vec![Line { name: "one family".to_owned(), points }];
    let (x, y) = (log_axis("rotations"), axis("bytes stored"));
    measured.chart("families", "Bytes of a family of refresh tokens", x, y, lines);
    Ok(())
}

/// Size of all live records of these kinds.
pub(super) async fn stored_bytes(store: &dyn Admin, kinds: &[Kind]) -> Result<f64> {
    let mut bytes = 0;
    for &kind in kinds {
        let records = store.scan_all(&Prefix::kind_wide(kind), SystemClock.now()).await?;
        bytes += records.iter().map(|(key, record)| size(key, record)).sum::<usize>();
    }
    Ok(bytes as f64)
}

fn size(key: &Key, record: &Record) -> usize {
    key.as_bytes().len() + record.value.len() + record.version.as_bytes().len() + size_of::<u64>()
}
