//! What a measurement gives: a table for people, the same for programs, and every sample in a file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::machine::{Facts, Noise, Watch};
use crate::statistics::Samples;
use crate::{AtFile, BenchError, Talk};

/// One measurement, done or broken off.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Which one.
    pub measurement: &'static str,
    /// The machine.
    pub machine: Facts,
    /// Whether it was quiet.
    pub noise: Noise,
    /// What was held the same on both sides, in words.
    pub conditions: Vec<String>,
    /// The figures.
    pub rows: Vec<Row>,
    /// What was aimed at, and whether it was reached.
    pub aims: Vec<Aim>,
    /// What follows from the figures, in words, and what is to be kept in mind.
    pub notes: Vec<String>,
    /// The figures as pictures.
    #[serde(skip)]
    pub pictures: Vec<Picture>,
    /// Whether it was interrupted: then there are fewer samples.
    pub interrupted: bool,
}

/// A picture of figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    /// What its file is called, without the ending: lower case letters, digits and hyphens.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// The picture, light and dark by itself ([`crate::plot`]).
    pub svg: String,
}

/// Figures of one thing.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// What was measured.
    pub what: String,
    /// Names of figures, and the figures with their units, in the order of the table.
    pub figures: Vec<Figure>,
}

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// What it is, with its unit.
    pub name: &'static str,
    /// The number; none where it does not apply. The median where there are several samples.
    pub value: Option<f64>,
    /// Within which the median lies with a confidence of 95 % ([`Samples::interval`]); none for what was counted once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// How many samples there were; none for what was counted once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples: Option<usize>,
    /// Digits after the point in the table.
    #[serde(skip)]
    pub digits: usize,
}

impl Row {
    /// Without figures yet.
    #[must_use]
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), figures: Vec::new() }
    }

    /// Adds a figure that was counted or computed.
    #[must_use]
    pub fn with(mut self, name: &'static str, digits: usize, value: impl Into<Option<f64>>) -> Self {
        self.figures.push(Figure { name, value: value.into(), interval: None, samples: None, digits });
        self
    }

    /// Adds the median of samples, with the interval in which it lies.
    #[must_use]
    pub fn measured(mut self, name: &'static str, digits: usize, samples: &Samples) -> Self {
        let any = !samples.is_empty();
        self.figures.push(Figure {
            name,
            value: any.then(|| samples.median()),
            interval: samples.interval().map(|(low, high)| [low, high]),
            samples: any.then(|| samples.len()),
            digits,
        });
        self
    }

    /// Adds a figure that follows from measured ones, with the interval that follows from theirs.
    #[must_use]
    pub fn between(mut self, name: &'static str, digits: usize, value: f64, interval: [f64; 2]) -> Self {
        self.figures.push(Figure {
            name,
            value: Some(value),
            interval: Some(interval),
            samples: None,
            digits,
        });
        self
    }

    /// A figure by its name.
    #[must_use]
    pub fn figure(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).and_then(|figure| figure.value)
    }
}

/// Something aimed at.
#[derive(Debug, Clone, Serialize)]
pub struct Aim {
    /// What, in words.
    pub what: String,
    /// What was measured, in words.
    pub got: String,
    /// Whether it was reached.
    pub reached: bool,
}

impl Aim {
    /// That `got` is at most `most`, in this unit.
    #[must_use]
    pub fn at_most(what: &str, got: f64, most: f64, unit: &str) -> Self {
        Self {
            what: format!("{what}: at most {most} {unit}"),
            got: format!("{got:.2} {unit}"),
            reached: got <= most,
        }
    }

    /// That `got` is at least `least`, in this unit.
    #[must_use]
    pub fn at_least(what: &str, got: f64, least: f64, unit: &str) -> Self {
        Self {
            what: format!("{what}: at least {least} {unit}"),
            got: format!("{got:.2} {unit}"),
            reached: got >= least,
        }
    }
}

impl Figure {
    /// As it stands in a table: `12.3`, or `12.3 ±0.4` with the farther end of its interval.
    #[must_use]
    pub fn text(&self) -> String {
        let Some(value) = self.value else { return "-".to_owned() };
        let digits = self.digits;
        match self.interval {
            Some([low, high]) => format!("{value:.digits$} ±{:.digits$}", (value - low).max(high - value)),
            None => format!("{value:.digits$}"),
        }
    }
}

