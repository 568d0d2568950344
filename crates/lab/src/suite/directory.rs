//! The files of a report.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use sallyport_bench::AtFile;
use sallyport_bench::compare::REPORT;
use sallyport_bench::machine::{Facts, Second};
use sallyport_bench::page::{self, Section, escape};
use sallyport_bench::plot::Lines;
use serde_json::json;

use super::parts::Part;
use super::summary::{Effort, Settings, Summary};
use super::{published, versions};
use crate::LabError;

/// Where a report goes.
pub(super) struct Directory {
    path: PathBuf,
    /// What programs say of themselves, asked once.
    machine: serde_json::Value,
}

impl Directory {
    /// Makes it, or takes one that is empty or holds an earlier report, whose files give way as the new ones come.
    pub(super) fn prepare(path: &Path) -> Result<Self, LabError> {
        fs::create_dir_all(path).at("make the directory", path)?;
        let mut entries = fs::read_dir(path).at("read the directory", path)?;
        if entries.next().is_some() && !path.join(REPORT).is_file() {
            return Err(LabError::Input(format!(
                "{} is not empty and holds no earlier report; name another directory",
                path.display()
            )));
        }
        let facts = Facts::here();
        let machine = json!({
            "processor": facts.processor,
            "processors": facts.processors,
            "flags": facts.flags,
            "governor": facts.governor,
            "memory_bytes": facts.memory,
            "kernel": facts.kernel,
            "optimised_build": facts.optimised,
            "versions": versions::versions(),
        });
        let directory = Self { path: path.to_owned(), machine };
        directory.forget_earlier();
        // Before the work rather than after it.
        directory.put(REPORT, "{}\n")?;
        Ok(directory)
    }

