//! Where the cryptography of a command comes from.
//!
//! Services have the section `crypto` of their configuration file; the command line has the measured profile in the
//! directory of profiles, and one variable.

use std::path::Path;

use sallyport_sal::selection::{self, Incident, Mode, Profile, ProfileError};
use sallyport_sal::{KeyPurpose, Policy, Primitive, Selection, Suite, needs, provider, tls, warm_up};
use tracing::warn;

use crate::error::{CliError, CliResult, Exit, chain};
use crate::global::Global;

pub(crate) const VARIABLE: &str = "SALLYPORT_CRYPTO";

/// Sets the sources of this process, by the person's setting: whether it shall start quickly, and whether it makes TLS connections at
/// once. It must come before anything used cryptography.
pub(crate) fn configure_with(global: &Global, quick_start: bool, dials: bool) -> CliResult {
    let setting = std::env::var_os(VARIABLE);
    let setting = setting.as_ref().map(|text| text.to_string_lossy());
    let home = global.profiles().home().ok();
    let path = home.map(|home| home.join("crypto.json"));
    let mut policy = policy(setting.as_deref().unwrap_or_default(), path.as_deref())?;
    policy.quick_start = quick_start;
    apply(policy, dials)
}

/// Sets the sources of this process by a policy, as [`configure_with`] does.
pub(crate) fn apply(policy: Policy, dials: bool) -> CliResult {
    let groups = needs::default_groups(&policy.mode).to_vec();
    let chosen =
        selection::configure(policy).and_then(|chosen| tls::configure_groups(groups).map(|()| chosen));
    let chosen = chosen.map_err(|error| CliError::new(chain(&error, &error.to_string())))?;
    chosen.on_incident(|incident: &Incident| warn!("{incident}"));
    if dials {
        // While addresses are looked up and connections made. It ends with the process.
        std::thread::spawn(prepare);
    }
    Ok(())
}

/// What a handshake will ask for. Whatever fails here fails again, with an error, where it is needed.
fn prepare() {
    warm_up();
    let shared = tls::groups().first().map(|group| needs::of_group(*group)).unwrap_or_default();
    let client = shared.into_iter().filter(|primitive| *primitive != Primitive::Encapsulate);
    let suite = Suite::default();
    let keys = [
        Primitive::Sign(suite.algorithm(KeyPurpose::UserTls)),
        Primitive::Verify(suite.algorithm(KeyPurpose::HostTls)),
    ];
    let _ = selection::global().prepare(client.chain(keys));
}

/// The policy that a setting means. Without one, the profile is used where it can be.
fn policy(setting: &str, path: Option<&Path>) -> CliResult<Policy> {
    let refused = |what: String| {
        CliError::new(format!("{VARIABLE}={setting} cannot be followed: {what}"))
            .hint("unset it, or write measured, preset, only:NAME or fips")
            .exit(Exit::Usage)
    };
    let mode = match setting {
        "" => return Ok(Policy { mode: path.map_or(Mode::Preset, found), ..Policy::default() }),
        "preset" => Mode::Preset,
        "fips" => Mode::Fips,
        "measured" => {
            let path = path.ok_or_else(|| refused("there is no home directory".to_owned()))?;
            Mode::Measured(Profile::read(path).map_err(|error| {
                let what = if is_missing(&error) {
                    format!("there is no profile at {}", path.display())
                } else {
                    chain(&error, &error.to_string())
                };
                refused(what).hint("sallyport sal tune")
            })?)
        }
        other => match other.strip_prefix("only:") {
            Some(name) => Mode::Only(name.to_owned()),
            None => return Err(refused("it is none of the choices".to_owned())),
        },
    };
    let policy = Policy { mode, ..Policy::default() };
    if let Err(errors) = policy.check() {
        let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
        return Err(refused(words.join("; ")));
    }
    if !matches!(policy.mode, Mode::Measured(_)) {
        let chosen = Selection::new(provider::ALL, policy.clone());
        let lacks: Vec<String> = needs::lacking(&chosen, needs::indispensable())
            .iter()
            .map(|lack| lack.primitive.to_string())
            .collect();
        if !lacks.is_empty() {
            return Err(refused(format!("no source has {}", lacks.join(", "))));
        }
    }
    Ok(policy)
}

/// The profile that is used without being asked for: none, or one that cannot be read, is no reason to stop.
fn found(path: &Path) -> Mode {
    match Profile::read(path) {
        Ok(profile) => Mode::Measured(profile),
        Err(error) => {
            if !is_missing(&error) {
                warn!("{}", chain(&error, &error.to_string()));
            }
            Mode::Preset
        }
    }
}

fn is_missing(error: &ProfileError) -> bool {
    matches!(error, ProfileError::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound)
}

#[cfg(test)]
mod tests {
    use sallyport_sal::cpu::Cpu;
    use time::OffsetDateTime;

    use super::*;

    #[test]
    fn the_variable_is_checked_and_says_what_would_do() {
        let path = Path::new("/nonexistent/crypto.json");
        let refused = |setting: &str| policy(setting, Some(path)).unwrap_err().to_string();
        assert_eq!(
            refused("fastest"),
            "error: SALLYPORT_CRYPTO=fastest cannot be followed: it is none of the choices\n  \
             try: unset it, or write measured, preset, only:NAME or fips"
        );
        let unknown = refused("only:bouncy");
        assert!(unknown.contains("unknown provider \"bouncy\"; this build has aws-lc, r"), "{unknown}");
        // A build with the FIPS module has no source that lacks what is indispensable.
        if provider::by_name("libcrux").is_some() {
            let lacking = refused("only:libcrux");
            assert!(lacking.contains("no source has generate/ed25519"), "{lacking}");
        }
        assert_eq!(
            refused("measured"),
            "error: SALLYPORT_CRYPTO=measured cannot be followed: there is no profile at \
             /nonexistent/crypto.json\n  try: sallyport sal tune"
        );
        match provider::module() {
            Some(_) => assert!(matches!(policy("fips", None).unwrap().mode, Mode::Fips)),
            None => assert!(refused("fips").contains("no FIPS module"), "{}", refused("fips")),
        }
        assert!(matches!(policy("preset", None).unwrap().mode, Mode::Preset));
        assert!(matches!(policy("only:aws-lc", None).unwrap().mode, Mode::Only(name) if name == "aws-lc"));
    }

    #[test]
    fn a_profile_is_used_where_it_can_be() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("crypto.json");
        let mode = |setting: &str| policy(setting, Some(&path)).map(|policy| policy.mode);
        assert!(matches!(mode("").unwrap(), Mode::Preset));
        std::fs::write(&path, "{").unwrap();
        assert!(matches!(mode("").unwrap(), Mode::Preset));
        assert!(mode("measured").unwrap_err().to_string().contains("is not a profile"));
        Profile::new(&Cpu::detect(), OffsetDateTime::UNIX_EPOCH).write(&path).unwrap();
        assert!(matches!(mode("").unwrap(), Mode::Measured(_)));
        assert!(matches!(mode("measured").unwrap(), Mode::Measured(_)));
        assert!(matches!(mode("preset").unwrap(), Mode::Preset));
    }
}
