//! What is to be done, once the command line is understood.

use std::path::PathBuf;
use std::sync::Arc;

use sallyport_ssh::client::{Display, Program, SessionRequest};
use tracing_subscriber::EnvFilter;

use super::options::{self, Options, RequestTty};
use super::target::{self, Target};
use super::terminal;
use crate::error::{CliError, CliResult, Context, Exit};
use crate::global::Global;
use crate::{trace, ui};

#[derive(Debug, clap::Args)]
#[command(after_help = "Typed after a newline: ~. ends the connection, ~^Z suspends, ~? lists these.\n\
    Exit code: that of the remote command, or 255 when the connection failed. With labels: the highest of the nodes';\n\
    254 when it is 0 and nodes were left out because they are offline.")]
pub(crate) struct Args {
    /// OS login on the node. Default: your name here, or the one login that your roles give you.
    #[arg(short = 'l', value_name = "LOGIN")]
    login: Option<String>,
    /// Accepted for ssh's sake: a node has one SSH service.
    #[arg(short = 'p', value_name = "PORT")]
    port: Option<u16>,
    /// Ask for a terminal; twice, even without a local one.
    #[arg(short = 't', action = clap::ArgAction::Count)]
    tty: u8,
    /// Ask for no terminal.
    #[arg(short = 'T')]
    no_tty: bool,
    /// Run no command: only forward.
    #[arg(short = 'N')]
    pub(super) no_command: bool,
    /// Read nothing from standard input.
    #[arg(short = 'n')]
    no_input: bool,
    /// Say nothing but errors.
    #[arg(short = 'q')]
    quiet: bool,
    /// Say what happens, to stderr; repeat for more.
    #[arg(short = 'v', action = clap::ArgAction::Count)]
    verbose: u8,
    /// Append what -v says to a file instead.
    #[arg(short = 'E', value_name = "FILE")]
    pub(super) log_file: Option<PathBuf>,
    /// Forward a local port: [BIND:]PORT:HOST:HOSTPORT as the node sees HOST; a path is a Unix socket.
    #[arg(short = 'L', value_name = "FORWARD")]
    local: Vec<String>,
    /// Have the node listen, and forward to here: [BIND:]PORT:HOST:HOSTPORT as this machine sees HOST; a path is a Unix
    /// socket. Port 0: one that is free.
    #[arg(short = 'R', value_name = "FORWARD")]
    remote: Vec<String>,
    /// Go to the background when the forwards stand and the command runs.
    #[arg(short = 'f')]
    pub(super) background: bool,
    /// Forward what a local SOCKS proxy is asked for: [BIND:]PORT.
    #[arg(short = 'D', value_name = "FORWARD")]
    dynamic: Vec<String>,
    /// Connect standard input and output to HOST:PORT as the node sees it.
    #[arg(short = 'W', value_name = "HOST:PORT", conflicts_with_all = ["command", "no_command"])]
    stdio: Option<String>,
    /// Offer the local SSH agent to the node. Root there can use it meanwhile.
    #[arg(short = 'A')]
    agent: bool,
    /// Do not offer the SSH agent.
    #[arg(short = 'a', overrides_with = "agent")]
    no_agent: bool,
    /// The command is the name of a subsystem.
    #[arg(short = 's')]
    subsystem: bool,
    /// Escape character; "none" for none.
    #[arg(short = 'e', value_name = "CHARACTER")]
    escape: Option<String>,
    /// An option of ssh_config(5), Key=Value.
    #[arg(short = 'o', value_name = "OPTION")]
    pub(super) options: Vec<String>,
    /// Accepted for ssh's sake, without effect.
    #[arg(short = 'C', hide = true)]
    compress: bool,
    /// Accepted for ssh's sake, without effect.
    #[arg(short = '4', hide = true)]
    ipv4: bool,
    /// Accepted for ssh's sake, without effect.
    #[arg(short = '6', hide = true)]
    ipv6: bool,
    /// Offer the local display to the node's programs, which can neither read the screen nor the keyboard of others.
    #[arg(short = 'X')]
    x11: bool,
    /// Offer the local display, and trust the node's programs with all of it.
    #[arg(short = 'Y')]
    trusted_x11: bool,
    /// Do not offer the display.
    #[arg(short = 'x')]
    no_x11: bool,
    /// Accepted for ssh's sake, and not read: settings are the login's and the command line's.
    #[arg(short = 'F', value_name = "FILE", hide = true)]
    config_file: Option<String>,
    /// Accepted for ssh's sake, and not read: who you are is the login's to say.
    #[arg(short = 'i', value_name = "FILE", hide = true)]
    identity: Vec<String>,
    /// Not for this command: the proxy is the way to every node.
    #[arg(short = 'J', value_name = "HOST", hide = true)]
    jump: Option<String>,
    /// Show at the end, on stderr, where the time to the first byte went: phases and their round trips. As JSON with
    /// --trace=json; to a collector of OpenTelemetry with --trace=otlp.
    #[arg(long, value_enum, value_name = "FORMAT", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    pub(super) trace: Option<trace::Format>,
    /// Use the stored login to this cluster.
    #[arg(long)]
    pub(super) cluster: Option<String>,
    /// Run the command on all nodes with these labels, such as env=prod,team=db: in the place of the destination.
    #[arg(long, value_name = "[LOGIN@]LABELS", value_parser = labels)]
    hosts: Option<String>,
    /// Where to: [LOGIN@]NODE, or labels that select nodes, such as env=prod,team=db.
    #[arg(required_unless_present = "hosts")]
    destination: Option<String>,
    /// What to run. Default: the login's shell.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Labels, as --hosts takes them.
fn labels(text: &str) -> Result<String, String> {
    let target = target::parse(text).map_err(|error| error.what().to_owned())?;
    match target.is_selector() {
        true => Ok(text.to_owned()),
        false => Err("labels have a =, such as env=prod; for one node leave --hosts out".to_owned()),
    }
}

impl Args {
    /// Where to.
    pub(super) fn destination(&self) -> &str {
        self.hosts.as_deref().or(self.destination.as_deref()).unwrap_or_default()
    }

