//! Formatting of numbers: significant digits, and separated thousands.

/// Number of significant digits: more would be noise.
pub(super) const DIGITS: usize = 3;

/// Rounds to `digits` digits, and separates thousands: `51,700`, `1.28`, `0.046`.
pub(super) fn rounded(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    // The formatter rounds correctly, even if that adds a digit: 9.996 is 10.0.
    let scientific = format!("{value:.*e}", digits.saturating_sub(1));
    let (_, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i64 = exponent.parse().unwrap_or(0);
    let value: f64 = scientific.parse().unwrap_or(value);
    let decimals = i64::try_from(digits).unwrap_or(0) - 1 - exponent;
    thousands(&format!("{value:.*}", usize::try_from(decimals).unwrap_or(0)))
}

/// Number on an axis: `50 k`, `20 M`, without insignificant digits.
pub(super) fn short(value: f64) -> String {
    let (by, unit) = match value.abs() {
        size if size >= 1e9 => (1e9, " G"),
        size if size >= 1e6 => (1e6, " M"),
        size if size >= 1e4 => (1e3, " k"),
        _ => (1.0, ""),
    };
    let text = rounded(value / by, DIGITS);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

fn thousands(text: &str) -> String {
    let (whole, fraction) = text.split_once('.').map_or((text, None), |(whole, rest)| (whole, Some(rest)));
    let (sign, digits) = whole.strip_prefix('-').map_or(("", whole), |digits| ("-", digits));
    let mut shown = sign.to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    if let Some(fraction) = fraction {
        shown.push('.');
        shown.push_str(fraction);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_shown_and_thousands_stand_apart() {
        let shown: Vec<String> =
            [51_734.0, 1.2849, 0.04567, 9.996, 412.0, 1_234_567.0, 0.0, -1_500.0, 99_950.0]
                .map(|value| rounded(value, DIGITS))
                .into();
        let wanted = ["51,700", "1.28", "0.0457", "10.0", "412", "1,230,000", "0.00", "-1,500", "100,000"];
        assert_eq!(shown, wanted);
    }

    #[test]
    fn what_is_no_number_is_a_dash() {
        assert_eq!(rounded(f64::NAN, DIGITS), "–");
        assert_eq!(rounded(f64::INFINITY, DIGITS), "–");
    }

    #[test]
    fn an_axis_has_short_numbers() {
        let shown: Vec<String> = [0.0, 0.5, 10.0, 2_000.0, 50_000.0, 2.5e6, 2e7, 1e9].map(short).into();
        assert_eq!(shown, ["0", "0.5", "10", "2,000", "50 k", "2.5 M", "20 M", "1 G"]);
    }
}
