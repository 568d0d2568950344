//! `sallyport admin ca`.

use sallyport_wire::v1::ExportCaRequest;

use super::rotation;
use crate::connect::Authority;
use crate::error::{CliError, CliResult};
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
    #[arg(long, value_enum)]
    kind: Kind,
    #[arg(long, value_enum, default_value = "openssh")]
    format: ExportFormat,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Kind {
    /// Signs people's certificates.
    User,
    /// Signs the certificates of nodes, proxies and the authority.
    Host,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ExportFormat {
    /// One public key a line, as TrustedUserCAKeys of sshd_config(5) takes it.
    Openssh,
    /// @cert-authority lines for known_hosts.
    KnownHosts,
    /// X.509 certificates, PEM.
    Tls,
}

pub(super) async fn run(authority: &Authority, command: Ca) -> CliResult {
    let args = match command {
        Ca::Export(args) => args,
        Ca::Ls(args) => return rotation::ls(authority, &args).await,
        Ca::Status(args) => return rotation::status(authority, &args).await,
        Ca::Rotate(args) => return rotation::rotate(authority, &args).await,
    };
    let kind = match args.kind {
        Kind::User => "user",
        Kind::Host => "host",
    };
    let format = match args.format {
        ExportFormat::Openssh => "openssh",
        ExportFormat::KnownHosts => "known_hosts",
        ExportFormat::Tls => "tls",
    };
    let text = authority
        .admin()
        .export_ca(ExportCaRequest { kind: kind.to_owned(), format: format.to_owned() })
        .await
        .map_err(|status| CliError::from_status("export the certificate authority", &status))?
        .into_inner()
        .text;
    ui::data(text.trim_end())
}
