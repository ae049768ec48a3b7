//! Texts of a row: its figures, ratio, bar and verdict.

use super::number::{DIGITS, rounded};
use crate::results::{Bar, Figure, ResultRow};

/// Maximum number of digits of a ratio.
const MOST_DIGITS: usize = 9;

/// Ratio, with enough digits for the reader to reach the same verdict.
pub(super) fn ratio(row: &ResultRow) -> String {
    let agrees = |text: &str| {
        let shown = text.replace(',', "").parse().unwrap_or(row.ratio);
        ResultRow { ratio: shown, ..row.clone() }.met() == row.met()
    };
    let mut shown = (DIGITS..=MOST_DIGITS).map(|digits| rounded(row.ratio, digits));
    shown.find(|text| agrees(text)).unwrap_or_else(|| row.ratio.to_string())
}

/// Ratio with its unit: `1.28 ×`, or without a peer `150 ms`.
pub(super) fn ratio_with_unit(row: &ResultRow) -> String {
    with_unit(&ratio(row), row)
}

/// Bar without its direction and unit; empty without one.
pub(super) fn bar(row: &ResultRow) -> String {
    match row.bar {
        Some(Bar::AtLeast(bar) | Bar::AtMost(bar)) => bar.to_string(),
        None => String::new(),
    }
}

/// Bar in full: `≥ 2 ×`.
pub(super) fn bar_with_unit(row: &ResultRow) -> String {
    match row.bar {
        Some(Bar::AtLeast(_)) => format!("≥ {}", with_unit(&bar(row), row)),
        Some(Bar::AtMost(_)) => format!("≤ {}", with_unit(&bar(row), row)),
        None => String::new(),
    }
}

/// `met` or `missed`; empty without a bar.
pub(super) fn verdict(row: &ResultRow) -> &'static str {
    match row.met() {
        Some(true) => "met",
        Some(false) => "missed",
        None => "",
    }
}

/// Amount with its unit: `51,700 /s`.
pub(super) fn amount(value: f64, unit: &str) -> String {
    let value = rounded(value, DIGITS);
    match unit {
        "" => value,
        "per second" => format!("{value} /s"),
        unit => format!("{value} {unit}"),
    }
}

/// Median round, and the lowest and highest: `51,700 /s (48,000 to 53,100)`.
pub(super) fn with_spread(figure: &Figure, unit: &str) -> String {
    let (low, high) = figure.spread();
    let median = amount(figure.median(), unit);
    match figure.rounds.len() {
        0 => median,
        1 => format!("{median} (one round)"),
        _ => format!("{median} ({} to {})", rounded(low, DIGITS), rounded(high, DIGITS)),
    }
}

/// Processor seconds per million operations: `client 10.1, server 12.0`.
pub(super) fn cpu(figure: &Figure) -> String {
    let parts =
        figure.cpu.iter().map(|(process, seconds)| format!("{process} {}", rounded(*seconds, DIGITS)));
    parts.collect::<Vec<_>>().join(", ")
}

fn with_unit(value: &str, row: &ResultRow) -> String {
    match (&row.peer, row.unit.as_str()) {
        (Some(_), _) => format!("{value} ×"),
        (None, "per second") => format!("{value} /s"),
        (None, unit) => format!("{value} {unit}"),
    }
}
