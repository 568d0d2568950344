//! `sallyport admin ca`.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use sallyport_ca::CaKind;
use sallyport_wire::v1::ExportCaRequest;

use super::rotation;
use crate::authority::Authority;
use crate::error::{CliError, CliResult, Exit};
use crate::ui;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Ca {
    /// Print the public half of a certificate authority.
    Export(Export),
    /// List them: phases, suites, algorithms, and where the keys are.
    Ls(rotation::Ls),
    /// How far rotations are, who has not confirmed, and what is left to do by hand.
    Status(rotation::Status),
    /// Take a step of a rotation.
    Rotate(rotation::Rotate),
}

#[derive(Debug, clap::Args)]
pub(super) struct Export {
    /// user, host, db, db_client, openssh, jwt, oidc_idp or spiffe.
    #[arg(long)]
    kind: CaKind,
    /// Unset: openssh, tls or jwks, the first that the CA has.
    #[arg(long, value_enum)]
    format: Option<ExportFormat>,
    /// Write to this file instead of standard output.
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ExportFormat {
    /// One public key a line, as TrustedUserCAKeys of sshd_config(5) takes it: user, host, openssh.
    Openssh,
    /// @cert-authority lines for known_hosts: host.
    KnownHosts,
    /// X.509 certificates, PEM: user, host, db, db_client, spiffe.
    Tls,
    /// A set of JSON Web Keys: jwt, oidc_idp, spiffe.
    Jwks,
    /// A SPIFFE trust bundle: spiffe.
    Spiffe,
    /// What was denied, as X.509 has it, PEM: db, db_client, spiffe.
    Crl,
    /// What was denied, as RevokedKeys of sshd_config(5) takes it: user, host, openssh. Binary.
    Krl,
}

impl ExportFormat {
    fn name(self) -> &'static str {
        match self {
            Self::Openssh => "openssh",
            Self::KnownHosts => "known_hosts",
            Self::Tls => "tls",
            Self::Jwks => "jwks",
            Self::Spiffe => "spiffe",
            Self::Crl => "crl",
            Self::Krl => "krl",
        }
    }
}

pub(super) async fn run(authority: &Authority, command: Ca) -> CliResult {
    let args = match command {
        Ca::Export(args) => args,
        Ca::Ls(args) => return rotation::ls(authority, &args).await,
        Ca::Status(args) => return rotation::status(authority, &args).await,
        Ca::Rotate(args) => return rotation::rotate(authority, &args).await,
    };
    let format = args.format.map(ExportFormat::name).unwrap_or_default();
    if args.format == Some(ExportFormat::Krl) && args.out.is_none() && std::io::stdout().is_terminal() {
        return Err(CliError::new("a KRL is binary and would upset the terminal")
            .hint("name a file: --out FILE")
            .exit(Exit::Usage));
    }
    let answer = authority
        .admin()
        .export_ca(ExportCaRequest { kind: args.kind.name().to_owned(), format: format.to_owned() })
        .await
        .map_err(|status| CliError::from_status("export the certificate authority", &status))?
        .into_inner();
    let content = if answer.data.is_empty() { answer.text.as_bytes() } else { &answer.data };
    match &args.out {
        None => ui::raw(content),
        Some(path) => replace(path, content)
            .map_err(|error| CliError::new(format!("cannot write {}: {error}", path.display()))),
    }
}

/// Puts a whole file in the place of another: sshd reads revoked keys at every login, and refuses every user while there
/// is half a list.
fn replace(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut fresh = path.as_os_str().to_owned();
    fresh.push(".new");
    let mut file = std::fs::File::create(&fresh)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&fresh, path)
}
