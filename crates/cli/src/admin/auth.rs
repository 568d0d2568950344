//! `sallyport admin auth sign`: keys and certificates for users and programs that cannot ask for them.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sallyport_ca::keys::{SshKeyPair, TlsKey};
use sallyport_sal::formats::{self, PublicFormat};
use sallyport_sal::{KeyAlgorithm, KeyPurpose, MemoryKey, PublicKey};
use sallyport_wire::convert;
use sallyport_wire::v1::{IssuancePolicy, SignCertificateRequest, SignCertificateResponse};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::certs;
use crate::authority::Authority;
use crate::error::{CliError, CliResult, Context, Exit};
use crate::ui;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Auth {
    /// Make keys and certificates for a database, a stock OpenSSH server, a user or a workload; or a token.
    Sign(Box<Sign>),
}

#[derive(Debug, clap::Args)]
pub(super) struct Sign {
    /// What to make.
    #[arg(long, value_enum)]
    format: Kind,
    /// Where to write it: the path to which endings are added. A token without it goes to standard output.
    #[arg(long, short, value_name = "PATH")]
    out: Option<PathBuf>,
    /// db, openssh-host: what the server is reached by; names and addresses, with commas or several times.
    #[arg(long, value_delimiter = ',', value_name = "NAME,...")]
    host: Vec<String>,
    /// user, openssh-user, jwt: the user of the cluster. db-client: the database user.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// svid, jwt-svid: the workload, /PATH or spiffe://CLUSTER/PATH.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// oidc: whom the token is about.
    #[arg(long)]
    subject: Option<String>,
    /// jwt, jwt-svid, oidc: for whom the token is; several times for several.
    #[arg(long, value_name = "NAME")]
    audience: Vec<String>,
    /// How long it lives; within what sallyport admin certs policy shows.
    #[arg(long, value_parser = ui::parse_duration)]
    ttl: Option<Duration>,
    /// The algorithm of the key, in place of the suite's: rsa-2048, ecdsa-p256, ed25519, ...
    #[arg(long, conflicts_with = "public_key")]
    algorithm: Option<KeyAlgorithm>,
    /// Certify this public key instead of making one: the private key stays where it is. An OpenSSH line or PEM.
    #[arg(long, value_name = "FILE")]
    public_key: Option<PathBuf>,
    /// Replace files that are there.
    #[arg(long)]
    overwrite: bool,
    /// For programs: the names of the files and what was issued, as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Kind {
    /// A database server: PATH.key, PATH.crt, and PATH.cas, the CA of the users who log in to it.
    Db,
    /// A client that logs in to a database: PATH.key, PATH.crt, and PATH.cas, the CA of database servers. As long as may be,
    /// an hour where the configuration says nothing.
    DbClient,
    /// A stock OpenSSH server: PATH, PATH.pub, PATH-cert.pub, and PATH.cas for TrustedUserCAKeys.
    OpensshHost,
    /// A user at stock OpenSSH servers: PATH, PATH.pub, PATH-cert.pub.
    OpensshUser,
    /// A user of the cluster: PATH, PATH.pub and PATH-cert.pub for SSH; PATH.key, PATH.crt and PATH.cas for TLS.
    User,
    /// A workload's X.509-SVID: PATH.key, PATH.crt, and PATH.cas, the trust bundle.
    Svid,
    /// A token that proves a user to an application.
    Jwt,
    /// A workload's JWT-SVID.
    JwtSvid,
    /// A token that proves the cluster to a cloud provider.
    Oidc,
}

/// What a kind of certificate needs.
struct Needs {
    /// As the API calls it.
    kind: &'static str,
    ssh: Option<KeyPurpose>,
    tls: Option<KeyPurpose>,
    token: bool,
}

impl Kind {
    fn needs(self) -> Needs {
        let needs = |kind, ssh, tls| Needs { kind, ssh, tls, token: false };
        let token = |kind| Needs { kind, ssh: None, tls: None, token: true };
        match self {
            Self::Db => needs("database_server", None, Some(KeyPurpose::DatabaseServer)),
            Self::DbClient => needs("agent_to_database", None, Some(KeyPurpose::AgentToDatabase)),
            Self::OpensshHost => needs("openssh_host", Some(KeyPurpose::HostSsh), None),
            Self::OpensshUser => needs("openssh_user", Some(KeyPurpose::UserSsh), None),
            Self::User => needs("user", Some(KeyPurpose::UserSsh), Some(KeyPurpose::UserTls)),
            Self::Svid => needs("svid", None, Some(KeyPurpose::Svid)),
            Self::Jwt => token("jwt"),
            Self::JwtSvid => token("jwt_svid"),
            Self::Oidc => token("oidc"),
        }
    }
}

