//! The section `crypto`: where cryptography comes from, and what TLS does with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sallyport_ca::Remember;
use sallyport_sal::algorithm::KexGroup;
use sallyport_sal::selection::{Incident, Mode, PolicyError, Profile, ProfileError};
use sallyport_sal::{Policy, Primitive, Selection, needs, provider};

use sallyport_access::yaml::{Problems, Section};

const CRYPTO: &[&str] = &["selection", "provider", "profile", "overrides", "require_fips", "tls"];
const TLS: &[&str] = &["groups", "remember_chains"];

/// The file of a measured profile, in the data directory.
const PROFILE_FILE: &str = "crypto.json";
const REMEMBER_LEAST: Duration = Duration::from_secs(1);
const REMEMBER_MOST: Duration = Duration::from_secs(86_400);

/// How the source of each primitive is chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// The fastest on this machine, by the profile, which must be there.
    Measured,
    /// The built-in table.
    Preset,
    /// One provider and no other.
    Only(String),
    /// What a module validated under FIPS 140-3 offers, and nothing else.
    Fips,
}

/// How the source of each primitive is chosen, in the words of the configuration.
pub(crate) fn rule(mode: &Mode) -> String {
    match mode {
        Mode::Measured(_) => "measured".to_owned(),
        Mode::Preset => "preset".to_owned(),
        Mode::Only(name) => format!("only {name}"),
        Mode::Fips => "fips".to_owned(),
    }
}

/// Where cryptography comes from, and what TLS does with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CryptoSection {
    /// Unset: measured where the profile is there and fits this build and machine, else the preset.
    pub selection: Option<Choice>,
    /// Where the measured profile is. Unset: `crypto.json` in the data directory.
    pub profile: Option<PathBuf>,
    /// Primitives that come from a provider by name, whatever the rule says.
    pub overrides: BTreeMap<Primitive, String>,
    /// Whether others must say that they take all cryptography from a FIPS module: to an authority, every host and client; to
    /// a host, the authority of the cluster. Default false.
    pub require_fips: bool,
    /// Key exchange groups in the order of preference; the first is sent with a key share. Unset: X25519MLKEM768,
    /// x25519, secp256r1, secp384r1, or those of them that FIPS approves.
    pub groups: Option<Vec<KexGroup>>,
    /// How long a verified certificate chain is remembered, 1 s to 24 h; none: every chain is verified every time.
    /// Default 10 min.
    pub remember_chains: Option<Duration>,
}

impl Default for CryptoSection {
    fn default() -> Self {
        Self {
            selection: None,
            profile: None,
            overrides: BTreeMap::new(),
            require_fips: false,
            groups: None,
            remember_chains: Some(Remember::DEFAULT.age),
        }
    }
}

impl CryptoSection {
    /// The policy that it means, with the profile read. Where the configuration names no selection, a profile that
    /// cannot be read is an incident, and the preset is used.
    ///
    /// # Errors
    /// [`ProfileError`] when the profile is asked for by name and cannot be read.
    pub fn policy(&self, data_dir: &Path) -> Result<(Policy, Option<Incident>), ProfileError> {
        let path = self.profile_path(data_dir);
        let mut incident = None;
        let mode = match &self.selection {
            Some(Choice::Measured) => Mode::Measured(Profile::read(&path)?),
            Some(Choice::Preset) => Mode::Preset,
            Some(Choice::Only(name)) => Mode::Only(name.clone()),
            Some(Choice::Fips) => Mode::Fips,
            None => match Profile::read(&path) {
                Ok(profile) => Mode::Measured(profile),
                Err(error) if is_missing(&error) => Mode::Preset,
                Err(error) => {
                    incident = Some(Incident::StaleProfile { reason: reason(&error) });
                    Mode::Preset
                }
            },
        };
        Ok((Policy { mode, overrides: self.overrides.clone(), ..Policy::default() }, incident))
    }

    /// Where the measured profile is.
    #[must_use]
    pub fn profile_path(&self, data_dir: &Path) -> PathBuf {
        self.profile.clone().unwrap_or_else(|| data_dir.join(PROFILE_FILE))
    }

