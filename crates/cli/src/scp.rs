//! `sallyport scp`: files to and from nodes, and between two of them.

use std::collections::HashMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use sallyport_access::text::Foreign;
use sallyport_ssh::client::{Output, Program, SessionRequest};
use sallyport_ssh::copy::{CopyError, Links, Listener, Options, Outcome, Progress, Remote};

use crate::error::{CliError, CliResult, Context, Exit};
use crate::factor;
use crate::global::Global;
use crate::ssh::target::{self, Target};
use crate::ssh::{Link, default_login};
use crate::ui;
use sallyport_client::profile::Stored;
use sallyport_client::session_factor::Asking;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Places on nodes are [LOGIN@]NODE:PATH; a PATH that does not begin with / is in the home directory.\n\
    Patterns (* ? [a-z]) in remote paths stand for what fits them.\n\
    Exit code: 0 when everything was copied, 1 when something was not, 255 when the connection failed."
)]
pub(crate) struct Args {
    /// Copy directories with all they contain.
    #[arg(short = 'r')]
    recursive: bool,
    /// Keep times and modes.
    #[arg(short = 'p')]
    preserve: bool,
    /// Copy symbolic links as links. Default: what they point to.
    #[arg(long)]
    keep_links: bool,
    /// No progress, only errors.
    #[arg(short = 'q')]
    quiet: bool,
    /// Accepted for scp's sake: a node has one SSH service.
    #[arg(short = 'P', value_name = "PORT")]
    port: Option<u16>,
    /// Accepted for scp's sake, without effect.
    #[arg(short = 'C', hide = true)]
    compress: bool,
    /// Use the stored login to this cluster.
    #[arg(long)]
    cluster: Option<String>,
    /// What to copy, and last where to: PATH or [LOGIN@]NODE:PATH.
    #[arg(required = true, num_args = 2.., value_name = "SOURCE... DESTINATION")]
    places: Vec<String>,
}

/// A place for files.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Here(PathBuf),
    There { target: Target, path: String },
}

impl Place {
    /// As scp tells them apart: a colon before the first slash makes it a place on a node.
    fn parse(text: &str) -> CliResult<Self> {
        let bad = |why: &str| CliError::new(format!("{text:?} is not a place: {why}")).exit(Exit::Usage);
        if text.is_empty() {
            return Err(bad("it is empty"));
        }
        if let Some(rest) = text.strip_prefix("scp://") {
            let (node, path) = rest.split_once('/').unwrap_or((rest, ""));
            return Ok(Self::There { target: target::parse(node)?, path: path.to_owned() });
        }
        let colon =
            text.find(':').filter(|colon| !text.get(..*colon).is_some_and(|before| before.contains('/')));
        let Some((node, path)) = colon.and_then(|colon| text.split_at_checked(colon)) else {
            return Ok(Self::Here(PathBuf::from(text)));
        };
        let target = target::parse(node)?;
        if target.is_selector() {
            return Err(bad("files go to one node, not to all that have a label"));
        }
        Ok(Self::There { target, path: path.strip_prefix(':').unwrap_or(path).to_owned() })
    }
}