    /// Takes away what an earlier report says that it wrote: a measurement that is not made again must not stay.
    fn forget_earlier(&self) {
        let text = fs::read_to_string(self.file(REPORT)).unwrap_or_default();
        let earlier: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let names = earlier.get("files").and_then(serde_json::Value::as_array).into_iter().flatten();
        let plain = |name: &&str| {
            name.chars().all(|one| one.is_ascii_lowercase() || one.is_ascii_digit() || "-.".contains(one))
        };
        for name in names.filter_map(serde_json::Value::as_str).filter(plain) {
            if name.ends_with(".csv") || name.ends_with(".svg") {
                let _ = fs::remove_file(self.file(name));
            }
        }
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes a file whole, or leaves the one that was there.
    fn put(&self, name: &str, text: &str) -> Result<(), LabError> {
        let (path, new) = (self.file(name), self.file(&format!(".{name}.new")));
        fs::write(&new, text).at("write", &new)?;
        Ok(fs::rename(&new, &path).at("write", &path)?)
    }

    /// Writes everything that is not raw data.
    pub(super) fn write(
        &self,
        settings: &Settings,
        parts: &[&Part],
        summary: &Summary,
        seconds: &[Second],
    ) -> Result<(), LabError> {
        for picture in summary.reports.iter().flat_map(|report| &report.pictures) {
            self.put(&format!("{}.svg", picture.name), &picture.svg)?;
        }
        let commands = commands(settings, parts);
        self.put("commands.txt", &commands)?;
        let mut machine = self.machine.clone();
        if let Some(fields) = machine.as_object_mut() {
            fields.insert("load_seen".to_owned(), json!(seconds));
        }
        self.put("machine.json", &pretty(&machine))?;
        let pictures = summary.reports.iter().flat_map(|report| &report.pictures);
        let samples = parts.iter().map(|part| format!("{}.csv", part.name));
        let files: Vec<String> =
            pictures.map(|picture| format!("{}.svg", picture.name)).chain(samples).collect();
        let document = json!({
            "files": files,
            "version": env!("CARGO_PKG_VERSION"),
            "effort": settings.effort,
            "command": settings.command,
            "seconds": summary.seconds,
            "interrupted": summary.interrupted,
            "failed": summary.failed.iter().map(|(name, why)| json!({"measurement": name, "why": why})).collect::<Vec<_>>(),
            "measurements": summary.reports,
        });
        self.put(REPORT, &pretty(&document))?;
        self.put("report.html", &self.page(parts, summary, seconds, &commands))
    }

    fn page(&self, parts: &[&Part], summary: &Summary, seconds: &[Second], commands: &str) -> String {
        let mut head = format!("<p>{}</p>\n", escape(&Facts::here().line()));
        let _ = writeln!(
            head,
            "<p class=\"soft\">{} measurements in {:.0} s. A figure with several samples is their median, with ± the \
             farther end of the interval in which the true median lies with 95 % (of order statistics; with fewer than \
             six samples, their whole range). Candidates take turns round by round, and ratios are of one round. Every \
             sample is in the CSV file of its name.</p>",
            summary.reports.len(),
            summary.seconds
        );
        if summary.interrupted {
            head.push_str("<p class=\"warning\">Interrupted: some measurements are missing or have fewer samples.</p>\n");
        }
        for (name, why) in &summary.failed {
            let _ = writeln!(
                head,
                "<p class=\"warning\">{} could not be measured: {}</p>",
                escape(name),
                escape(why)
            );
        }
        let mut sections = Vec::new();
        for report in &summary.reports {
            let part = parts.iter().find(|part| part.name == report.measurement);
            sections.push(page::measurement(part.map_or(report.measurement, |part| part.title), report));
        }
        if let Some(section) = published::section(&summary.reports) {
            sections.push(section);
        }
        sections.push(self.machine_section(seconds));
        sections.push(Section {
            id: "commands".to_owned(),
            title: "The same again".to_owned(),
            body: format!("<pre>{}</pre>\n", escape(commands)),
        });
        page::page("What keys and handshakes cost here", &head, &sections)
    }

    fn machine_section(&self, seconds: &[Second]) -> Section {
        let mut rows = Vec::new();
        let mut add = |name: &str, value: String| rows.push(vec![name.to_owned(), value]);
        let text = |value: &serde_json::Value| match value {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Array(all) => {
                all.iter().filter_map(|one| one.as_str()).collect::<Vec<_>>().join(" ")
            }
            other => other.to_string(),
        };
        for (name, value) in self.machine.as_object().into_iter().flatten() {
            match value.as_object() {
                Some(versions) => versions.iter().for_each(|(name, value)| add(name, text(value))),
                None => add(&name.replace('_', " "), text(value)),
            }
        }
        let mut body = page::table("words", &["", ""], &rows);
        if seconds.len() > 1 {
            let line = |of: fn(&Second) -> f64| seconds.iter().map(|one| (one.seconds, of(one))).collect();
            let picture =
                Lines::new("The machine during the run", "seconds", "share of the processors' time; load")
                    .series("used", line(|second| second.busy))
                    .series("taken by the host", line(|second| second.stolen))
                    .series("load (1 minute)", line(|second| second.load));
            let _ = writeln!(body, "<figure>{}</figure>", picture.svg());
        }
        Section { id: "machine".to_owned(), title: "The machine".to_owned(), body }
    }
}

/// What to type for the same figures: the whole, and each part alone.
fn commands(settings: &Settings, parts: &[&Part]) -> String {
    let quick = if settings.effort == Effort::Quick { " --quick" } else { "" };
    let mut text = format!("{}\n\n# or one by one\n", settings.command);
    for part in parts {
        let name = part.name;
        let _ = match part.alone {
            Some(arguments) => writeln!(text, "sallyport lab {name} {arguments}"),
            None => writeln!(text, "sallyport lab {name}{quick} --csv {name}.csv"),
        };
    }
    text
}

fn pretty(value: &serde_json::Value) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_directory_of_something_else_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let directory = Directory::prepare(&path).unwrap();
        assert!(directory.file(REPORT).is_file());
        // The second time it holds a report, whose files go, and nothing else.
        let earlier = r#"{"files": ["keys.csv", "keys.svg", "../file", "notes.txt"]}"#;
        for (name, text) in [(REPORT, earlier), ("keys.csv", ""), ("notes.txt", ""), ("mine.csv", "")] {
            fs::write(path.join(name), text).unwrap();
        }
        Directory::prepare(&path).unwrap();
        let left = ["keys.csv", "notes.txt", "mine.csv"].map(|name| path.join(name).is_file());
        assert_eq!(left, [false, true, true]);
        let error = Directory::prepare(parent.path()).err().unwrap();
        assert!(error.to_string().contains("is not empty"), "{error}");
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(Directory::prepare(&file).is_err());
    }
}
