//! Pictures of figures, as SVG: one look for all of them.
//!
//! A picture stands alone or inside a page, and is light or dark as its reader prefers (`prefers-color-scheme`).
//! Its colours are told apart by people who do not see all of them (Okabe and Ito's palette), and nothing is said by colour
//! alone: every bar has its label and its number, every line its name.

mod bars;
mod flame;
mod lines;

pub use bars::{Bar, Bars};
pub use flame::{Flame, first};
pub use lines::Lines;

/// How many colours there are; a ninth series looks like the first.
const COLOURS: usize = 8;

/// Everything inside is drawn by these classes: `s0` to `s7` fill, `l0` to `l7` draw a line.
const STYLE: &str = "\
.lab .bg{fill:#fff}.lab text{fill:#1d1d1f}.lab .t{font-size:10px;fill:#5c5c66}.lab .f{font-size:10px}.lab .h{font-size:14px;font-weight:600}\
.lab .g{stroke:#d9d9e0}.lab .a{stroke:#8a8a94}.lab .w{stroke:#1d1d1f;stroke-width:1.2}.lab .n{fill:none;stroke-width:2}\
.lab .s0{fill:#0072b2}.lab .s1{fill:#d55e00}.lab .s2{fill:#009e73}.lab .s3{fill:#cc79a7}.lab .s4{fill:#56b4e9}\
.lab .s5{fill:#e69f00}.lab .s6{fill:#8a8a94}.lab .s7{fill:#b8a800}\
.lab .l0{stroke:#0072b2}.lab .l1{stroke:#d55e00}.lab .l2{stroke:#009e73}.lab .l3{stroke:#cc79a7}.lab .l4{stroke:#56b4e9}\
.lab .l5{stroke:#e69f00}.lab .l6{stroke:#8a8a94}.lab .l7{stroke:#b8a800}.lab .pale{opacity:.4}\
@media (prefers-color-scheme:dark){.lab .bg{fill:#16161a}.lab text{fill:#ececf1}.lab .t{fill:#a8a8b3}\
.lab .g{stroke:#34343c}.lab .w{stroke:#ececf1}.lab .s0{fill:#3aa0e0}.lab .l0{stroke:#3aa0e0}\
.lab .s1{fill:#f0803c}.lab .l1{stroke:#f0803c}.lab .s2{fill:#2fc79b}.lab .l2{stroke:#2fc79b}}";

/// The whole picture around what was drawn.
#[must_use]
pub fn document(title: &str, (width, height): (f64, f64), body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"lab\" role=\"img\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"system-ui,sans-serif\" font-size=\"12\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n<rect class=\"bg\" width=\"100%\" height=\"100%\"/>\n\
         {body}</svg>\n",
        title = escape(title),
    )
}

/// Text as it may stand in a document or a page.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A number with as many digits as it deserves: `0.64`, `44.1`, `638`, `4424`.
#[must_use]
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size == 0.0 || size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.0995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A number at an axis: round ones have no digits after the point.
fn mark(value: f64) -> String {
    if value.abs() >= 1.0 && (value - value.round()).abs() < 1e-9 {
        format!("{value:.0}")
    } else {
        number(value)
    }
}

/// An axis: which numbers lie between its ends, and where.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Scale {
    /// Of a logarithmic axis: its marks are powers of it.
    base: Option<f64>,
    least: f64,
    most: f64,
}

impl Scale {
    /// One that shows all of these numbers, ending on round ones. A logarithmic one leaves out what is not above zero.
    fn of(logarithmic: bool, values: impl Iterator<Item = f64>) -> Self {
        Self::by(logarithmic.then_some(10.0), values)
    }

    /// A logarithmic one whose marks are powers of two, for what is doubled from one step to the next.
    fn doubling(values: impl Iterator<Item = f64>) -> Self {
        Self::by(Some(2.0), values)
    }

