//! Horizontal bars in groups.

use std::fmt::Write as _;

use super::{COLOURS, Scale, document, escape, mark, number};

const WIDTH: f64 = 900.0;
/// Where bars begin: to the left of it stand their labels.
const LEFT: f64 = 260.0;
/// What stays free on the right for numbers and notes.
const RIGHT: f64 = 150.0;
const BAR: f64 = 20.0;
const GAP: f64 = 12.0;

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    label: String,
    value: f64,
    interval: Option<(f64, f64)>,
    note: String,
    series: usize,
    pale: bool,
}

impl Bar {
    /// Of this length, in the unit of the picture.
    pub fn new(label: impl Into<String>, value: f64) -> Self {
        Self { label: label.into(), value, interval: None, note: String::new(), series: 0, pale: false }
    }

    /// With whiskers from `low` to `high`.
    #[must_use]
    pub fn interval(self, low: f64, high: f64) -> Self {
        Self { interval: Some((low, high)), ..self }
    }

    /// With these words behind its number.
    #[must_use]
    pub fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// In the colour of this series, counted from zero.
    #[must_use]
    pub fn series(self, series: usize) -> Self {
        Self { series, ..self }
    }

    /// Paler than others: something of less weight.
    #[must_use]
    pub fn pale(self) -> Self {
        Self { pale: true, ..self }
    }
}

/// A picture of bars.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    title: String,
    unit: String,
    logarithmic: bool,
    legend: Vec<String>,
    groups: Vec<(String, Vec<Bar>)>,
}

impl Bars {
    /// Without bars yet.
    pub fn new(title: impl Into<String>, unit: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            unit: unit.into(),
            logarithmic: false,
            legend: Vec::new(),
            groups: Vec::new(),
        }
    }

    /// On a logarithmic axis, which its heading says.
    #[must_use]
    pub fn logarithmic(self) -> Self {
        Self { logarithmic: true, ..self }
    }

    /// What the series are, in their order.
    #[must_use]
    pub fn legend<T: Into<String>>(self, names: impl IntoIterator<Item = T>) -> Self {
        Self { legend: names.into_iter().map(Into::into).collect(), ..self }
    }

    /// Adds bars that belong together, under a heading that may be empty.
    #[must_use]
    pub fn group(mut self, name: impl Into<String>, bars: Vec<Bar>) -> Self {
        self.groups.push((name.into(), bars));
        self
    }

    /// The picture.
    #[must_use]
    pub fn svg(&self) -> String {
        let bars = || self.groups.iter().flat_map(|(_, bars)| bars);
        let ends = |bar: &Bar| [bar.value, bar.interval.map_or(bar.value, |(_, high)| high)];
        let scale = Scale::of(self.logarithmic, bars().flat_map(ends));
        let x = |value: f64| LEFT + scale.share(value) * (WIDTH - LEFT - RIGHT);

        let mut body = String::new();
        let unit = if self.logarithmic { format!("{}, logarithmic", self.unit) } else { self.unit.clone() };
        let _ = writeln!(
            body,
            r#"<text x="16" y="26" class="h">{}</text><text x="16" y="44" class="t">{}</text>"#,
            escape(&self.title),
            escape(&unit)
        );
        let mut y = 60.0;
        if !self.legend.is_empty() {
            let mut at = LEFT;
            for (series, name) in self.legend.iter().enumerate() {
                let _ = writeln!(
                    body,
                    r#"<rect x="{at:.0}" y="{:.0}" width="11" height="11" class="s{}"/><text x="{:.0}" y="{y:.0}">{}</text>"#,
                    y - 10.0,
                    series % COLOURS,
                    at + 16.0,
                    escape(name)
                );
                at += 40.0 + 7.0 * f64::from(u32::try_from(name.chars().count()).unwrap_or(20));
            }
            y += 16.0;
        }
        let top = y + 12.0;
        let mut drawn = String::new();
        y = top + 4.0;
        for (name, bars) in &self.groups {
            if !name.is_empty() {
                y += BAR;
                let _ = writeln!(
                    drawn,
                    r#"<text x="16" y="{:.0}" font-weight="600">{}</text>"#,
                    y - 6.0,
                    escape(name)
                );
            }
            for bar in bars {
                self.bar(&mut drawn, bar, y, &x);
                y += BAR;
            }
            y += GAP;
        }
        for at in scale.marks() {
            let _ = writeln!(
                body,
                r#"<line x1="{at:.1}" x2="{at:.1}" y1="{top:.0}" y2="{y:.0}" class="g"/><text x="{at:.1}" y="{:.0}" text-anchor="middle" class="t">{}</text>"#,
                top - 4.0,
                mark(at),
                at = x(at),
            );
        }
        document(&self.title, (WIDTH, y + 8.0), &format!("{body}{drawn}"))
    }

    fn bar(&self, drawn: &mut String, bar: &Bar, y: f64, x: &dyn Fn(f64) -> f64) {
        let middle = y + (BAR - 4.0) / 2.0;
        let end = x(bar.value).max(LEFT + 1.0);
        let _ = write!(
            drawn,
            r#"<text x="{:.0}" y="{text:.1}" text-anchor="end">{}</text><rect x="{LEFT}" y="{y:.1}" width="{:.1}" height="{:.0}" class="s{}{}"/>"#,
            LEFT - 8.0,
            escape(&bar.label),
            end - LEFT,
            BAR - 4.0,
            bar.series % COLOURS,
            if bar.pale { " pale" } else { "" },
            text = middle + 4.0,
        );
        let mut right = end;
        if let Some((low, high)) = bar.interval {
            right = x(high).max(end);
            let _ = write!(
                drawn,
                r#"<path d="M{low:.1} {middle:.1}H{right:.1}M{low:.1} {top:.1}v6M{right:.1} {top:.1}v6" class="w" fill="none"/>"#,
                low = x(low).max(LEFT),
                top = middle - 3.0,
            );
        }
        let note = if bar.note.is_empty() { String::new() } else { format!("  {}", bar.note) };
        let _ = writeln!(
            drawn,
            r#"<text x="{:.1}" y="{:.1}" class="t">{}{}</text>"#,
            right + 6.0,
            middle + 3.5,
            number(bar.value),
            escape(&note)
        );
    }
}
