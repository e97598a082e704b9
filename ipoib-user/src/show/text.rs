//! Numbers for people.

/// `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The same in a column of that width, with a space before it; `1.2 G` where it has no room.
pub fn column(number: u64, width: usize) -> String {
    let text = count(number);
    let text = if text.len() < width {
        text
    } else {
        scaled(number, "")
    };
    format!("{text:>width$}")
}

/// `999 B`, `1.2 kB`, `34.5 MB`, ...
pub fn bytes(number: u64) -> String {
    scaled(number, "B")
}

/// `1.2 kbit/s`, ...
pub fn rate(bits_per_second: u64) -> String {
    scaled(bits_per_second, "bit/s")
}

fn scaled(number: u64, unit: &str) -> String {
    let mut value = number as f64;
    // A value that would be shown as 1000.0 is shown in the next unit.
    for prefix in ["", "k", "M", "G", "T"] {
        if value < 999.95 {
            return match prefix {
                "" => format!("{number} {unit}"),
                _ => format!("{value:.1} {prefix}{unit}"),
            };
        }
        value /= 1000.0;
    }
    format!("{value:.1} P{unit}")
}

/// `99.98 %`, rounded down, so that only all is 100 %; `-` for none.
pub fn share(share: Option<f64>) -> String {
    match share {
        Some(share) => format!("{:.2} %", (share * 10_000.0).floor() / 100.0),
        None => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(column(12_345, 7), " 12,345");
        assert_eq!(column(123_456, 7), "123.5 k");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_234), "1.2 kB");
        assert_eq!(bytes(999_960), "1.0 MB");
        assert_eq!(bytes(u64::MAX), "18446.7 PB");
        assert_eq!(rate(34_500_000), "34.5 Mbit/s");
        assert_eq!(share(Some(1.0)), "100.00 %");
        assert_eq!(share(Some(0.999_999)), "99.99 %");
        assert_eq!(share(Some(0.9)), "90.00 %");
        assert_eq!(share(None), "-");
    }
}
