//! "Did you mean": the known name that a wrong one resembles.

/// Names longer than this are compared no further than equal.
const LONGEST: usize = 64;

/// `; did you mean "x"?` for the known name nearest to `wrong`, or nothing where none is near.
pub fn hint<'a>(wrong: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let length = wrong.chars().count();
    let most = (length / 3).clamp(1, 3);
    if length > LONGEST {
        return String::new();
    }
    known
        .into_iter()
        .filter(|name| name.len() <= LONGEST && name.chars().count().abs_diff(length) <= most)
        .map(|name| (distance(wrong, name), name))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map_or_else(String::new, |(_, name)| format!("; did you mean {name:?}?"))
}

/// Characters to insert, remove, replace, or swap with their neighbour; case counts for nothing.
fn distance(a: &str, b: &str) -> usize {
    let lower = |text: &str| text.to_lowercase().chars().collect::<Vec<_>>();
    let (a, b) = (lower(a), lower(b));
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut row = vec![i + 1];
        for j in 0..b.len() {
            let mut least = (last[j] + usize::from(a[i] != b[j]))
                .min(last[j + 1] + 1)
                .min(row[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(before[j - 1] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_found_and_far_ones_not() {
        let known = ["compute", "storage", "login"];
        assert_eq!(hint("storgae", known), "; did you mean \"storage\"?");
        assert_eq!(hint("Compute", known), "; did you mean \"compute\"?");
        assert_eq!(hint("backup", known), "");
        assert_eq!(hint("", known), "");
    }
}
