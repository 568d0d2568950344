//! How measurements are shown: a bar while they run, and figures after.

use indicatif::{ProgressBar, ProgressStyle};
use sallyport_sal::Selection;
use sallyport_sal::measure::operation::Part;
use sallyport_sal::measure::table::{Measured, Progress};

/// A bar on the terminal's stderr; nothing where there is no terminal.
pub(super) fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    if let Ok(style) = ProgressStyle::with_template("  {bar:30} {pos}/{len}  {msg}") {
        bar.set_style(style);
    }
    bar
}

pub(super) fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_length(progress.all as u64);
    bar.set_position(progress.done as u64);
    bar.set_message(
        progress.primitive.map_or_else(|| "every source in turn".to_owned(), |one| one.to_string()),
    );
}

/// Microseconds with three significant digits: `0.64`, `44.1`, `638`, `4,424`.
pub(super) fn microseconds(value: f64) -> String {
    if value < 10.0 {
        format!("{value:.2}")
    } else if value < 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

pub(super) fn part(row: &Measured) -> String {
    match row.part {
        Part::Whole => String::new(),
        Part::Share => "share alone".to_owned(),
        Part::Bytes(bytes) if bytes >= 1024 => format!("{} KiB", bytes / 1024),
        Part::Bytes(bytes) => format!("{bytes} B"),
    }
}

pub(super) fn is_selected(row: &Measured, selection: &Selection) -> bool {
    selection.source(row.primitive).is_ok_and(|provider| provider.name() == row.provider)
}

#[cfg(test)]
mod tests {
    #[test]
    fn times_have_as_many_digits_as_they_deserve() {
        assert_eq!(super::microseconds(0.638), "0.64");
        assert_eq!(super::microseconds(44.08), "44.1");
        assert_eq!(super::microseconds(4424.4), "4424");
    }
}
