//! The file that a run leaves: `bench/results/latest.json`. Tables, charts and the README's figures come from it alone.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Everything that one run measured.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Results {
    /// When the run began, as RFC 3339 writes it.
    pub measured_at: String,
    /// Whether fewer records and shorter rounds were used.
    pub quick: bool,
    /// What it ran on: cores, processor, memory, kernel, the time of one fsync.
    pub machine: BTreeMap<String, String>,
    /// The versions of all that took part, by name.
    pub software: BTreeMap<String, String>,
    /// The rows, in the order in which they are shown.
    pub rows: Vec<Row>,
    /// What the charts draw.
    pub charts: Vec<Chart>,
}

/// One figure of ours beside one of a peer's.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// A name that stays the same from run to run: `replays-fjall-64`.
    pub id: String,
    /// The part of the run that measures it, as `make bench ROW=…` names it.
    pub part: String,
    /// What is measured, in words.
    pub what: String,
    /// `per second`, `ms`, `bytes`.
    pub unit: String,
    /// What we did.
    pub ours: Figure,
    /// What the peer did in the same run; none where the bar is a figure of its own.
    pub peer: Option<Figure>,
    /// Ours by the peer's; ours alone without a peer.
    pub ratio: f64,
    /// None where nothing was asked for.
    pub bar: Option<Bar>,
    /// What each side promises when it answers, and whatever else a reader must know to judge the figures.
    pub note: String,
}

/// What one side did, over all rounds.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Figure {
    /// Who it is: `fjall, 64 in flight`.
    pub name: String,
    /// Every round, in the order in which they were run.
    pub rounds: Vec<f64>,
    /// Processor seconds for a million operations, by process: `client`, `server`, or `both` where they are one.
    pub cpu: BTreeMap<String, f64>,
}

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    /// The ratio is this or more.
    AtLeast(f64),
    /// The ratio is this or less.
    AtMost(f64),
}

/// Lines over one axis.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Chart {
    /// The file's name without its ending: `latency`.
    pub id: String,
    /// The heading.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn.
    pub lines: Vec<Line>,
}

/// An axis of a chart.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Axis {
    /// What it shows, with the unit.
    pub label: String,
    /// Whether it is logarithmic.
    pub log: bool,
    /// Where the points are not numbers but names, those names: the point `x = 1` is the second.
    pub names: Vec<String>,
}

/// One line, or with a named horizontal axis one set of bars.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// What the key calls it.
    pub name: String,
    /// The points, from left to right.
    pub points: Vec<(f64, f64)>,
}

impl Figure {
    /// The middle round.
    #[must_use]
    pub fn median(&self) -> f64 {
        let mut rounds = self.rounds.clone();
        rounds.sort_by(f64::total_cmp);
        rounds.get(rounds.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The lowest and the highest round.
    #[must_use]
    pub fn spread(&self) -> (f64, f64) {
        self.rounds.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), round| {
            (low.min(*round), high.max(*round))
        })
    }
}

impl Row {
    /// Whether the bar is met; none without a bar.
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

    /// Writes the file, so that a reader sees the old one or the new one.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        let unfinished = path.with_extension("unfinished");
        std::fs::write(&unfinished, text)?;
        std::fs::rename(unfinished, path)
    }
}