    /// The words of what to run: with --hosts the first of them stands where the destination does otherwise.
    fn words(&self) -> Vec<&str> {
        let first = self.destination.as_deref().filter(|_| self.hosts.is_some());
        first.into_iter().chain(self.command.iter().map(String::as_str)).collect()
    }

    /// Whether what happens is traced.
    pub(crate) fn traces(&self) -> bool {
        self.trace.is_some()
    }
}

/// What is to be done, once the command line is understood.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) options: Options,
    pub(super) program: Option<Program>,
    pub(super) stdio: Option<(String, u16)>,
    /// Where the time goes is to be shown.
    pub(super) trace: Option<trace::Format>,
}

impl Plan {
    pub(super) fn make(args: &Args) -> CliResult<(Self, Target)> {
        if let Some(jump) = &args.jump {
            return Err(CliError::new(format!(
                "sallyport ssh reaches every node through the cluster's proxy, and not through {jump} (-J)"
            ))
            .hint("leave -J out; or, with stock ssh: sallyport config > FILE; ssh -F FILE -J …")
            .exit(Exit::Usage));
        }
        let mut options = Options::default();
        // Switches come first: in ssh, the first value stands.
        if args.no_tty {
            options.request_tty = RequestTty::No;
        } else if args.tty > 0 {
            options.request_tty = if args.tty > 1 { RequestTty::Force } else { RequestTty::Yes };
        }
        options.user.clone_from(&args.login);
        if let Some(escape) = &args.escape {
            options.escape = Some(options::parse_escape(escape)?);
        }
        args.options.iter().try_for_each(|text| options.apply(text))?;
        options.forward_agent = (options.forward_agent || args.agent) && !args.no_agent;
        options.no_input |= args.no_input;
        options.no_session |= args.no_command;
        options.subsystem |= args.subsystem;
        options.quiet |= args.quiet;
        options.verbose |= args.verbose > 0;
        options.x11 = (options.x11 || args.x11 || args.trusted_x11) && !args.no_x11;
        options.trusted_x11 |= args.trusted_x11;
        options.no_input |= args.background;
        if !options.quiet {
            if let Some(file) =
                args.config_file.as_deref().filter(|file| !matches!(*file, "none" | "/dev/null"))
            {
                ui::say(format!(
                    "note: {file} is not read; give what matters of it with -o (sallyport config is for stock ssh)"
                ));
            }
            for file in &args.identity {
                ui::say(format!("note: {file} is not used; you are who you logged in as (sallyport status)"));
            }
        }
        for text in &args.local {
            options.forwards.push(options::parse_forward(text, false)?);
        }
        for text in &args.remote {
            options.forwards.push(options::parse_forward(text, true)?);
        }
        for text in &args.dynamic {
            options.forwards.push(options::parse_dynamic(text)?);
        }
        let target = target::parse(args.destination())?;
        if (args.port.or(target.port)).is_some_and(|port| port != 22) && options.verbose {
            ui::say(
                "note: the port is ignored; a node has one SSH service, reached through the cluster's address",
            );
        }
        // As ssh does: the words are joined by spaces, and the login's shell splits them again.
        let words = args.words();
        let command = (!words.is_empty()).then(|| words.join(" "));
        let command = command.or_else(|| options.remote_command.clone());
        let program = match (options.no_session, options.subsystem, command) {
            (true, ..) => None,
            (_, true, Some(name)) => Some(Program::Subsystem(name)),
            (_, true, None) => {
                return Err(CliError::new("-s needs the name of a subsystem")
                    .hint("sallyport ssh -s LOGIN@NODE sftp")
                    .exit(Exit::Usage));
            }
            (_, _, Some(command)) => Some(Program::Exec(command.into_bytes())),
            (_, _, None) => Some(Program::Shell),
        };
        if args.background && program == Some(Program::Shell) {
            return Err(CliError::new("-f needs a command to run in the background, or -N")
                .hint("sallyport ssh -f LOGIN@NODE COMMAND; or with -L, -R or -D: sallyport ssh -f -N ...")
                .exit(Exit::Usage));
        }
        let stdio = args.stdio.as_deref().map(options::parse_host_port).transpose()?;
        Ok((Self { options, program, stdio, trace: args.trace }, target))
    }

