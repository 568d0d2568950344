//! `-o Key=Value`, as ssh_config(5) spells them: those that mean something here, those that need not, and the rest.

use std::time::Duration;

use sallyport_ssh::client::Endpoint;

use crate::error::{CliError, CliResult, Exit};

/// Whether the session gets a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum RequestTty {
    /// When there is no command and a person sits here.
    #[default]
    Auto,
    /// When a person sits here.
    Yes,
    /// Always.
    Force,
    /// Never.
    No,
}

/// One `-L`, `-D` or `-R`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ForwardSpec {
    /// Where to listen; `localhost` unless given.
    pub(super) listen: Endpoint,
    /// Where it comes out; `None` for `-D`.
    pub(super) to: Option<Endpoint>,
    /// The node listens, and it comes out here.
    pub(super) remote: bool,
}

/// What the options say. Command-line switches are put on top.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Options {
    pub(super) user: Option<String>,
    pub(super) request_tty: RequestTty,
    pub(super) forward_agent: bool,
    pub(super) x11: bool,
    pub(super) trusted_x11: bool,
    pub(super) forwards: Vec<ForwardSpec>,
    pub(super) exit_on_forward_failure: bool,
    /// A socket in the place of one to listen on goes.
    pub(super) replace_sockets: bool,
    pub(super) set_env: Vec<(String, String)>,
    pub(super) send_env: Vec<String>,
    pub(super) keepalive: Option<Duration>,
    pub(super) connect_timeout: Option<Duration>,
    /// `None`: the default `~`. `Some(None)`: none.
    pub(super) escape: Option<Option<u8>>,
    pub(super) remote_command: Option<String>,
    pub(super) no_input: bool,
    pub(super) no_session: bool,
    pub(super) subsystem: bool,
    pub(super) quiet: bool,
    pub(super) verbose: bool,
}

/// Options that are settled otherwise here, and harmless to give: certificates prove both ends, the proxy is the way,
/// and the algorithms are those of the cluster.
const WITHOUT_EFFECT: &[&str] = &[
    "addkeystoagent",
    "addressfamily",
    "batchmode",
    "canonicalizehostname",
    "certificatefile",
    "checkhostip",
    "ciphers",
    "clearallforwardings",
    "compression",
    "connectionattempts",
    "controlmaster",
    "controlpath",
    "controlpersist",
    "fingerprinthash",
    "globalknownhostsfile",
    "gssapiauthentication",
    "gssapidelegatecredentials",
    "hashknownhosts",
    "hostkeyalgorithms",
    "identitiesonly",
    "identityagent",
    "identityfile",
    "ipqos",
    "kbdinteractiveauthentication",
    "kexalgorithms",
    "macs",
    "nohostauthenticationforlocalhost",
    "numberofpasswordprompts",
    "passwordauthentication",
    "port",
    "preferredauthentications",
    "pubkeyauthentication",
    "rekeylimit",
    "serveralivecountmax",
    "stricthostkeychecking",
    "tcpkeepalive",
    "updatehostkeys",
    "userknownhostsfile",
    "verifyhostkeydns",
    "visualhostkey",
];

const SUPPORTED: &str = "ConnectTimeout, DynamicForward, EscapeChar, ExitOnForwardFailure, ForwardAgent, ForwardX11, \
    ForwardX11Trusted, LocalForward, \
    LogLevel, RemoteCommand, RemoteForward, RequestTTY, SendEnv, ServerAliveInterval, SessionType, SetEnv, StdinNull, \
    StreamLocalBindUnlink, User";

fn usage(what: String) -> CliError {
    CliError::new(what).exit(Exit::Usage)
}

