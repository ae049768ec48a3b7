//! Sweeps: bounded steps over the index by expiry, one sweeper at a time.

use super::link::{Link, Repeat};
use super::params::{column, millis, only};
use super::sql::Sql;
use crate::backend::{Budget, Swept};
use crate::model::error::Result;
use crate::model::kind::Kind;
use crate::model::time::Timestamp;

/// How many records one statement removes at the most: it holds their locks until it is done.
const STEP: i64 = 1_000;

/// What one statement did.
struct Step {
    mine: bool,
    removed: i64,
    counted: u64,
    last: Option<i64>,
}

pub(super) async fn sweep(
    link: &Link,
    sql: &Sql,
    lock: i64,
    until: Timestamp,
    budget: &Budget,
) -> Result<Swept> {
    let mut swept = Swept::default();
    for &kind in &budget.kinds {
        let mut from = i64::MIN;
        loop {
            let left = i64::try_from(budget.records.saturating_sub(swept.total())).unwrap_or(i64::MAX);
            if left == 0 {
                swept.more = budget.records > 0;
                return Ok(swept);
            }
            let most = left.min(STEP);
            let step = step(link, sql, kind, [from, millis(until), most, lock]).await?;
            if !step.mine {
                // Somebody else is at it, and what is left is theirs.
                return Ok(swept);
            }
            swept.add(kind, step.counted);
            match step.last {
                // Going on from there spares the walk over what was just removed.
                Some(last) if step.removed == most => from = last,
                _ if from == i64::MIN => break,
                // Something may have been written behind that place.
                _ => from = i64::MIN,
            }
        }
    }
    Ok(swept)
}

async fn step(link: &Link, sql: &Sql, kind: Kind, [from, until, most, lock]: [i64; 4]) -> Result<Step> {
    // A statement whose answer was lost is not repeated: what it removed would be missing from the count.
    let answer = link.run(Repeat::Write, &sql.of(kind).sweep, &[&from, &until, &most, &lock]).await?;
    let row = only(&answer.rows)?;
    let counted: i64 = column(row, 2)?;
    Ok(Step {
        mine: column(row, 0)?,
        removed: column(row, 1)?,
        counted: u64::try_from(counted).unwrap_or_default(),
        last: column(row, 3)?,
    })
}
