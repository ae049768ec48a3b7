//! Measurements of a part, before they are merged into the results.

use std::collections::BTreeMap;

use ebbtide_bench::results::{Axis, Bar, Chart, Figure, Line, ResultRow, Results};

/// Rows and charts of one part.
pub(crate) struct Measured {
    part: &'static str,
    rows: Vec<ResultRow>,
    charts: Vec<Chart>,
}

/// Row without its figures.
pub(crate) struct Draft {
    pub(crate) id: String,
    pub(crate) what: String,
    pub(crate) unit: &'static str,
    pub(crate) bar: Option<Bar>,
    pub(crate) note: String,
}

impl Measured {
    pub(crate) fn new(part: &'static str) -> Self {
        Self { part, rows: Vec::new(), charts: Vec::new() }
    }

    /// Adds a row whose ratio is that of the median rounds.
    pub(crate) fn row(&mut self, draft: Draft, ours: Figure, peer: Option<Figure>) {
        let ratio = peer.as_ref().map_or(ours.median(), |peer| ours.median() / peer.median());
        self.row_with_ratio(draft, ours, peer, ratio);
    }

    /// Adds a row whose ratio was measured by other means.
    pub(crate) fn row_with_ratio(&mut self, draft: Draft, ours: Figure, peer: Option<Figure>, ratio: f64) {
        let Draft { id, what, unit, bar, note } = draft;
        let row = ResultRow {
            id,
            part: self.part.to_owned(),
            what,
            unit: unit.to_owned(),
            ours,
            peer,
            ratio,
            bar,
            note,
        };
        println!("{}", line(&row));
        self.rows.push(row);
    }

    /// Adds a row of the processor time that one operation of `of` takes in the process `who`, which is to be at most `most`
    /// microseconds.
    pub(crate) fn processor_time(&mut self, id: &str, what: &str, of: &Figure, who: &str, most: f64) {
        // Seconds per million operations are microseconds per operation.
        let Some(micros) = of.cpu.get(who) else { return };
        let draft = Draft {
            id: format!("{id}-cpu"),
            what: format!("processor time of {what}"),
            unit: "µs",
            bar: Some(Bar::AtMost(most)),
            note: format!("Mean of all rounds of `{id}`, user and system time of the process."),
        };
        self.row(draft, plain(of.name.clone(), vec![*micros]), None);
    }

    pub(crate) fn chart(&mut self, id: &str, title: &str, x: Axis, y: Axis, lines: Vec<Line>) {
        self.charts.push(Chart { id: id.to_owned(), title: title.to_owned(), x, y, lines });
    }

    /// Replaces the part's earlier rows, and the charts of the same names.
    pub(crate) fn merge_into(self, results: &mut Results) {
        let at = results.rows.iter().position(|row| row.part == self.part).unwrap_or(results.rows.len());
        results.rows.retain(|row| row.part != self.part);
        results.rows.splice(at..at, self.rows);
        let throughput = throughput(&results.rows);
        for chart in self.charts.into_iter().chain(throughput) {
            match results.charts.iter_mut().find(|known| known.id == chart.id) {
                Some(known) => *known = chart,
                None => results.charts.push(chart),
            }
        }
    }
}

/// Figure without processor times.
pub(crate) fn plain(name: impl Into<String>, rounds: Vec<f64>) -> Figure {
    Figure { name: name.into(), rounds, cpu: BTreeMap::new() }
}

/// Numeric axis.
pub(crate) fn axis(label: &str) -> Axis {
    Axis { label: label.to_owned(), log: false, names: Vec::new() }
}

/// Logarithmic axis.
pub(crate) fn log_axis(label: &str) -> Axis {
    Axis { log: true, ..axis(label) }
}

/// Row as it is printed while measuring.
fn line(row: &ResultRow) -> String {
    let figure = |figure: &Figure| {
        let (low, high) = figure.spread();
        format!("{} {} ({} to {})", figure.name, short(figure.median()), short(low), short(high))
    };
    let peer = row.peer.as_ref().map(|peer| format!(" | {}", figure(peer))).unwrap_or_default();
    let bar = match row.bar {
        None => String::new(),
        Some(Bar::AtLeast(bar)) => format!(", at least {bar}"),
        Some(Bar::AtMost(bar)) => format!(", at most {bar}"),
    };
    let met = match row.met() {
        None => "",
        Some(true) => ": met",
        Some(false) => ": MISSED",
    };
    format!("{} | {} | {}{peer} | {:.2}{bar}{met}", row.id, row.unit, figure(&row.ours), row.ratio)
}

fn short(figure: f64) -> String {
    if figure.abs() >= 100.0 { format!("{figure:.0}") } else { format!("{figure:.3}") }
}

