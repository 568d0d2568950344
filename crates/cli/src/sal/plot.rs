//! The table of speeds as a picture: a group of bars for each primitive, on a logarithmic scale.

use std::fmt::Write as _;

use sallyport_sal::Selection;
use sallyport_sal::measure::table::Measured;

use super::shown::{is_selected, microseconds, part};

const LEFT: f64 = 250.0;
const WIDTH: f64 = 620.0;
const BAR: f64 = 13.0;
const GAP: f64 = 10.0;
/// Told apart by people who do not see all colours (Okabe and Ito's palette).
const COLOURS: &[&str] = &["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999"];

pub(super) fn svg(rows: &[Measured], selection: &Selection) -> String {
    let times = || rows.iter().map(|row| row.times.minimum() / 1e3);
    let least = times().fold(f64::INFINITY, f64::min).max(0.01).log10().floor();
    let most = times().fold(0.1, f64::max).log10().ceil().max(least + 1.0);
    let x = |microseconds: f64| {
        LEFT + (microseconds.max(0.001).log10() - least).max(0.0) / (most - least) * WIDTH
    };
    let colour = |name: &str| {
        let at = selection.providers().iter().position(|provider| provider.name() == name).unwrap_or(0);
        COLOURS.get(at % COLOURS.len()).copied().unwrap_or("#999999")
    };
    let mut body = String::new();
    let mut y = 70.0;
    let mut previous = String::new();
    for row in rows {
        let label = format!("{} {}", row.primitive, part(row)).trim().to_owned();
        if label != previous {
            y += GAP;
            let _ = writeln!(
                body,
                r#"<text x="{:.0}" y="{:.0}" text-anchor="end">{label}</text>"#,
                LEFT - 8.0,
                y + 10.0
            );
            previous = label;
        }
        let time = row.times.minimum() / 1e3;
        let end = x(time);
        let _ = writeln!(
            body,
            r#"<rect x="{LEFT}" y="{y:.0}" width="{:.1}" height="{:.0}" fill="{}"{}/><text x="{:.1}" y="{:.0}" class="t">{}{}</text>"#,
            end - LEFT,
            BAR - 2.0,
            colour(row.provider),
            if row.warning.is_some() { r#" opacity="0.35""# } else { "" },
            end + 4.0,
            y + 9.0,
            microseconds(time),
            if is_selected(row, selection) { " ●" } else { "" },
        );
        y += BAR;
    }
    let mut grid = String::new();
    let mut power = least;
    while power <= most {
        let at = x(10_f64.powf(power));
        let _ = writeln!(
            grid,
            r##"<line x1="{at:.1}" x2="{at:.1}" y1="66" y2="{y:.0}" stroke="#ccc"/><text x="{at:.1}" y="60" text-anchor="middle" class="t">{}</text>"##,
            10_f64.powf(power)
        );
        power += 1.0;
    }
    let mut legend = String::new();
    for (at, provider) in selection.providers().iter().enumerate() {
        let left = LEFT + f64::from(u32::try_from(at).unwrap_or_default()) * 110.0;
        let _ = writeln!(
            legend,
            r#"<rect x="{left:.0}" y="24" width="11" height="11" fill="{}"/><text x="{:.0}" y="34">{}</text>"#,
            colour(provider.name()),
            left + 16.0,
            provider.name()
        );
    }
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="960" height="{height:.0}" font-family="sans-serif" font-size="11">
<style>.t{{font-size:9px;fill:#555}}</style>
<rect width="100%" height="100%" fill="#fff"/>
<text x="{LEFT}" y="16" font-size="13">Microseconds an operation, least of all passes, one thread (● selected, pale: never chosen)</text>
{legend}{grid}{body}</svg>
"##,
        height = y + 16.0
    )
}
