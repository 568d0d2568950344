//! Reports as a page that loads nothing: no script, no font, no picture from elsewhere. It is light or dark as its reader
//! prefers, and prints.

use std::fmt::Write as _;

pub use crate::plot::escape;
use crate::report::Report;

/// A part of a page: a heading that can be linked to, and what is below it.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// What follows the `#` of its address.
    pub id: String,
    /// Its heading.
    pub title: String,
    /// HTML.
    pub body: String,
}

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1d1d1f;--soft:#5c5c66;--line:#d9d9e0;--paper:#fff;--band:#f5f5f8;--good:#006b3f;\
--bad:#b00020}@media(prefers-color-scheme:dark){:root{--ink:#ececf1;--soft:#a8a8b3;--line:#34343c;--paper:#16161a;\
--band:#1f1f25;--good:#4ecb8f;--bad:#ff7a85}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:62rem;margin:2rem auto;\
padding:0 1rem}h1{font-size:1.7rem}h2{margin-top:2.6rem;border-bottom:1px solid var(--line)}a{color:inherit}\
nav a{margin-right:1rem}.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;margin:.8rem 0}\
td,th{border:1px solid var(--line);padding:3px 8px;text-align:right;white-space:nowrap}th{background:var(--band)}\
td:first-child,th:first-child{text-align:left}table.words td,table.words th{text-align:left;white-space:normal}\
svg{max-width:100%;height:auto}.soft{color:var(--soft);font-size:13px}.warning,.missed{color:var(--bad);font-weight:600}\
.reached{color:var(--good)}code,pre{font-family:ui-monospace,monospace;font-size:13px}\
pre{background:var(--band);padding:.7rem;overflow-x:auto}";

/// The whole page.
#[must_use]
pub fn page(title: &str, introduction: &str, sections: &[Section]) -> String {
    let mut body = format!("<h1>{}</h1>\n{introduction}", escape(title));
    if sections.len() > 1 {
        body.push_str("<nav>");
        for section in sections {
            let _ = write!(body, "<a href=\"#{}\">{}</a>", escape(&section.id), escape(&section.title));
        }
        body.push_str("</nav>\n");
    }
    for section in sections {
        let _ = writeln!(
            body,
            "<section id=\"{}\">\n<h2>{}</h2>\n{}</section>",
            escape(&section.id),
            escape(&section.title),
            section.body
        );
    }
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n<style>{STYLE}</style>\n{body}</html>\n",
        escape(title)
    )
}

/// What one measurement gave: its notes, its pictures, its table, its aims, and what was held the same.
#[must_use]
pub fn measurement(title: &str, report: &Report) -> Section {
    let mut body = String::new();
    if report.interrupted {
        body.push_str("<p class=\"warning\">Interrupted: fewer samples than asked for.</p>\n");
    }
    if let Some(warning) = report.noise.warning() {
        let _ = writeln!(body, "<p class=\"warning\">{}</p>", escape(&warning));
    }
    for note in &report.notes {
        let _ = writeln!(body, "<p>{}</p>", escape(note));
    }
    for picture in &report.pictures {
        let _ = writeln!(body, "<figure>{}</figure>", picture.svg);
    }
    body.push_str(&table("", &report.headings(), &report.lines()));
    if !report.aims.is_empty() {
        body.push_str(
            "<div class=\"wide\"><table class=\"words\"><tr><th>aim</th><th>got</th><th></th></tr>\n",
        );
        for aim in &report.aims {
            let _ = writeln!(
                body,
                "<tr><td>{}</td><td>{}</td><td class=\"{class}\">{class}</td></tr>",
                escape(&aim.what),
                escape(&aim.got),
                class = if aim.reached { "reached" } else { "missed" },
            );
        }
        body.push_str("</table></div>\n");
    }
    body.push_str("<p class=\"soft\">");
    for condition in &report.conditions {
        let _ = write!(body, "{}.<br>", escape(condition));
    }
    let _ = writeln!(
        body,
        "Load {:.2} before and {:.2} after, {:.1} % of the processors' time taken by the host, in {:.0} s.</p>",
        report.noise.load_before,
        report.noise.load_after,
        report.noise.stolen * 100.0,
        report.noise.seconds,
    );
    Section { id: report.measurement.to_owned(), title: title.to_owned(), body }
}

/// A table of texts; nothing when it has no rows. `class` is `words` where cells are sentences.
#[must_use]
pub fn table<T: AsRef<str>>(class: &str, headings: &[T], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!("<div class=\"wide\"><table class=\"{class}\"><tr>");
    for heading in headings {
        let _ = write!(text, "<th>{}</th>", escape(heading.as_ref()));
    }
    text.push_str("</tr>\n");
    for row in rows {
        text.push_str("<tr>");
        for cell in row {
            let _ = write!(text, "<td>{}</td>", escape(cell));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</table></div>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Talk;
    use crate::machine::Watch;
    use crate::report::{Aim, Row};

    #[test]
    fn a_page_loads_nothing_and_what_others_say_is_text_on_it() {
        let report = Report {
            rows: vec![Row::new("<script>").with("ms", 1, 2.0)],
            notes: vec!["a <b> & c".to_owned()],
            conditions: vec!["all \"same\"".to_owned()],
            aims: vec![Aim::at_most("x", 2.0, 1.0, "ms")],
            interrupted: true,
            ..Report::of("test", &Watch::begin(), &Talk::silent())
        };
        let sections = [measurement("A test", &report), Section::default()];
        let page = page("Title & more", "<p>hello</p>", &sections);
        assert!(page.contains("&lt;script&gt;") && !page.contains("<script"), "{page}");
        assert!(
            page.contains("a &lt;b&gt; &amp; c") && page.contains("Interrupted") && page.contains("missed")
        );
        assert!(page.contains("href=\"#test\"") && page.contains("id=\"test\""));
        for outside in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.replace("http://www.w3.org/2000/svg", "").contains(outside), "{outside}");
        }
    }
}
