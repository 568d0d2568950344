//! Times as people write them.

use std::time::Duration;

/// `1h30m`, `45s`, `250ms`: whole numbers with a unit each.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (number, tail) = rest.split_at(digits);
        let number: u64 = number.parse().ok()?;
        let unit_length = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_length);
        let milliseconds = match unit {
            "ms" => number,
            "s" => number.checked_mul(1_000)?,
            "m" => number.checked_mul(60_000)?,
            "h" => number.checked_mul(3_600_000)?,
            "d" => number.checked_mul(86_400_000)?,
            _ => return None,
        };
        total = total.checked_add(Duration::from_millis(milliseconds))?;
        rest = tail;
    }
    Some(total)
}

/// The shortest way to write a span.
#[must_use]
pub fn show(span: Duration) -> String {
    let milliseconds = span.as_millis();
    match milliseconds {
        0 => "0s".to_owned(),
        m if m % 86_400_000 == 0 => format!("{}d", m / 86_400_000),
        m if m % 3_600_000 == 0 => format!("{}h", m / 3_600_000),
        m if m % 60_000 == 0 => format!("{}m", m / 60_000),
        m if m % 1_000 == 0 => format!("{}s", m / 1_000),
        m => format!("{m}ms"),
    }
}

/// Two time spans that lie in the range, or none.
pub(super) fn examples(least: Duration, most: Duration) -> String {
    const KNOWN: [u64; 5] = [30, 300, 3_600, 43_200, 86_400];
    let inside: Vec<String> = KNOWN
        .into_iter()
        .map(Duration::from_secs)
        .filter(|known| (least..=most).contains(known))
        .map(show)
        .take(2)
        .collect();
    if inside.is_empty() { String::new() } else { format!(", such as {}", inside.join(" or ")) }
}
