//! What a measurement that is done leaves: a table or JSON, and the files that were asked for.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sallyport_bench::page;
use sallyport_bench::report::Report;
use sallyport_cli::error::{CliResult, Context};
use sallyport_cli::ui::{self, Format};

/// Exit code of a measurement that was interrupted, as of a program that SIGINT ended.
pub(super) const INTERRUPTED: u8 = 130;

/// What every measurement takes.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Common {
    /// Write every sample to this file.
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    /// Write the report as a page, with its pictures.
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
    /// Write the pictures, where there are any, as SVG files into this directory.
    #[arg(long, value_name = "DIRECTORY")]
    pub(super) svg: Option<PathBuf>,
    /// A glance: fewer samples.
    #[arg(long)]
    pub(super) quick: bool,
    #[arg(long, value_enum, default_value = "text")]
    pub(super) format: Format,
    /// Exit with 1 when an aim is missed.
    #[arg(long)]
    pub(super) strict: bool,
}

impl Common {
    /// That what is asked for can be written, before the work rather than after it.
    pub(super) fn prepare(&self) -> CliResult {
        if let Some(path) = &self.html {
            let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
            opened.doing(format!("write {}", path.display()))?;
        }
        if let Some(directory) = &self.svg {
            std::fs::create_dir_all(directory)
                .doing(format!("make the directory {}", directory.display()))?;
        }
        Ok(())
    }
}

/// What a measurement that was shown ends with.
pub(super) fn exit_code(report: &Report, common: &Common) -> ExitCode {
    let missed = report.aims.iter().any(|aim| !aim.reached);
    match report.interrupted {
        true => ExitCode::from(INTERRUPTED),
        false if common.strict && missed => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

pub(super) fn show(report: &Report, common: &Common) -> CliResult {
    write_files(report, common)?;
    if common.format == Format::Json {
        return ui::json(report);
    }
    print(report)
}

/// Writes the files that were asked for, and says where they are.
pub(super) fn write_files(report: &Report, common: &Common) -> CliResult {
    if let Some(warning) = report.noise.warning() {
        ui::say(warning);
    }
    if let Some(path) = &common.csv {
        ui::say(format!("every sample is in {}", path.display()));
    }
    if let Some(directory) = &common.svg {
        write_pictures(report, directory)?;
    }
    if let Some(path) = &common.html {
        let title = format!("sallyport lab {}", report.measurement);
        let machine = format!("<p>{}</p>\n", page::escape(&report.machine.line()));
        let page = page::page(&title, &machine, &[page::measurement("Figures", report)]);
        std::fs::write(path, page).doing(format!("write {}", path.display()))?;
        ui::say(format!("the report is in {}", path.display()));
    }
    Ok(())
}

/// Writes the pictures of a report, where it has any.
pub(super) fn write_pictures(report: &Report, directory: &Path) -> CliResult {
    if report.pictures.is_empty() {
        return Ok(());
    }
    let doing = || format!("write pictures into {}", directory.display());
    std::fs::create_dir_all(directory).doing(doing())?;
    for picture in &report.pictures {
        std::fs::write(directory.join(format!("{}.svg", picture.name)), &picture.svg).doing(doing())?;
    }
    let pictures = match report.pictures.len() {
        1 => "a picture is".to_owned(),
        count => format!("{count} pictures are"),
    };
    ui::say(format!("{pictures} in {}", directory.display()));
    Ok(())
}

/// A report for people.
pub(super) fn print(report: &Report) -> CliResult {
    ui::data(format!("machine  {}", report.machine.line()))?;
    let noise = &report.noise;
    ui::data(format!(
        "load     {:.2} before, {:.2} after; {:.1} % stolen",
        noise.load_before,
        noise.load_after,
        noise.stolen * 100.0
    ))?;
    for condition in &report.conditions {
        ui::data(format!("held     {condition}"))?;
    }
    ui::data("")?;
    ui::table(&report.headings(), report.lines(), "nothing was measured")?;
    if !report.aims.is_empty() {
        ui::data("")?;
    }
    for aim in &report.aims {
        ui::data(format!(
            "{}  {}; got {}",
            if aim.reached { "ok     " } else { "MISSED " },
            aim.what,
            aim.got
        ))?;
    }
    if !report.notes.is_empty() {
        ui::data("")?;
    }
    for note in &report.notes {
        ui::data(note)?;
    }
    if report.interrupted {
        ui::say("interrupted: fewer samples than asked for");
    }
    Ok(())
}
