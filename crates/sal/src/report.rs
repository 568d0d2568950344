//! What stands behind the layer on this machine, for people and programs.

use serde::Serialize;

use crate::algorithm::{AeadAlgorithm, KexGroup, KeyAlgorithm, SignatureScheme, Standing};
use crate::measure::operation::{Part, is_measurable};
use crate::measure::table::Measured;
use crate::selection::{Mode, Selection};
use crate::{Primitive, tls};

/// The whole report. Times are in microseconds and the least of all passes; they are there when something was measured.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The CPU, with the features that sources look for.
    pub cpu: String,
    /// How sources are chosen.
    pub selection: String,
    /// The sources, with what they serve.
    pub sources: Vec<Source>,
    /// The FIPS module of this build, whether or not it is selected.
    pub module: Option<crate::provider::Module>,
    /// What went wrong since the start of this process.
    pub incidents: Vec<String>,
    /// Key exchange groups, in the order in which they are offered.
    pub groups: Vec<Group>,
    /// Cipher suites of TLS 1.3, in the order in which they are offered.
    pub suites: Vec<Suite>,
    /// Keys that sign, in TLS, in certificates and in SSH.
    pub signatures: Vec<Signature>,
    /// Every primitive with its source and the runner-up.
    pub choices: Vec<Choice>,
}

/// A provider of this build.
#[derive(Debug, Serialize)]
pub struct Source {
    /// Its name.
    pub name: &'static str,
    /// Library and version.
    pub library: &'static str,
    /// Primitives that it serves.
    pub serves: usize,
    /// Primitives that it offers without a warning.
    pub offers: usize,
    /// Why it serves nothing at all, if so.
    pub out: Option<String>,
}

/// A key exchange group.
#[derive(Debug, Serialize)]
pub struct Group {
    /// Its IANA name.
    pub name: &'static str,
    /// Its IANA code point.
    pub code: u16,
    /// Whether its share is in the first flight.
    pub sent_first: bool,
    /// Sources for the client, and for the server where they differ.
    pub sources: String,
    /// Time to make the client's share.
    pub share: Option<f64>,
    /// Time of the client to make the secret from the server's answer.
    pub client_secret: Option<f64>,
    /// Time of the server for its share and the secret.
    pub server: Option<f64>,
}

/// A cipher suite of TLS 1.3.
#[derive(Debug, Serialize)]
pub struct Suite {
    /// Its IANA name.
    pub name: &'static str,
    /// Source of the cipher.
    pub cipher: &'static str,
    /// Source of the transcript hash.
    pub hash: &'static str,
    /// Source of the key derivation.
    pub derivation: &'static str,
    /// Encryption of records of 16 KiB, in millions of bytes a second.
    pub megabytes_per_second: Option<f64>,
}

/// A type of key.
#[derive(Debug, Serialize)]
pub struct Signature {
    /// Its name.
    pub key: &'static str,
    /// Its schemes in TLS 1.3, for handshakes.
    pub tls: Vec<&'static str>,
    /// Its scheme in certificates.
    pub certificates: &'static str,
    /// Its name in SSH.
    pub ssh: Option<&'static str>,
    /// Source for signing; none when it is only verified.
    pub signs: Option<&'static str>,
    /// Source for verifying.
    pub verifies: &'static str,
    /// Time to sign.
    pub sign: Option<f64>,
    /// Time to verify.
    pub verify: Option<f64>,
}

/// Who serves a primitive.
#[derive(Debug, Serialize)]
pub struct Choice {
    /// The primitive.
    pub primitive: Primitive,
    /// Its source, if there is one.
    pub source: Option<&'static str>,
    /// Why: measured, preset, override, only, fips.
    pub why: &'static str,
    /// Who would take over.
    pub runner_up: Option<&'static str>,
    /// Those who cannot, with the reason.
    pub others: Vec<String>,
    /// Time by its source, of the part by which sources are compared.
    pub time: Option<f64>,
    /// Time by the runner-up.
    pub runner_up_time: Option<f64>,
}

impl Report {
    /// Asks a selection for everything; sources that were not asked before run their self-tests now.
    #[must_use]
    pub fn of(selection: &Selection, groups: &[KexGroup], measured: &[Measured]) -> Self {
        let choices: Vec<_> = Primitive::all()
            .filter(|primitive| !parameters_are_lab_only(*primitive))
            .map(|primitive| choice(selection, primitive, measured))
            .collect();
        Self {
            cpu: selection.cpu().fingerprint(),
            selection: describe(selection),
            module: crate::provider::module(),
            sources: selection
                .providers()
                .iter()
                .map(|provider| source(selection, *provider, &choices))
                .collect(),
            groups: groups
                .iter()
                .enumerate()
                .map(|(at, one)| group(selection, *one, at == 0, measured))
                .collect(),
            suites: tls::SUITES
                .iter()
                .filter_map(|algorithm| suite(selection, *algorithm, measured))
                .collect(),
            signatures: KeyAlgorithm::ALL
                .iter()
                .filter_map(|algorithm| signature(selection, *algorithm, measured))
                .collect(),
            incidents: selection.incidents().iter().map(ToString::to_string).collect(),
            choices,
        }
    }