/// A file to be written.
struct Output {
    path: PathBuf,
    content: Zeroizing<Vec<u8>>,
}

pub(super) async fn run(authority: &Authority, command: Auth) -> CliResult {
    let Auth::Sign(args) = command;
    sign(authority, *args).await
}

async fn sign(authority: &Authority, args: Sign) -> CliResult {
    let needs = args.format.needs();
    let (subject, names) = who(&args)?;
    check(&args, &needs)?;
    // Seen before anything is issued, so that nothing is issued in vain.
    if !args.overwrite {
        refuse_existing(&paths(&args, &needs))?;
    }
    let policy = certs::issuance(authority).await?;
    let policy = policy.kinds.into_iter().find(|policy| policy.kind == needs.kind).unwrap_or_default();
    let keys = Keys::prepare(&args, &needs, &policy)?;
    let ttl = match (args.ttl, args.format) {
        // The default is for agents, which have one made for each session; a program that finds a file comes later.
        (None, Kind::DbClient) => policy.max,
        (ttl, _) => ttl.map(convert::duration_to_proto),
    };
    let request = SignCertificateRequest {
        kind: needs.kind.to_owned(),
        subject,
        names,
        ssh_public_key: keys.ssh_line.clone(),
        tls_public_key: keys.spki.clone().into(),
        ttl,
    };
    let made = authority
        .certificates()
        .sign_certificate(request)
        .await
        .map_err(|status| CliError::from_status("sign", &status))?
        .into_inner();

    let outputs = outputs(&args, &keys, &made)?;
    for output in &outputs {
        write(output, args.overwrite)?;
    }
    let files: Vec<String> = outputs.iter().map(|output| output.path.display().to_string()).collect();
    let until = made.valid_until.as_ref().and_then(convert::time_from_proto).map(ui::timestamp);
    let until = until.unwrap_or_default();
    if args.json {
        let issued: Vec<Value> = made.issued.iter().map(certs::as_json).collect();
        let token = needs.token && args.out.is_none();
        return ui::json(&json!({
            "files": files, "issued": issued, "valid_until": until,
            "token": token.then_some(made.token.as_str()),
        }));
    }
    if needs.token && args.out.is_none() {
        ui::data(&made.token)?;
        ui::say(format!("Good until {until}. Every holder can use it."));
        return Ok(());
    }
    files.iter().try_for_each(ui::data)?;
    ui::say(format!("Good until {until}."));
    if let (Some(hint), Some(out)) = (hint(args.format), &args.out) {
        ui::say(hint.replace("PATH", &out.display().to_string()));
    }
    Ok(())
}

/// The subject and the names of what is asked for; each format takes its own options and no other.
fn who(args: &Sign) -> CliResult<(String, Vec<String>)> {
    let given = [
        ("--host", !args.host.is_empty()),
        ("--user", args.user.is_some()),
        ("--id", args.id.is_some()),
        ("--subject", args.subject.is_some()),
        ("--audience", !args.audience.is_empty()),
    ];
    let wanted: &[&str] = match args.format {
        Kind::Db | Kind::OpensshHost => &["--host"],
        Kind::DbClient | Kind::OpensshUser | Kind::User => &["--user"],
        Kind::Svid => &["--id"],
        Kind::Jwt => &["--user", "--audience"],
        Kind::JwtSvid => &["--id", "--audience"],
        Kind::Oidc => &["--subject", "--audience"],
    };
    let usage = |text: String| Err(CliError::new(text).exit(Exit::Usage));
    let example = wanted.iter().map(|option| format!("{option} ...")).collect::<Vec<_>>().join(" ");
    for (option, is_given) in given {
        let is_wanted = wanted.contains(&option);
        if is_given && !is_wanted {
            return usage(format!("{option} says nothing for this format, which takes {example}"));
        }
        if is_wanted && !is_given {
            return usage(format!("{option} is missing: this format takes {example}"));
        }
    }
    let subject = args.user.clone().or_else(|| args.id.clone()).or_else(|| args.subject.clone());
    let names = if args.host.is_empty() { args.audience.clone() } else { args.host.clone() };
    Ok((subject.unwrap_or_default(), names))
}

