//! What a process reads again when an operator sends SIGHUP, and what it says of the rest.
//!
//! Read again are the level of the log, how long a drain waits, and the certificate of the public pages. Everything else
//! is part of how the services were put together: a change of it is named, and counts from the next start on. Passwords of
//! databases are read whenever one is needed, and need no signal.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tracing::{error, info, warn};

use crate::ServerError;
use crate::config::{Config, LogConfig, ProxySection};
use crate::logging::{Level, LevelError};

/// Services whose settings change while they run.
pub(crate) trait Adjustable {
    /// How long a drain waits.
    fn drain_timeout(&self) -> Duration;

    /// Sets it.
    fn set_drain_timeout(&mut self, patience: Duration);

    /// Has the public pages' certificate read again; whether the operator has one.
    fn certificate_again(&self) -> impl Future<Output = Result<bool, ServerError>> + Send;
}

/// A configuration that can be read again.
#[derive(Debug)]
pub(crate) struct Reloading {
    file: PathBuf,
    /// As the services were started.
    started: Config,
    log_level: String,
    level: Option<Level>,
}

/// What came of reading again.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// Keys whose new values count.
    applied: Vec<&'static str>,
    /// Keys that have other values in the file, with why those do not count.
    refused: Vec<(&'static str, String)>,
    /// Keys that have other values in the file, which count from the next start on.
    from_next_start: Vec<&'static str>,
}

impl Reloading {
    pub(crate) fn new(file: &Path, started: Config, level: Option<Level>) -> Self {
        Self { file: file.to_owned(), log_level: started.log.level.clone(), started, level }
    }

    /// Reads the file again and says what came of it.
    pub(crate) async fn run(&mut self, running: &mut impl Adjustable) {
        let file = self.file.clone();
        let read = tokio::task::spawn_blocking(move || Config::load(&file)).await;
        let config = match read {
            Ok(Ok(config)) => config,
            Ok(Err(errors)) => {
                error!(
                    file = %self.file.display(),
                    "SIGHUP: the configuration has mistakes, so everything stays as it is; `sallyport start --check -c FILE` \
                     shows them: {errors}"
                );
                return;
            }
            Err(_) => return error!("SIGHUP: the configuration was not read"),
        };
        let mut outcome = self.apply(config, running);
        match running.certificate_again().await {
            Ok(true) => outcome.applied.push("proxy.https"),
            Ok(false) => {}
            Err(problem) => outcome.refused.push(("proxy.https", ServerError::chain(&problem))),
        }
        outcome.tell(&self.file);
    }

    fn apply(&mut self, config: Config, running: &mut impl Adjustable) -> Outcome {
        let mut outcome = Outcome { from_next_start: changed(&self.started, &config), ..Outcome::default() };
        if config.log.level != self.log_level {
            let set = match &self.level {
                Some(level) => level.set(&config.log.level),
                None => Err(LevelError::NotOurs),
            };
            match set {
                Ok(()) => {
                    self.log_level = config.log.level;
                    outcome.applied.push("log.level");
                }
                Err(reason) => outcome.refused.push(("log.level", reason.to_string())),
            }
        }
        if config.drain_timeout != running.drain_timeout() {
            running.set_drain_timeout(config.drain_timeout);
            outcome.applied.push("drain_timeout");
        }
        outcome
    }
}

impl Outcome {
    fn tell(&self, file: &Path) {
        let listed = |keys: &[&str]| if keys.is_empty() { "nothing".to_owned() } else { keys.join(", ") };
        info!(
            file = %file.display(),
            in_force = listed(&self.applied),
            "SIGHUP: the configuration was read again"
        );
        for (key, reason) in &self.refused {
            warn!(key, reason, "SIGHUP: a new value is not in force");
        }
        if !self.from_next_start.is_empty() {
            warn!(
                keys = self.from_next_start.join(", "),
                "SIGHUP: these have other values in the file now, which count after a restart only"
            );
        }
    }
}