    /// "Cryptography by …": the libraries that serve anything, the one that serves most first.
    #[must_use]
    pub fn credits(&self) -> String {
        let mut serving: Vec<_> = self.sources.iter().filter(|source| source.serves > 0).collect();
        serving.sort_by_key(|source| std::cmp::Reverse(source.serves));
        format!(
            "Cryptography by {}",
            serving.iter().map(|source| source.library).collect::<Vec<_>>().join(", ")
        )
    }
}

fn parameters_are_lab_only(primitive: Primitive) -> bool {
    match primitive {
        Primitive::GenerateKey(key) | Primitive::Sign(key) => key.standing() != Standing::Full,
        Primitive::Verify(key) => key.standing() == Standing::LabOnly,
        _ => false,
    }
}

fn describe(selection: &Selection) -> String {
    let policy = selection.policy();
    let mode = match &policy.mode {
        Mode::Measured(profile) => {
            let at = profile.measured.replace_nanosecond(0).unwrap_or(profile.measured);
            let at = at.format(&time::format_description::well_known::Rfc3339);
            format!("measured on this machine at {}", at.unwrap_or_default())
        }
        Mode::Preset => "the built-in preset; `sallyport sal tune` measures this machine".to_owned(),
        Mode::Only(name) => format!("only {name}"),
        Mode::Fips => "the FIPS module only".to_owned(),
    };
    match policy.overrides.len() {
        0 => mode,
        1 => format!("{mode}, with 1 override"),
        count => format!("{mode}, with {count} overrides"),
    }
}

fn choice(selection: &Selection, primitive: Primitive, measured: &[Measured]) -> Choice {
    let source = selection.source(primitive).ok().map(|provider| provider.name());
    let ranking = selection.ranking(primitive);
    let eligible =
        || ranking.iter().filter(|place| place.obstacle.is_none()).map(|place| place.provider.name());
    let runner_up = eligible().find(|name| Some(*name) != source);
    let deciding = crate::measure::operation::deciding_part(primitive);
    let time_of =
        |name: Option<&'static str>| name.and_then(|name| time(measured, primitive, deciding, name));
    Choice {
        primitive,
        source,
        why: selection.reason(primitive).name(),
        runner_up,
        others: ranking
            .iter()
            .filter(|place| place.obstacle != Some(crate::selection::Obstacle::NotOffered))
            .filter_map(|place| {
                place.obstacle.as_ref().map(|obstacle| format!("{}: {obstacle}", place.provider.name()))
            })
            .collect(),
        time: time_of(source),
        runner_up_time: time_of(runner_up),
    }
}

fn source(
    selection: &Selection,
    provider: &'static dyn crate::provider::Provider,
    choices: &[Choice],
) -> Source {
    let offers = Primitive::all()
        .filter(|primitive| provider.offer(*primitive) == crate::provider::Offer::Yes)
        .count();
    let lacking = provider.needs().iter().find(|feature| !selection.cpu().has(**feature));
    let policy = selection.policy();
    let out = match (&policy.mode, lacking) {
        (_, Some(feature)) => Some(format!("the CPU has no {feature}")),
        (Mode::Only(name), None) if name != provider.name() => Some("not admitted by the policy".to_owned()),
        (Mode::Fips, None) if !provider.is_fips() => Some("not a FIPS module".to_owned()),
        _ => None,
    };
    Source {
        name: provider.name(),
        library: provider.credit(),
        serves: choices.iter().filter(|choice| choice.source == Some(provider.name())).count(),
        offers,
        out,
    }
}

