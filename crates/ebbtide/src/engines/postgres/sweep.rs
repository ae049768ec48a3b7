//! Sweeps: bounded steps over the index by expiry, one sweeper at a time.

use super::link::{Link, Repeat};
use super::params::{column, millis, only};
use super::sql::Sql;
use crate::backend::{Budget, Swept};
use crate::model::error::Result;
use crate::model::kind::Kind;
use crate::model::time::Timestamp;

/// Maximum number of records that one statement removes: it holds their locks until it ends.
const STEP: i64 = 1_000;

/// Result of one statement.
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
                // Another sweeper holds the lock and removes the rest.
                return Ok(swept);
            }
            swept.add(kind, step.counted);
            match step.last {
                // Continue there, without walking over the rows that were just removed.
                Some(last) if step.removed == most => from = last,
                _ if from == i64::MIN => break,
                // A row may have been written before that position.
                _ => from = i64::MIN,
            }
        }
    }
    Ok(swept)
}

async fn step(link: &Link, sql: &Sql, kind: Kind, [from, until, most, lock]: [i64; 4]) -> Result<Step> {
    // Do not repeat a statement whose answer was lost: its removals would be missing from the count.
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