    /// Starts logging for `-v`, unless `--log` did; where there is a trace, both.
    pub(super) fn log(&self, global: &Global, file: Option<&std::path::Path>) -> CliResult {
        let verbose = || {
            EnvFilter::new("info,sallyport=debug,sallyport_ssh=debug,sallyport_ca=debug,sallyport::phase=off")
        };
        if let Some(format) = self.trace {
            let filter = crate::global::log_filter(global).or_else(|| self.options.verbose.then(verbose));
            return trace::start(format, filter, file);
        }
        if !self.options.verbose || global.log.is_some() {
            return Ok(());
        }
        let filter = verbose();
        let builder = tracing_subscriber::fmt().with_env_filter(filter);
        let _ = match file {
            Some(path) => {
                let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
                let file = file.doing(format!("open {}", path.display()))?;
                builder.with_ansi(false).with_writer(std::sync::Mutex::new(file)).try_init()
            }
            None => builder.with_ansi(false).with_writer(|| ui::Log).try_init(),
        };
        Ok(())
    }

    /// Whether a connection is for one session, and nothing besides.
    pub(super) fn is_one_session(&self) -> bool {
        let options = &self.options;
        let plain = options.forwards.is_empty() && !options.forward_agent && !options.x11;
        plain && self.program.is_some() && self.stdio.is_none()
    }

    pub(super) fn wants_terminal(&self) -> bool {
        match self.options.request_tty {
            RequestTty::No => false,
            RequestTty::Force => true,
            RequestTty::Yes => terminal::is_terminal(),
            RequestTty::Auto => self.program == Some(Program::Shell) && terminal::is_terminal(),
        }
    }