pub(crate) async fn run(global: &Global, args: Args) -> CliResult<ExitCode> {
    let mut places = args.places.iter().map(|text| Place::parse(text)).collect::<CliResult<Vec<_>>>()?;
    let Some(destination) = places.pop() else {
        return Err(CliError::new("name what to copy, and where to")
            .hint("sallyport scp FILE LOGIN@NODE:PATH; or from a node: sallyport scp LOGIN@NODE:PATH FILE")
            .exit(Exit::Usage));
    };
    let stored = global.profiles().load_valid_of(args.cluster.as_deref())?;
    let (bars, asking) = (Bars::new(args.quiet), Asking::default());
    let copy = Copy { stored: &stored, args: &args, bars, asking };
    let outcome = copy.run(places, destination).await?;
    copy.bars.finish();
    for failure in &outcome.failures {
        ui::say(format!("{}: {}", Foreign::new(&failure.path), Foreign::new(&failure.reason)));
    }
    Ok(if outcome.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Copy<'a> {
    stored: &'a Stored,
    args: &'a Args,
    bars: Bars,
    asking: Asking,
}

impl Copy<'_> {
    fn options(&self) -> Options {
        Options {
            recursive: self.args.recursive,
            preserve: self.args.preserve,
            links: if self.args.keep_links { Links::Keep } else { Links::Follow },
            progress: self.bars.listener(),
        }
    }

    async fn run(&self, sources: Vec<Place>, destination: Place) -> CliResult<Outcome> {
        let mut nodes: HashMap<(String, String), (Link, Remote)> = HashMap::new();
        let mut local = Vec::new();
        let mut remote: Vec<((String, String), Vec<String>)> = Vec::new();
        for source in sources {
            match source {
                Place::Here(path) => local.push(path),
                Place::There { target, path } => {
                    let key = self.node(&mut nodes, &target).await?;
                    match remote.iter_mut().find(|(known, _)| *known == key) {
                        Some((_, paths)) => paths.push(path),
                        None => remote.push((key, vec![path])),
                    }
                }
            }
        }
        let several = local.len() + remote.iter().map(|(_, paths)| paths.len()).sum::<usize>() > 1;
        let mut total = Outcome::default();
        match destination {
            Place::Here(path) => {
                if let Some(first) = local.first() {
                    return Err(CliError::new(format!(
                        "{} and {} are both here",
                        first.display(),
                        path.display()
                    ))
                    .hint("cp copies between local files")
                    .exit(Exit::Usage));
                }
                require_directory(&path, several)?;
                for (key, paths) in &remote {
                    let (link, files) = found(&nodes, key)?;
                    let copied = files.download(paths, &path, self.options()).await;
                    add(&mut total, copied.map_err(|error| explain(link, &error))?);
                }
            }
            Place::There { target, path } => {
                let to = self.node(&mut nodes, &target).await?;
                let (link, files) = found(&nodes, &to)?;
                if !local.is_empty() {
                    let copied = files.upload(&local, &path, self.options()).await;
                    add(&mut total, copied.map_err(|error| explain(link, &error))?);
                }
                // Between nodes the data passes through here: they need not reach each other.
                for (key, paths) in &remote {
                    let (from, source) = found(&nodes, key)?;
                    let between = tempfile::tempdir().doing("make a temporary directory")?;
                    let fetched = source.download(paths, between.path(), self.options()).await;
                    let fetched = fetched.map_err(|error| explain(from, &error))?;
                    total.failures.extend(fetched.failures);
                    let copied = files.hand_on(between.path(), &path, self.options()).await;
                    add(&mut total, copied.map_err(|error| explain(link, &error))?);
                }
            }
        }
        for (link, _) in nodes.values() {
            link.connection.disconnect().await;
        }
        Ok(total)
    }

    /// Connects to a node, once.
    async fn node(
        &self,
        nodes: &mut HashMap<(String, String), (Link, Remote)>,
        target: &Target,
    ) -> CliResult<(String, String)> {
        let login = match &target.login {
            Some(login) => login.clone(),
            None => default_login(self.stored, target)?,
        };
        let key = (login, target.host.clone());
        if !nodes.contains_key(&key) {
            let connected = factor::proven(self.stored, &self.asking, &[], async || self.open(&key).await);
            nodes.insert(key.clone(), connected.await?);
        }
        Ok(key)
    }

    async fn open(&self, key: &(String, String)) -> CliResult<(Link, Remote)> {
        let link = Link::for_files(self.stored, &key.1, &key.0).await?;
        let stream = link.files().await?;
        match Remote::open(stream).await {
            Ok(files) => Ok((link, files)),
            Err(error) => Err(match link.said().filter(|said| said.demanded().is_some()) {
                Some(said) => said,
                None => match self.why_refused(&link, key).await {
                    Some(text) => CliError::new(text).exit(Exit::Refused),
                    None => explain(&link, &error),
                },
            }),
        }
    }

    /// What a node says on standard error that answers with no file service. A connection for one session has had it.
    async fn why_refused(&self, link: &Link, (login, host): &(String, String)) -> Option<String> {
        if !link.connection.is_pipelined() {
            return refusal(link).await;
        }
        refusal(&Link::plain(self.stored, host, login).await.ok()?).await
    }
}

fn found<'a>(
    nodes: &'a HashMap<(String, String), (Link, Remote)>,
    key: &(String, String),
) -> CliResult<&'a (Link, Remote)> {
    nodes
        .get(key)
        .ok_or_else(|| CliError::new(format!("the connection to {} is gone", key.1)).exit(Exit::Connection))
}

/// Several things need a directory to go to; say so before anything is fetched.
fn require_directory(path: &Path, several: bool) -> CliResult {
    if several && !path.is_dir() {
        return Err(CliError::new(format!(
            "{} is not a directory, which several sources need",
            path.display()
        ))
        .hint(format!("mkdir {}", path.display())));
    }
    Ok(())
}