    fn by(base: Option<f64>, values: impl Iterator<Item = f64>) -> Self {
        let logarithmic = base.is_some();
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite() && (!logarithmic || *value > 0.0)) {
            least = least.min(value);
            most = most.max(value);
        }
        if least > most {
            (least, most) = if logarithmic { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if let Some(number) = base {
            // What lies on a mark shall not be rounded past it.
            let at = |value: f64| (value.max(f64::MIN_POSITIVE).ln() / number.ln() * 1e9).round() / 1e9;
            let least = at(least).floor();
            return Self { base, least, most: at(most).ceil().max(least + 1.0) };
        }
        let least = least.min(0.0);
        let most = if most > least { most } else { least + 1.0 };
        let step = Self::step(most - least);
        Self { base, least: (least / step).floor() * step, most: (most / step).ceil() * step }
    }

    /// A round distance between marks: 1, 2 or 5 times a power of ten, about five of them.
    fn step(span: f64) -> f64 {
        let rough = (span / 5.0).max(f64::MIN_POSITIVE);
        let power = 10_f64.powf(rough.log10().floor());
        let digit = [1.0, 2.0, 5.0].into_iter().find(|digit| digit * power >= rough * 0.999);
        digit.unwrap_or(10.0) * power
    }

    /// Where a number lies: 0 at the least end, 1 at the other.
    fn share(&self, value: f64) -> f64 {
        let at = self.base.map_or(value, |base| value.max(f64::MIN_POSITIVE).ln() / base.ln());
        let span = self.most - self.least;
        if span > 0.0 { ((at - self.least) / span).clamp(0.0, 1.0) } else { 0.0 }
    }

    /// The numbers at which there are marks.
    fn marks(&self) -> Vec<f64> {
        let step = match self.base {
            // No more than about ten of them.
            Some(_) => ((self.most - self.least) / 10.0).ceil().max(1.0),
            None => Self::step(self.most - self.least),
        };
        let mut marks = Vec::new();
        let mut at = self.least;
        while at <= self.most + step * 1e-6 && marks.len() < 50 {
            marks.push(self.base.map_or(at, |base| base.powf(at)));
            at += step;
        }
        marks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_on_round_numbers_and_hold_everything() {
        let linear = Scale::of(false, [3.0, 187.0].into_iter());
        assert_eq!((linear.least, linear.most), (0.0, 200.0));
        assert_eq!(linear.marks(), [0.0, 50.0, 100.0, 150.0, 200.0]);
        assert!((linear.share(50.0) - 0.25).abs() < 1e-9);
        let logarithmic = Scale::of(true, [0.0, 21.0, 4424.0].into_iter());
        assert_eq!(logarithmic.marks(), [10.0, 100.0, 1000.0, 10_000.0]);
        assert!((logarithmic.share(100.0) - 1.0 / 3.0).abs() < 1e-9);
        let doubling = Scale::doubling([1.0, 2.0, 4.0, 8.0].into_iter());
        assert_eq!(doubling.marks().iter().map(|one| mark(*one)).collect::<Vec<_>>(), ["1", "2", "4", "8"]);
        assert!((doubling.share(4.0) - 2.0 / 3.0).abs() < 1e-9);
        for odd in [Scale::of(true, std::iter::empty()), Scale::of(false, [f64::NAN, 0.0].into_iter())] {
            assert!(odd.share(f64::NAN).is_nan() || odd.share(f64::NAN) <= 1.0);
            assert!(!odd.marks().is_empty() && odd.marks().len() < 50);
        }
    }

    #[test]
    fn numbers_have_as_many_digits_as_they_deserve() {
        let texts: Vec<_> = [0.0, 0.0123, 0.638, 44.08, 638.4, 4424.2].map(number).to_vec();
        assert_eq!(texts, ["0", "0.012", "0.64", "44.1", "638", "4424"]);
        assert_eq!(escape("a<b>&\"c"), "a&lt;b&gt;&amp;&quot;c");
    }

    #[test]
    fn pictures_are_documents_of_their_own() {
        let bars = Bars::new("Signing <fast>", "µs")
            .logarithmic()
            .legend(["sign", "verify"])
            .group("RSA", vec![Bar::new("2048 & more", 638.0).interval(600.0, 700.0).note("a note")])
            .group("", vec![Bar::new("P-256", 21.0).series(1).pale()])
            .svg();
        let lines = Lines::new("Strength", "bits of the modulus", "bits of strength")
            .logarithmic_x()
            .series("GNFS", vec![(512.0, 63.9), (2048.0, 116.9)])
            .points("NIST", vec![(2048.0, 112.0)])
            .level(128.0, "P-256")
            .mark(2048.0, 116.9, "116.9")
            .svg();
        for svg in [&bars, &lines] {
            assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"), "{svg}");
            assert!(svg.contains("prefers-color-scheme:dark") && !svg.contains("NaN"));
            for tag in ["text", "svg", "title", "style"] {
                let open = svg.matches(&format!("<{tag}")).count();
                assert_eq!(open, svg.matches(&format!("</{tag}>")).count(), "{tag}");
            }
        }
        assert!(
            bars.contains("Signing &lt;fast&gt;") && bars.contains("2048 &amp; more") && bars.contains("638")
        );
        assert!(lines.contains("polyline") && lines.contains("P-256") && lines.contains("116.9"));
    }
}
