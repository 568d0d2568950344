//! The counts as tables, and the document that has them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use sallyport_sal::Primitive;
use sallyport_sal::algorithm::KeyAlgorithm;

use crate::conformance::known;
use crate::conformance::layered::PREFIX;
use crate::conformance::outcome::Outcome;
use crate::conformance::report::{Origin, Report};

const BEGIN: &str = "<!-- made by the conformance suite: begin -->";
const END: &str = "<!-- made by the conformance suite: end -->";
const REFRESH: &str = "CONFORMANCE_REFRESH=1 cargo test -p sallyport-sal --test conformance";

/// Primitives that may be offered without a vector having been run, with the reason.
pub(crate) const NOT_RUN: &[(Primitive, &str)] = &[(
    Primitive::GenerateKey(KeyAlgorithm::Rsa8192),
    "a key of 8192 bits takes half a minute, and the layer makes none",
)];

/// Compares the committed document with what was run, or writes it anew when asked.
pub(crate) fn check_or_refresh(outcome: &Outcome) {
    let made = render(outcome);
    println!("{made}");
    println!("{:.1} s", outcome.took.as_secs_f64());
    let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("conformance.md");
    std::fs::write(&copy, &made).unwrap();

    let path = Path::new("../../docs/conformance.md");
    let document = std::fs::read_to_string(path).unwrap_or_else(|_| format!("{BEGIN}\n{END}\n"));
    let (before, rest) = document.split_once(BEGIN).expect("the document has the mark of the beginning");
    let (committed, after) = rest.split_once(END).expect("the document has the mark of the end");
    if std::env::var_os("CONFORMANCE_REFRESH").is_some() {
        assert!(outcome.reports.values().all(|report| report.failures.is_empty()), "mend what failed first");
        assert!(
            outcome.absent.is_empty(),
            "refresh on a machine that runs every provider: {:?}",
            outcome.absent
        );
        std::fs::write(path, format!("{before}{BEGIN}\n{made}{END}{after}")).unwrap();
        return;
    }
    if cfg!(any(feature = "comparison", feature = "fips", feature = "openssl", feature = "sodium")) {
        println!("docs/conformance.md is about the default build: its counts are not compared");
        return;
    }
    // Counts of what is crossed, and who differs from whom, depend on who takes part.
    let named: Vec<_> =
        committed.lines().filter_map(|line| line.strip_prefix("### By ")).map(str::to_owned).collect();
    let present: Vec<_> = outcome
        .reports
        .keys()
        .filter(|name| !name.starts_with(PREFIX))
        .map(|name| (*name).to_owned())
        .collect();
    if named != present {
        println!(
            "docs/conformance.md is about {named:?}, and {present:?} ran here ({:?}): its counts are not compared",
            outcome.absent
        );
        assert!(
            !outcome.absent.is_empty() || named.iter().all(|name| present.contains(name)),
            "docs/conformance.md names providers that this build has not; refresh it with\n    {REFRESH}"
        );
        return;
    }
    assert!(
        committed.trim() == made.trim(),
        "docs/conformance.md does not say what was run (compare with {}); refresh it with\n    {REFRESH}",
        copy.display()
    );
}

fn render(outcome: &Outcome) -> String {
    let mut out = String::new();
    summary(outcome, &mut out);
    for report in outcome.reports.values().filter(|report| !report.subject.starts_with(PREFIX)) {
        subject(report, &mut out);
    }
    skips(outcome, &mut out);
    differences(outcome, &mut out);
    out
}

fn summary(outcome: &Outcome, out: &mut String) {
    out.push_str("\n| subject | primitives | vectors run | passed | excused | failed | skipped |\n|---|--:|--:|--:|--:|--:|--:|\n");
    for report in outcome.reports.values() {
        let mut primitives: Vec<_> = report.tallies.keys().map(|(primitive, _)| *primitive).collect();
        primitives.dedup();
        let sum = |of: fn(&crate::conformance::report::Tally) -> usize| {
            report.tallies.values().map(of).sum::<usize>()
        };
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} |",
            report.subject,
            primitives.len(),
            sum(crate::conformance::report::Tally::run),
            sum(|tally| tally.passed),
            sum(|tally| tally.excused),
            sum(|tally| tally.failed),
            sum(crate::conformance::report::Tally::skips),
        );
    }
}

