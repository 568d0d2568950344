//! What a reader of a transcript is told, in words.

use std::time::Duration;

use sallyport_access::text;

pub(super) const PASSED_OVER: &str = "not run: the server passed it over after an error before it";
pub(super) const UNDONE: &str = "undone by an error that followed before the pipeline's end";
pub(super) const ROLLED_BACK: &str = "undone: its transaction was rolled back";

/// On one line, without characters that steer: what comes from a session must not act on the terminal, or the eyes, of a person who
/// reads about it.
pub(super) fn one_line(said: &str) -> String {
    said.chars().map(|c| if text::steers(c) { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The same, but lines stay lines: for the server, one ends at CR and at LF.
pub(in crate::recording) fn lines(said: &str) -> String {
    let said = said.replace("\r\n", "\n").replace('\r', "\n");
    let shown = |c| if text::steers(c) && c != '\n' && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
    said.chars().map(shown).collect()
}

pub(super) fn seconds(at: Duration) -> String {
    format!("{:.3} s", at.as_secs_f64())
}

pub(super) fn milliseconds(micros: u64) -> String {
    let took = Duration::from_micros(micros);
    format!("{:.3} ms", took.as_secs_f64() * 1000.0)
}

pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut amount = Duration::from_secs(bytes).as_secs_f64();
    let mut unit = "";
    for larger in UNITS {
        if amount < 1024.0 {
            break;
        }
        amount /= 1024.0;
        unit = larger;
    }
    format!("{amount:.1} {unit}")
}