impl Report {
    /// A measurement on this machine that has no figures yet: what `watch` saw until now, and whether it was broken off.
    #[must_use]
    pub fn of(measurement: &'static str, watch: &Watch, talk: &Talk) -> Self {
        Self {
            measurement,
            machine: Facts::here(),
            noise: watch.noise(),
            conditions: Vec::new(),
            rows: Vec::new(),
            aims: Vec::new(),
            notes: Vec::new(),
            pictures: Vec::new(),
            interrupted: talk.interrupted(),
        }
    }

    /// The headings of the table: the figures of all rows, in the order in which they first appear.
    #[must_use]
    pub fn headings(&self) -> Vec<&str> {
        let mut names = vec!["what"];
        for figure in self.rows.iter().flat_map(|row| &row.figures) {
            if !names.contains(&figure.name) {
                names.push(figure.name);
            }
        }
        names
    }

    /// The rows of the table, as texts.
    #[must_use]
    pub fn lines(&self) -> Vec<Vec<String>> {
        let headings = self.headings();
        let text = |row: &Row, name: &str| {
            row.figures.iter().find(|figure| figure.name == name).map_or_else(|| "-".to_owned(), Figure::text)
        };
        self.rows
            .iter()
            .map(|row| {
                let figures = headings.iter().skip(1).map(|name| text(row, name));
                std::iter::once(row.what.clone()).chain(figures).collect()
            })
            .collect()
    }
}

/// Every sample, one line each, written as it comes: a measurement that is broken off leaves what there was.
#[derive(Debug)]
pub struct Csv {
    path: PathBuf,
    file: Option<BufWriter<File>>,
}

impl Csv {
    /// To a file, when one is named, with these columns.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create(path: Option<&Path>, columns: &str) -> Result<Self, BenchError> {
        let Some(path) = path else { return Ok(Self { path: PathBuf::new(), file: None }) };
        let file = File::create(path).at("write", path)?;
        let mut csv = Self { path: path.to_owned(), file: Some(BufWriter::new(file)) };
        csv.line(columns)?;
        Ok(csv)
    }

    /// Adds a line.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn line(&mut self, line: &str) -> Result<(), BenchError> {
        if let Some(file) = &mut self.file {
            writeln!(file, "{line}").and_then(|()| file.flush()).at("write", &self.path)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_table_has_a_column_for_every_figure_of_any_row() {
        let samples: Samples = [1.9, 2.0, 2.3].into_iter().collect();
        let report = Report {
            rows: vec![
                Row::new("one").with("ms", 1, 1.25).with("ratio", 2, None),
                Row::new("two").measured("ms", 1, &samples).with("cpu", 0, 3.4),
                Row::new("three").measured("ms", 1, &Samples::default()),
            ],
            aims: vec![Aim::at_most("x", 1.0, 1.5, "ms"), Aim::at_least("y", 0.5, 1.0, "x")],
            ..Report::of("test", &Watch::begin(), &Talk::silent())
        };
        assert_eq!(report.headings(), ["what", "ms", "ratio", "cpu"]);
        assert_eq!(
            report.lines(),
            [["one", "1.2", "-", "-"], ["two", "2.0 ±0.3", "-", "3"], ["three", "-", "-", "-"]]
        );
        let json = serde_json::to_value(&report.rows).unwrap();
        assert_eq!(json[0]["figures"][0], serde_json::json!({"name": "ms", "value": 1.25}));
        assert_eq!(
            json[1]["figures"][0],
            serde_json::json!({"name": "ms", "value": 2.0, "interval": [1.9, 2.3], "samples": 3})
        );
        assert!(report.aims.first().unwrap().reached && !report.aims.last().unwrap().reached);
    }

    #[test]
    fn samples_are_in_the_file_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("samples.csv");
        let mut csv = Csv::create(Some(&path), "a,b").unwrap();
        csv.line("1,2").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a,b\n1,2\n");
        assert!(Csv::create(None, "a").unwrap().line("x").is_ok());
        assert!(Csv::create(Some(Path::new("/nowhere/x")), "a").is_err());
    }
}
