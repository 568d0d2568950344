//! Measures what a question needs, asks for advice, and shows it.

use std::path::Path;

use sallyport_bench::Talk;
use sallyport_bench::machine::Watch;
use sallyport_bench::plot::{Bar, Bars};
use sallyport_bench::report::{Csv, Picture, Report, Row};

use super::{Advice, Choice, Cost, Measured, Question, Use, advise};
use crate::LabError;
use crate::handshake::{self, KeyExchange, Spread};

/// Measures handshakes with every key and group that comes into question, which takes some seconds, and weighs them.
///
/// # Errors
/// When the question cannot be answered, which is said before anything is measured; when a handshake cannot be made, or
/// the file of samples cannot be written; and when it is interrupted before everything was measured.
pub fn run(question: &Question, csv: Option<&Path>, talk: &Talk) -> Result<(Advice, Report), LabError> {
    question.check()?;
    let mut csv = Csv::create(csv, "key,group,side,low_us,median_us,high_us")?;
    let watch = Watch::begin();
    let costs = measure(question.what, talk)?;
    if talk.stopping() {
        return Err(LabError::Input(
            "interrupted before everything was measured: from a part of the costs no advice follows"
                .to_owned(),
        ));
    }
    for cost in &costs {
        for (side, figure) in [("server", cost.server), ("client", cost.client), ("resumed", cost.resumed)] {
            let Measured { value, low, high } = figure;
            csv.line(&format!("{},{},{side},{low:.2},{value:.2},{high:.2}", cost.key, cost.group))?;
        }
    }
    let advice = advise(question, &costs);
    let report = report(question, &advice, &watch, talk);
    Ok((advice, report))
}

/// What handshakes cost with everything that comes into question.
fn measure(what: Use, talk: &Talk) -> Result<Vec<Cost>, LabError> {
    let (keys, groups) = (what.keys(), what.groups());
    let measured = if what == Use::Ssh {
        handshake::ssh_costs(keys, KeyExchange::ALL, talk)?
    } else {
        handshake::costs(keys, groups, talk)?
    };
    let fulls = measured.iter().filter(|cost| !cost.resumed);
    let cost = |full: &handshake::Cost| {
        let group = full
            .group
            .or_else(|| groups.iter().copied().find(|one| one.ssh_name() == Some(full.exchange)))?;
        let resumed =
            measured.iter().find(|one| one.resumed && one.key == full.key && one.group == full.group);
        Some(Cost {
            key: full.key,
            group,
            server: Measured::from(full.server),
            client: Measured::from(full.client),
            resumed: Measured::from(resumed.unwrap_or(full).server),
        })
    };
    Ok(fulls.filter_map(cost).collect())
}

impl From<Spread> for Measured {
    fn from(spread: Spread) -> Self {
        Self { value: spread.median, low: spread.low, high: spread.high }
    }
}

fn report(question: &Question, advice: &Advice, watch: &Watch, talk: &Talk) -> Report {
    let mut bars = Vec::new();
    let mut rows = Vec::new();
    for choice in &advice.choices {
        let Choice { key, group, cores, server, client, .. } = choice;
        let interval = |figure: &Measured| [figure.low, figure.high];
        let mut row = Row::new(format!("{key}, {}", question.what.exchange(*group)))
            .with("bits", 0, f64::from(choice.bits))
            .between("cores", 3, cores.value, interval(cores))
            .between("server µs", 0, server.value, interval(server))
            .between("client µs", 0, client.value, interval(client))
            .with("handshakes/s/core", 0, (server.value > 0.0).then(|| 1e6 / server.value));
        row = row.with(
            "clients left out",
            0,
            f64::from(u32::try_from(choice.against.len()).unwrap_or(u32::MAX)),
        );
        rows.push(row);
        if advice.group == *group {
            let bar = Bar::new(key.to_string(), cores.value).interval(cores.low, cores.high);
            let note = choice.against.join("; ");
            bars.push(match (Some(*key) == advice.key, choice.against.is_empty()) {
                (true, _) => bar.series(2).note("recommended"),
                (false, true) => bar,
                (false, false) => bar.pale().note(note),
            });
        }
    }
    let first = question.what.exchange(advice.group);
    let title = format!(
        "Cores for {} handshakes a second with {first}",
        sallyport_bench::plot::number(question.rate)
    );
    let svg = Bars::new(title.clone(), "cores of this machine").logarithmic().group("", bars).svg();
    Report {
        conditions: match question.what {
            Use::Ssh => vec![
                "client and server in memory, to the end of the login; host and user show certificates; nothing resumes in SSH"
                    .to_owned(),
            ],
            Use::Web | Use::Database | Use::Mtls => vec![
                "client and server in one thread, in memory; full verification of a chain of two certificates"
                    .to_owned(),
                format!("{:.0} % of the handshakes resume", question.resumed * 100.0),
            ],
        },
        rows,
        notes: advice.reasons.clone(),
        pictures: vec![Picture { name: "advise-cores".to_owned(), title, svg }],
        ..Report::of("advise", watch, talk)
    }
}