fn subject(report: &Report, out: &mut String) {
    let _ = write!(out, "\n### By {}\n\n| primitive |", report.subject);
    for origin in Origin::ALL {
        let _ = write!(out, " {} |", origin.name());
    }
    out.push_str(" excused | skipped |\n|---|--:|--:|--:|--:|--:|--:|\n");
    let mut primitives: Vec<_> = report.tallies.keys().map(|(primitive, _)| *primitive).collect();
    primitives.dedup();
    for primitive in primitives {
        let of = |origin| report.tallies.get(&(primitive, origin));
        let _ = write!(out, "| {primitive} |");
        for origin in Origin::ALL {
            let _ = write!(out, " {} |", of(origin).map_or(0, crate::conformance::report::Tally::run));
        }
        let sum = |count: fn(&crate::conformance::report::Tally) -> usize| {
            Origin::ALL.into_iter().filter_map(of).map(count).sum::<usize>()
        };
        let _ = writeln!(
            out,
            " {} | {} |",
            sum(|tally| tally.excused),
            sum(crate::conformance::report::Tally::skips)
        );
    }
}

fn skips(outcome: &Outcome, out: &mut String) {
    let mut all = BTreeMap::<(&str, Primitive), BTreeMap<usize, Vec<&str>>>::new();
    for report in outcome.reports.values() {
        let mut own = BTreeMap::<(&str, Primitive), usize>::new();
        for ((primitive, _), tally) in &report.tallies {
            for (reason, count) in &tally.skipped {
                *own.entry((*reason, *primitive)).or_default() += count;
            }
        }
        // The layer takes no keys or scalars to compare with, whatever is below; one line says so for all.
        let who = if report.subject.starts_with(PREFIX) { "the layer" } else { report.subject };
        for (key, count) in own {
            let those = all.entry(key).or_default().entry(count).or_default();
            if those.last() != Some(&who) {
                those.push(who);
            }
        }
    }
    out.push_str("\n### Skipped, and why\n\n| reason | primitive | vectors | by |\n|---|---|--:|---|\n");
    for ((reason, primitive), counts) in all {
        for (count, who) in counts {
            let _ = writeln!(out, "| {reason} | {primitive} | {count} | {} |", who.join(", "));
        }
    }
    for (primitive, reason) in NOT_RUN {
        let _ = writeln!(out, "| {reason} | {primitive} | all | all |");
    }
}

fn differences(outcome: &Outcome, out: &mut String) {
    out.push_str(
        "\n### Where providers differ\n\n| what | vectors | accepted by | refused by | the layer |\n|---|---|---|---|---|\n",
    );
    // Vectors with the same note and the same verdicts make one row.
    let mut rows = BTreeMap::<_, BTreeMap<Primitive, Vec<&str>>>::new();
    for (case, verdicts) in outcome.verdicts().into_iter().filter(|(_, verdicts)| verdicts.differ()) {
        let layer = match (verdicts.layer_accepted.is_empty(), verdicts.layer_refused.is_empty()) {
            (true, true) => "does not take such",
            (true, false) => "refuses",
            (false, true) => "accepts",
            (false, false) => "has no answer of its own",
        };
        let key =
            (case.set, case.note.as_str(), verdicts.accepted.join(", "), verdicts.refused.join(", "), layer);
        rows.entry(key).or_default().entry(case.primitive).or_default().push(&case.id);
    }
    for ((set, note, accepted, refused, layer), primitives) in rows {
        let mut vectors = Vec::new();
        for (primitive, ids) in primitives {
            vectors.push(format!("{primitive} {}", listed(&ids)));
        }
        let _ = writeln!(
            out,
            "| {set}: {note} | {} | {accepted} | {refused} | {layer} |",
            vectors.join("; ").replace('|', "\\|")
        );
    }
    out.push_str(
        "\n### Exceptions\n\nA provider alone does not do what the suite asks; the layer makes up for it.\n\n| provider | vectors | why it is borne |\n|---|---|---|\n",
    );
    let mut rows = Vec::<(&str, Vec<&str>, Vec<String>)>::new();
    for known in known::DEVIATIONS {
        let vectors = format!("{}: {}", known.set, known.what);
        match rows.iter_mut().find(|(why, ..)| *why == known.why) {
            Some((_, providers, all)) => {
                if !providers.contains(&known.provider) {
                    providers.push(known.provider);
                }
                if !all.contains(&vectors) {
                    all.push(vectors);
                }
            }
            None => rows.push((known.why, vec![known.provider], vec![vectors])),
        }
    }
    for (why, providers, vectors) in rows {
        let _ = writeln!(out, "| {} | {} | {why} |", providers.join(", "), vectors.join("; "));
    }
}

/// Names or numbers of vectors, in full as long as they are few.
fn listed(ids: &[&str]) -> String {
    let few: Vec<_> = ids.iter().take(4).copied().collect();
    match ids.len().saturating_sub(few.len()) {
        0 => format!("({})", few.join("; ")),
        more => format!("({}; and {more} more)", few.join("; ")),
    }
}
