//! The report as a page: a picture, the table, what was held the same, and the machine. It loads nothing.

use std::fmt::Write as _;

use super::outcome::Outcome;
use super::ways::{Kind, Service};
use crate::report::Report;

const LEFT: f64 = 270.0;
const WIDTH: f64 = 560.0;
const BAR: f64 = 14.0;
const GROUP_GAP: f64 = 44.0;
/// Told apart by people who do not see all colours (Okabe and Ito's palette).
const fn colour(kind: Kind) -> &'static str {
    match kind {
        Kind::Direct => "#999999",
        Kind::Floor => "#56b4e9",
        Kind::Published => "#d55e00",
        Kind::Native => "#0072b2",
        Kind::Warm => "#009e73",
    }
}

/// One group of bars.
struct Chart {
    title: &'static str,
    digits: usize,
    of: fn(&Outcome) -> Option<f64>,
}

const CHARTS: &[Chart] = &[
    Chart {
        title: "Processor time of the proxy (or of what stands in its place) for one connection, ms; logarithmic",
        digits: 2,
        of: |outcome| outcome.cost(Service::Proxy).or_else(|| outcome.cost(Service::Terminator)),
    },
    Chart {
        title: "Processor time of the agent for one connection, ms; logarithmic",
        digits: 2,
        of: |outcome| outcome.cost(Service::Agent),
    },
    Chart { title: "Connections a second at full load; logarithmic", digits: 0, of: Outcome::rate },
    Chart {
        title: "Latency at full load, p50, ms; logarithmic",
        digits: 2,
        of: |outcome| outcome.latency(0.5),
    },
    Chart {
        title: "Latency at full load, p99, ms; logarithmic",
        digits: 2,
        of: |outcome| outcome.latency(0.99),
    },
    Chart {
        title: "Latency without a queue, p50, ms; logarithmic",
        digits: 2,
        of: |outcome| outcome.paced_latency(0.5),
    },
];

/// The picture.
pub(super) fn svg(outcomes: &[Outcome]) -> String {
    let mut body = String::new();
    let mut y = 30.0;
    for chart in CHARTS {
        let bars: Vec<(&Outcome, f64)> =
            outcomes.iter().filter_map(|outcome| Some((outcome, (chart.of)(outcome)?))).collect();
        if bars.is_empty() {
            continue;
        }
        let logs = || bars.iter().map(|(_, value)| value.max(1e-3).log10());
        let least = logs().fold(f64::INFINITY, f64::min).floor();
        let most = logs().fold(f64::NEG_INFINITY, f64::max).ceil().max(least + 1.0);
        let x = |log: f64| LEFT + (log - least) / (most - least) * WIDTH;
        let _ = writeln!(body, r#"<text x="10" y="{y:.0}" class="h">{}</text>"#, chart.title);
        y += 22.0;
        #[allow(clippy::cast_precision_loss, reason = "a handful of bars")]
        let bottom = y + bars.len() as f64 * BAR;
        let mut power = least;
        while power <= most {
            let _ = writeln!(
                body,
                r##"<line x1="{at:.1}" x2="{at:.1}" y1="{top:.0}" y2="{bottom:.0}" stroke="#ddd"/><text x="{at:.1}" y="{text:.0}" text-anchor="middle" class="t">{}</text>"##,
                10_f64.powf(power),
                at = x(power),
                top = y - 2.0,
                text = y - 5.0,
            );
            power += 1.0;
        }
        for (outcome, value) in bars {
            let end = x(value.max(1e-3).log10()).max(LEFT + 1.0);
            let _ = writeln!(
                body,
                r#"<text x="{:.0}" y="{text:.0}" text-anchor="end">{}</text><rect x="{LEFT}" y="{y:.0}" width="{:.1}" height="{:.0}" fill="{}"/><text x="{:.1}" y="{text:.0}" class="t">{value:.*}</text>"#,
                LEFT - 8.0,
                escape(&outcome.name),
                end - LEFT,
                BAR - 3.0,
                colour(outcome.kind),
                end + 4.0,
                chart.digits,
                text = y + 9.0,
            );
            y += BAR;
        }
        y += GROUP_GAP;
    }
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="900" height="{y:.0}" viewBox="0 0 900 {y:.0}" font-family="sans-serif" font-size="11">
<style>.t{{font-size:9px;fill:#555}}.h{{font-size:13px}}</style>
<rect width="100%" height="100%" fill="#fff"/>
{body}</svg>
"##
    )
}

/// The page.
pub(super) fn html(report: &Report, outcomes: &[Outcome]) -> String {
    let mut body = String::new();
    let _ = writeln!(
        body,
        "<h1>Connections to PostgreSQL</h1>\n<p>{}</p>\n<p>Load {:.2} before, {:.2} after; {:.1} % of the processors' \
         time taken by the host.{}</p>",
        escape(&report.machine.line()),
        report.noise.load_before,
        report.noise.load_after,
        report.noise.stolen * 100.0,
        report.noise.warning().map(|warning| format!(" <b>{}</b>", escape(&warning))).unwrap_or_default(),
    );
    if report.interrupted {
        body.push_str("<p><b>Interrupted: fewer samples than asked for.</b></p>\n");
    }
    if !report.aims.is_empty() {
        body.push_str("<h2>Aims</h2>\n<table><tr><th>aim</th><th>got</th><th></th></tr>\n");
        for aim in &report.aims {
            let _ = writeln!(
                body,
                "<tr><td>{}</td><td>{}</td><td class=\"{class}\">{class}</td></tr>",
                escape(&aim.what),
                escape(&aim.got),
                class = if aim.reached { "reached" } else { "missed" },
            );
        }
        body.push_str("</table>\n");
    }
    body.push_str("<h2>Figures</h2>\n");
    body.push_str(&svg(outcomes));
    body.push_str("<div class=\"wide\"><table><tr>");
    for heading in report.headings() {
        let _ = write!(body, "<th>{}</th>", escape(heading));
    }
    body.push_str("</tr>\n");
    for line in report.lines() {
        body.push_str("<tr>");
        for cell in line {
            let _ = write!(body, "<td>{}</td>", escape(&cell));
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</table></div>\n<h2>Held the same</h2>\n<ul>\n");
    for condition in &report.conditions {
        let _ = writeln!(body, "<li>{}</li>", escape(condition));
    }
    body.push_str("</ul>\n");
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>Connections to PostgreSQL</title>\n<style>\
         body{{font-family:sans-serif;max-width:1000px;margin:2em auto;padding:0 1em}}\
         table{{border-collapse:collapse;font-size:13px}}td,th{{border:1px solid #ccc;padding:3px 7px;text-align:right}}\
         td:first-child,th:first-child{{text-align:left}}.wide{{overflow-x:auto}}.reached{{color:#006b3f}}\
         .missed{{color:#b00020;font-weight:bold}}</style>\n{body}</html>\n"
    )
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_say_is_text_on_the_page() {
        assert_eq!(escape("a<b>&\"c"), "a&lt;b&gt;&amp;&quot;c");
    }
}
