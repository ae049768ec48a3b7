use std::collections::BTreeMap;
use std::path::Path;

use super::*;
use crate::results::{Axis, Bar, Chart, Figure, Line, ResultRow};

const BARS_PAGE: &str = "# Us\n\n<!-- figures -->\nold\n<!-- /figures -->\n\nThe end.\n";

fn figure(name: &str, rounds: &[f64]) -> Figure {
    Figure { name: name.to_owned(), rounds: rounds.to_vec(), cpu: BTreeMap::new() }
}

fn row(id: &str, ratio: f64, bar: Option<Bar>) -> ResultRow {
    ResultRow {
        id: id.to_owned(),
        part: "inserts".to_owned(),
        what: "durable replay checks, 64 in flight".to_owned(),
        unit: "per second".to_owned(),
        ours: figure("fjall", &[51_000.0, 53_100.0, 48_000.0]),
        peer: Some(figure("Redis", &[40_000.0])),
        ratio,
        bar,
        note: "both fsync before they answer".to_owned(),
    }
}

fn chart(id: &str) -> Chart {
    let axis = |names: &[&str]| Axis {
        label: "per second".to_owned(),
        log: false,
        names: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    let lines = vec![Line { name: "rate".to_owned(), points: vec![(0.0, 51_000.0), (1.0, 40_000.0)] }];
    Chart { id: id.to_owned(), title: "Checks".to_owned(), x: axis(&["fjall", "Redis"]), y: axis(&[]), lines }
}

fn results() -> Results {
    Results {
        measured_at: "2026-01-02T03:04:05Z".to_owned(),
        quick: false,
        machine: BTreeMap::from([("cores".to_owned(), "2".to_owned())]),
        software: BTreeMap::from([("redis".to_owned(), "7.0".to_owned())]),
        rows: vec![row("replays-fjall-64", 1.276, Some(Bar::AtLeast(2.0))), row("plain", 3.0, None)],
        charts: vec![chart("throughput")],
    }
}

/// A repository with a README, the page of the bars, and a page with this content.
fn repository(page: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("docs/deep")).unwrap();
    std::fs::create_dir_all(root.path().join(FOLDER)).unwrap();
    std::fs::write(root.path().join("README.md"), "# Us\n").unwrap();
    std::fs::write(root.path().join(BARS), BARS_PAGE).unwrap();
    std::fs::write(root.path().join("docs/deep/page.md"), page).unwrap();
    root
}

fn read(root: &Path, path: &str) -> String {
    std::fs::read_to_string(root.join(path)).unwrap()
}

#[test]
fn what_was_written_does_not_differ() {
    let root = repository("<!-- figure: replays-fjall-64 ratio -->?<!-- / -->\n");
    assert_eq!(differences(&results(), root.path()).unwrap().len(), 4, "bars, page, table, chart");
    write_all(&results(), root.path()).unwrap();
    assert_eq!(differences(&results(), root.path()).unwrap(), Vec::<String>::new());
}

#[test]
fn a_change_to_anything_that_is_shown_is_found_where_it_is() {
    let page = "a\n<!-- figure: replays-fjall-64 ratio -->1.28<!-- / -->\n";
    let changes: [(&str, &str, &str); 5] = [
        (BARS, "1.28 ×", "2.28 ×"),
        (BARS, "missed", "met"),
        ("docs/deep/page.md", "1.28", "1.82"),
        ("bench/results/latest.md", "51,000", "61,000"),
        ("bench/results/throughput.svg", "51,000", "61,000"),
    ];
    for (path, is, becomes) in changes {
        let root = repository(page);
        write_all(&results(), root.path()).unwrap();
        let text = read(root.path(), path);
        assert!(text.contains(is), "{path}: {text}");
        std::fs::write(root.path().join(path), text.replace(is, becomes)).unwrap();
        let found = differences(&results(), root.path()).unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("{path}:")) && found[0].contains(becomes), "{found:?}");
    }
}

