//! Results file of a run: `bench/results/latest.json`. Tables, charts and the README's figures are generated from it
//! alone.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Results of one run.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// Start of the run, in RFC 3339 format.
    pub measured_at: String,
    /// True for a run with fewer records and shorter rounds.
    pub quick: bool,
    /// Machine: cores, processor, memory, kernel, the time of one fsync.
    pub machine: BTreeMap<String, String>,
    /// Software versions by name.
    pub software: BTreeMap<String, String>,
    /// Rows, in display order.
    pub rows: Vec<ResultRow>,
    /// Data of the charts.
    pub charts: Vec<Chart>,
}

/// One figure of ours beside one of a peer's.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ResultRow {
    /// Stable name across runs: `replays-fjall-64`.
    pub id: String,
    /// Part of the run that measures it, as in `make bench ROW=…`.
    pub part: String,
    /// Measured quantity, in words.
    pub what: String,
    /// Unit: `per second`, `ms`, `bytes`.
    pub unit: String,
    /// Figure of Ebbtide.
    pub ours: Figure,
    /// Figure of the peer in the same run; `None` if the bar is an absolute figure.
    pub peer: Option<Figure>,
    /// Ours divided by the peer's; ours alone without a peer.
    pub ratio: f64,
    /// Bar; `None` if there is none.
    pub bar: Option<Bar>,
    /// Promises of each side's answers, and other facts that a reader needs to judge the figures.
    pub note: String,
}

/// Result of one side over all rounds.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Name of the side: `fjall, 64 in flight`.
    pub name: String,
    /// Figures of all rounds, in the order of execution.
    pub rounds: Vec<f64>,
    /// Processor seconds per million operations, by process: `client`, `server`, or `both` if they are one.
    pub cpu: BTreeMap<String, f64>,
}

/// Required ratio.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    /// Minimum ratio.
    AtLeast(f64),
    /// Maximum ratio.
    AtMost(f64),
}

/// Lines over common axes.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Chart {
    /// File name without its extension: `latency`.
    pub id: String,
    /// Heading.
    pub title: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// Lines or bars.
    pub lines: Vec<Line>,
}

/// Axis of a chart.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// Label, with the unit.
    pub label: String,
    /// True for a logarithmic axis.
    pub log: bool,
    /// Names of a categorical axis: the point `x = 1` is the second name.
    pub names: Vec<String>,
}

/// One line, or with a categorical axis one set of bars.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Name in the legend.
    pub name: String,
    /// Points, from left to right.
    pub points: Vec<(f64, f64)>,
}

impl Figure {
    /// Median round.
    #[must_use]
    pub fn median(&self) -> f64 {
        let mut rounds = self.rounds.clone();
        rounds.sort_by(f64::total_cmp);
        rounds.get(rounds.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// Lowest and highest round.
    #[must_use]
    pub fn spread(&self) -> (f64, f64) {
        self.rounds.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), round| {
            (low.min(*round), high.max(*round))
        })
    }
}

impl ResultRow {
    /// Returns true if the bar is met; `None` without a bar.
    #[must_use]
    pub fn met(&self) -> Option<bool> {
        self.bar.map(|bar| match bar {
            Bar::AtLeast(least) => self.ratio >= least,
            Bar::AtMost(most) => self.ratio <= most,
        })
    }
}

impl Results {
    /// Reads the file.
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }

    /// Writes the file atomically.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        let unfinished = path.with_extension("unfinished");
        std::fs::write(&unfinished, text)?;
        std::fs::rename(unfinished, path)
    }
}
