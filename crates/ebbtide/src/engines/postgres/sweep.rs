//! Sweeps: bounded steps over the index of the rows that are due, one sweeper at a time. A row whose expiry was put off since
//! it was written is due too early; the sweep puts off the time at which it is due, and removes it then.

use super::link::{Link, Repeat};
use super::params::{Params, column, millis, only};
use super::sql::Sql;
use crate::backend::{Budget, Swept};
use crate::model::error::Result;
use crate::model::kind::Kind;
use crate::model::time::Timestamp;

/// Maximum number of records that one statement removes: it holds their locks until it ends.
const STEP: i64 = 1_000;

/// Result of one statement.
struct SweepStep {
    mine: bool,
    removed: i64,
    counted: u64,
    /// Time at which the last row was due.
    last: Option<i64>,
    looked_at: i64,
}

pub(super) async fn sweep(
    link: &Link,
    sql: &Sql,
    lock: i64,
    until: Timestamp,
    budget: &Budget,
) -> Result<Swept> {
    let (mut swept, mut put_off) = (Swept::default(), 0);
    for &kind in &budget.kinds {
        let mut from = i64::MIN;
        loop {
            let left = budget.records.saturating_sub(swept.total()).saturating_sub(put_off);
            let left = i64::try_from(left).unwrap_or(i64::MAX);
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
            if let Some(last) = step.last
                && step.looked_at > step.removed
            {
                let params: Params<'_> = &[&from, &last, &millis(until), &most];
                put_off += link.run(Repeat::Write, &sql.of(kind).put_off, params).await?.affected;
            }
            match step.last {
                // Continue there, without walking over the rows that were just removed.
                Some(last) if step.looked_at == most => from = last,
                _ if from == i64::MIN => break,
                // A row may have been written before that position.
                _ => from = i64::MIN,
            }
        }
    }
    Ok(swept)
}

async fn step(link: &Link, sql: &Sql, kind: Kind, [from, until, most, lock]: [i64; 4]) -> Result<SweepStep> {
    // Do not repeat a statement whose answer was lost: its removals would be missing from the count.
    let answer = link.run(Repeat::Write, &sql.of(kind).sweep, &[&from, &until, &most, &lock]).await?;
    let row = only(&answer.rows)?;
    let counted: i64 = column(row, 2)?;
    Ok(SweepStep {
        mine: column(row, 0)?,
        removed: column(row, 1)?,
        counted: u64::try_from(counted).unwrap_or_default(),
        last: column(row, 3)?,
        looked_at: column(row, 4)?,
    })
}