    pub(super) fn request(&self, program: Program, with_terminal: bool) -> SessionRequest {
        let present = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        SessionRequest {
            program,
            terminal: with_terminal.then(terminal::like_this),
            environment: options::environment(&self.options, present),
            forward_agent: self.options.forward_agent,
            display: None,
        }
    }

    /// The display to offer; without one the session goes on, as ssh has it.
    pub(super) async fn display(&self) -> Option<Arc<Display>> {
        if !self.options.x11 {
            return None;
        }
        let name = std::env::var("DISPLAY").ok().filter(|name| !name.is_empty());
        let found = match name {
            None => Err("DISPLAY is not set".to_owned()),
            Some(name) => {
                let found = Display::find(&name, self.options.trusted_x11).await;
                found.map_err(|error| error.to_string())
            }
        };
        found.map(Arc::new).map_err(|reason| ui::say(format!("note: no display is forwarded: {reason}"))).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn plan(words: &[&str]) -> CliResult<(Plan, Target)> {
        let line = Line::try_parse_from([&["ssh"], words].concat())
            .map_err(|error| CliError::new(error.to_string()))?;
        Plan::make(&line.args)
    }

    #[test]
    fn command_lines_mean_what_they_mean_to_ssh() {
        let (plan_, target) = plan(&["-l", "root", "web-1", "-t", "ls", "-la", "--color"]).unwrap();
        assert_eq!(target.host, "web-1");
        assert_eq!(plan_.options.user.as_deref(), Some("root"));
        assert_eq!(plan_.options.request_tty, RequestTty::Yes);
        assert_eq!(plan_.program, Some(Program::Exec(b"ls -la --color".to_vec())));
        let (shell, _) = plan(&["root@web-1"]).unwrap();
        assert_eq!(shell.program, Some(Program::Shell));
        let (quoted, _) = plan(&["web-1", "echo", "a  b"]).unwrap();
        assert_eq!(quoted.program, Some(Program::Exec(b"echo a  b".to_vec())));
        let (none, _) = plan(&["-N", "-L", "8080:localhost:80", "-D1080", "web-1"]).unwrap();
        assert_eq!((none.program, none.options.forwards.len()), (None, 2));
        let (back, _) =
            plan(&["-f", "-N", "-R", "0:localhost:80", "-i", "key", "-F", "none", "web-1"]).unwrap();
        assert!(back.options.forwards[0].remote && back.options.no_input);
        let (forced, _) = plan(&["-tt", "-o", "RequestTTY=no", "web-1"]).unwrap();
        assert_eq!(forced.options.request_tty, RequestTty::Force);
        let (subsystem, _) = plan(&["-s", "web-1", "sftp"]).unwrap();
        assert_eq!(subsystem.program, Some(Program::Subsystem("sftp".to_owned())));
        let (agent, _) = plan(&["-A", "web-1"]).unwrap();
        assert!(agent.options.forward_agent);
        let (no_agent, _) = plan(&["-a", "-o", "ForwardAgent=yes", "web-1"]).unwrap();
        assert!(!no_agent.options.forward_agent);
        let (dashes, _) = plan(&["web-1", "--", "-x"]).unwrap();
        assert_eq!(dashes.program, Some(Program::Exec(b"-x".to_vec())));
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        for (words, said) in [
            (&["-s", "web-1"][..], "name of a subsystem"),
            (&["-R", "1080", "web-1"], "is not [BIND:]PORT"),
            (&["-J", "bastion", "web-1"], "through the cluster's proxy"),
            (&["-f", "web-1"], "-f needs a command"),
            (&["-o", "ProxyJump=x", "web-1"], "ProxyJump"),
            (&["-L", "80", "web-1"], "is not [BIND:]PORT"),
            (&["-e", "xx", "web-1"], "escape character"),
        ] {
            let error = plan(words).unwrap_err().to_string();
            assert!(error.contains(said), "{words:?}: {error}");
        }
    }
}