    /// The key exchange groups of TLS under a rule.
    #[must_use]
    pub fn groups(&self, mode: &Mode) -> Vec<KexGroup> {
        self.groups.clone().unwrap_or_else(|| needs::default_groups(mode).to_vec())
    }

    /// What verified chains are remembered.
    #[must_use]
    pub fn remember(&self) -> Remember {
        self.remember_chains.map_or(Remember::OFF, |age| Remember { age, ..Remember::DEFAULT })
    }
}

fn is_missing(error: &ProfileError) -> bool {
    matches!(error, ProfileError::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

/// What is wrong with a profile, without the advice that its own text ends in: who reads this is told by others.
fn reason(error: &ProfileError) -> String {
    match error {
        ProfileError::Malformed { path, reason } => format!("{path} is not a profile ({reason})"),
        ProfileError::File { action, path, source } => format!("cannot {action} {path}: {source}"),
        other => other.to_string(),
    }
}

/// Reads the section; without it, all is as by default. Whatever cannot work in this build on this machine is a mistake:
/// a name that no provider has, a provider that cannot serve what is asked of it, a profile that is not there.
pub(super) fn read(top: &Section<'_>, data_dir: &Path, problems: &mut Problems) -> CryptoSection {
    let default = CryptoSection::default();
    let Some(section) = top.section("crypto", CRYPTO, problems) else { return default };
    let choice = choice(&section, problems);
    let overrides = overrides(&section, problems);
    let profile = section.text("profile", problems).map(PathBuf::from);
    if let Some(relative) = profile.as_ref().filter(|path| path.is_relative()) {
        problems.push(
            section.place("profile"),
            &section.name("profile"),
            format!("{:?} is relative", relative.display().to_string()),
            "write a path that begins with /",
        );
    }
    let mut read = CryptoSection { profile, ..default };
    let mut selection = None;
    // What is not understood was said; what follows from it would be guesses.
    if let (Some(choice), Some(overrides)) = (choice, overrides) {
        (read.selection, read.overrides) = (choice, overrides);
        profile_is_there(&section, &read, data_dir, problems);
        let agree = overrides_agree(&section, &read, problems);
        let mode = match &read.selection {
            Some(Choice::Only(name)) => Mode::Only(name.clone()),
            Some(Choice::Fips) => Mode::Fips,
            Some(Choice::Measured | Choice::Preset) | None => Mode::Preset,
        };
        let chosen = Selection::new(
            provider::ALL,
            Policy { mode, overrides: read.overrides.clone(), ..Policy::default() },
        );
        if agree && nothing_lacks(&section, &chosen, problems) {
            selection = Some(chosen);
        }
    }
    read.require_fips = section.boolean("require_fips", problems).unwrap_or(false);
    // What is demanded of others is kept here first. Where this build has no module, that was said.
    let written = section.present("selection").and_then(|value| value.value.scalar());
    if read.require_fips && written.as_deref() != Some("fips") {
        problems.push(
            section.place("require_fips"),
            &section.name("require_fips"),
            "needs selection: fips here as well",
            "write selection: fips, or remove it",
        );
    }
    tls(&section, selection.as_ref(), &mut read, problems);
    read
}

/// The rule; nothing when it is not understood.
#[allow(clippy::option_option, reason = "not understood is not the same as not given")]
fn choice(section: &Section<'_>, problems: &mut Problems) -> Option<Option<Choice>> {
    #[derive(Clone, Copy)]
    enum Word {
        Measured,
        Preset,
        Only,
        Fips,
    }
    let words =
        [("measured", Word::Measured), ("preset", Word::Preset), ("only", Word::Only), ("fips", Word::Fips)];
    let word = section.choice("selection", &words, problems);
    let fix = format!("write one of {}", names(|_| true));
    let provider = section.parsed("provider", &fix, problems, |text| match provider::by_name(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("this build has no such provider"),
    });
    let given = |key| section.present(key).is_some();
    if given("provider") && !matches!(word, Some(Word::Only)) && (word.is_some() || !given("selection")) {
        problems.push(
            section.place("provider"),
            &section.name("provider"),
            "is for selection: only",
            "write selection: only above it, or remove it",
        );
        return None;
    }
    match word {
        None if given("selection") => None,
        None => Some(None),
        Some(Word::Measured) => Some(Some(Choice::Measured)),
        Some(Word::Preset) => Some(Some(Choice::Preset)),
        Some(Word::Fips) => {
            let policy = Policy { mode: Mode::Fips, ..Policy::default() };
            if policy.check().is_ok() {
                return Some(Some(Choice::Fips));
            }
            problems.push(
                section.place("selection"),
                &section.name("selection"),
                "this build has no FIPS module",
                "build it with `--features fips`, or write selection: preset",
            );
            None
        }
        Some(Word::Only) => {
            if !given("provider") {
                problems.push(section.place("selection"), &section.name("provider"), "is missing", fix);
            }
            provider.map(|name| Some(Choice::Only(name)))
        }
    }
}

/// The providers by primitive; nothing when one is not understood.
fn overrides(section: &Section<'_>, problems: &mut Problems) -> Option<BTreeMap<Primitive, String>> {
    if section.present("overrides").is_none() {
        return Some(BTreeMap::new());
    }
    let primitives: Vec<String> = Primitive::all().map(|primitive| primitive.to_string()).collect();
    let known: Vec<&str> = primitives.iter().map(String::as_str).collect();
    let entries = section.section("overrides", &known, problems)?;
    let (mut read, mut understood) = (BTreeMap::new(), true);
    for (key, _) in entries.entries() {
        let Ok(primitive) = key.value.parse::<Primitive>() else {
            // That the key is not known has been said.
            understood = false;
            continue;
        };
        let fix = format!(
            "write one of {}",
            names(|provider| provider.offer(primitive) == sallyport_sal::provider::Offer::Yes)
        );
        let name = entries.parsed(&key.value, &fix, problems, |text| {
            let overrides = BTreeMap::from([(primitive, text.to_owned())]);
            match (Policy { overrides, ..Policy::default() }).check() {
                Ok(()) => Ok(text.to_owned()),
                Err(errors) => Err(match errors.into_iter().next() {
                    Some(PolicyError::NotOffered { reason, .. }) => {
                        format!("cannot serve {primitive}: {reason}")
                    }
                    _ => "this build has no such provider".to_owned(),
                }),
            }
        });
        match name {
            Some(name) => {
                read.insert(primitive, name);
            }
            None => understood = false,
        }
    }
    understood.then_some(read)
}

/// A profile that is asked for by name must be there. Whether it fits this machine is seen when it is used.
fn profile_is_there(section: &Section<'_>, read: &CryptoSection, data_dir: &Path, problems: &mut Problems) {
    if read.selection != Some(Choice::Measured) {
        return;
    }
    let path = read.profile_path(data_dir);
    if let Err(error) = Profile::read(&path) {
        let (key, message) = match &error {
            error if is_missing(error) => ("selection", format!("there is no profile at {}", path.display())),
            error => ("profile", reason(error)),
        };
        problems.push(
            section.place(key),
            &section.name(key),
            message,
            format!("make one: sallyport sal tune --output {}", path.display()),
        );
    }
}

/// Whether the rule admits what the overrides name.
fn overrides_agree(section: &Section<'_>, read: &CryptoSection, problems: &mut Problems) -> bool {
    let rule = match &read.selection {
        Some(Choice::Only(only)) => format!("only {only}"),
        Some(Choice::Fips) => "fips".to_owned(),
        Some(Choice::Measured | Choice::Preset) | None => return true,
    };
    let admits = |name: &str| match &read.selection {
        Some(Choice::Only(only)) => name == only,
        _ => provider::by_name(name).is_some_and(|provider| provider.is_fips()),
    };
    let mut agree = true;
    let Some(entries) = section.section("overrides", &[], &mut Problems::new()) else { return agree };
    for (primitive, name) in read.overrides.iter().filter(|(_, name)| !admits(name)) {
        agree = false;
        let key = primitive.to_string();
        problems.push(
            entries.place(&key),
            &entries.name(&key),
            format!("{name:?} is not admitted by the selection, which is {rule}"),
            "remove the override, or change the selection",
        );
    }
    agree
}

/// Whether everything indispensable has a source.
fn nothing_lacks(section: &Section<'_>, selection: &Selection, problems: &mut Problems) -> bool {
    let lacks = needs::lacking(selection, needs::indispensable());
    let Some(first) = lacks.first() else { return true };
    let missing: Vec<String> = lacks.iter().map(|lack| lack.primitive.to_string()).collect();
    let why: Vec<String> = first
        .obstacles
        .iter()
        .filter(|(name, _)| matches!(&selection.policy().mode, Mode::Only(only) if only == name))
        .map(|(name, why)| format!("; {name}: {why}"))
        .collect();
    problems.push(
        section.place("selection"),
        &section.name("selection"),
        format!("no provider serves {}{}", missing.join(", "), why.concat()),
        format!("write preset, or only with provider: {}", names(can_stand_alone)),
    );
    false
}

fn can_stand_alone(provider: &dyn provider::Provider) -> bool {
    let mode = Mode::Only(provider.name().to_owned());
    let alone = Selection::new(provider::ALL, Policy { mode, ..Policy::default() });
    needs::lacking(&alone, needs::indispensable()).is_empty()
}

/// Names of providers, for a message.
fn names(which: impl Fn(&dyn provider::Provider) -> bool) -> String {
    let names: Vec<&str> =
        provider::ALL.iter().filter(|one| which(**one)).map(|provider| provider.name()).collect();
    names.join(", ")
}

/// Why a name in `crypto.tls.groups` is not taken.
#[derive(Debug, thiserror::Error)]
enum BadGroup {
    #[error("is no key exchange group")]
    Unknown,
    #[error("is there twice")]
    Twice,
    #[error("no provider serves {0} under this selection")]
    Unserved(Primitive),
}

fn tls(
    section: &Section<'_>,
    selection: Option<&Selection>,
    read: &mut CryptoSection,
    problems: &mut Problems,
) {
    let Some(tls) = section.section("tls", TLS, problems) else { return };
    if tls.present("groups").is_some() {
        let servable = |group: KexGroup| match selection {
            Some(selection) => needs::lacking(selection, needs::of_group(group)),
            None => Vec::new(),
        };
        let fix: Vec<&str> =
            KexGroup::ALL.iter().filter(|group| servable(**group).is_empty()).map(|one| one.name()).collect();
        let fix = format!("write a list of {}", fix.join(", "));
        let mut seen = std::cell::RefCell::new(Vec::new());
        let groups = tls.several("groups", &fix, problems, |text| {
            let group: KexGroup = text.parse().map_err(|_| BadGroup::Unknown)?;
            if seen.borrow().contains(&group) {
                return Err(BadGroup::Twice);
            }
            seen.borrow_mut().push(group);
            match servable(group).first() {
                Some(lack) => Err(BadGroup::Unserved(lack.primitive)),
                None => Ok(group),
            }
        });
        if seen.get_mut().is_empty() && groups.is_empty() && is_empty_list(&tls) {
            problems.push(tls.place("groups"), &tls.name("groups"), "is empty", fix);
        }
        read.groups = Some(groups);
    }
    let range = "write a time from 1s to 1d, such as 10m, or off";
    if tls.present("remember_chains").is_some() {
        let parsed = tls.parsed("remember_chains", range, problems, |text| match text {
            "off" => Ok(None),
            text => match sallyport_access::yaml::duration(text) {
                Some(age) if (REMEMBER_LEAST..=REMEMBER_MOST).contains(&age) => Ok(Some(age)),
                Some(_) => Err("is out of range"),
                None => Err("is not a time span"),
            },
        });
        read.remember_chains = parsed.unwrap_or(read.remember_chains);
    }
}

fn is_empty_list(tls: &Section<'_>) -> bool {
    use sallyport_access::yaml::Tree;
    matches!(tls.present("groups").map(|value| &value.value), Some(Tree::List(items)) if items.is_empty())
}
