//! `sallyport sal speed`.

use std::path::PathBuf;

use clap::ValueEnum;
use sallyport_sal::measure::operation::Part;
use sallyport_sal::measure::table::{self, Measured, Scope};
use sallyport_sal::measure::timing::Effort;
use sallyport_sal::{Primitive, selection};
use serde_json::json;

use super::plot;
use super::shown::{bar, is_selected, microseconds, part, show};
use crate::error::{CliError, CliResult, Context};
use crate::ui;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only primitives whose name contains one of these, such as "p256", "sign/" or "aes".
    #[arg(value_name = "PRIMITIVE")]
    patterns: Vec<String>,
    /// Only these sources.
    #[arg(long, short, value_name = "NAME")]
    provider: Vec<String>,
    /// Also generate RSA keys, which takes minutes, and measure sizes that are only verified or for the lab.
    #[arg(long)]
    all: bool,
    /// A glance: fewer and shorter passes.
    #[arg(long)]
    quick: bool,
    /// Draw the table as an SVG file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[arg(long, value_enum, default_value = "text")]
    format: Output,
}

/// How the table is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For spreadsheets.
    Csv,
}

pub(super) fn run(args: &Args) -> CliResult {
    let selection = selection::global();
    for name in &args.provider {
        if !selection.providers().iter().any(|provider| provider.name() == name) {
            let known: Vec<_> = selection.providers().iter().map(|provider| provider.name()).collect();
            return Err(CliError::new(format!("there is no source {name:?}"))
                .hint(format!("this build has {}", known.join(", "))));
        }
    }
    let scope = if args.all { Scope::Everything } else { Scope::Selection };
    let wanted = |primitive: Primitive| {
        let name = primitive.to_string();
        args.patterns.is_empty() || args.patterns.iter().any(|pattern| name.contains(pattern.as_str()))
    };
    if !Primitive::all().any(|primitive| scope.covers(primitive) && wanted(primitive)) {
        return Err(CliError::new(format!("no primitive is called like {}", args.patterns.join(" or ")))
            .hint("sallyport sal report --all lists them"));
    }
    let effort = if args.quick { Effort::REPORT } else { Effort::SPEED };
    let bar = bar();
    let mut rows = table::measure(selection, scope, effort, wanted, |progress| show(&bar, progress));
    bar.finish_and_clear();
    rows.retain(|row| args.provider.is_empty() || args.provider.iter().any(|name| name == row.provider));
    if let Some(path) = &args.svg {
        std::fs::write(path, plot::svg(&rows, selection)).doing(format!("write {}", path.display()))?;
        ui::say(format!("drawn in {}", path.display()));
    }
    match args.format {
        Output::Json => ui::json(&rows.iter().map(|row| record(row, selection)).collect::<Vec<_>>()),
        Output::Csv => {
            ui::data(
                "primitive,part,provider,selected,minimum_us,median_us,spread_percent,per_second,mb_per_second",
            )?;
            rows.iter().try_for_each(|row| ui::data(csv(row, selection)))
        }
        Output::Text => {
            let headings = ["primitive", "part", "source", "min us", "median", "spread", "ops/s", "mb/s", ""];
            ui::table(
                &headings,
                rows.iter().map(|row| text(row, selection)).collect(),
                "nothing was measured",
            )
        }
    }
}

/// Millions of bytes a second, where bytes are what is worked on.
#[allow(clippy::cast_precision_loss)]
fn megabytes(row: &Measured) -> Option<f64> {
    match row.part {
        Part::Bytes(bytes) => Some(bytes as f64 * 1e3 / row.times.minimum()),
        _ => None,
    }
}

fn text(row: &Measured, selection: &sallyport_sal::Selection) -> Vec<String> {
    let note = match (row.warning, is_selected(row, selection)) {
        (Some(warning), _) => format!("never chosen: {warning}"),
        (None, true) => "selected".to_owned(),
        (None, false) => String::new(),
    };
    vec![
        row.primitive.to_string(),
        part(row),
        row.provider.to_owned(),
        microseconds(row.times.minimum() / 1e3),
        microseconds(row.times.median() / 1e3),
        format!("{:.1} %", row.times.spread() * 100.0),
        format!("{:.0}", 1e9 / row.times.minimum()),
        megabytes(row).map_or_else(String::new, |rate| format!("{rate:.0}")),
        note,
    ]
}

fn csv(row: &Measured, selection: &sallyport_sal::Selection) -> String {
    format!(
        "{},{},{},{},{:.4},{:.4},{:.2},{:.1},{}",
        row.primitive,
        part(row),
        row.provider,
        is_selected(row, selection),
        row.times.minimum() / 1e3,
        row.times.median() / 1e3,
        row.times.spread() * 100.0,
        1e9 / row.times.minimum(),
        megabytes(row).map_or_else(String::new, |rate| format!("{rate:.1}")),
    )
}

fn record(row: &Measured, selection: &sallyport_sal::Selection) -> serde_json::Value {
    json!({
        "primitive": row.primitive,
        "part": part(row),
        "provider": row.provider,
        "selected": is_selected(row, selection),
        "minimum_microseconds": row.times.minimum() / 1e3,
        "median_microseconds": row.times.median() / 1e3,
        "spread": row.times.spread(),
        "megabytes_per_second": megabytes(row),
        "warning": row.warning,
    })
}
