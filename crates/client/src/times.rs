//! Times as people read them.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// `2026-03-01T12:00:00Z`.
pub fn timestamp(at: OffsetDateTime) -> String {
    at.replace_nanosecond(0).unwrap_or(at).format(&Rfc3339).unwrap_or_else(|_| at.to_string())
}

/// `1h 20m`, `45s`, `12d 3h`: the two largest units.
pub fn duration(span: time::Duration) -> String {
    let seconds = span.whole_seconds().max(0);
    let parts =
        [(seconds / 86_400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let text: Vec<String> = parts
        .iter()
        .skip_while(|(amount, _)| *amount == 0)
        .take(2)
        .filter(|(amount, _)| *amount > 0)
        .map(|(amount, unit)| format!("{amount}{unit}"))
        .collect();
    if text.is_empty() { "0s".to_owned() } else { text.join(" ") }
}

/// A text that is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration; examples: 90s, 15m, 8h, 1h30m, 7d")]
pub struct NotADuration(pub String);

/// Parses `90s`, `15m`, `8h`, `7d`, and sums such as `1h30m`.
///
/// # Errors
/// It is none of these.
pub fn parse_duration(text: &str) -> Result<std::time::Duration, NotADuration> {
    let bad = || NotADuration(text.to_owned());
    let mut total: u64 = 0;
    let mut number = String::new();
    for c in text.chars() {
        if c.is_ascii_digit() {
            number.push(c);
            continue;
        }
        let unit: u64 = match c {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return Err(bad()),
        };
        let amount: u64 = number.parse().map_err(|_| bad())?;
        number.clear();
        total = amount.checked_mul(unit).and_then(|part| total.checked_add(part)).ok_or_else(bad)?;
    }
    if !number.is_empty() || text.is_empty() {
        return Err(bad());
    }
    Ok(std::time::Duration::from_secs(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_trip() {
        assert_eq!(parse_duration("1h30m").unwrap().as_secs(), 5400);
        assert_eq!(parse_duration("90s").unwrap().as_secs(), 90);
        for bad in ["", "5", "h", "1w", "1.5h", "-1h", "99999999999999999999d"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        assert_eq!(duration(time::Duration::seconds(5400)), "1h 30m");
        assert_eq!(duration(time::Duration::seconds(0)), "0s");
        assert_eq!(duration(time::Duration::days(12) + time::Duration::minutes(5)), "12d");
    }
}
