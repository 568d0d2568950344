//! What a quickstart directory remembers between runs.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sallyport_sal::selection;
use serde::{Deserialize, Serialize};

use crate::error::{CliError, CliResult, Context};
use crate::ui;
use sallyport_client::profile::DEFAULT_PORT;

/// The directory, locked against a second quickstart for as long as this lives.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    state_file: File,
}

/// Kept in `quickstart.json`, mode 0600: it holds the demonstration user's credentials.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct State {
    /// The tour got to its end once; else what is there is unfinished, and is made anew.
    pub(super) complete: bool,
    pub(super) listen: SocketAddr,
    pub(super) password: String,
    /// The second factor, as its otpauth:// URI.
    pub(super) otp_uri: String,
    /// The time step of the last code that was used: none is taken twice.
    pub(super) last_step: i64,
    /// The cluster takes all cryptography from the FIPS module.
    #[serde(default)]
    pub(super) fips: bool,
    /// Where the tour's identity provider was: people are who they are to it there.
    #[serde(default)]
    pub(super) provider_port: Option<u16>,
    /// No connector leads to that port any more: it need not be held.
    #[serde(default)]
    pub(super) provider_forgotten: bool,
}

/// Whether the directory, if it is one of ours, has a cluster in FIPS mode.
pub(super) fn is_in_fips_mode(path: &Path) -> bool {
    let text = fs::read_to_string(path.join(STATE_FILE)).unwrap_or_default();
    serde_json::from_str::<State>(&text).is_ok_and(|state| state.complete && state.fips)
}

impl Directory {
    /// Removes what an unfinished tour has made. Other files stay.
    fn begin_anew(&mut self, state: &State) -> CliResult {
        // First, so that a run which ends here is found unfinished as well.
        self.save(state)?;
        for made in MADE {
            let made = self.path.join(made);
            match fs::remove_dir_all(&made) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(CliError::new(format!("cannot remove {}: {error}", made.display()))
                        .hint(format!("rm -r {}; then run quickstart again", self.path.display())));
                }
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn save(&mut self, state: &State) -> CliResult {
        let text = serde_json::to_string_pretty(state).doing("encode the quickstart state")?;
        let mut write = || -> std::io::Result<()> {
            self.state_file.rewind()?;
            self.state_file.set_len(0)?;
            self.state_file.write_all(text.as_bytes())?;
            self.state_file.sync_data()
        };
        write().doing(format!("write {}", self.path.join(STATE_FILE).display()))
    }
}

const STATE_FILE: &str = "quickstart.json";
/// What the tour makes beside it: the cluster, the node and the clients' profiles.
const MADE: [&str; 4] = ["data", "node", "client", "client-sso"];

/// Opens or makes the directory. Nothing is made where something else already is.
pub(super) fn open(path: &Path, listen: Option<SocketAddr>) -> CliResult<(Directory, State)> {
    let shown = path.display();
    let new = (!path.exists()).then_some(path);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| {
        CliError::new(format!("cannot make the directory {shown}: {error}"))
            .hint("sallyport quickstart --dir DIR, with a place you may write to")
    })?;
    let path = fs::canonicalize(path).doing(format!("find {shown}"))?;
    let state_path = path.join(STATE_FILE);
    let fresh = !state_path.exists();
    if fresh && fs::read_dir(&path).doing(format!("read {shown}"))?.next().is_some() {
        return Err(CliError::new(format!(
            "{shown} is not empty and was not made by quickstart; it is left alone"
        ))
        .hint("sallyport quickstart --dir DIR, with an empty or new directory"));
    }
    let listen_fresh = listen.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, DEFAULT_PORT)));
    if fresh {
        // Before anything is made, so that the next try with another port begins afresh as well.
        free(listen_fresh).inspect_err(|_| {
            let _ = new.map(fs::remove_dir);
        })?;
    }
    let mut state_file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&state_path)
        .map_err(|error| {
            CliError::new(format!("cannot write to {shown}: {error}"))
                .hint("sallyport quickstart --dir DIR, with a place you may write to")
        })?;
    match state_file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(CliError::new(format!("a quickstart cluster is already running in {shown}"))
                .hint("use it, stop it with Ctrl-C, or choose another --dir"));
        }
        Err(TryLockError::Error(error)) => return Err(error).doing(format!("lock {shown}")),
    }
    let mut text = String::new();
    state_file.read_to_string(&mut text).doing(format!("read {}", state_path.display()))?;
    let mut directory = Directory { path, state_file };
    let begin = |listen| {
        let password = sallyport_sal::random::token(20).doing("make a password")?;
        CliResult::Ok(State {
            complete: false,
            listen,
            password,
            otp_uri: String::new(),
            last_step: 0,
            fips: selection::global().is_fips(),
            provider_port: None,
            provider_forgotten: false,
        })
    };
    if fresh {
        let state = begin(listen_fresh)?;
        return Ok((directory, state));
    }
    // Nothing at all was written by a run that ended right away.
    let read = if text.is_empty() { Some(None) } else { serde_json::from_str::<State>(&text).ok().map(Some) };
    let Some(read) = read else {
        return Err(CliError::new(format!(
            "{shown} is half-made: its {STATE_FILE} cannot be read, so nothing there is touched"
        ))
        .hint(format!("rm -r {shown}; then run quickstart again")));
    };
    match read {
        Some(mut state) if state.complete => {
            if let Some(listen) = listen {
                state.listen = listen;
            }
            // One that has moved into that mode stays in it.
            state.fips |= selection::global().is_fips();
            Ok((directory, state))
        }
        unfinished => {
            let before = unfinished.map(|state| state.listen);
            let listen = listen.or(before).unwrap_or(listen_fresh);
            free(listen)?;
            ui::say(format!(
                "An earlier quickstart did not get to its end in {shown}: what it had made is removed, and the tour begins anew."
            ));
            let state = begin(listen)?;
            directory.begin_anew(&state)?;
            Ok((directory, state))
        }
    }
}

/// Whether the cluster could listen there.
fn free(listen: SocketAddr) -> CliResult {
    TcpListener::bind(listen).map(drop).map_err(|error| {
        let port = listen.port();
        let said = match error.kind() {
            ErrorKind::AddrInUse => format!(
                "the cluster cannot listen on {listen}: another process uses port {port}; stop it (find it with \
                 `ss -ltnp 'sport = :{port}'`) or choose another port"
            ),
            _ => format!("the cluster cannot listen on {listen}: {error}"),
        };
        CliError::new(said).hint("sallyport quickstart --listen 127.0.0.1:PORT, with a port that is free")
    })
}
