//! `sallyport config`: what stock OpenSSH needs to know.

use sallyport_access::text;
use sallyport_sal::selection;

use crate::crypto;
use crate::error::{CliError, CliResult, Context, Exit};
use crate::global::Global;
use crate::ui;
use sallyport_client::profile::Stored;
use sallyport_client::{advice, own_ssh_key};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Go through the cluster's SSH face with ProxyJump, so that the sallyport command is not needed to connect.
    #[arg(long)]
    jump: bool,
    /// OS login for nodes, when `ssh` is not given one.
    #[arg(long)]
    login: Option<String>,
}

pub(crate) fn run(global: &Global, args: &Args) -> CliResult {
    let stored = global.profiles().load()?;
    let command = std::env::current_exe().doing("find the path of this program")?;
    // A line of ssh_config(5) has no way to write them, and what follows the end of a line is another setting.
    let given = [
        ("--login", args.login.clone().unwrap_or_default()),
        ("--ssh-key of the login", stored.ssh_key_path().to_string_lossy().into_owned()),
        ("--home", stored.directory.to_string_lossy().into_owned()),
        ("--proxy", stored.profile.proxy.clone()),
        ("the path of this program", command.to_string_lossy().into_owned()),
    ];
    for (what, text) in &given {
        text::check(what, text).map_err(|hidden| CliError::new(hidden.to_string()).exit(Exit::Usage))?;
        if own_ssh_key::is_expanded(text) {
            return Err(CliError::new(format!(
                "{what} has ${{ in it, which ssh would take for a variable of its environment"
            ))
            .hint("move or rename it")
            .exit(Exit::Usage));
        }
    }
    if !args.jump {
        // The helper has ssh go end to end where this does not work.
        let _ = stored.local_host_key();
    }
    ui::raw(render(&stored, args, &command.to_string_lossy()).as_bytes())
}

/// ssh_config(5) takes an argument with spaces or quotes between double quotes, with `\"` and `\\` inside. In the name of a file `%` begins a
/// token.
fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%"))
}

/// A word of the shell that ProxyCommand is run by, with `%` doubled for ssh.
fn shell_word(text: &str) -> String {
    advice::shell_word(&text.replace('%', "%%"))
}

/// What ssh runs to reach a node. Where this process is in FIPS mode, it is, too. With a key of the user's own, SSH goes to the node itself, so
/// that the key signs each connection: to the helper, which has the login's key of TLS, ssh proves nothing.
fn helper(command: &str, home: &str, proxy: &str, fips: bool, own: bool) -> String {
    let mut words = Vec::new();
    if fips {
        // ssh has the shell `exec` the line, which takes no assignment.
        words.extend(["env".to_owned(), format!("{}=fips", crypto::VARIABLE)]);
    }
    words.extend([shell_word(command), "--home".to_owned(), shell_word(home)]);
    words.extend(["--proxy".to_owned(), shell_word(proxy)]);
    // A shell reads this line. ssh before 9.6 puts any name into it that a link or a repository may give.
    let native = if own { "" } else { " --native" };
    format!("{} proxy ssh{native} -- '%r@%h:%p'", words.join(" "))
}

fn render(stored: &Stored, args: &Args, command: &str) -> String {
    let profile = &stored.profile;
    let cluster = &profile.cluster;
    let (host, port) = profile.proxy.rsplit_once(':').unwrap_or((&profile.proxy, "3080"));
    let host = host.trim_matches(['[', ']']);
    let path = |path: std::path::PathBuf| quote(&path.to_string_lossy());
    let known_hosts = path(stored.known_hosts_path());
    let key = path(stored.ssh_key_path());
    let certificate = path(stored.ssh_certificate_path());
    let identity = |methods: &str| {
        format!(
            "    UserKnownHostsFile {known_hosts}\n    StrictHostKeyChecking yes\n    IdentitiesOnly yes\n    \
             IdentityFile {key}\n    CertificateFile {certificate}\n    PreferredAuthentications {methods}\n"
        )
    };
    // The proxy asks the user `mfa` for a second factor.
    let (of_nodes, of_proxy) = (identity("publickey"), identity("publickey,keyboard-interactive"));
    let login = args.login.as_ref().map(|login| format!("    User {login}\n")).unwrap_or_default();
    let mut text = format!(
        "# OpenSSH configuration for the Sallyport cluster {cluster}.\n\
         # Use it once:    sallyport config > FILE; ssh -F FILE LOGIN@NODE.{cluster}\n\
         # Use it always:  sallyport config >> ~/.ssh/config\n\n\
         Host *.{cluster}\n{login}{of_nodes}"
    );
    if args.jump {
        text.push_str(&format!("    ProxyJump {cluster}-proxy\n\n"));
    } else {
        let home = stored.directory.parent().unwrap_or(&stored.directory).to_string_lossy();
        let (fips, own) = (selection::global().is_fips(), profile.ssh_key.is_some());
        let helper = helper(command, &home, &profile.proxy, fips, own);
        text.push_str(&format!("    ProxyCommand {helper}\n\n"));
    }
    // Under a name of its own: the same machine may well run an sshd that this must not shadow.
    text.push_str(&format!(
        "# For ssh -J {cluster}-proxy: the cluster's own SSH face.\nHost {cluster}-proxy\n    HostName {host}\n    Port {port}\n    \
         User {}\n{of_proxy}",
        profile.user
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_helper_keeps_to_the_mode() {
        let line = "/usr/bin/sallyport --home /h --proxy p:443 proxy ssh --native -- '%r@%h:%p'";
        assert_eq!(helper("/usr/bin/sallyport", "/h", "p:443", false, false), line);
        assert_eq!(
            helper("/usr/bin/sallyport", "/h", "p:443", true, false),
            format!("env SALLYPORT_CRYPTO=fips {line}")
        );
        assert_eq!(
            helper("/usr/bin/sallyport", "/h", "p:443", false, true),
            line.replace(" --native", ""),
            "the user's own key is asked"
        );
    }

    #[test]
    fn words_survive_ssh_and_the_shell() {
        assert_eq!(shell_word("/usr/bin/sallyport"), "/usr/bin/sallyport");
        assert_eq!(shell_word("/home/a b/it's 100%"), "'/home/a b/it'\\''s 100%%'");
        assert_eq!(quote("/a \"b\" 1%"), "\"/a \\\"b\\\" 1%%\"");
    }
}
