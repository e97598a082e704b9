//! Lengths of time as people type them: `10s`, `2m`, `1500ms`, `1h`, or plain seconds.

use std::time::Duration;

/// Parses a length of time.
pub fn parse(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let wrong = || format!("{text:?} is no length of time: write 10s, 2m, 1500ms, 1h, or seconds");
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let milliseconds: u64 = match unit {
        "ms" => 1,
        "" | "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    number
        .checked_mul(milliseconds)
        .map(Duration::from_millis)
        .ok_or_else(wrong)
}

/// `1:05`, or `2:00:01` from an hour on.
pub fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read() {
        for (text, milliseconds) in [
            ("10s", 10_000),
            ("2m", 120_000),
            ("1500ms", 1_500),
            ("1h", 3_600_000),
            ("7", 7_000),
            ("0s", 0),
        ] {
            assert_eq!(
                parse(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
    }

    #[test]
    fn anything_else_is_refused_by_name() {
        for text in [
            "",
            "s",
            "-1s",
            "+1s",
            "1.5s",
            "10 s",
            "10sec",
            "1d",
            "99999999999999999999s",
        ] {
            let error = parse(text).unwrap_err();
            assert!(
                error.starts_with(&format!("{text:?} is no length of time")),
                "{error}"
            );
        }
        assert!(parse("18446744073709551615h").is_err(), "an overflow");
    }

    #[test]
    fn clocks_grow_an_hour_when_they_need_one() {
        assert_eq!(clock(Duration::from_millis(65_999)), "1:05");
        assert_eq!(clock(Duration::from_secs(7201)), "2:00:01");
    }
}
