//! sshd's side of a membership: which files say what, and changing them without ever leaving sshd with a configuration
//! that it does not start with.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use sallyport_ca::own_login;

use super::given::Given;
use super::layout::{Layout, with_suffix};
use crate::files;

/// The head of a key revocation list: magic, format, version and date (PROTOCOL.krl of OpenSSH, §1).
const KRL_DATED_BYTES: usize = 8 + 4 + 8 + 8;

/// What is to be in which file.
#[derive(Debug, Clone)]
pub struct Plan {
    files: BTreeMap<PathBuf, Vec<u8>>,
    drop_in: PathBuf,
    takes_own_logins: bool,
}

impl Plan {
    /// The settings, as they stand in the drop-in.
    #[must_use]
    pub fn settings(&self) -> String {
        self.files
            .get(&self.drop_in)
            .map(|text| String::from_utf8_lossy(text).into_owned())
            .unwrap_or_default()
    }

    /// Whether sshd then takes a certificate for a login at this server alone.
    #[must_use]
    pub fn takes_own_logins(&self) -> bool {
        self.takes_own_logins
    }

    /// Every file and what is to be in it, the drop-in last.
    pub fn files(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        let own = self.files.iter().filter(|(path, _)| **path != self.drop_in);
        let last = self.files.get_key_value(&self.drop_in);
        own.chain(last).map(|(path, text)| (path.as_path(), text.as_slice()))
    }
}

/// One file that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The file.
    pub path: PathBuf,
    /// Where its former content is; none when it is new.
    pub backup: Option<PathBuf>,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Files that were written; none when everything was there already.
    pub changes: Vec<Change>,
    /// Whether sshd was told.
    pub reloaded: bool,
}

/// Why sshd's configuration was not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SshdError {
    /// A program does not start.
    #[error("cannot run {program}")]
    Run {
        /// The program.
        program: String,
        /// What the system says.
        source: io::Error,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The main configuration does not include ours.
    #[error("{} does not read {}; put this line at its beginning: Include {}", config.display(), drop_in.display(), drop_in.display())]
    NotIncluded {
        /// The main configuration.
        config: PathBuf,
        /// Ours.
        drop_in: PathBuf,
    },
    /// sshd does not start with it.
    #[error("sshd does not accept the configuration, so every file is as it was: {said}")]
    Rejected {
        /// What sshd says.
        said: String,
    },
    /// sshd was not told.
    #[error("sshd could not be told to read its configuration again, so every file is as it was: {said}")]
    NotReloaded {
        /// What the command says.
        said: String,
    },
}

/// What sshd has to have for what the cluster gave. Asks sshd which host keys it uses now.
///
/// # Errors
/// [`SshdError::Run`] or [`SshdError::Rejected`] when sshd cannot say.
pub fn plan(given: &Given) -> Result<Plan, SshdError> {
    let layout = &given.layout;
    let said = effective(layout)?;
    let host_keys: Vec<PathBuf> = values(&said, "hostkey").map(PathBuf::from).collect();
    let mut settings = format!(
        "# Written by `sallyport join openssh` for {} in the cluster {}. Changes here are lost with its next renewal.\n",
        given.name, given.cluster
    );
    let mut set = |key: &str, path: &Path| {
        let _ = writeln!(settings, "{key} {}", path.display());
    };
    set("TrustedUserCAKeys", &layout.user_cas());
    if !host_keys.contains(&layout.host_key) {
        // Naming one takes the others away, so that all are named.
        for key in host_keys.iter().filter(|key| key.exists()) {
            set("HostKey", key);
        }
        set("HostKey", &layout.host_key);
    }
    set("HostCertificate", &layout.host_certificate());
    set("RevokedKeys", &layout.revoked());
    let principals = (!layout.user_only).then(|| own_logins(&said, &given.id)).flatten();
    if let Some((command, user)) = &principals {
        let _ = writeln!(
            settings,
            "AuthorizedPrincipalsCommand {command}\nAuthorizedPrincipalsCommandUser {user}"
        );
    }
    let mut cas = given.user_cas.join("\n");
    cas.push('\n');
    // A list that names the same keys differs in its date alone: sshd need not hear of it.
    let revoked = match std::fs::read(layout.revoked()) {
        Ok(former) if former.get(KRL_DATED_BYTES..) == given.revoked.get(KRL_DATED_BYTES..) => former,
        _ => given.revoked.clone(),
    };
    let files = BTreeMap::from([
        (layout.user_cas(), cas.into_bytes()),
        (layout.host_certificate(), format!("{}\n", given.host_certificate).into_bytes()),
        (layout.revoked(), revoked),
        (layout.drop_in.clone(), settings.into_bytes()),
    ]);
    Ok(Plan { files, drop_in: layout.drop_in.clone(), takes_own_logins: principals.is_some() })
}

