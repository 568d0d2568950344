//! `sallyport lab report`.

use std::path::PathBuf;
use std::process::ExitCode;

use sallyport_lab::suite::{self, Effort, Settings};
use serde_json::json;
use time::OffsetDateTime;

use super::measuring::beside_a_watch;
use super::output::INTERRUPTED;
use super::sessions::dialler;
use sallyport_cli::error::{CliError, CliResult};
use sallyport_cli::ui::{self, Format};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where everything goes. It is made; when it is there, it must be empty or hold an earlier report, which is replaced.
    /// Default: lab-report- and the time (UTC).
    #[arg(value_name = "DIRECTORY")]
    directory: Option<PathBuf>,
    /// A glance, in under two minutes. The default.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Everything, with as many samples as it takes: about an hour.
    #[arg(long)]
    full: bool,
    /// These measurements alone.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<String>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) async fn run(args: Args) -> CliResult<ExitCode> {
    let input = |error: sallyport_lab::LabError| CliError::new(error.to_string());
    let only =
        args.only.iter().map(|name| suite::part(name)).collect::<Result<Vec<_>, _>>().map_err(input)?;
    let directory = args.directory.clone().unwrap_or_else(|| {
        let now = OffsetDateTime::now_utc();
        PathBuf::from(format!(
            "lab-report-{}T{:02}{:02}{:02}",
            now.date(),
            now.hour(),
            now.minute(),
            now.second()
        ))
    });
    let effort = if args.full { Effort::Full } else { Effort::Quick };
    let mut command = format!("sallyport lab report --{}", if args.full { "full" } else { "quick" });
    if !args.only.is_empty() {
        command.push_str(&format!(" --only {}", args.only.join(",")));
    }
    if let Some(directory) = &args.directory {
        command.push_str(&format!(" {}", directory.display()));
    }
    let settings = Settings { directory, effort, only, command };
    let summary = beside_a_watch(move |program, talk| suite::run(program, &settings, talk, &dialler)).await?;
    if args.format == Format::Json {
        ui::json(&json!({
            "page": summary.page,
            "seconds": summary.seconds,
            "interrupted": summary.interrupted,
            "measurements": summary.reports.iter().map(|report| report.measurement).collect::<Vec<_>>(),
            "failed": summary.failed.iter().map(|(name, why)| json!({"measurement": name, "why": why})).collect::<Vec<_>>(),
        }))?;
    } else {
        for report in &summary.reports {
            let noise = report.noise.warning().unwrap_or_else(|| "quiet".to_owned());
            ui::data(format!("{:<12} {:>4} figures  {noise}", report.measurement, report.rows.len()))?;
        }
        for (name, why) in &summary.failed {
            ui::data(format!("{name:<12} LEFT OUT: {why}"))?;
        }
        ui::data(format!("{:.0} s; read {}", summary.seconds, summary.page.display()))?;
    }
    if summary.interrupted {
        ui::say("interrupted: the report has what there is");
    }
    Ok(match summary.failed.is_empty() {
        _ if summary.interrupted => ExitCode::from(INTERRUPTED),
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