/// The keys that only a start reads and that have another value now.
fn changed(started: &Config, now: &Config) -> Vec<&'static str> {
    let (started, now) = (at_start(started), at_start(now));
    let differs = |key: &&'static str| now.get(key).is_some_and(|value| Some(value) != started.get(key));
    let mut keys: Vec<_> = now.keys().copied().filter(differs).collect();
    // A service that was switched off or on says it all.
    keys.extend(started.keys().filter(|key| !now.contains_key(*key) && !key.contains('.')));
    keys.retain(|key| !key.contains('.') || !key.starts_with("proxy.") || started.contains_key("proxy"));
    keys
}

/// What only a start reads, as `Debug` shows it: secrets are not in it, and those of the configuration are for the first contact
/// alone.
fn at_start(config: &Config) -> BTreeMap<&'static str, String> {
    let Config {
        cluster,
        data_dir,
        log: LogConfig { level: _, format },
        diag_addr,
        drain_timeout: _,
        crypto,
        telemetry,
        auth,
        proxy,
        node,
    } = config;
    fn shown(value: &dyn Debug) -> String {
        format!("{value:?}")
    }
    let mut keys = BTreeMap::from([
        ("cluster", shown(cluster)),
        ("data_dir", shown(data_dir)),
        ("log.format", shown(format)),
        ("diag_addr", shown(diag_addr)),
        ("crypto", shown(crypto)),
        ("telemetry", shown(telemetry)),
    ]);
    keys.extend(auth.as_ref().map(|auth| ("auth", shown(auth))));
    keys.extend(node.as_ref().map(|node| ("node", shown(node))));
    if let Some(ProxySection { listen, public_addr, quic, limits, auth_server, join, https, danger }) = proxy
    {
        keys.extend([
            ("proxy", String::new()),
            ("proxy.listen", shown(listen)),
            ("proxy.public_addr", shown(public_addr)),
            ("proxy.quic", shown(quic)),
            ("proxy.limits", shown(limits)),
            ("proxy.auth_server", shown(auth_server)),
            ("proxy.join", shown(join)),
            ("proxy.https", shown(https)),
            ("proxy.danger", shown(danger)),
        ]);
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: &str = "version: v1\ncluster: test\ndata_dir: /nowhere\nlog:\n  level: info\nauth:\n  enabled: true\nproxy:\n  \
                        enabled: true\n  listen: 127.0.0.1:3080\nnode:\n  enabled: false\n";

    fn changes(from: &str, to: &str) -> Vec<&'static str> {
        assert!(BASE.contains(from), "{from}");
        let now = BASE.replace(from, to);
        changed(&Config::parse("a", BASE).unwrap(), &Config::parse("b", &now).unwrap())
    }

    #[test]
    fn what_counts_from_the_next_start_on_is_named() {
        assert!(changes("level: info", "level: debug").is_empty());
        assert!(changes("log:", "drain_timeout: 7s\nlog:").is_empty());
        assert_eq!(changes("level: info", "format: json"), ["log.format"]);
        assert_eq!(changes("cluster: test", "cluster: other"), ["cluster"]);
        assert_eq!(changes("127.0.0.1:3080", "127.0.0.1:3081"), ["proxy.listen"]);
        assert_eq!(changes("/nowhere", "/elsewhere"), ["data_dir"]);
        assert_eq!(
            changes("auth:\n  enabled: true", "auth:\n  enabled: true\n  second_factor: optional"),
            ["auth"]
        );
        let off = "proxy:\n  enabled: false\n  listen: 127.0.0.1:3080";
        let on = "proxy:\n  enabled: true\n  listen: 127.0.0.1:3080";
        assert_eq!(changes(on, off), ["proxy"]);
        let without = BASE.replace(on, off);
        let (without, with) = (Config::parse("a", &without).unwrap(), Config::parse("b", BASE).unwrap());
        assert_eq!(changed(&without, &with), ["proxy"]);
    }
}
