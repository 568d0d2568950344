//! Flame graphs: what was on the stack, and how often.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{document, escape};

const WIDTH: f64 = 1200.0;
const EDGE: f64 = 10.0;
const ROW: f64 = 17.0;
/// Above the first row: a title, what a width is, and the legend.
const HEAD: f64 = 78.0;
/// Width of a letter at the size of the labels, about.
const LETTER: f64 = 6.0;
/// Boxes narrower than this are not drawn: they are too small to point at.
const NARROWEST: f64 = 2.0;
/// The longest name that is shown by pointing at a box; generic ones go on for lines.
const LONGEST_NAME: usize = 160;

/// A flame graph: each box is a frame, as wide as the share of the samples that had it on the stack, and what it called
/// stands on top of it. Readable without a script; pointing at a box gives its whole name and its share.
#[derive(Debug)]
pub struct Flame {
    title: String,
    unit: String,
    legend: Vec<String>,
    root: Frame,
}

/// One box.
#[derive(Debug, Default)]
struct Frame {
    samples: u64,
    series: usize,
    callees: BTreeMap<String, Frame>,
}

/// A box as it is drawn.
struct Drawn<'f> {
    name: &'f str,
    frame: &'f Frame,
    depth: usize,
    x: f64,
    width: f64,
}

impl Flame {
    /// Without samples yet. `root` is what the lowest box says, `unit` what stands below the title.
    pub fn new(title: impl Into<String>, unit: impl Into<String>) -> Self {
        Self { title: title.into(), unit: unit.into(), legend: Vec::new(), root: Frame::default() }
    }

    /// What the colours are, in the order of their series.
    #[must_use]
    pub fn legend<T: Into<String>>(self, names: impl IntoIterator<Item = T>) -> Self {
        Self { legend: names.into_iter().map(Into::into).collect(), ..self }
    }

    /// Adds samples with the same stack, the outermost frame first. `series` gives a frame its colour.
    pub fn add(&mut self, stack: &[String], samples: u64, series: impl Fn(&str) -> usize) {
        let mut at = &mut self.root;
        at.samples += samples;
        for name in stack {
            at = at.callees.entry(name.clone()).or_default();
            at.samples += samples;
            at.series = series(name);
        }
    }

    /// The picture.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "numbers of samples and of rows")]
    pub fn svg(&self) -> String {
        let scale = (WIDTH - 2.0 * EDGE) / self.root.samples.max(1) as f64;
        let mut boxes = Vec::new();
        place("all", &self.root, 0, EDGE, scale, &mut boxes);
        let rows = boxes.iter().map(|drawn| drawn.depth + 1).max().unwrap_or(1);
        let height = HEAD + rows as f64 * ROW + EDGE;
        let mut body = String::new();
        let _ = writeln!(
            body,
            r#"<text x="{EDGE}" y="24" class="h">{}</text><text x="{EDGE}" y="42" class="t">{}</text>"#,
            escape(&self.title),
            escape(&self.unit)
        );
        let mut x = EDGE;
        for (series, name) in self.legend.iter().enumerate() {
            let _ = writeln!(
                body,
                r#"<rect x="{x:.0}" y="54" width="11" height="11" class="s{series} pale"/><text x="{:.0}" y="64">{}</text>"#,
                x + 16.0,
                escape(name)
            );
            x += 34.0 + name.chars().count() as f64 * 7.0;
        }
        for drawn in &boxes {
            let y = height - EDGE - (drawn.depth + 1) as f64 * ROW;
            let share = drawn.frame.samples as f64 * 100.0 / self.root.samples.max(1) as f64;
            let name = first(drawn.name, LONGEST_NAME);
            let _ = write!(
                body,
                r#"<g><title>{}: {share:.1} %, {} samples</title><rect x="{:.1}" y="{y:.0}" width="{:.1}" height="{:.0}" class="s{} pale"/>"#,
                escape(&name),
                drawn.frame.samples,
                drawn.x,
                (drawn.width - 0.4).max(0.5),
                ROW - 1.0,
                drawn.frame.series,
            );
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 200")]
            let room = ((drawn.width - 4.0) / LETTER).max(0.0) as usize;
            if room >= 4 {
                let label = escape(&first(short(drawn.name), room));
                let _ = write!(
                    body,
                    r#"<text x="{:.1}" y="{:.0}" class="f">{label}</text>"#,
                    drawn.x + 2.0,
                    y + 12.0
                );
            }
            body.push_str("</g>\n");
        }
        document(&self.title, (WIDTH, height), &body)
    }
}