/// How long a node that refuses may take to say why.
const REFUSAL_PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// What a node says on standard error that answers with no file service: a refusal, in words. A stream of files has no
/// place for them, so that they are asked for once more.
async fn refusal(link: &Link) -> Option<String> {
    let request = SessionRequest::new(Program::Subsystem("sftp".to_owned()));
    let said = async {
        let mut session = link.connection.start(request).await.ok()?;
        let mut text = Vec::new();
        while let Some(output) = session.next().await {
            match output {
                Output::Stderr(bytes) => text.extend_from_slice(&bytes),
                Output::Exit(_) => break,
                _ => {}
            }
        }
        let text = String::from_utf8_lossy(&text);
        let text = text.trim().trim_start_matches("sallyport: ");
        (!text.is_empty()).then(|| text.to_owned())
    };
    tokio::time::timeout(REFUSAL_PATIENCE, said).await.ok().flatten()
}

fn explain(link: &Link, error: &CopyError) -> CliError {
    match error {
        CopyError::Service(_) => {
            link.said().unwrap_or_else(|| CliError::new(error.to_string()).exit(Exit::Connection))
        }
        other => CliError::new(other.to_string()),
    }
}

fn add(total: &mut Outcome, more: Outcome) {
    total.files += more.files;
    total.directories += more.directories;
    total.links += more.links;
    total.bytes += more.bytes;
    total.failures.extend(more.failures);
}

/// A bar for each file on its way. None without a terminal, or when quiet is asked for.
struct Bars {
    screen: Option<Arc<Screen>>,
}

struct Screen {
    all: MultiProgress,
    files: Mutex<HashMap<String, ProgressBar>>,
}

impl Bars {
    fn new(quiet: bool) -> Self {
        let screen = (!quiet && std::io::stderr().is_terminal()).then(|| {
            Arc::new(Screen {
                all: MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10)),
                files: Mutex::new(HashMap::new()),
            })
        });
        Self { screen }
    }

    fn listener(&self) -> Option<Listener> {
        let screen = Arc::clone(self.screen.as_ref()?);
        Some(Arc::new(move |progress: Progress<'_>| {
            let mut files = screen.files.lock();
            match progress {
                Progress::Begun { path, bytes } => {
                    let name = Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy());
                    let bar = screen.all.add(
                        ProgressBar::new(bytes)
                            .with_style(style())
                            .with_prefix(String::from(Foreign::new(name))),
                    );
                    bar.enable_steady_tick(Duration::from_millis(500));
                    files.insert(path.to_owned(), bar);
                }
                Progress::Moved { path, bytes } => {
                    if let Some(bar) = files.get(path) {
                        bar.inc(bytes);
                    }
                }
                Progress::Ended { path, complete } => {
                    if let Some(bar) = files.remove(path) {
                        if complete { bar.finish() } else { bar.abandon() }
                    }
                }
            }
        }))
    }

    /// Leaves the last state of the bars on the screen.
    fn finish(&self) {
        if let Some(screen) = &self.screen {
            for (_, bar) in screen.files.lock().drain() {
                bar.abandon();
            }
        }
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{prefix:30!} {percent:>3}% {bytes:>11} {bytes_per_sec:>13} {eta:>5}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_told_apart_as_scp_does() {
        let there = |login: Option<&str>, host: &str, path: &str| Place::There {
            target: Target { login: login.map(str::to_owned), host: host.to_owned(), port: None },
            path: path.to_owned(),
        };
        assert_eq!(Place::parse("file").unwrap(), Place::Here("file".into()));
        assert_eq!(Place::parse("./a:b").unwrap(), Place::Here("./a:b".into()));
        assert_eq!(Place::parse("/a:b").unwrap(), Place::Here("/a:b".into()));
        assert_eq!(Place::parse("web-1:").unwrap(), there(None, "web-1", ""));
        assert_eq!(
            Place::parse("root@web-1:/etc/*.conf").unwrap(),
            there(Some("root"), "web-1", "/etc/*.conf")
        );
        assert_eq!(Place::parse("web-1:a:b").unwrap(), there(None, "web-1", "a:b"));
        assert_eq!(
            Place::parse("scp://root@web-1/dir/file").unwrap(),
            there(Some("root"), "web-1", "dir/file")
        );
        for bad in ["", ":x", "@web:x", "env=prod:x"] {
            assert!(Place::parse(bad).is_err(), "{bad}");
        }
    }
}