fn check(args: &Sign, needs: &Needs) -> CliResult {
    let usage = |text: &str| Err(CliError::new(text).exit(Exit::Usage));
    if args.out.is_none() && !needs.token {
        return usage("--out is missing: the path of the files, without their endings");
    }
    if needs.token && (args.algorithm.is_some() || args.public_key.is_some()) {
        return usage("a token certifies no key: leave --algorithm and --public-key away");
    }
    if args.format == Kind::User && (args.algorithm.is_some() || args.public_key.is_some()) {
        return usage(
            "a user has two keys, of the algorithms of the suite: leave --algorithm and --public-key away",
        );
    }
    Ok(())
}

/// The key that is certified: made here, or elsewhere.
struct Keys {
    ssh: Option<SshKeyPair>,
    tls: Option<TlsKey>,
    ssh_line: String,
    spki: Vec<u8>,
}

impl Keys {
    fn prepare(args: &Sign, needs: &Needs, policy: &IssuancePolicy) -> CliResult<Self> {
        let mut keys = Self { ssh: None, tls: None, ssh_line: String::new(), spki: Vec::new() };
        if let Some(path) = &args.public_key {
            let public = read_public(path)?;
            if needs.ssh.is_some() {
                let line =
                    formats::write_public(&public, PublicFormat::OpenSsh).doing("use the public key")?;
                keys.ssh_line = String::from_utf8_lossy(&line).trim().to_owned();
            } else {
                keys.spki = public.spki_der();
            }
            return Ok(keys);
        }
        let generate = |purpose: KeyPurpose, suite: &str| -> CliResult<MemoryKey> {
            let algorithm = match args.algorithm {
                Some(algorithm) => algorithm,
                None => suite.parse().doing("understand the suite of the cluster")?,
            };
            MemoryKey::generate_for(purpose, algorithm).doing("make a key")
        };
        if let Some(purpose) = needs.ssh {
            let comment = args.host.first().or(args.user.as_ref()).cloned().unwrap_or_default();
            let pair = SshKeyPair::from_key(generate(purpose, &policy.ssh_algorithm)?, &comment)
                .doing("make an SSH key")?;
            keys.ssh_line = pair.public_line().to_owned();
            keys.ssh = Some(pair);
        }
        if let Some(purpose) = needs.tls {
            let key = TlsKey::from_key(&generate(purpose, &policy.tls_algorithm)?).doing("make a TLS key")?;
            keys.spki = key.spki_der().to_vec();
            keys.tls = Some(key);
        }
        Ok(keys)
    }
}

fn read_public(path: &Path) -> CliResult<PublicKey> {
    let failed = |why: String| {
        CliError::new(format!("cannot use {}: {why}", path.display()))
            .hint("give a public key: an OpenSSH line, or PEM as openssl pkey -pubout writes it")
    };
    let bytes = fs::read(path).map_err(|error| failed(error.to_string()))?;
    formats::read_public(&bytes).map_err(|error| failed(error.to_string()))
}