fn group(selection: &Selection, group: KexGroup, sent_first: bool, measured: &[Measured]) -> Group {
    let name = |primitive| selection.source(primitive).map_or("no source", |provider| provider.name());
    let mut sources = Vec::new();
    let (mut share, mut whole, mut server) = (Some(0.0), Some(0.0), Some(0.0));
    let sum = |total: &mut Option<f64>, part: Option<f64>| {
        *total = total.zip(part).map(|(total, part)| total + part);
    };
    if group.has_ml_kem() {
        let (client, serves) = (name(Primitive::Decapsulate), name(Primitive::Encapsulate));
        sources.push(match client == serves {
            true => format!("ML-KEM {client}"),
            false => format!("ML-KEM {client} / {serves}"),
        });
        sum(&mut share, time(measured, Primitive::Decapsulate, Part::Share, client));
        sum(&mut whole, time(measured, Primitive::Decapsulate, Part::Whole, client));
        sum(&mut server, time(measured, Primitive::Encapsulate, Part::Whole, serves));
    }
    if let Some(dh) = group.dh() {
        let by = name(Primitive::Agree(dh));
        sources.push(format!("{dh} {by}"));
        sum(&mut share, time(measured, Primitive::Agree(dh), Part::Share, by));
        sum(&mut whole, time(measured, Primitive::Agree(dh), Part::Whole, by));
        sum(&mut server, time(measured, Primitive::Agree(dh), Part::Whole, by));
    }
    Group {
        name: group.name(),
        code: group.iana_code(),
        sent_first,
        sources: sources.join(", "),
        share,
        client_secret: whole.zip(share).map(|(whole, share)| (whole - share).max(0.0)),
        server,
    }
}

fn suite(selection: &Selection, algorithm: AeadAlgorithm, measured: &[Measured]) -> Option<Suite> {
    let hash = algorithm.tls13_hash();
    let name = |primitive| selection.source(primitive).ok().map(|provider| provider.name());
    let cipher = name(Primitive::Aead(algorithm))?;
    let record = Part::Bytes(16 * 1024);
    Some(Suite {
        name: algorithm.tls13_suite(),
        cipher,
        hash: name(Primitive::Hash(hash))?,
        derivation: name(Primitive::Hmac(hash))?,
        megabytes_per_second: time(measured, Primitive::Aead(algorithm), record, cipher)
            .map(|microseconds| 16.0 * 1024.0 / microseconds),
    })
}

fn signature(selection: &Selection, algorithm: KeyAlgorithm, measured: &[Measured]) -> Option<Signature> {
    if algorithm.standing() == Standing::LabOnly {
        return None;
    }
    let full = algorithm.standing() == Standing::Full;
    let name = |primitive| selection.source(primitive).ok().map(|provider| provider.name());
    let signs = full.then(|| name(Primitive::Sign(algorithm))).flatten();
    let verifies = name(Primitive::Verify(algorithm))?;
    let in_tls = |scheme: &&SignatureScheme| scheme.is_pss() || algorithm.modulus_bits().is_none();
    Some(Signature {
        key: algorithm.name(),
        tls: algorithm.schemes().iter().filter(in_tls).map(|scheme| scheme.iana_name()).collect(),
        certificates: algorithm.default_scheme().iana_name(),
        ssh: algorithm.ssh_name(),
        sign: signs.and_then(|by| time(measured, Primitive::Sign(algorithm), Part::Whole, by)),
        verify: time(measured, Primitive::Verify(algorithm), Part::Whole, verifies),
        signs,
        verifies,
    })
}

fn time(measured: &[Measured], primitive: Primitive, part: Part, provider: &str) -> Option<f64> {
    measured
        .iter()
        .find(|row| row.primitive == primitive && row.part == part && row.provider == provider)
        .map(|row| row.times.minimum() / 1e3)
}

/// The primitives that a report with times measures: those that stand in it.
#[must_use]
pub fn is_timed(selection: &Selection, primitive: Primitive) -> bool {
    !parameters_are_lab_only(primitive)
        && selection.providers().iter().any(|provider| is_measurable(*provider, primitive))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::Policy;
    use crate::provider::ALL;

    #[test]
    fn the_report_names_a_source_for_everything() {
        let selection = Selection::new(ALL, Policy::default());
        let report = Report::of(&selection, KexGroup::DEFAULT, &[]);
        assert!(report.credits().starts_with("Cryptography by AWS-LC"), "{}", report.credits());
        assert_eq!(report.groups[0].name, "X25519MLKEM768");
        assert!(report.groups[0].sent_first && !report.groups[1].sent_first);
        assert_eq!(report.suites.len(), 3);
        assert!(report.choices.iter().all(|choice| choice.source.is_some()));
        let rsa = report.signatures.iter().find(|one| one.key == "rsa-8192").unwrap();
        assert_eq!(rsa.signs, None);
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["groups"][0]["code"], 0x11ec);
        let generation = report
            .choices
            .iter()
            .find(|choice| choice.primitive == Primitive::GenerateKey(KeyAlgorithm::Rsa2048))
            .unwrap();
        // graviola, which a build with the FIPS module does not have.
        let warned = generation.others.iter().any(|other| other.contains("side channels"));
        assert_eq!(warned, !cfg!(feature = "fips"), "{generation:?}");
    }
}
