//! What to try next when something did not work.

use sallyport_wire::admin_factor::Wanted;
use tonic::{Code, Status};

use crate::error::{Error, TlsFailure, was_reached};
use crate::no_public_key::NoPublicKey;

/// What to do when something was said early and not answered.
pub const LOOK: &str = "look whether it was done before you do it again";

/// When a connection was lost.
pub const AGAIN: &str = "connect again; sallyport status  (is the proxy up, and reachable from here?)";
/// When what answers is no cluster.
const ONE_ADDRESS: &str = "check the port: a cluster has one address for everything";
/// When the cluster says less, or more, than this release knows.
const VERSIONS: &str = "sallyport --version  (client and cluster versions may be too far apart)";

impl Error {
    /// The next command to try, or what to look at.
    #[must_use]
    pub fn advice(&self) -> Option<String> {
        let fixed = |advice: &str| Some(advice.to_owned());
        match self {
            Self::Failed { .. } | Self::NotSigned(_) => None,
            Self::Unusable { .. } => fixed(AGAIN),
            Self::Unshaken { .. } => fixed("check the address: sallyport status --proxy HOST:PORT"),
            Self::NoPin { .. } => fixed(ONE_ADDRESS),
            Self::Lacking(_) => fixed(VERSIONS),
            Self::OtherUser { user, wanted } => Some(format!(
                "log in at the page as {wanted}; or, if you are {user}: sallyport login --user {user}"
            )),
            Self::PasskeysElsewhere { origins, .. } => elsewhere(origins),
            Self::FactorWanted { demanded } => Some(demanded.beforehand()),
            Self::FactorRefused { .. } => fixed(
                "connect again; if you did not ask for this session, sallyport logout, and tell an administrator",
            ),
            Self::NoOneToAsk => fixed("run it in a terminal; or --otp CODE"),
            Self::NoPublicKey { file, why } => public_key(&file.display().to_string(), why),
            Self::KeyNotInAgent { file, .. } => Some(in_agent(&file.display().to_string())),
            Self::LoginNotProven { .. } => fixed("sallyport login"),
            Self::Setting { variable, allowed, .. } => Some(format!("{variable}={allowed}")),
            Self::NoHome => fixed("set SALLYPORT_HOME"),
            Self::Address(_) => fixed("sallyport login --proxy HOST:PORT"),
            Self::NoLogin | Self::NoLoginTo(_) => fixed("sallyport login --proxy HOST:PORT --user NAME"),
            Self::NoLoginAt { proxy } => Some(format!("sallyport login --proxy {proxy} --user NAME")),
            Self::SeveralLogins(_) => fixed("name one: --proxy HOST:PORT"),
            Self::Expired { proxy, user, .. } => {
                Some(format!("sallyport login --proxy {proxy} --user {user}"))
            }
            Self::Damaged { proxy, .. } | Self::Unreadable { proxy, .. } => {
                Some(format!("sallyport login --proxy {proxy}"))
            }
            Self::ForeignFile { directory, .. } => Some(format!(
                "remove {0} and log in again; or, if you know that nothing was changed: chown and chmod 700 {0}",
                directory.display()
            )),
            Self::OpenFile { path, secret, .. } => Some(format!(
                "chmod {} {}; and sallyport login, if another user may have used that",
                if *secret { "go-rwx" } else { "go-w" },
                path.display()
            )),
            Self::Unreached { .. } => {
                fixed("check the address and that the cluster is up: sallyport status --proxy HOST:PORT")
            }
            Self::UnreachedByQuic { .. } => {
                fixed("SALLYPORT_CARRIER=auto goes by TCP where UDP does not come through")
            }
            Self::NoSocket { .. } => fixed("start the authority, or log in and leave --data-dir away"),
            Self::Tls { why, .. } => fixed(tls(why)),
            Self::Pin(_) => fixed("a pin looks like sha256: followed by 64 hexadecimal digits"),
            Self::Answered { status, .. } => answered(status).map(str::to_owned),
            Self::Lifetime { .. } => fixed("leave --ttl out: the login then is as long as your roles allow"),
            Self::Node { node, login, status } => on_node(node, login, status),
            Self::Database { status, .. } => on_database(status).map(str::to_owned),
            Self::Resource { kind, status, .. } => on_resource(kind, status),
            Self::StreamLost { .. } => fixed(AGAIN),
            Self::Unasked { .. } => {
                fixed("sallyport status  (is the authority up, and reachable from here?)")
            }
            Self::NoDatabase(_) => fixed("sallyport db ls"),
            Self::NoResource { kind, .. } => Some(format!("sallyport {kind} ls")),
            Self::OtherNode { .. } => {
                fixed("do not go on before you know why: ask an administrator whether this node was replaced")
            }
            Self::Unproven { .. } => fixed(LOOK),
            Self::NodeFailed { .. } => {
                fixed("sallyport status  (is the certificate still valid?); SALLYPORT_FRONT=ssh goes by SSH")
            }
            Self::OnlySsh { variable, .. } => Some(format!("{variable}=auto; or update the node's agent")),
            Self::NoLongerNative { .. } => fixed(
                "if you know of a change there, connect again, which goes by SSH; else ask an administrator first",
            ),
            Self::Relayed { advice, .. } => advice.clone(),
        }
    }
}

