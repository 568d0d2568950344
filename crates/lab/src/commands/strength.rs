//! `sallyport lab strength`: how strong keys are.

use std::path::PathBuf;
use std::process::ExitCode;

use sallyport_lab::inspect::Signature;
use sallyport_lab::strength::{self, Answer, Item};
use sallyport_sal::strength::Verdict;

use sallyport_cli::error::{CliError, CliResult};
use sallyport_cli::ui::{self, Format};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Names (rsa-2048, 2048, ed25519, p256, ml-dsa-65, x25519mlkem768), files (certificates, keys, authorized_keys,
    /// known_hosts; - for the standard input), or servers of TLS or SSH as HOST:PORT. Without any, RSA of every size.
    #[arg(value_name = "KEY|FILE|HOST:PORT")]
    keys: Vec<String>,
    /// Write the picture of strength over sizes as an SVG file into this directory.
    #[arg(long, value_name = "DIRECTORY")]
    svg: Option<PathBuf>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Exit with 1 when a key is weak, broken or unknown.
    #[arg(long)]
    strict: bool,
}

pub(crate) async fn run(args: Args) -> CliResult<ExitCode> {
    let keys = args.keys.clone();
    let answer = super::measuring::beside_a_watch(move |_, talk| Ok(strength::look(&keys, talk))).await?;
    if let Some(directory) = &args.svg {
        super::output::write_pictures(&answer.sizes, directory)?;
    }
    if args.format == Format::Json {
        ui::json(&answer)?;
    } else if args.keys.is_empty() {
        let report = &answer.sizes;
        ui::table(&report.headings(), report.lines(), "nothing")?;
        ui::data("")?;
        for note in &report.notes {
            ui::data(note)?;
        }
    } else if !answer.keys.is_empty() {
        print(&answer)?;
    }
    for note in &answer.notes {
        ui::say(note);
    }
    if let Some((last, others)) = answer.failures.split_last() {
        for failure in others {
            ui::say(failure);
        }
        return Err(CliError::new(last.clone()));
    }
    let bad = |item: &Item| item.verdict().is_none_or(|verdict| verdict <= Verdict::Weak);
    Ok(if args.strict && answer.keys.iter().any(bad) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn print(answer: &Answer) -> CliResult {
    let row = |item: &Item| {
        let mut place = item.source.clone();
        for part in [&item.place, &item.what] {
            if !part.is_empty() {
                place = format!("{place}: {part}");
            }
        }
        let mut cells = vec![place, item.key.clone()];
        match &item.strength {
            Some(strength) => cells.extend([
                format!("{:.2}", strength.classical.bits),
                strength.nist.to_string(),
                strength
                    .fips_guidance
                    .map_or_else(|| "-".to_owned(), |estimate| format!("{:.2}", estimate.bits)),
                strength
                    .category
                    .map_or_else(|| "0".to_owned(), |category| format!("category {}", category.number())),
                item.verdict().map_or_else(String::new, |verdict| verdict.to_string()),
            ]),
            None => cells.extend(["-", "-", "-", "-", "unknown"].map(str::to_owned)),
        }
        cells
    };
    let headings =
        ["where", "key", "bits (estimate)", "NIST", "FIPS guidance (estimate)", "against quantum", "verdict"];
    ui::table(&headings, answer.keys.iter().map(row).collect(), "no keys")?;
    ui::data("")?;
    let mut said = Vec::new();
    let (mut estimates, mut quantum) = (Shared::default(), Shared::default());
    for item in &answer.keys {
        let mut lines = Vec::new();
        if let Some(strength) = &item.strength {
            // A reason that begins with the word says it once.
            let word = strength.verdict.name();
            let said = strength.reason.strip_prefix(word).unwrap_or(&strength.reason).trim_start();
            lines.push(format!("{}: {word}: {said}", strength.key));
            estimates.add(strength.classical.by, &strength.key);
            quantum.add(strength.quantum.words, &strength.key);
        }
        if let Some(note) = item.signature.as_ref().and_then(Signature::note) {
            lines.push(format!("{}: {note}", item.what));
        }
        if let Some(signature) = item.signature.as_ref().filter(|signature| signature.matters) {
            lines.push(match signature.digest {
                Some(digest) => format!(
                    "signed by {}: {}: a collision takes 2^{} (estimate: {})",
                    signature.name,
                    digest.verdict(),
                    digest.collision().bits,
                    digest.collision().by
                ),
                None => format!("signed by {}: a hash that is not known here", signature.name),
            });
        }
        for line in lines {
            if !said.contains(&line) {
                ui::data(&line)?;
                said.push(line);
            }
        }
    }
    for (words, keys) in estimates.0 {
        ui::data(format!("estimate, {}: {words}", keys.join(", ")))?;
    }
    for (words, keys) in quantum.0 {
        ui::data(format!("against quantum computers, {}: {words}", keys.join(", ")))?;
    }
    Ok(())
}

/// What is said of several keys, once, with the keys of which it is said.
#[derive(Default)]
struct Shared<'a>(Vec<(&'static str, Vec<&'a str>)>);

impl<'a> Shared<'a> {
    fn add(&mut self, words: &'static str, key: &'a str) {
        match self.0.iter_mut().find(|(known, _)| *known == words) {
            Some((_, keys)) if keys.contains(&key) => {}
            Some((_, keys)) => keys.push(key),
            None => self.0.push((words, vec![key])),
        }
    }
}