#[test]
fn a_chart_too_many_or_too_few_is_found_and_mended() {
    let root = repository("");
    write_all(&results(), root.path()).unwrap();
    let (old, new) =
        (root.path().join("bench/results/old.svg"), root.path().join("bench/results/throughput.svg"));
    std::fs::write(&old, "").unwrap();
    std::fs::remove_file(&new).unwrap();
    let found = differences(&results(), root.path()).unwrap();
    assert_eq!(
        found,
        ["bench/results/old.svg: the results have no such chart", "bench/results/throughput.svg: missing"]
    );
    write_all(&results(), root.path()).unwrap();
    assert!(new.exists() && !old.exists());
}

#[test]
fn the_page_of_the_bars_has_their_rows_and_the_chart_between_its_marks() {
    let root = repository("");
    write_all(&results(), root.path()).unwrap();
    let wanted = "# Us\n\n<!-- figures -->\n\n\
        | what | beside | ratio | bar |  |\n|---|---|---|---|---|\n\
        | durable replay checks, 64 in flight | Redis | 1.28 × | ≥ 2 × | missed |\n\n\
        Measured at 2026-01-02T03:04:05Z; with the spread of the rounds and what each side promises: \
        [the whole table](../bench/results/latest.md).\n\n\
        ![Checks](../bench/results/throughput.svg)\n\n<!-- /figures -->\n\nThe end.\n";
    assert_eq!(read(root.path(), BARS), wanted);
}

#[test]
fn a_page_of_the_bars_without_marks_is_an_error() {
    let root = repository("");
    std::fs::write(root.path().join(BARS), "# Us\n").unwrap();
    let error = write_all(&results(), root.path()).unwrap_err().to_string();
    assert_eq!(error, "docs/performance.md: no line <!-- figures -->");
}

#[test]
fn the_table_shows_the_spread_and_what_it_cost() {
    let mut results = results();
    results.rows[0].ours.cpu = BTreeMap::from([("client".to_owned(), 10.06), ("server".to_owned(), 12.0)]);
    let page = table::page(&results);
    let row = "| durable replay checks, 64 in flight | fjall: 51,000 /s (48,000 to 53,100) | Redis: 40,000 /s (one round) \
               | 1.28 × | ≥ 2 × | missed | client 10.1, server 12.0 |  |";
    assert!(page.lines().any(|line| line == row), "{page}");
    assert!(page.contains("\n* `replays-fjall-64`: both fsync before they answer\n"), "{page}");
    assert!(page.contains("| cores | 2 |") && page.contains("| redis | 7.0 |"), "{page}");
    assert!(!page.contains("QUICK"));
    assert!(table::page(&Results { quick: true, ..results }).contains("QUICK=1"));
}

#[test]
fn rows_are_grouped_by_part_in_the_order_of_the_run() {
    let mut results = results();
    results.rows[1].part = "http".to_owned();
    results.rows.push(row("later", 1.0, None));
    let page = table::page(&results);
    let headings: Vec<&str> = page.lines().filter(|line| line.starts_with("## ")).collect();
    assert_eq!(headings, ["## inserts", "## http", "## Charts"]);
    assert_eq!(page.matches("* `").count(), 3);
}

#[test]
fn no_rows_are_said_to_be_none() {
    let none = Results::default();
    assert!(table::page(&none).contains("No rows were measured."));
    let root = repository("");
    write_all(&none, root.path()).unwrap();
    assert!(read(root.path(), BARS).contains("No row with a bar was measured."));
}

#[test]
fn names_stay_in_their_cells() {
    let mut results = results();
    results.rows[0].what = "a | b\n<script> *x* `c | d <e>`".to_owned();
    let page = table::page(&results);
    let shown = "| a \\| b \\<script\\> \\*x\\* `c \\| d <e>` | fjall";
    assert!(page.lines().any(|line| line.starts_with(shown)), "{page}");
}

