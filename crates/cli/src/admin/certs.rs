//! `sallyport admin certs`: what was issued, and taking it back.

use sallyport_wire::v1::{
    CertificateInfo, DenyCertificateRequest, GetCertificateRequest, GetIssuanceRequest,
    ListCertificatesRequest,
};
use sallyport_wire::{convert, v1};
use serde_json::{Value, json};
use time::OffsetDateTime;

use crate::authority::Authority;
use crate::error::{CliError, CliResult};
use crate::ui::{self, Format};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Certs {
    /// List certificates and tokens, newest first.
    Ls(Ls),
    /// Everything about one of them.
    Show(Show),
    /// Take a certificate back, with all of the same login or join: cuts live sessions, and puts it on the lists that
    /// others read (sallyport admin ca export --format crl, krl).
    Deny(Deny),
    /// How long each kind lives, who signs it, and which keys the suite wants for it.
    Policy(Policy),
}

#[derive(Debug, clap::Args)]
pub(super) struct Ls {
    /// Only of this user, host, database user or workload.
    #[arg(long, visible_alias = "subject", value_name = "NAME")]
    user: Option<String>,
    /// Only of this kind, such as user, host, database_server: see admin certs policy.
    #[arg(long)]
    kind: Option<String>,
    /// Only by this CA (user, host, db, ...), or by one of its keys as admin certs show names it.
    #[arg(long, value_name = "CA|KEY")]
    signed_by: Option<String>,
    /// Only what is good now: neither over nor denied.
    #[arg(long, conflicts_with = "denied")]
    valid: bool,
    /// Only what was denied.
    #[arg(long)]
    denied: bool,
    /// At most so many.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Show {
    /// A serial number, or a fingerprint of the certificate or its key as ssh-keygen and openssl print them.
    id: String,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Deny {
    /// A serial number, or a fingerprint of the certificate or its key as ssh-keygen and openssl print them.
    id: String,
    /// Why. The user or host that is kept out reads it.
    #[arg(long)]
    reason: String,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Policy {
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) async fn run(authority: &Authority, command: Certs) -> CliResult {
    match command {
        Certs::Ls(args) => ls(authority, args).await,
        Certs::Show(args) => show(authority, args).await,
        Certs::Deny(args) => deny(authority, args).await,
        Certs::Policy(args) => policy(authority, &args).await,
    }
}

async fn ls(authority: &Authority, args: Ls) -> CliResult {
    let request = ListCertificatesRequest {
        subject: args.user.unwrap_or_default(),
        kind: args.kind.unwrap_or_default(),
        signed_by: args.signed_by.unwrap_or_default(),
        valid: args.valid,
        denied: args.denied,
        limit: args.limit,
    };
    let answer = authority
        .certificates()
        .list_certificates(request)
        .await
        .map_err(|status| CliError::from_status("list the certificates", &status))?
        .into_inner();
    if args.format == Format::Json {
        let all: Vec<Value> = answer.certificates.iter().map(as_json).collect();
        return ui::json(&all);
    }
    let now = OffsetDateTime::now_utc();
    let rows = answer.certificates.iter().map(|one| {
        vec![
            time(one.issued.as_ref()),
            one.kind.clone(),
            one.form.clone(),
            one.subject.clone(),
            one.serial.clone(),
            state(one, now),
        ]
    });
    let headings = ["issued", "kind", "form", "subject", "serial", "state"];
    ui::table(&headings, rows.collect(), "No certificate is like that.")?;
    if answer.more {
        ui::say(format!("There are more than {}; narrow it down, or raise --limit.", args.limit));
    }
    Ok(())
}

async fn show(authority: &Authority, args: Show) -> CliResult {
    let one = authority
        .certificates()
        .get_certificate(GetCertificateRequest { id: args.id })
        .await
        .map_err(|status| CliError::from_status("find the certificate", &status))?
        .into_inner();
    if args.format == Format::Json {
        return ui::json(&as_json(&one));
    }
    let mut lines = vec![
        ("kind", format!("{} ({})", one.kind, one.form)),
        ("subject", one.subject.clone()),
        ("names", one.names.join(", ")),
        ("serial", one.serial.clone()),
        ("fingerprint", one.fingerprint.clone()),
        ("key", one.key.clone()),
        ("signed by", format!("{} CA, {}", one.signed_by, one.signing_key)),
        ("valid", format!("{} to {}", time(one.valid_after.as_ref()), time(one.valid_before.as_ref()))),
        ("state", state(&one, OffsetDateTime::now_utc())),
        ("issued", time(one.issued.as_ref())),
        ("to", format!("{}{}", one.issued_to, from(&one.source))),
        ("login id", one.login_id.clone()),
    ];
    if let Some(denied) = &one.denied {
        lines.push(("denied", format!("{} by {}", time(denied.at.as_ref()), denied.by)));
        lines.push(("reason", denied.reason.clone()));
        lines.push(("lock", denied.lock.clone()));
    }
    for (name, value) in lines.into_iter().filter(|(_, value)| !value.is_empty()) {
        ui::data(format!("{name:<12}{value}"))?;
    }
    Ok(())
}

async fn deny(authority: &Authority, args: Deny) -> CliResult {
    let answer = authority
        .certificates()
        .deny_certificate(DenyCertificateRequest { id: args.id, reason: args.reason })
        .await
        .map_err(|status| CliError::from_status("deny the certificate", &status))?
        .into_inner();
    if args.format == Format::Json {
        let all: Vec<Value> = answer.certificates.iter().map(as_json).collect();
        return ui::json(&json!({ "certificates": all, "lock": answer.lock }));
    }
    for one in &answer.certificates {
        ui::data(format!("Denied {} certificate {} of {}.", one.form, one.serial, one.subject))?;
    }
    if answer.lock.is_empty() {
        let (kind, format) = match answer.certificates.first() {
            Some(one) => (one.signed_by.as_str(), if one.form == "ssh" { "krl" } else { "crl" }),
            None => return Ok(()),
        };
        if answer.certificates.iter().any(|one| one.form == "jwt") {
            ui::say(
                "Programs that verify tokens ask no authority and read no list: it is good until its end.",
            );
        } else {
            ui::say(format!(
                "Nothing inside the cluster believes it; others read a list: sallyport admin ca export --kind {kind} --format {format}"
            ));
        }
    } else {
        ui::say(format!(
            "Its holder is kept out by lock/{}. To let it in again: sallyport admin rm lock/{}",
            answer.lock, answer.lock
        ));
    }
    Ok(())
}

async fn policy(authority: &Authority, args: &Policy) -> CliResult {
    let answer = issuance(authority).await?;
    let span = |span: &Option<prost_types::Duration>| {
        span.as_ref()
            .and_then(convert::duration_from_proto)
            .and_then(|span| time::Duration::try_from(span).ok())
            .map(ui::duration)
            .unwrap_or_default()
    };
    if args.format == Format::Json {
        let seconds = |span: &Option<prost_types::Duration>| span.as_ref().map(|span| span.seconds);
        let kinds: Vec<Value> = answer
            .kinds
            .iter()
            .map(|kind| {
                json!({
                    "kind": kind.kind, "signed_by": kind.signed_by, "min_seconds": seconds(&kind.min),
                    "default_seconds": seconds(&kind.default), "max_seconds": seconds(&kind.max),
                    "limit_seconds": seconds(&kind.limit), "ssh_algorithm": kind.ssh_algorithm,
                    "tls_algorithm": kind.tls_algorithm,
                })
            })
            .collect();
        return ui::json(&json!({ "suite": answer.suite, "kinds": kinds }));
    }
    let rows = answer.kinds.iter().map(|kind| {
        vec![
            kind.kind.clone(),
            kind.signed_by.clone(),
            span(&kind.min),
            span(&kind.default),
            span(&kind.max),
            span(&kind.limit),
            [&kind.ssh_algorithm, &kind.tls_algorithm]
                .into_iter()
                .filter(|name| !name.is_empty())
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", "),
        ]
    });
    let headings = ["kind", "signed by", "shortest", "default", "longest", "limit", "keys"];
    ui::table(&headings, rows.collect(), "")?;
    ui::say(format!(
        "Keys are those of the suite {}. Lifetimes: auth.lifetimes in the configuration.",
        answer.suite
    ));
    Ok(())
}

/// What is in force.
pub(super) async fn issuance(authority: &Authority) -> CliResult<v1::GetIssuanceResponse> {
    let answer = authority.certificates().get_issuance(GetIssuanceRequest {}).await;
    answer
        .map(tonic::Response::into_inner)
        .map_err(|status| CliError::from_status("ask what may be issued", &status))
}

/// One certificate for programs.
pub(super) fn as_json(one: &CertificateInfo) -> Value {
    let denied = one.denied.as_ref().map(|denied| {
        json!({
            "at": time(denied.at.as_ref()), "by": denied.by, "reason": denied.reason, "lock": denied.lock,
        })
    });
    json!({
        "kind": one.kind, "form": one.form, "signed_by": one.signed_by, "signing_key": one.signing_key,
        "serial": one.serial, "fingerprint": one.fingerprint, "key": one.key, "subject": one.subject,
        "names": one.names, "valid_after": time(one.valid_after.as_ref()),
        "valid_before": time(one.valid_before.as_ref()), "login_id": one.login_id,
        "issued": time(one.issued.as_ref()), "issued_to": one.issued_to, "source": one.source, "denied": denied,
    })
}

fn state(one: &CertificateInfo, now: OffsetDateTime) -> String {
    if one.denied.is_some() {
        return "denied".to_owned();
    }
    let Some(end) = one.valid_before.as_ref().and_then(convert::time_from_proto) else {
        return String::new();
    };
    if end <= now { "over".to_owned() } else { format!("good for {}", ui::duration(end - now)) }
}

fn time(at: Option<&prost_types::Timestamp>) -> String {
    at.and_then(convert::time_from_proto).map(ui::timestamp).unwrap_or_default()
}

fn from(source: &str) -> String {
    if source.is_empty() { String::new() } else { format!(" from {source}") }
}