fn elsewhere(origins: &[String]) -> Option<String> {
    let Some(address) = origins.first().and_then(|origin| origin.strip_prefix("https://")) else {
        return Some("ask an administrator: passkeys want auth.authentication.webauthn.origins".to_owned());
    };
    let port = if address.contains(':') { "" } else { ":443" };
    Some(format!(
        "sallyport login --proxy {address}{port} --security-key, if you know that address as the cluster's"
    ))
}

/// A word of a shell's command.
#[must_use]
pub fn shell_word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%=".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "'\\''"))
    }
}

/// How an agent gets the key of this file. Without the private key beside it the key is in a token, or in an agent that is another one.
fn in_agent(file: &str) -> String {
    if file.ends_with(".pub") {
        return "have your agent hold the key (ssh-add -L shows what it does), or name the agent in SSH_AUTH_SOCK".to_owned();
    }
    format!("ssh-add {}  (stock ssh goes without an agent: sallyport config)", shell_word(file))
}

fn public_key(file: &str, why: &NoPublicKey) -> Option<String> {
    match why {
        NoPublicKey::Private => {
            Some(format!("ssh-keygen -y -f {} > {}", shell_word(file), shell_word(&format!("{file}.pub"))))
        }
        NoPublicKey::Unsupported(_) => Some("ssh-keygen -t ed25519-sk, or -t ed25519, makes one".to_owned()),
        NoPublicKey::Certificate | NoPublicKey::SeveralLines => {
            Some("name the public key, such as ~/.ssh/id_ed25519_sk.pub".to_owned())
        }
        NoPublicKey::Missing => Some("ls ~/.ssh/*.pub  (shows the public keys that you have)".to_owned()),
        NoPublicKey::NoFile | NoPublicKey::Unreadable(_) | NoPublicKey::Name | NoPublicKey::TooLong => None,
    }
}

fn tls(why: &TlsFailure) -> &'static str {
    match why {
        TlsFailure::OtherPin { .. } => {
            "get the pin from an administrator (sallyport admin status shows it), or a new invite link"
        }
        TlsFailure::Expired { .. } => "date; then sallyport login",
        TlsFailure::NotYetValid { .. } => "date; a minute of difference is tolerated",
        TlsFailure::UnknownIssuer { .. } => {
            "if you know why, get the new pin from an administrator: sallyport login --proxy HOST:PORT --ca-pin PIN"
        }
        TlsFailure::NotSpoken { .. } => ONE_ADDRESS,
        TlsFailure::Other { .. } => "check the address: sallyport status --proxy HOST:PORT",
    }
}

fn answered(status: &Status) -> Option<&'static str> {
    match Wanted::of(status) {
        Some(Wanted::Prove) => return Some("sallyport admin prove  (without a terminal: --otp CODE)"),
        Some(Wanted::Enrol) => return Some("sallyport mfa add NAME"),
        None => {}
    }
    match status.code() {
        Code::ResourceExhausted if status.message().contains("disk is full") => {
            Some("make room on the disk of the authority's data_dir: df -h, sallyport recordings rm")
        }
        Code::Unavailable if !was_reached(status) => {
            Some("sallyport status  (is the proxy up, and reachable from here?)")
        }
        Code::Unimplemented => Some(VERSIONS),
        _ => None,
    }
}

fn on_node(node: &str, login: &str, status: &Status) -> Option<String> {
    let advice = match status.code() {
        Code::NotFound => "sallyport ls",
        Code::PermissionDenied if !login.is_empty() => {
            return Some(format!(
                "sallyport ls  (shows the logins you may use; {login} is not one of them on {node}, or a lock is in force)"
            ));
        }
        Code::PermissionDenied => "sallyport ls",
        Code::InvalidArgument => "sallyport ls --verbose  (then use the id in place of the name)",
        Code::Unauthenticated => "sallyport login",
        Code::ResourceExhausted => "close some sessions and try again",
        _ => answered(status)?,
    };
    Some(advice.to_owned())
}

fn on_database(status: &Status) -> Option<&'static str> {
    match status.code() {
        Code::PermissionDenied => {
            Some("sallyport db ls  (shows the databases, users and names that you may use)")
        }
        Code::Unauthenticated => Some("sallyport login"),
        Code::NotFound => Some("sallyport db ls"),
        Code::ResourceExhausted => Some("close some connections and try again"),
        _ => answered(status),
    }
}

fn on_resource(kind: &str, status: &Status) -> Option<String> {
    let advice = match status.code() {
        Code::PermissionDenied | Code::NotFound => return Some(format!("sallyport {kind} ls")),
        Code::Unauthenticated => "sallyport login",
        Code::ResourceExhausted => "close some connections and try again",
        Code::FailedPrecondition => "try again in a moment",
        Code::Unimplemented => "ask an administrator to update the proxy",
        _ => answered(status)?,
    };
    Some(advice.to_owned())
}
