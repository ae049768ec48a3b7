//! Scales: the position of a value on an axis, and the labels beside it.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use super::number::short;

/// Approximate number of labels on a linear axis.
const TICKS: f64 = 6.0;

/// Axis: linear, logarithmic, or categorical.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    log: bool,
    ticks: Vec<(f64, String)>,
}

impl Scale {
    /// Creates a numeric axis for `values`. A linear one begins at zero, so that lengths can be compared.
    pub(super) fn over(values: &[f64], log: bool) -> Result<Self, String> {
        if let Some(value) = values.iter().find(|value| !value.is_finite()) {
            return Err(format!("{value} has no place on an axis"));
        }
        if log { Self::logarithmic(values) } else { Ok(Self::linear(values)) }
    }

    /// Creates a categorical axis, the first name at the top.
    pub(super) fn of_names(names: &[String]) -> Self {
        let places = (0_u32..).map(f64::from);
        let ticks: Vec<(f64, String)> = places.zip(names.iter().cloned()).collect();
        let last = ticks.last().map_or(0.0, |(place, _)| *place);
        Self { low: last + 0.5, high: -0.5, log: false, ticks }
    }

    /// Lower end of the axis, from which bars are drawn.
    pub(super) fn low(&self) -> f64 {
        self.low
    }

    fn linear(values: &[f64]) -> Self {
        let least = values.iter().copied().fold(0.0, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        let span = if most > least { most - least } else { 1.0 };
        let step = at_least(span / TICKS);
        let low = (least / step).floor() * step;
        // The axis ends at its last label, so that the longest bar can be read.
        let high = (((least + span) / step).ceil() * step).max(low + step);
        let mut ticks = Vec::new();
        let mut number = 0_u32;
        while low + f64::from(number) * step <= high + step / 2.0 {
            ticks.push(low + f64::from(number) * step);
            number += 1;
        }
        Self::with(low, high, false, ticks)
    }

    fn logarithmic(values: &[f64]) -> Result<Self, String> {
        if let Some(value) = values.iter().find(|value| **value <= 0.0) {
            return Err(format!("{value} has no place on a logarithmic axis"));
        }
        let least = values.iter().copied().reduce(f64::min).unwrap_or(1.0);
        let most = values.iter().copied().reduce(f64::max).unwrap_or(10.0);
        let (mut low, mut high) = (at_most(least), at_least(most));
        if low >= high {
            (low, high) = (at_most(least / 2.0), at_least(most * 2.0));
        }
        let mut ticks = Vec::new();
        let mut decade = 10_f64.powf(low.log10().floor());
        while decade <= high * 1.001 {
            ticks.extend([1.0, 2.0, 5.0].map(|factor| factor * decade));
            decade *= 10.0;
        }
        ticks.retain(|tick| (low * 0.999..=high * 1.001).contains(tick));
        let decades: Vec<f64> =
            ticks.iter().copied().filter(|tick| (tick.log10() - tick.log10().round()).abs() < 1e-6).collect();
        Ok(Self::with(low, high, true, if decades.len() > 3 { decades } else { ticks }))
    }

    fn with(low: f64, high: f64, log: bool, ticks: Vec<f64>) -> Self {
        Self { low, high, log, ticks: ticks.into_iter().map(|tick| (tick, short(tick))).collect() }
    }
}

/// Least of 1, 2 and 5 times a power of ten that is not below `value`.
fn at_least(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * decade >= value * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * decade
}

/// Greatest of 1, 2 and 5 times a power of ten that is not above `value`.
fn at_most(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let factor = [5.0, 2.0].into_iter().find(|factor| factor * decade <= value * (1.0 + 1e-9));
    factor.unwrap_or(1.0) * decade
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    #[expect(clippy::cast_possible_truncation, reason = "a picture is some hundred pixels wide")]
    fn map(&self, value: &f64, (start, end): (i32, i32)) -> i32 {
        let share = if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        start + (share * f64::from(end - start)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.iter().map(|(tick, _)| *tick).collect()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Scale {
    fn format_ext(&self, value: &f64) -> String {
        let written = self.ticks.iter().find(|(tick, _)| tick.total_cmp(value).is_eq());
        written.map(|(_, text)| text.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(scale: &Scale) -> Vec<&str> {
        scale.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn a_linear_axis_begins_at_zero_and_ends_past_the_highest() {
        let scale = Scale::over(&[40_500.0, 97_800.0], false).unwrap();
        assert_eq!(written(&scale), ["0", "20 k", "40 k", "60 k", "80 k", "100 k"]);
        assert_eq!(scale.map(&50_000.0, (0, 500)), 250);
    }

    #[test]
    fn a_linear_axis_goes_below_zero_where_a_value_does() {
        let scale = Scale::over(&[-3.0, 5.0], false).unwrap();
        assert_eq!(written(&scale), ["-4", "-2", "0", "2", "4", "6"]);
    }

    #[test]
    fn a_logarithmic_axis_gives_each_decade_the_same_room() {
        let scale = Scale::over(&[1.0, 1_000.0], true).unwrap();
        assert_eq!(written(&scale), ["1", "10", "100", "1,000"]);
        let places = [1.0, 10.0, 100.0, 1_000.0].map(|value| scale.map(&value, (0, 300)));
        assert_eq!(places, [0, 100, 200, 300]);
    }

    #[test]
    fn a_short_logarithmic_axis_has_more_than_its_decades() {
        let scale = Scale::over(&[0.3, 3.4], true).unwrap();
        assert_eq!(written(&scale), ["0.2", "0.5", "1", "2", "5"]);
    }

    #[test]
    fn one_value_and_none_have_an_axis() {
        for log in [false, true] {
            for values in [&[64.0][..], &[1.0], &[]] {
                let scale = Scale::over(values, log).unwrap();
                assert!(scale.low < scale.high && scale.ticks.len() > 1, "{values:?}, {log}: {scale:?}");
            }
        }
        let scale = Scale::over(&[0.0], false).unwrap();
        assert!(scale.low < scale.high && scale.ticks.len() > 1, "{scale:?}");
    }

    #[test]
    fn what_has_no_place_is_refused() {
        assert!(Scale::over(&[0.0], true).unwrap_err().contains("logarithmic"));
        assert!(Scale::over(&[f64::NAN], false).is_err());
        assert!(Scale::over(&[f64::INFINITY], true).is_err());
    }

    #[test]
    fn the_first_name_is_at_the_top() {
        let scale = Scale::of_names(&["one".to_owned(), "two".to_owned()]);
        // A vertical axis gets its lower end first.
        assert_eq!([0.0, 1.0].map(|place| scale.map(&place, (400, 0))), [100, 300]);
        assert_eq!(scale.format_ext(&1.0), "two");
    }
}
