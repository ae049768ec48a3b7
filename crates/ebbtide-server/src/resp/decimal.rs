//! Sums of numbers with a fraction, in decimals: 0.1 and 0.2 are 0.3, as Redis has it.

/// Digits behind the point.
const PLACES: i32 = 17;

/// One, in units of the last place.
const ONE: i128 = 10_i128.pow(PLACES.unsigned_abs());

/// Largest number, in units of the last place: sums of two stay far from an overflow.
const MOST: i128 = ONE * 10_i128.pow(20);

/// Sum of two numbers as text; none if one of them has too many digits for it to be exact.
pub(super) fn sum(one: &[u8], other: &[u8]) -> Option<String> {
    Some(text(units(one)? + units(other)?))
}

/// Number in units of the last place: a sign, digits with a point among them, and an exponent.
fn units(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse().ok()?),
        None => (text, 0_i32),
    };
    let (negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => (true, mantissa),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut number: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        let digit = digit.is_ascii_digit().then(|| i128::from(digit - b'0'))?;
        number = number.checked_mul(10)?.checked_add(digit)?;
    }
    let places = PLACES.checked_sub(i32::try_from(fraction.len()).ok()?)?.checked_add(exponent)?;
    let number = if let Ok(places) = u32::try_from(places) {
        number.checked_mul(10_i128.checked_pow(places)?)?
    } else {
        let divisor = 10_i128.checked_pow(places.unsigned_abs())?;
        (number % divisor == 0).then_some(number / divisor)?
    };
    (number <= MOST).then_some(if negative { -number } else { number })
}

fn text(units: i128) -> String {
    let (whole, fraction) =
        (units.unsigned_abs() / ONE.unsigned_abs(), units.unsigned_abs() % ONE.unsigned_abs());
    let sign = if units < 0 { "-" } else { "" };
    let fraction = format!("{fraction:017}");
    match fraction.trim_end_matches('0') {
        "" => format!("{sign}{whole}"),
        fraction => format!("{sign}{whole}.{fraction}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_decimals() {
        for (one, other, expected) in [
            ("0.1", "0.2", "0.3"),
            ("10.5", "0.1", "10.6"),
            ("10.6", "-5", "5.6"),
            ("5.6", "5.0e3", "5005.6"),
            ("3.0", "1e17", "100000000000000003"),
            ("-0.5", "0.25", "-0.25"),
            ("1", "-1", "0"),
            (".5", "5.", "5.5"),
            ("1e-17", "0", "0.00000000000000001"),
        ] {
            assert_eq!(sum(one.as_bytes(), other.as_bytes()).as_deref(), Some(expected), "{one} + {other}");
        }
        for odd in ["1e-18", "1e30", "inf", "nan", "0.123456789012345678", "1e999999999999", "x"] {
            assert_eq!(sum(odd.as_bytes(), b"0"), None, "{odd}");
        }
    }
}
