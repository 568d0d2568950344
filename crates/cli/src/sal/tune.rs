//! `sallyport sal tune`.

use std::path::PathBuf;
use std::time::Instant;

use sallyport_sal::measure::table::{self, Scope};
use sallyport_sal::measure::timing::Effort;
use sallyport_sal::selection::{self, MARGIN, Profile};
use sallyport_sal::{Policy, Primitive, Selection, provider};
use serde_json::json;
use time::OffsetDateTime;

use super::shown::{bar, microseconds, show};
use crate::error::{CliError, CliResult, Context};
use crate::global::Global;
use crate::ui::{self, Format};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to save the profile. Default: crypto.json in the directory of profiles, where this command line finds it;
    /// for services, crypto.json in their data directory.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Say what is fastest and save nothing.
    #[arg(long, conflicts_with = "output")]
    dry_run: bool,
    /// Passes over all sources. Fewer are quicker and less to be believed.
    #[arg(long, hide = true, default_value_t = Effort::TUNE.passes)]
    passes: usize,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) fn run(global: &Global, args: &Args) -> CliResult {
    let path = match &args.output {
        Some(path) => path.clone(),
        None => global.profiles().home()?.join("crypto.json"),
    };
    // Before the work rather than after it.
    if !args.dry_run
        && let Some(parent) = path.parent().filter(|parent| parent.is_file())
    {
        return Err(CliError::new(format!("{} is a file, not a directory", parent.display())));
    }
    let selection = selection::global();
    let started = Instant::now();
    let bar = bar();
    let effort = Effort { passes: args.passes, ..Effort::TUNE };
    let rows = table::measure(selection, Scope::Selection, effort, |_| true, |progress| show(&bar, progress));
    let profile = table::profile(selection, &rows, OffsetDateTime::now_utc());
    bar.finish_and_clear();
    let took = started.elapsed();
    if !args.dry_run {
        profile.write(&path).doing("save what was measured")?;
    }
    let policy = Policy { mode: selection::Mode::Measured(profile.clone()), ..Policy::default() };
    let tuned = Selection::new(provider::ALL, policy);
    let preset = Selection::new(provider::ALL, Policy::default());
    let rows: Vec<_> =
        profile.costs.keys().filter_map(|primitive| Row::of(*primitive, &profile, &tuned, &preset)).collect();
    if args.format == Format::Json {
        return ui::json(&json!({
            "seconds": took.as_secs_f64(),
            "profile": (!args.dry_run).then(|| path.display().to_string()),
            "primitives": rows.iter().map(Row::json).collect::<Vec<_>>(),
        }));
    }
    let table = rows.iter().map(Row::text).collect();
    let headings = ["primitive", "source", "microseconds", "spread", "runner-up", "times", "preset"];
    ui::table(&headings, table, "nothing was measured")?;
    ui::say(format!(
        "measured in {:.1} s; a source displaces the preset's when it is more than {:.0} % faster",
        took.as_secs_f64(),
        MARGIN * 100.0
    ));
    if !args.dry_run {
        ui::say(format!("saved as {}", path.display()));
    }
    Ok(())
}

/// What the profile says of one primitive.
struct Row {
    primitive: Primitive,
    source: &'static str,
    nanoseconds: f64,
    median: f64,
    runner_up: Option<(&'static str, f64)>,
    preset: &'static str,
}

impl Row {
    fn of(primitive: Primitive, profile: &Profile, tuned: &Selection, preset: &Selection) -> Option<Self> {
        let source = tuned.source(primitive).ok()?.name();
        let cost = profile.cost(primitive, source)?;
        let runner_up = tuned
            .ranking(primitive)
            .into_iter()
            .filter(|place| place.obstacle.is_none() && place.provider.name() != source)
            .find_map(|place| Some((place.provider.name(), place.cost?.nanoseconds)));
        Some(Self {
            primitive,
            source,
            nanoseconds: cost.nanoseconds,
            median: cost.median,
            runner_up,
            preset: preset.source(primitive).ok()?.name(),
        })
    }

    fn text(&self) -> Vec<String> {
        let (name, times) = match self.runner_up {
            Some((name, nanoseconds)) => (name, format!("{:.2}", nanoseconds / self.nanoseconds)),
            None => ("-", String::new()),
        };
        let preset = if self.preset == self.source { "" } else { self.preset };
        vec![
            self.primitive.to_string(),
            self.source.to_owned(),
            microseconds(self.nanoseconds / 1e3),
            format!("+{:.0} %", (self.median / self.nanoseconds - 1.0) * 100.0),
            name.to_owned(),
            times,
            preset.to_owned(),
        ]
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "primitive": self.primitive,
            "source": self.source,
            "microseconds": self.nanoseconds / 1e3,
            "median_microseconds": self.median / 1e3,
            "runner_up": self.runner_up.map(|(name, _)| name),
            "runner_up_microseconds": self.runner_up.map(|(_, nanoseconds)| nanoseconds / 1e3),
            "preset": self.preset,
        })
    }
}