impl Options {
    /// Takes in one `-o`. As in ssh, the first value of an option stands; forwards and variables add up.
    pub(super) fn apply(&mut self, text: &str) -> CliResult {
        let text = text.trim();
        let split = text.find(|c: char| c == '=' || c.is_whitespace());
        let (key, value) = split.and_then(|at| text.split_at_checked(at)).unwrap_or((text, ""));
        let value = value.trim_start();
        let value = value.strip_prefix('=').unwrap_or(value).trim();
        let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value);
        if key.is_empty() || value.is_empty() {
            return Err(usage(format!("-o {text:?} is not Key=Value")));
        }
        let lower = key.to_ascii_lowercase();
        match lower.as_str() {
            "user" => first(&mut self.user, value.to_owned()),
            "requesttty" => {
                let asked = match value.to_ascii_lowercase().as_str() {
                    "auto" => RequestTty::Auto,
                    "yes" | "true" => RequestTty::Yes,
                    "force" => RequestTty::Force,
                    "no" | "false" => RequestTty::No,
                    _ => {
                        return Err(usage(format!(
                            "RequestTTY is {value:?}; expected yes, no, force or auto"
                        )));
                    }
                };
                if self.request_tty == RequestTty::Auto {
                    self.request_tty = asked;
                }
            }
            "forwardagent" => self.forward_agent |= flag(key, value)?,
            "forwardx11" => self.x11 |= flag(key, value)?,
            "forwardx11trusted" => self.trusted_x11 |= flag(key, value)?,
            "exitonforwardfailure" => self.exit_on_forward_failure |= flag(key, value)?,
            "stdinnull" => self.no_input |= flag(key, value)?,
            "localforward" | "remoteforward" => {
                let (listen, to) = value
                    .split_once(char::is_whitespace)
                    .ok_or_else(|| usage(format!("{key} is {value:?}; expected LISTEN HOST:PORT")))?;
                let text = format!("{listen}:{}", to.trim());
                self.forwards.push(parse_forward(&text, lower == "remoteforward")?);
            }
            "streamlocalbindunlink" => self.replace_sockets |= flag(key, value)?,
            "dynamicforward" => self.forwards.push(parse_dynamic(value)?),
            "setenv" => {
                for pair in value.split_whitespace() {
                    let (name, content) = pair
                        .split_once('=')
                        .filter(|(name, _)| !name.is_empty())
                        .ok_or_else(|| usage(format!("SetEnv has {pair:?}; expected NAME=VALUE")))?;
                    self.set_env.push((name.to_owned(), content.trim_matches('"').to_owned()));
                }
            }
            "sendenv" => self.send_env.extend(value.split_whitespace().map(str::to_owned)),
            "serveraliveinterval" => first(&mut self.keepalive, seconds(key, value)?),
            "connecttimeout" => first(&mut self.connect_timeout, seconds(key, value)?),
            "escapechar" => first(&mut self.escape, parse_escape(value)?),
            "remotecommand" if value != "none" => first(&mut self.remote_command, value.to_owned()),
            "remotecommand" => {}
            "sessiontype" => match value.to_ascii_lowercase().as_str() {
                "none" => self.no_session = true,
                "subsystem" => self.subsystem = true,
                "default" => {}
                _ => {
                    return Err(usage(format!(
                        "SessionType is {value:?}; expected none, subsystem or default"
                    )));
                }
            },
            "loglevel" => match value.to_ascii_uppercase().as_str() {
                "QUIET" | "FATAL" => self.quiet = true,
                "VERBOSE" | "DEBUG" | "DEBUG1" | "DEBUG2" | "DEBUG3" => self.verbose = true,
                _ => {}
            },
            known if WITHOUT_EFFECT.contains(&known) => {}
            _ => {
                return Err(CliError::new(format!(
                    "sallyport ssh does not support the option {key}; it supports {SUPPORTED}"
                ))
                .hint("sallyport config > FILE; ssh -F FILE …  (stock ssh, with every option it has)")
                .exit(Exit::Usage));
            }
        }
        Ok(())
    }
}

fn first<T>(slot: &mut Option<T>, value: T) {
    slot.get_or_insert(value);
}

fn flag(key: &str, value: &str) -> CliResult<bool> {
    match value.to_ascii_lowercase().as_str() {
        "yes" | "true" => Ok(true),
        "no" | "false" => Ok(false),
        _ => Err(usage(format!("{key} is {value:?}; expected yes or no"))),
    }
}

fn seconds(key: &str, value: &str) -> CliResult<Duration> {
    value
        .parse()
        .ok()
        .or_else(|| crate::ui::parse_duration(value).ok().map(|duration| duration.as_secs()))
        .map(Duration::from_secs)
        .ok_or_else(|| usage(format!("{key} is {value:?}; expected seconds")))
}

/// `none`, one character, or `^` and a letter.
pub(super) fn parse_escape(text: &str) -> CliResult<Option<u8>> {
    match text.as_bytes() {
        b"none" => Ok(None),
        [character] if character.is_ascii() => Ok(Some(*character)),
        [b'^', letter] if letter.is_ascii_alphabetic() || *letter == b'[' => {
            Ok(Some(letter.to_ascii_uppercase() & 0x1f))
        }
        _ => Err(usage(format!(
            "{text:?} is not an escape character; expected one character, ^LETTER or none"
        ))),
    }
}

