//! Figures in a page, marked with the row that they come from:
//!
//! ```markdown
//! <!-- figure: replays-fjall-64 ratio -->1.28<!-- / --> times
//! ```
//!
//! A row has `ours`, `peer` and the ends of their rounds (`ours-low`, `ours-high`, `peer-low`, `peer-high`), `ratio`,
//! `bar` and `verdict`. `machine` and `software` are rows too, with the entries of the results: `software redis`. A
//! mark after a backtick is left alone.

use super::number::{DIGITS, rounded};
use super::wording::{bar, ratio, verdict};
use crate::results::{Figure, ResultRow, Results};

const START: &str = "<!-- figure:";
const END: &str = "<!-- / -->";

/// Fills every marked figure of the page from the results.
pub(super) fn fill(page: &str, results: &Results) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = page;
    while let Some(at) = rest.find(START) {
        let (before, marked) = rest.split_at(at);
        filled.push_str(before);
        if before.ends_with('`') {
            filled.push_str(START);
            rest = &marked[START.len()..];
            continue;
        }
        let (mark, behind) = marked.split_once("-->").ok_or("a mark does not end")?;
        let named = mark[START.len()..].trim();
        let (old, behind) = behind.split_once(END).ok_or_else(|| format!("{named}: no {END} behind it"))?;
        if old.contains(START) {
            return Err(format!("{named}: no {END} before the next mark"));
        }
        filled.push_str(mark);
        filled.push_str("-->");
        filled.push_str(&value(named, results).map_err(|error| format!("{named}: {error}"))?);
        filled.push_str(END);
        rest = behind;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Replaces the text between the lines `<!-- NAME -->` and `<!-- /NAME -->`.
pub(super) fn replace_block(page: &str, name: &str, text: &str) -> Result<String, String> {
    let (start, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->\n"));
    let (before, rest) = page.split_once(&start).ok_or_else(|| format!("no line {}", start.trim_end()))?;
    let (_, behind) = rest.split_once(&end).ok_or_else(|| format!("no line {}", end.trim_end()))?;
    // A blank line on either side: a mark that touches a table becomes part of it.
    Ok(format!("{before}{start}\n{text}\n{end}{behind}"))
}

fn value(named: &str, results: &Results) -> Result<String, String> {
    let (id, field) = named.split_once(' ').ok_or("a mark names a row and a field")?;
    let field = field.trim();
    match id {
        "machine" => {
            return results.machine.get(field).cloned().ok_or_else(|| "not in the results".to_owned());
        }
        "software" => {
            return results.software.get(field).cloned().ok_or_else(|| "not in the results".to_owned());
        }
        _ => {}
    }
    let row = results.rows.iter().find(|row| row.id == id).ok_or("the results have no such row")?;
    of_row(row, field)
}

fn of_row(row: &ResultRow, field: &str) -> Result<String, String> {
    let peer = || row.peer.as_ref().ok_or("the row has no peer");
    let median = |figure: &Figure| rounded(figure.median(), DIGITS);
    let low = |figure: &Figure| rounded(figure.spread().0, DIGITS);
    let high = |figure: &Figure| rounded(figure.spread().1, DIGITS);
    match field {
        "ratio" => Ok(ratio(row)),
        "bar" | "verdict" if row.bar.is_none() => Err("the row has no bar".to_owned()),
        "bar" => Ok(bar(row)),
        "verdict" => Ok(verdict(row).to_owned()),
        "ours" => Ok(median(&row.ours)),
        "ours-low" => Ok(low(&row.ours)),
        "ours-high" => Ok(high(&row.ours)),
        "peer" => Ok(median(peer()?)),
        "peer-low" => Ok(low(peer()?)),
        "peer-high" => Ok(high(peer()?)),
        _ => Err("a row has no such field".to_owned()),
    }
}