fn with(out: &Path, ending: &str) -> PathBuf {
    let mut path = out.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// The files that will be written.
fn paths(args: &Sign, needs: &Needs) -> Vec<PathBuf> {
    let Some(out) = &args.out else { return Vec::new() };
    let mut endings: Vec<&str> = Vec::new();
    let own = args.public_key.is_none();
    if needs.token {
        endings.push("");
    }
    if needs.ssh.is_some() {
        endings.extend(own.then_some(["", ".pub"]).into_iter().flatten());
        endings.push("-cert.pub");
    }
    if needs.tls.is_some() {
        endings.extend(own.then_some(".key"));
        endings.push(".crt");
    }
    if needs.tls.is_some() || args.format == Kind::OpensshHost {
        endings.push(".cas");
    }
    endings.into_iter().map(|ending| with(out, ending)).collect()
}

fn refuse_existing(paths: &[PathBuf]) -> CliResult {
    let there: Vec<String> = paths
        .iter()
        .filter(|path| path.symlink_metadata().is_ok())
        .map(|path| path.display().to_string())
        .collect();
    if there.is_empty() {
        return Ok(());
    }
    Err(CliError::new(format!("{} is there already", there.join(", ")))
        .hint("choose another --out, or replace it with --overwrite"))
}

fn outputs(args: &Sign, keys: &Keys, made: &SignCertificateResponse) -> CliResult<Vec<Output>> {
    let Some(out) = &args.out else { return Ok(Vec::new()) };
    let mut outputs = Vec::new();
    let mut add = |ending: &str, content: &[u8]| {
        outputs.push(Output { path: with(out, ending), content: Zeroizing::new(content.to_vec()) });
    };
    let lines = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    if !made.token.is_empty() {
        add("", format!("{}\n", made.token).as_bytes());
    }
    if !made.ssh_certificate.is_empty() {
        if let Some(pair) = &keys.ssh {
            add("", pair.private_openssh().as_bytes());
            add(".pub", format!("{}\n", pair.public_line()).as_bytes());
        }
        add("-cert.pub", format!("{}\n", made.ssh_certificate.trim_end()).as_bytes());
    }
    if !made.tls_certificate_pem.is_empty() {
        if let Some(key) = &keys.tls {
            add(".key", key.pkcs8_pem().as_bytes());
        }
        add(".crt", made.tls_certificate_pem.as_bytes());
    }
    match args.format {
        Kind::Db | Kind::DbClient => add(".cas", made.peer_certificates_pem.concat().as_bytes()),
        Kind::Svid | Kind::User => add(".cas", made.ca_certificates_pem.concat().as_bytes()),
        Kind::OpensshHost => add(".cas", lines(&made.peer_ssh_keys).as_bytes()),
        Kind::OpensshUser | Kind::Jwt | Kind::JwtSvid | Kind::Oidc => {}
    }
    Ok(outputs)
}

/// Writes a file that only its owner can read: a new one, or a whole one in place of the old.
fn write(output: &Output, overwrite: bool) -> CliResult {
    let path = &output.path;
    let target = if overwrite { with(path, ".new") } else { path.clone() };
    let written = || -> std::io::Result<()> {
        if overwrite {
            match fs::remove_file(&target) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&target)?;
        file.write_all(&output.content)?;
        file.sync_all()?;
        if overwrite { fs::rename(&target, path) } else { Ok(()) }
    };
    written().map_err(|error| CliError::new(format!("cannot write {}: {error}", path.display())))
}

fn hint(format: Kind) -> Option<&'static str> {
    match format {
        Kind::Db => Some(
            "PostgreSQL: ssl_cert_file = 'PATH.crt', ssl_key_file = 'PATH.key', ssl_ca_file = 'PATH.cas'. MySQL: \
             ssl-cert, ssl-key, ssl-ca.",
        ),
        Kind::DbClient => {
            Some("psql: sslmode=verify-full sslcert=PATH.crt sslkey=PATH.key sslrootcert=PATH.cas")
        }
        Kind::OpensshHost => Some(
            "sshd_config: HostKey PATH, HostCertificate PATH-cert.pub, TrustedUserCAKeys PATH.cas, and RevokedKeys with \
             sallyport admin ca export --kind openssh --format krl",
        ),
        Kind::OpensshUser => Some("ssh -i PATH LOGIN@SERVER"),
        Kind::User | Kind::Svid | Kind::Jwt | Kind::JwtSvid | Kind::Oidc => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_are_private_and_never_replaced_by_accident() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db.key");
        let output =
            |text: &str| Output { path: path.clone(), content: Zeroizing::new(text.as_bytes().to_vec()) };
        write(&output("one"), false).unwrap();
        assert!(write(&output("two"), false).is_err());
        assert!(refuse_existing(std::slice::from_ref(&path)).is_err());
        write(&output("three"), true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // A link in the place of a file is replaced, and what it points to is left alone.
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write(&Output { path: link.clone(), content: Zeroizing::new(b"four".to_vec()) }, true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "three");
        assert!(link.symlink_metadata().unwrap().is_file());
    }
}
