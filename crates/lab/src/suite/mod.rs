//! `lab report`: several measurements in one directory, with a page, pictures, raw data, and what the machine was.
//!
//! After every measurement the page is written anew: who breaks it off keeps what there is.

mod directory;
mod parts;
pub mod published;
mod summary;
mod versions;

use std::path::Path;
use std::time::Instant;

use directory::Directory;
use sallyport_bench::Talk;
use sallyport_bench::machine::Sampler;

use parts::Run;
pub use parts::{Dialler, PARTS, Part, part};
pub use summary::{Effort, Settings, Summary};

use crate::LabError;

/// Makes the measurements, one after the other. One that cannot be made (a program is missing, say) leaves a sentence in
/// the report, and the others go on.
///
/// # Errors
/// When the directory cannot be used or written.
pub fn run(program: &Path, settings: &Settings, talk: &Talk, dial: &Dialler) -> Result<Summary, LabError> {
    let began = Instant::now();
    let directory = Directory::prepare(&settings.directory)?;
    let parts: Vec<&Part> = if settings.only.is_empty() {
        PARTS.iter().filter(|part| part.quick || settings.effort == Effort::Full).collect()
    } else {
        PARTS.iter().filter(|part| settings.only.iter().any(|only| only.name == part.name)).collect()
    };
    let weight = |part: &Part| part.seconds.get(usize::from(settings.effort == Effort::Full)).copied();
    let all: f64 = parts.iter().filter_map(|part| weight(part)).sum();
    let sampler = Sampler::begin();
    let mut summary = Summary {
        page: directory.file("report.html"),
        reports: Vec::new(),
        failed: Vec::new(),
        seconds: 0.0,
        interrupted: false,
    };
    let mut done = 0.0;
    for part in &parts {
        if talk.stopping() {
            break;
        }
        let share = weight(part).unwrap_or_default();
        let its_talk = talk.part(done / all, (done + share) / all);
        done += share;
        its_talk.progress(0, 1, part.title);
        let csv = directory.file(&format!("{}.csv", part.name));
        let quick = settings.effort == Effort::Quick;
        match (part.run)(&Run { program, dial, quick, csv, talk: its_talk }) {
            Ok(report) => summary.reports.push(report),
            Err(error) => {
                talk.say(format!("{} is left out: {error}", part.name));
                summary.failed.push((part.name, error.to_string()));
            }
        }
        summary.seconds = began.elapsed().as_secs_f64();
        summary.interrupted = talk.stopping();
        directory.write(settings, &parts, &summary, &[])?;
    }
    summary.seconds = began.elapsed().as_secs_f64();
    summary.interrupted = talk.stopping();
    directory.write(settings, &parts, &summary, &sampler.finish())?;
    Ok(summary)
}