/// Splits at colons that are not inside the brackets of an IPv6 address.
fn fields(text: &str) -> Vec<String> {
    // ssh takes slashes as well, for addresses with colons; with colons between them they are paths.
    let between = if text.contains(':') || text.starts_with('/') { ':' } else { '/' };
    let mut parts = vec![String::new()];
    let mut inside = false;
    for c in text.chars() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            c if c == between && !inside => parts.push(String::new()),
            _ => {
                if let Some(last) = parts.last_mut() {
                    last.push(c);
                }
            }
        }
    }
    parts
}

fn port(text: &str, whole: &str) -> CliResult<u16> {
    text.parse().map_err(|_| usage(format!("{text:?} in the forward {whole:?} is not a port")))
}

/// The address to listen on: every one has a name of its own on each side.
fn bind_address(text: &str, remote: bool) -> String {
    match text {
        "" | "*" if remote => String::new(),
        "" | "*" => "0.0.0.0".to_owned(),
        other => other.to_owned(),
    }
}

/// `[bind:]port:host:hostport`, or with a path instead of either pair, of `-L` and `-R`.
pub(super) fn parse_forward(text: &str, remote: bool) -> CliResult<ForwardSpec> {
    let wrong = || {
        usage(format!("the forward {text:?} is not [BIND:]PORT:HOST:HOSTPORT (or a path for either pair)"))
    };
    let fields = fields(text);
    let socket = |path: &str| Endpoint::Socket { path: path.to_owned() };
    let (listen, to) = match fields.as_slice() {
        [path, to @ ..] if path.contains('/') => (socket(path), to),
        [listen, to @ ..] if is_target(to) => {
            (Endpoint::Port { host: "localhost".to_owned(), port: port(listen, text)? }, to)
        }
        [bind, listen, to @ ..] => {
            (Endpoint::Port { host: bind_address(bind, remote), port: port(listen, text)? }, to)
        }
        _ => return Err(wrong()),
    };
    let to = match to {
        [path] if path.contains('/') => socket(path),
        [host, _] if host.is_empty() => return Err(usage(format!("the forward {text:?} names no host"))),
        [host, to] => Endpoint::Port { host: host.clone(), port: port(to, text)? },
        [] if remote => {
            return Err(usage(format!(
                "the forward {text:?} names no target; a SOCKS proxy on the node is not offered"
            )));
        }
        _ => return Err(wrong()),
    };
    Ok(ForwardSpec { listen, to: Some(to), remote })
}

/// Whether these say where to, with nothing before it.
fn is_target(fields: &[String]) -> bool {
    match fields {
        [path] => path.contains('/'),
        [_, last] => !last.contains('/'),
        _ => false,
    }
}

/// `[bind:]port`.
pub(super) fn parse_dynamic(text: &str) -> CliResult<ForwardSpec> {
    let (bind, listen) = match fields(text).as_slice() {
        [listen] => ("localhost".to_owned(), listen.clone()),
        [bind, listen] => (bind_address(bind, false), listen.clone()),
        _ => return Err(usage(format!("the forward {text:?} is not [BIND:]PORT"))),
    };
    let listen = Endpoint::Port { host: bind, port: port(&listen, text)? };
    Ok(ForwardSpec { listen, to: None, remote: false })
}

/// `HOST:PORT` of `-W`.
pub(super) fn parse_host_port(text: &str) -> CliResult<(String, u16)> {
    match fields(text).as_slice() {
        [host, to] if !host.is_empty() => Ok((host.clone(), port(to, text)?)),
        _ => Err(usage(format!("{text:?} is not HOST:PORT"))),
    }
}

/// The variables to send: those that are set by hand, then those of this environment that the patterns name.
pub(super) fn environment(
    options: &Options,
    present: impl Iterator<Item = (String, String)>,
) -> Vec<(String, String)> {
    let mut sent = options.set_env.clone();
    for (name, value) in present {
        let wanted = matches!(name.as_str(), "LANG" | "LANGUAGE" | "COLORTERM")
            || name.starts_with("LC_")
            || options.send_env.iter().any(|pattern| matches(pattern, &name));
        if wanted && !sent.iter().any(|(known, _)| *known == name) {
            sent.push((name, value));
        }
    }
    sent
}