/// What has sshd take the login itself, as it does without, or the login at this server: a command that says both, and as whom it
/// runs. None where an administrator has a rule of their own, or the system lacks what this one needs.
fn own_logins(said: &str, id: &str) -> Option<(String, &'static str)> {
    let program =
        ["/usr/bin/printf", "/bin/printf"].into_iter().find(|program| Path::new(program).exists())?;
    // As sshd expands it: the format, the login, the login at this server (TOKENS in sshd_config(5)).
    let command = format!("{program} %%s\\n %u {}", own_login("%u", id));
    let theirs = |key: &'static str| values(said, key).find(|value| *value != "none");
    // A file of theirs may let in fewer than this would.
    if theirs("authorizedprincipalsfile").is_some()
        || theirs("authorizedprincipalscommand").is_some_and(|theirs| theirs != command)
    {
        return None;
    }
    // An sshd that is not root's runs everything as its own account.
    let user = match rustix::process::geteuid().is_root() {
        false => "%u",
        true => has_nobody().then_some("nobody")?,
    };
    Some((command, user))
}

fn has_nobody() -> bool {
    std::fs::read_to_string("/etc/passwd")
        .is_ok_and(|text| text.lines().any(|line| line.starts_with("nobody:")))
}

/// Writes what differs, has sshd check it, and tells sshd if anything has changed. When sshd does not accept it or cannot be told, every file
/// is put back.
///
/// # Errors
/// [`SshdError`]; nothing has changed then.
pub fn apply(layout: &Layout, plan: &Plan) -> Result<Applied, SshdError> {
    let mut undo = Vec::new();
    let done = write_all(plan, &mut undo)
        .and_then(|()| check(layout))
        .and_then(|()| if undo.is_empty() { Ok(false) } else { reload(layout).map(|()| true) });
    match done {
        Ok(reloaded) => Ok(Applied { changes: undo.into_iter().map(|one| one.change).collect(), reloaded }),
        Err(error) => {
            put_back(&undo);
            if matches!(error, SshdError::NotReloaded { .. }) {
                // It may have read half of it.
                let _ = reload(layout);
            }
            Err(error)
        }
    }
}

/// A change and what was there before.
struct Undo {
    change: Change,
    former: Option<Vec<u8>>,
}

fn write_all(plan: &Plan, undo: &mut Vec<Undo>) -> Result<(), SshdError> {
    for (path, text) in plan.files() {
        let failed = |action| move |source| SshdError::File { action, path: path.to_owned(), source };
        let former = match std::fs::read(path) {
            Ok(former) if former == text => continue,
            Ok(former) => Some(former),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed("read")(error)),
        };
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(failed("make the directory of"))?;
        }
        let backup = with_suffix(path, ".before-sallyport");
        let backup = match &former {
            // The first is the one that is worth keeping: later ones are our own.
            Some(former) if !backup.exists() => {
                files::write_public(&backup, former).map_err(failed("keep the former content of"))?;
                Some(backup)
            }
            Some(_) => Some(backup),
            None => None,
        };
        undo.push(Undo { change: Change { path: path.to_owned(), backup }, former });
        files::write_public(path, text).map_err(failed("write"))?;
    }
    Ok(())
}

fn put_back(undo: &[Undo]) {
    for Undo { change, former } in undo {
        let outcome = match former {
            Some(former) => files::write_public(&change.path, former),
            None => std::fs::remove_file(&change.path),
        };
        if let Err(error) = outcome {
            tracing::error!(path = %change.path.display(), %error, "a file could not be put back");
        }
    }
}

/// The settings in force, as sshd prints them, which are also those that its files say now.
fn effective(layout: &Layout) -> Result<String, SshdError> {
    let output = run(Command::new(&layout.sshd).arg("-T").arg("-f").arg(&layout.config), &layout.sshd)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(SshdError::Rejected { said: words(&output) })
}

fn check(layout: &Layout) -> Result<(), SshdError> {
    let output = run(Command::new(&layout.sshd).arg("-t").arg("-f").arg(&layout.config), &layout.sshd)?;
    if !output.status.success() {
        return Err(SshdError::Rejected { said: words(&output) });
    }
    let trusted = effective(layout)?;
    let ours = layout.user_cas();
    if values(&trusted, "trustedusercakeys").any(|value| Path::new(value) == ours) {
        return Ok(());
    }
    Err(SshdError::NotIncluded { config: layout.config.clone(), drop_in: layout.drop_in.clone() })
}

fn reload(layout: &Layout) -> Result<(), SshdError> {
    let output = run(Command::new("/bin/sh").arg("-c").arg(&layout.reload), Path::new("/bin/sh"))?;
    if output.status.success() { Ok(()) } else { Err(SshdError::NotReloaded { said: words(&output) }) }
}

fn run(command: &mut Command, program: &Path) -> Result<std::process::Output, SshdError> {
    command.output().map_err(|source| SshdError::Run { program: program.display().to_string(), source })
}

fn words(output: &std::process::Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.trim();
    if text.is_empty() { format!("{}", output.status) } else { text.chars().take(2000).collect() }
}

fn values<'t>(settings: &'t str, key: &'t str) -> impl Iterator<Item = &'t str> {
    settings.lines().filter_map(move |line| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then_some(value.trim())
    })
}