/// Bars of the throughput chart, from the rows of any part: the bar's name, the row, and true for our figure or false
/// for the peer's.
const THROUGHPUT: &[(&str, &str, bool)] = &[
    ("Redis, AOF off", "replays-fjall-64-beside-off", false),
    ("Redis, everysec", "replays-fjall-64-beside-everysec", false),
    ("Redis, always", "replays-fjall-64", false),
    ("fjall, 64", "replays-fjall-64", true),
    ("fjall, 1,024", "replays-fjall-1024", true),
    ("RocksDB, 64", "replays-rocksdb-64", true),
    ("RocksDB, 1,024", "replays-rocksdb-1024", true),
    ("HTTP, one", "http-one", true),
    ("HTTP, 32", "http-batch", true),
];

fn throughput(rows: &[ResultRow]) -> Option<Chart> {
    let found: Vec<(&str, f64)> = THROUGHPUT
        .iter()
        .filter_map(|(name, id, ours)| {
            let row = rows.iter().find(|row| row.id == *id)?;
            let figure = if *ours { Some(&row.ours) } else { row.peer.as_ref() };
            Some((*name, figure?.median()))
        })
        .collect();
    let names = found.iter().map(|(name, _)| (*name).to_owned()).collect();
    let points = found.iter().enumerate().map(|(index, (_, rate))| (index as f64, *rate)).collect();
    let lines = vec![Line { name: "replay checks per second".to_owned(), points }];
    (!found.is_empty()).then(|| Chart {
        id: "throughput".to_owned(),
        title: "Replay checks per second, beside Redis".to_owned(),
        x: Axis { names, ..axis("") },
        y: axis("per second"),
        lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &'static str, ids: &[&str], ours: f64) -> Measured {
        let mut measured = Measured::new(name);
        for id in ids {
            let draft = Draft {
                id: (*id).to_owned(),
                what: String::new(),
                unit: "per second",
                bar: Some(Bar::AtLeast(2.0)),
                note: String::new(),
            };
            measured.row(draft, plain("ours", vec![ours]), Some(plain("peer", vec![2.0])));
        }
        measured.chart(name, "a chart", axis("x"), axis("y"), vec![]);
        measured
    }

    fn ids(results: &Results) -> Vec<&str> {
        results.rows.iter().map(|row| row.id.as_str()).collect()
    }

    #[test]
    fn a_part_that_is_run_alone_replaces_its_own_rows_and_charts_where_they_stood() {
        let mut results = Results::default();
        part("replays", &["replays-fjall-64", "replays-gone"], 4.0).merge_into(&mut results);
        part("http", &["http-one"], 4.0).merge_into(&mut results);
        part("replays", &["replays-fjall-64", "replays-new"], 8.0).merge_into(&mut results);
        assert_eq!(ids(&results), ["replays-fjall-64", "replays-new", "http-one"]);
        assert!((results.rows[0].ratio - 4.0).abs() < f64::EPSILON, "{}", results.rows[0].ratio);
        let charts: Vec<_> = results.charts.iter().map(|chart| chart.id.as_str()).collect();
        assert_eq!(charts, ["replays", "throughput", "http"]);
    }

    #[test]
    fn the_chart_of_rates_shows_what_there_is_of_both_sides() {
        let mut results = Results::default();
        part("http", &["http-one"], 4.0).merge_into(&mut results);
        part("replays", &["replays-fjall-64"], 8.0).merge_into(&mut results);
        let chart = results.charts.iter().find(|chart| chart.id == "throughput").unwrap();
        assert_eq!(chart.x.names, ["Redis, always", "fjall, 64", "HTTP, one"]);
        assert_eq!(chart.lines[0].points, [(0.0, 2.0), (1.0, 8.0), (2.0, 4.0)]);
    }

    #[test]
    fn the_processor_time_of_an_operation_is_a_row_with_a_bar() {
        let mut measured = Measured::new("http");
        let figure = |micros| Figure {
            cpu: BTreeMap::from([("server".to_owned(), micros)]),
            ..plain("HTTP", vec![1.0])
        };
        measured.processor_time("http-one", "a check", &figure(29.5), "server", 30.0);
        measured.processor_time("http-one", "a check", &figure(30.5), "server", 30.0);
        measured.processor_time("http-one", "a check", &figure(1.0), "client", 30.0);
        let met: Vec<_> = measured.rows.iter().map(|row| (row.id.as_str(), row.met())).collect();
        assert_eq!(met, [("http-one-cpu", Some(true)), ("http-one-cpu", Some(false))]);
    }

    #[test]
    fn a_printed_row_says_whether_its_bar_is_met() {
        let met = part("http", &["http-one"], 4.0).rows.remove(0);
        assert!(line(&met).ends_with("2.00, at least 2: met"), "{}", line(&met));
        let missed = part("http", &["http-one"], 3.0).rows.remove(0);
        assert!(line(&missed).ends_with("1.50, at least 2: MISSED"), "{}", line(&missed));
    }
}