/// Places a frame and, on top of it, what it called, the widest first. What was running itself has nothing on top.
#[allow(clippy::cast_precision_loss, reason = "numbers of samples")]
fn place<'f>(name: &'f str, frame: &'f Frame, depth: usize, x: f64, scale: f64, boxes: &mut Vec<Drawn<'f>>) {
    let width = frame.samples as f64 * scale;
    if width < NARROWEST {
        return;
    }
    boxes.push(Drawn { name, frame, depth, x, width });
    let mut callees: Vec<_> = frame.callees.iter().collect();
    callees.sort_by_key(|(_, callee)| std::cmp::Reverse(callee.samples));
    let mut at = x;
    for (name, callee) in callees {
        place(name, callee, depth + 1, at, scale, boxes);
        at += callee.samples as f64 * scale;
    }
}

/// At most so many letters, with an ellipsis where some are missing.
#[must_use]
pub fn first(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// The end of a path, which says more than its beginning: `Frame::encode` of `sallyport_wire::tunnel::frame::Frame::encode`.
fn short(name: &str) -> &str {
    if name.starts_with('<') || name.contains('<') {
        return name;
    }
    let mut parts = name.rmatch_indices("::").map(|(at, _)| at + 2);
    let closures = name.matches("{{closure}}").count();
    parts.nth(1 + closures).and_then(|from| name.get(from..)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drawn(stacks: &[(Vec<String>, u64)]) -> (u64, Vec<(usize, f64, f64)>, String) {
        let mut flame = Flame::new("a <title>", "unit").legend(["ours", "theirs"]);
        for (stack, samples) in stacks {
            flame.add(stack, *samples, |name| name.len() % 8);
        }
        let mut boxes = Vec::new();
        place("all", &flame.root, 0, 0.0, 1000.0, &mut boxes);
        let boxes = boxes.iter().map(|drawn| (drawn.depth, drawn.x, drawn.width)).collect();
        (flame.root.samples, boxes, flame.svg())
    }

    #[test]
    fn names_are_shortened_to_what_says_most() {
        assert_eq!(short("sallyport_wire::tunnel::frame::Frame::encode"), "Frame::encode");
        assert_eq!(short("a::b::c::{{closure}}"), "b::c::{{closure}}");
        assert_eq!(short("malloc"), "malloc");
        assert_eq!(short("<a::B as c::D>::poll"), "<a::B as c::D>::poll");
        assert_eq!(first("äöü", 2), "ä…");
    }

    proptest! {
        #[test]
        fn widths_add_up(
            stacks in prop::collection::vec((prop::collection::vec("[a-c<&]{1,2}", 1..6), 1_u64..50), 0..30)
        ) {
            let (samples, boxes, svg) = drawn(&stacks);
            prop_assert_eq!(samples, stacks.iter().map(|(_, samples)| samples).sum::<u64>());
            let tolerance = 1e-6 * (samples.max(1) as f64) * 1000.0;
            for (at, (depth, x, width)) in boxes.iter().enumerate() {
                // What stands on a box is within it, and does not lie over its neighbour.
                let end = x + width;
                let mut from = *x;
                for (above, left, wide) in boxes.iter().skip(at + 1).take_while(|(above, ..)| above > depth) {
                    if *above == depth + 1 {
                        prop_assert!(*left >= from - tolerance && left + wide <= end + tolerance);
                        from = left + wide;
                    }
                }
            }
            // At this scale nothing is too narrow, so the lowest row above the root has every sample.
            let lowest: f64 = boxes.iter().filter(|(depth, ..)| *depth == 1).map(|(.., width)| width).sum();
            prop_assert!((lowest - samples as f64 * 1000.0).abs() <= tolerance);
            prop_assert!(svg.contains("a &lt;title&gt;") && !svg.contains("<script"));
            prop_assert_eq!(svg.matches("<g>").count(), svg.matches("</g>").count());
        }
    }
}
