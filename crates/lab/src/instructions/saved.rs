//! Figures that were saved, as CSV: `piece,instructions,unit`.

use std::path::Path;

use sallyport_bench::AtFile;

use super::workloads::Workload;
use crate::LabError;

/// What the first line says.
const COLUMNS: &str = "piece,instructions,unit";

/// What was counted of one workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counted {
    /// The workload.
    pub workload: Workload,
    /// Instructions of one unit.
    pub each: f64,
}

/// Why a file holds no figures that were saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum BadFigures {
    #[error("the first line is not {COLUMNS}")]
    Columns,
    #[error("line {0} has no figure above zero")]
    Line(usize),
}

/// Figures of workloads by their names.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Saved(Vec<(String, f64)>);

impl Saved {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or a line is not what it should be.
    pub fn read(path: &Path) -> Result<Self, LabError> {
        let text = std::fs::read_to_string(path).at("read", path)?;
        Self::parse(&text).map_err(|problem| LabError::Input(format!("{}: {problem}", path.display())))
    }

    fn parse(text: &str) -> Result<Self, BadFigures> {
        let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
        match lines.next() {
            Some((_, COLUMNS)) => {}
            _ => return Err(BadFigures::Columns),
        }
        let figure = |(at, line): (usize, &str)| {
            let mut fields = line.split(',');
            let name = fields.next().unwrap_or_default().to_owned();
            let figure = fields.next().and_then(|field| field.parse::<f64>().ok());
            let figure = figure.filter(|figure| figure.is_finite() && *figure > 0.0);
            figure.map(|figure| (name, figure)).ok_or(BadFigures::Line(at + 1))
        };
        Ok(Self(lines.map(figure).collect::<Result<_, _>>()?))
    }

    /// The figure of a workload.
    #[must_use]
    pub fn of(&self, workload: &str) -> Option<f64> {
        self.0.iter().find(|(name, _)| name == workload).map(|(_, figure)| *figure)
    }

    /// The file's text for these figures.
    #[must_use]
    pub fn text(counted: &[Counted]) -> String {
        let lines = counted
            .iter()
            .map(|one| format!("{},{:.0},\"{}\"\n", one.workload.name(), one.each, one.workload.unit()));
        std::iter::once(format!("{COLUMNS}\n")).chain(lines).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::instructions::WORKLOADS;

    #[test]
    fn what_is_saved_is_read_again() {
        let counted: Vec<Counted> = WORKLOADS
            .into_iter()
            .zip(1_u32..)
            .map(|(workload, at)| Counted { workload, each: f64::from(at) })
            .collect();
        let saved = Saved::parse(&Saved::text(&counted)).unwrap();
        for one in &counted {
            assert_eq!(saved.of(one.workload.name()), Some(one.each));
        }
        assert_eq!(saved.of("another"), None);
        assert_eq!(
            Saved::parse("").unwrap_err().to_string(),
            "the first line is not piece,instructions,unit"
        );
        for line in ["decision", "decision,", "decision,0", "decision,-1", "decision,NaN", "decision,inf"] {
            let read = Saved::parse(&format!("{COLUMNS}\n{line}\n"));
            assert_eq!(read.unwrap_err().to_string(), "line 2 has no figure above zero", "{line}");
        }
    }
}
