//! Share of the time that a sweeper may take.

use std::str::FromStr;
use std::time::Duration;

use crate::model::error::{Error, Result};

/// A share of the time: more than nothing, and at most the whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Share(f64);

// None of them is NaN.
impl Eq for Share {}

impl Share {
    /// All of it: no rests.
    pub const WHOLE: Self = Self(1.0);

    /// A quarter, for a sweeper beside live traffic.
    pub const QUARTER: Self = Self(0.25);

    /// Less than this would rest for minutes after a second of work.
    const LEAST: f64 = 0.01;

    /// Returns the share, from 0.01 to 1.
    pub fn new(share: f64) -> Result<Self> {
        if (Self::LEAST..=1.0).contains(&share) { Ok(Self(share)) } else { Err(out_of_range()) }
    }

    /// As a number.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        self.0
    }

    /// Rest after work of the given length.
    #[must_use]
    pub fn rest_after(self, worked: Duration) -> Duration {
        worked.mul_f64((1.0 - self.0) / self.0)
    }
}

fn out_of_range() -> Error {
    Error::invalid("the share of the time that a sweep may take is a number from 0.01 to 1, such as 0.25")
}

impl FromStr for Share {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::new(text.parse().map_err(|_| out_of_range())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_rests_three_times_as_long_as_it_worked() {
        let worked = Duration::from_millis(100);
        assert_eq!(Share::QUARTER.rest_after(worked), Duration::from_millis(300));
        assert_eq!(Share::WHOLE.rest_after(worked), Duration::ZERO);
    }

    #[test]
    fn a_share_is_more_than_nothing_and_at_most_the_whole() {
        assert_eq!("0.5".parse::<Share>().unwrap(), Share(0.5));
        assert_eq!("1".parse::<Share>().unwrap(), Share::WHOLE);
        for bad in ["0", "-0.5", "1.01", "0.001", "NaN", "inf", "", "25%", "a"] {
            let error = bad.parse::<Share>().unwrap_err();
            assert!(error.message().contains("0.01 to 1"), "{bad}: {error}");
        }
    }
}