/// A pattern of ssh_config(5): `*` and `?`.
fn matches(pattern: &str, name: &str) -> bool {
    fn go(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern, name) {
            ([], []) => true,
            ([b'*', rest @ ..], _) => go(rest, name) || matches!(name, [_, tail @ ..] if go(pattern, tail)),
            ([b'?', rest @ ..], [_, tail @ ..]) => go(rest, tail),
            ([a, rest @ ..], [b, tail @ ..]) if a == b => go(rest, tail),
            _ => false,
        }
    }
    go(pattern.as_bytes(), name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(texts: &[&str]) -> CliResult<Options> {
        let mut options = Options::default();
        texts.iter().try_for_each(|text| options.apply(text))?;
        Ok(options)
    }

    #[test]
    fn options_are_spelled_as_in_ssh_config() {
        let read = options(&[
            "SetEnv=A=1 B=two",
            "sendenv FOO_*",
            "RequestTTY force",
            "ForwardAgent = yes",
            "LocalForward 8080 localhost:80",
            "DynamicForward=1080",
            "ServerAliveInterval=30",
            "EscapeChar=none",
            "User=root",
            "User=second",
            "StrictHostKeyChecking=no",
            "LogLevel=ERROR",
        ])
        .unwrap();
        assert_eq!(read.set_env, [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "two".to_owned())]);
        assert_eq!(read.request_tty, RequestTty::Force);
        assert!(read.forward_agent && !read.quiet);
        assert_eq!(read.user.as_deref(), Some("root"));
        assert_eq!(read.keepalive, Some(Duration::from_secs(30)));
        assert_eq!(read.escape, Some(None));
        assert_eq!(read.forwards.len(), 2);
        let present = [("FOO_X", "x"), ("PATH", "/bin"), ("LC_ALL", "C"), ("A", "other")];
        let present = present.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        let sent = environment(&read, present);
        let names: Vec<&str> = sent.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["A", "B", "FOO_X", "LC_ALL"]);
        assert_eq!(sent[0].1, "1");
    }

    #[test]
    fn what_is_not_supported_is_said() {
        for (text, words) in [
            ("RemoteForward=1:a:2", "expected LISTEN HOST:PORT"),
            ("RemoteForward=0 a", "is not a port"),
            ("ProxyCommand=x", "does not support the option ProxyCommand"),
            ("RequestTTY=maybe", "expected yes, no, force or auto"),
            ("ForwardAgent=perhaps", "expected yes or no"),
            ("SetEnv=novalue", "expected NAME=VALUE"),
            ("User", "not Key=Value"),
            ("=x", "not Key=Value"),
            ("ConnectTimeout=soon", "expected seconds"),
        ] {
            let error = options(&[text]).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn forwards_are_read_with_and_without_addresses() {
        let port = |host: &str, port| Endpoint::Port { host: host.to_owned(), port };
        let socket = |path: &str| Endpoint::Socket { path: path.to_owned() };
        for (text, listen, to) in [
            ("8080:web:80", port("localhost", 8080), port("web", 80)),
            ("*:8080:web:80", port("0.0.0.0", 8080), port("web", 80)),
            ("[::1]:8080:[fe80::1]:80", port("::1", 8080), port("fe80::1", 80)),
            ("127.0.0.1/8080/web/80", port("127.0.0.1", 8080), port("web", 80)),
            ("8080:/run/s", port("localhost", 8080), socket("/run/s")),
            ("127.0.0.1:8080:/run/s", port("127.0.0.1", 8080), socket("/run/s")),
            ("./here:/run/s", socket("./here"), socket("/run/s")),
            ("/tmp/here:web:80", socket("/tmp/here"), port("web", 80)),
        ] {
            let read = parse_forward(text, false).unwrap();
            assert_eq!(read, ForwardSpec { listen, to: Some(to), remote: false }, "{text}");
        }
        let remote = |text| parse_forward(text, true).unwrap().listen;
        assert_eq!(remote("0:web:80"), port("localhost", 0));
        assert_eq!(remote("*:8080:web:80"), port("", 8080));
        assert_eq!(remote("/run/s:web:80"), socket("/run/s"));
        assert_eq!(parse_dynamic("1080").unwrap().listen, port("localhost", 1080));
        assert_eq!(parse_host_port("web:22").unwrap(), ("web".to_owned(), 22));
        for bad in ["", "80", "80:web", "x:web:80", "80::80", "1:2:3:4:5"] {
            assert!(parse_forward(bad, false).is_err() && parse_forward(bad, true).is_err(), "{bad}");
        }
    }

    #[test]
    fn escape_characters() {
        assert_eq!(parse_escape("none").unwrap(), None);
        assert_eq!(parse_escape("%").unwrap(), Some(b'%'));
        assert_eq!(parse_escape("^b").unwrap(), Some(2));
        assert!(parse_escape("ab").is_err());
    }
}
