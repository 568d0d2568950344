//! `sallyport lab compare`.

use std::path::PathBuf;
use std::process::ExitCode;

use sallyport_bench::compare::{self, Change};
use sallyport_bench::plot::number;
use sallyport_cli::error::{CliError, CliResult};
use sallyport_cli::ui::{self, Format};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The directory of a report, or its report.json.
    first: PathBuf,
    /// The other one: what changed from the first to it is shown.
    second: PathBuf,
    /// Also figures that are the same or cannot be told apart.
    #[arg(long)]
    all: bool,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) fn run(args: &Args) -> CliResult<ExitCode> {
    let read = |path| compare::read(path).map_err(|error| CliError::new(error.to_string()));
    let comparison = compare::compare(&read(&args.first)?, &read(&args.second)?);
    if args.format == Format::Json {
        ui::json(&comparison)?;
        return Ok(ExitCode::SUCCESS);
    }
    for warning in &comparison.warnings {
        ui::say(warning);
    }
    let told = |change: Change| args.all || !matches!(change, Change::Same | Change::Untold);
    let rows = comparison.differences.iter().filter(|one| told(one.change)).map(|one| {
        vec![
            one.measurement.clone(),
            one.what.clone(),
            one.figure.clone(),
            number(one.first),
            number(one.second),
            one.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}x")),
            one.change.words().to_owned(),
        ]
    });
    let headings = ["measurement", "what", "figure", "first", "second", "ratio", "change"];
    ui::table(&headings, rows.collect(), "no figure differs by more than noise")?;
    let count = |change| comparison.differences.iter().filter(|one| one.change == change).count();
    ui::say(format!(
        "{} figures in both: {} larger, {} smaller, {} the same, {} that noise hides, {} without an interval",
        comparison.differences.len(),
        count(Change::Larger),
        count(Change::Smaller),
        count(Change::Same),
        count(Change::Untold),
        count(Change::Unknown)
    ));
    for (what, number) in &comparison.alone {
        ui::say(format!("only in the {}: {what}", if *number == 1 { "first" } else { "second" }));
    }
    Ok(ExitCode::SUCCESS)
}
