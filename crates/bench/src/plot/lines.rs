//! Lines and points between two axes.

use std::fmt::Write as _;

use super::{COLOURS, Scale, document, escape, mark};

/// Of what lies between the axes.
const WITHIN: f64 = 650.0;
/// Of a letter of the legend, about.
const LETTER: f64 = 6.6;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 70.0;
/// The least, for the legend.
const RIGHT: f64 = 180.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 56.0;

/// A picture of lines.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines {
    title: String,
    axes: (String, String),
    logarithmic: (bool, bool),
    series: Vec<Series>,
    levels: Vec<(f64, String)>,
    marks: Vec<(f64, f64, String)>,
}

#[derive(Debug, Clone, PartialEq)]
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
    joined: bool,
}

impl Lines {
    /// Without lines yet; `x` and `y` are what the axes show, with their units.
    pub fn new(title: impl Into<String>, x: impl Into<String>, y: impl Into<String>) -> Self {
        Self {
            title: title.into(),
            axes: (x.into(), y.into()),
            logarithmic: (false, false),
            series: Vec::new(),
            levels: Vec::new(),
            marks: Vec::new(),
        }
    }

    /// With a logarithmic axis from left to right.
    #[must_use]
    pub fn logarithmic_x(mut self) -> Self {
        self.logarithmic.0 = true;
        self
    }

    /// With a logarithmic axis from bottom to top.
    #[must_use]
    pub fn logarithmic_y(mut self) -> Self {
        self.logarithmic.1 = true;
        self
    }

    /// Adds a line through these points.
    #[must_use]
    pub fn series(self, name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        self.add(name.into(), points, true)
    }

    /// Adds points that are not joined.
    #[must_use]
    pub fn points(self, name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        self.add(name.into(), points, false)
    }

    fn add(mut self, name: String, points: Vec<(f64, f64)>, joined: bool) -> Self {
        self.series.push(Series { name, points, joined });
        self
    }

    /// Adds a dashed line at a height, with its name.
    #[must_use]
    pub fn level(mut self, y: f64, name: impl Into<String>) -> Self {
        self.levels.push((y, name.into()));
        self
    }

    /// Adds words at a point.
    #[must_use]
    pub fn mark(mut self, x: f64, y: f64, text: impl Into<String>) -> Self {
        self.marks.push((x, y, text.into()));
        self
    }

    /// The picture.
    #[must_use]
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| series.points.iter().copied());
        let places = points().map(|(x, _)| x);
        let across = if self.logarithmic.0 { Scale::doubling(places) } else { Scale::of(false, places) };
        let longest = self.series.iter().map(|series| series.name.chars().count()).max().unwrap_or_default();
        let legend = 30.0 + LETTER * f64::from(u32::try_from(longest).unwrap_or(40));
        let width = LEFT + WITHIN + legend.max(RIGHT);
        let levels = self.levels.iter().map(|(y, _)| *y);
        let up = Scale::of(self.logarithmic.1, points().map(|(_, y)| y).chain(levels));
        let x = |value: f64| LEFT + across.share(value) * WITHIN;
        let y = |value: f64| HEIGHT - BOTTOM - up.share(value) * (HEIGHT - TOP - BOTTOM);

        let mut body = String::new();
        let _ = writeln!(body, r#"<text x="16" y="26" class="h">{}</text>"#, escape(&self.title));
        let _ = writeln!(body, r#"<text x="16" y="44" class="t">{}</text>"#, escape(&self.axes.1));
        let _ = writeln!(
            body,
            r#"<text x="{:.0}" y="{:.0}" text-anchor="middle" class="t">{}</text>"#,
            LEFT + WITHIN / 2.0,
            HEIGHT - 12.0,
            escape(&self.axes.0)
        );
        for at in across.marks() {
            let _ = writeln!(
                body,
                r#"<line x1="{at:.1}" x2="{at:.1}" y1="{TOP}" y2="{:.0}" class="g"/><text x="{at:.1}" y="{:.0}" text-anchor="middle" class="t">{}</text>"#,
                HEIGHT - BOTTOM,
                HEIGHT - BOTTOM + 16.0,
                mark(at),
                at = x(at),
            );
        }
        for at in up.marks() {
            let _ = writeln!(
                body,
                r#"<line x1="{LEFT}" x2="{:.0}" y1="{at:.1}" y2="{at:.1}" class="g"/><text x="{:.0}" y="{:.1}" text-anchor="end" class="t">{}</text>"#,
                LEFT + WITHIN,
                LEFT - 6.0,
                y(at) + 3.5,
                mark(at),
                at = y(at),
            );
        }
        for (level, name) in &self.levels {
            let _ = writeln!(
                body,
                r#"<line x1="{LEFT}" x2="{right:.0}" y1="{at:.1}" y2="{at:.1}" class="a" stroke-dasharray="5 4"/><text x="{:.0}" y="{:.1}" class="t">{}</text>"#,
                LEFT + WITHIN + 6.0,
                y(*level) + 3.5,
                escape(name),
                right = LEFT + WITHIN,
                at = y(*level),
            );
        }
        for (at, series) in self.series.iter().enumerate() {
            Self::draw(&mut body, at, series, (&x, &y));
        }
        for (at_x, at_y, text) in &self.marks {
            let _ = writeln!(
                body,
                r#"<circle cx="{left:.1}" cy="{top:.1}" r="4.5" fill="none" class="w"/><text x="{left:.1}" y="{:.1}" text-anchor="middle" class="t">{}</text>"#,
                y(*at_y) - 9.0,
                escape(text),
                left = x(*at_x),
                top = y(*at_y),
            );
        }
        document(&self.title, (width, HEIGHT), &body)
    }

    /// A line with its points, and its name in the legend on the right.
    fn draw(
        body: &mut String,
        at: usize,
        series: &Series,
        (x, y): (&dyn Fn(f64) -> f64, &dyn Fn(f64) -> f64),
    ) {
        let colour = at % COLOURS;
        let points = series.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite());
        let places: Vec<(f64, f64)> = points.map(|(px, py)| (x(*px), y(*py))).collect();
        if series.joined {
            let path: Vec<String> = places.iter().map(|(px, py)| format!("{px:.1},{py:.1}")).collect();
            let _ = writeln!(body, r#"<polyline points="{}" class="n l{colour}"/>"#, path.join(" "));
        }
        // So many points that they touch are a line already.
        if !series.joined || places.len() <= 40 {
            for (px, py) in &places {
                let _ = write!(body, r#"<circle cx="{px:.1}" cy="{py:.1}" r="3" class="s{colour}"/>"#);
            }
        }
        let top = 26.0 + 16.0 * f64::from(u32::try_from(at).unwrap_or_default());
        let left = LEFT + WITHIN + 6.0;
        let _ = writeln!(
            body,
            r#"<rect x="{left:.0}" y="{:.0}" width="11" height="11" class="s{colour}"/><text x="{:.0}" y="{top:.0}">{}</text>"#,
            top - 10.0,
            left + 16.0,
            escape(&series.name)
        );
    }
}