#[test]
fn a_ratio_has_as_many_digits_as_its_verdict_needs() {
    let shown = |ratio, bar| wording::ratio(&row("r", ratio, Some(bar)));
    assert_eq!(shown(1.2849, Bar::AtLeast(2.0)), "1.28");
    assert_eq!(shown(1.9996, Bar::AtLeast(2.0)), "1.9996");
    assert_eq!(shown(2.0, Bar::AtLeast(2.0)), "2.00");
    assert_eq!(shown(1.1004, Bar::AtMost(1.1)), "1.1004");
    assert_eq!(shown(1_999.9, Bar::AtLeast(2_000.0)), "1,999.9");
}

#[test]
fn without_a_peer_the_ratio_and_the_bar_are_in_the_unit() {
    let open =
        ResultRow { unit: "ms".to_owned(), peer: None, ..row("open", 151.2, Some(Bar::AtMost(200.0))) };
    assert_eq!(wording::ratio_with_unit(&open), "151 ms");
    assert_eq!(wording::bar_with_unit(&open), "≤ 200 ms");
    assert_eq!(wording::verdict(&open), "met");
}

#[test]
fn every_field_can_be_marked() {
    let fields = [
        ("replays-fjall-64 ratio", "1.28"),
        ("replays-fjall-64 bar", "2"),
        ("replays-fjall-64 verdict", "missed"),
        ("replays-fjall-64 ours", "51,000"),
        ("replays-fjall-64 ours-low", "48,000"),
        ("replays-fjall-64 ours-high", "53,100"),
        ("replays-fjall-64 peer", "40,000"),
        ("replays-fjall-64 peer-low", "40,000"),
        ("replays-fjall-64 peer-high", "40,000"),
        ("machine cores", "2"),
        ("software redis", "7.0"),
    ];
    for (named, value) in fields {
        let page = |value: &str| format!("about <!-- figure: {named} -->{value}<!-- / --> times");
        assert_eq!(marked::fill(&page("?"), &results()).unwrap(), page(value));
    }
}

#[test]
fn a_mark_that_means_nothing_is_an_error_that_names_it() {
    let wrong = [
        (
            "<!-- figure: replay-fjall-64 ratio -->1<!-- / -->",
            "replay-fjall-64 ratio: the results have no such row",
        ),
        (
            "<!-- figure: replays-fjall-64 speed -->1<!-- / -->",
            "replays-fjall-64 speed: a row has no such field",
        ),
        ("<!-- figure: plain bar -->1<!-- / -->", "plain bar: the row has no bar"),
        ("<!-- figure: plain verdict -->1<!-- / -->", "plain verdict: the row has no bar"),
        ("<!-- figure: ratio -->1<!-- / -->", "ratio: a mark names a row and a field"),
        ("<!-- figure: machine speed -->1<!-- / -->", "machine speed: not in the results"),
        ("<!-- figure: plain ratio -->1", "plain ratio: no <!-- / --> behind it"),
        ("<!-- figure: plain ratio", "a mark does not end"),
        (
            "<!-- figure: plain ratio -->1 <!-- figure: plain ours -->2<!-- / -->",
            "plain ratio: no <!-- / --> before the next mark",
        ),
    ];
    for (page, error) in wrong {
        assert_eq!(marked::fill(page, &results()).unwrap_err(), error);
    }
    let root = repository("<!-- figure: gone ratio -->1<!-- / -->");
    let error = differences(&results(), root.path()).unwrap_err().to_string();
    assert_eq!(error, "docs/deep/page.md: gone ratio: the results have no such row");
}

#[test]
fn a_mark_behind_a_backtick_is_only_shown() {
    let page = "write `<!-- figure: ROW FIELD -->` and `<!-- / -->`; <!-- figure: plain ratio -->?<!-- / -->";
    let filled = marked::fill(page, &results()).unwrap();
    assert_eq!(filled, page.replace('?', "3.00"));
}
