//! Table of a run in Markdown: complete, and abridged to the rows with a bar.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::wording::{bar_with_unit, cpu, ratio_with_unit, verdict, with_spread};
use crate::results::{ResultRow, Results};

/// Chart on the page of the bars.
const CHART: &str = "throughput";

/// Contents of `bench/results/latest.md`.
pub(super) fn page(results: &Results) -> String {
    let mut page = String::from("# What was measured\n\n");
    let quick = if results.quick { ", with fewer records and shorter rounds (`QUICK=1`)" } else { "" };
    line(&mut page, &format!("Measured at {}{quick}.", inline(&results.measured_at)));
    line(
        &mut page,
        "This page is made from `latest.json` beside it. Figures are the middle round, with the lowest and the highest; CPU \
         is processor seconds for a million operations.",
    );
    line(&mut page, "[How it is measured](../../docs/performance.md) says what is unfair to whom.");
    pairs(&mut page, "Machine", &results.machine);
    pairs(&mut page, "Software", &results.software);
    if results.rows.is_empty() {
        line(&mut page, "\nNo rows were measured.");
    }
    for part in parts(results) {
        let rows: Vec<&ResultRow> = results.rows.iter().filter(|row| row.part == part).collect();
        let _ = writeln!(page, "\n## {}\n", inline(part));
        cells(
            &mut page,
            &["what", "ours", "peer", "ratio", "bar", "", "our CPU", "peer's CPU"].map(str::to_owned),
        );
        line(&mut page, "|---|---|---|---|---|---|---|---|");
        for row in &rows {
            cells(&mut page, &whole(row));
        }
        line(&mut page, "");
        for row in rows {
            let note = if row.note.is_empty() { String::new() } else { format!(": {}", inline(&row.note)) };
            line(&mut page, &format!("* `{}`{note}", row.id));
        }
    }
    if !results.charts.is_empty() {
        line(&mut page, "\n## Charts");
    }
    for chart in &results.charts {
        let _ = writeln!(page, "\n![{}]({}.svg)", alternative(&chart.title), chart.id);
    }
    page
}

/// Contents between the marks of `docs/performance.md`: the rows with a bar.
pub(super) fn bars(results: &Results) -> String {
    let mut text = String::new();
    let rows: Vec<&ResultRow> = results.rows.iter().filter(|row| row.bar.is_some()).collect();
    if rows.is_empty() {
        line(&mut text, "No row with a bar was measured.");
    } else {
        cells(&mut text, &["what", "beside", "ratio", "bar", ""].map(str::to_owned));
        line(&mut text, "|---|---|---|---|---|");
    }
    for row in rows {
        let peer = row.peer.as_ref().map_or_else(String::new, |peer| inline(&peer.name));
        cells(
            &mut text,
            &[inline(&row.what), peer, ratio_with_unit(row), bar_with_unit(row), verdict(row).to_owned()],
        );
    }
    let quick = if results.quick { ", quick" } else { "" };
    let _ = writeln!(
        text,
        "\nMeasured at {}{quick}; with the spread of the rounds and what each side promises: \
         [the whole table](../{}/latest.md).",
        inline(&results.measured_at),
        super::FOLDER
    );
    if let Some(chart) = results.charts.iter().find(|chart| chart.id == CHART) {
        let _ = writeln!(text, "\n![{}](../{}/{}.svg)", alternative(&chart.title), super::FOLDER, chart.id);
    }
    text
}

fn whole(row: &ResultRow) -> [String; 8] {
    let figure = |figure: &crate::results::Figure| {
        format!("{}: {}", inline(&figure.name), with_spread(figure, &row.unit))
    };
    [
        inline(&row.what),
        figure(&row.ours),
        row.peer.as_ref().map(figure).unwrap_or_default(),
        ratio_with_unit(row),
        bar_with_unit(row),
        verdict(row).to_owned(),
        inline(&cpu(&row.ours)),
        row.peer.as_ref().map(|peer| inline(&cpu(peer))).unwrap_or_default(),
    ]
}

/// Parts, in the order of their first rows.
fn parts(results: &Results) -> Vec<&str> {
    let mut parts: Vec<&str> = Vec::new();
    for row in &results.rows {
        if !parts.contains(&row.part.as_str()) {
            parts.push(&row.part);
        }
    }
    parts
}

fn pairs(page: &mut String, heading: &str, pairs: &BTreeMap<String, String>) {
    if pairs.is_empty() {
        return;
    }
    let _ = writeln!(page, "\n| {heading} | |\n|---|---|");
    for (name, value) in pairs {
        cells(page, &[inline(name), inline(value)]);
    }
}

fn cells(page: &mut String, cells: &[String]) {
    line(page, &format!("| {} |", cells.join(" | ")));
}

fn line(page: &mut String, text: &str) {
    page.push_str(text);
    page.push('\n');
}

/// Escapes text for a table cell. Text between backticks is code already.
fn inline(text: &str) -> String {
    let mut shown = String::new();
    let mut code = false;
    for letter in text.chars() {
        match letter {
            '`' => code = !code,
            // A bar ends a cell, even in code.
            '|' => shown.push('\\'),
            '\\' | '<' | '>' | '*' | '_' | '[' | ']' if !code => shown.push('\\'),
            _ => {}
        }
        shown.push(if letter.is_control() { ' ' } else { letter });
    }
    shown
}

/// Alternative text of an image, in which nothing is code.
fn alternative(text: &str) -> String {
    inline(&text.replace('`', "'"))
}
