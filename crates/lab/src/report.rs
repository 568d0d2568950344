//! What a measurement gives: a table for people, the same for programs, and every sample in a file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::machine::{Facts, Noise};
use crate::{AtFile, LabError};

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
    /// Whether somebody broke it off: then there are fewer samples.
    pub interrupted: bool,
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
    /// The number; none where it does not apply.
    pub value: Option<f64>,
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

    /// Adds a figure.
    #[must_use]
    pub fn with(mut self, name: &'static str, digits: usize, value: impl Into<Option<f64>>) -> Self {
        self.figures.push(Figure { name, value: value.into(), digits });
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

impl Report {
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
            row.figures
                .iter()
                .find(|figure| figure.name == name)
                .and_then(|figure| figure.value.map(|value| format!("{value:.*}", figure.digits)))
                .unwrap_or_else(|| "-".to_owned())
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
    pub fn create(path: Option<&Path>, columns: &str) -> Result<Self, LabError> {
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
    pub fn line(&mut self, line: &str) -> Result<(), LabError> {
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
        let report = Report {
            measurement: "test",
            machine: Facts::here(),
            noise: crate::machine::Watch::begin().noise(),
            conditions: Vec::new(),
            rows: vec![
                Row::new("one").with("ms", 1, 1.25).with("ratio", 2, None),
                Row::new("two").with("ms", 1, 2.0).with("cpu", 0, 3.4),
            ],
            aims: vec![Aim::at_most("x", 1.0, 1.5, "ms"), Aim::at_least("y", 0.5, 1.0, "x")],
            interrupted: false,
        };
        assert_eq!(report.headings(), ["what", "ms", "ratio", "cpu"]);
        assert_eq!(report.lines(), [["one", "1.2", "-", "-"], ["two", "2.0", "-", "3"]]);
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
