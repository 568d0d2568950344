//! `sallyport mfa`: your passkeys, one-time codes and recovery codes.

mod pre_auth;

use sallyport_access::text::Foreign;
use sallyport_client::browser_login::address_of;
use sallyport_client::factors::{Ended, Factors};
use sallyport_wire::convert;
use sallyport_wire::v1::begin_proof_request::Purpose;
use sallyport_wire::v1::factor_proof::Proof;
use sallyport_wire::v1::{ChallengePage, Factor, FactorToAdd, ListFactorsResponse};
use serde_json::json;

use crate::authority::{self, AuthorityArgs};
use crate::browser;
use crate::error::{CliError, CliResult, Context, Exit};
use crate::global::Global;
use crate::ui::{self, Format};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Mfa {
    /// List your factors.
    Ls(Ls),
    /// Add a passkey, at a page, or one-time codes. You prove one that you have.
    Add(Add),
    /// Remove a factor. You prove one that you have.
    Rm(Rm),
    /// Make ten recovery codes, each good once in place of a one-time code. Those from before are void.
    RecoveryCodes(RecoveryCodes),
    /// Prove a factor beforehand, for sessions that are begun where nobody can be asked: by scripts, Ansible or an editor.
    PreAuth(pre_auth::Args),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Ls {
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// How the person proves who they are.
#[derive(Debug, clap::Args)]
pub(crate) struct Proving {
    #[command(flatten)]
    factor: ByFactor,
    /// Read the password, which adds the first factor, from the first line of standard input.
    #[arg(long, conflicts_with_all = ["otp", "browser"])]
    password_stdin: bool,
}

/// Which factor the person proves.
#[derive(Debug, clap::Args)]
pub(crate) struct ByFactor {
    /// A one-time or recovery code, instead of being asked.
    #[arg(long, value_name = "CODE", conflicts_with = "browser")]
    otp: Option<String>,
    /// Prove a passkey, in a browser.
    #[arg(long)]
    browser: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// A passkey or security key.
    Passkey,
    /// One-time codes of an authenticator app.
    Codes,
}

impl Kind {
    fn on_wire(self) -> &'static str {
        match self {
            Self::Passkey => "webauthn",
            Self::Codes => "totp",
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Add {
    /// How you will know it, such as "work laptop".
    name: String,
    /// Default: passkey where the cluster has passkeys.
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    #[command(flatten)]
    proving: Proving,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Rm {
    /// The factor, by name or id.
    factor: String,
    #[command(flatten)]
    proving: Proving,
}

#[derive(Debug, clap::Args)]
pub(crate) struct RecoveryCodes {
    #[command(flatten)]
    proving: Proving,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// The caller's factors, and through which proxy pages are reached.
pub(crate) struct Own {
    pub(crate) factors: Factors,
    proxy: String,
}

impl Own {
    pub(crate) async fn open(global: &Global) -> CliResult<Self> {
        let authority = authority::open(global, &AuthorityArgs::default()).await?;
        let proxy = authority.proxy().unwrap_or_default().to_owned();
        Ok(Self { factors: Factors::new(&authority, browser::host_name()), proxy })
    }
}

pub(crate) async fn run(global: &Global, command: Mfa) -> CliResult {
    let mut own = Own::open(global).await?;
    match command {
        Mfa::Ls(args) => ls(&mut own, &args).await,
        Mfa::Add(args) => add(&mut own, args).await,
        Mfa::Rm(args) => rm(&mut own, args).await,
        Mfa::RecoveryCodes(args) => recovery_codes(&mut own, args).await,
        Mfa::PreAuth(args) => pre_auth::run(global, args).await,
    }
}

fn kind_word(kind: &str) -> &str {
    match kind {
        "webauthn" => "passkey",
        "totp" => "one-time codes",
        other => other,
    }
}

fn when(time: Option<&prost_types::Timestamp>) -> String {
    time.and_then(convert::time_from_proto).map(ui::timestamp).unwrap_or_else(|| "never".to_owned())
}

async fn ls(own: &mut Own, args: &Ls) -> CliResult {
    let list = own.factors.list().await?;
    if args.format == Format::Json {
        let factors: Vec<_> = list
            .factors
            .iter()
            .map(|factor| {
                json!({
                    "id": factor.id, "name": factor.name, "kind": factor.kind,
                    "created": when(factor.created.as_ref()),
                    "last_used": factor.last_used.as_ref().map(|time| when(Some(time))),
                    "model": factor.model, "backed_up": factor.backed_up,
                })
            })
            .collect();
        return ui::json(&json!({
            "factors": factors, "recovery_codes": list.recovery_codes, "second_factor": list.second_factor,
            "password": list.password,
        }));
    }
    let row = |factor: &Factor| {
        vec![
            factor.name.clone(),
            kind_word(&factor.kind).to_owned(),
            when(factor.created.as_ref()),
            when(factor.last_used.as_ref()),
        ]
    };
    let rows = list.factors.iter().map(row).collect();
    ui::table(&["name", "kind", "added", "last used"], rows, "You have no factor besides your password.")?;
    ui::say(format!("Recovery codes that are left: {}", list.recovery_codes));
    Ok(())
}

/// What the call proves the person with.
async fn prove(
    own: &mut Own,
    list: &ListFactorsResponse,
    proving: &Proving,
    purpose: Purpose,
) -> CliResult<Option<Proof>> {
    if list.factors.is_empty() && proving.factor.otp.is_none() {
        if !list.password {
            return Ok(None);
        }
        let password = ui::password("Your password", proving.password_stdin)?;
        return Ok(Some(Proof::Password(password)));
    }
    prove_factor(own, list, &proving.factor, purpose).await.map(Some)
}

/// The factor that the call proves the person with, who has one.
pub(crate) async fn prove_factor(
    own: &mut Own,
    list: &ListFactorsResponse,
    proving: &ByFactor,
    purpose: Purpose,
) -> CliResult<Proof> {
    if let Some(otp) = &proving.otp {
        return Ok(Proof::Otp(otp.clone()));
    }
    let has = |kind: &str| list.factors.iter().any(|factor| factor.kind == kind);
    let codes = has("totp") || list.recovery_codes > 0;
    if proving.browser || (has("webauthn") && (!codes || !ui::can_ask())) {
        return at_page(own, purpose).await;
    }
    if !ui::can_ask() {
        return Err(CliError::new("you have to prove a factor, and there is no terminal to ask for a code")
            .hint("--otp CODE")
            .exit(Exit::Usage));
    }
    let passkey = if has("webauthn") { " (empty: a passkey, in a browser)" } else { "" };
    let otp = ui::ask(&format!("One-time or recovery code{passkey}: "))?;
    if otp.trim().is_empty() && has("webauthn") {
        return at_page(own, purpose).await;
    }
    Ok(Proof::Otp(otp.trim().to_owned()))
}

async fn at_page(own: &mut Own, purpose: Purpose) -> CliResult<Proof> {
    let (page, code) = own.factors.begin_proof(purpose).await?;
    browser::open(&address_of(&page, &own.proxy), "prove that it is you");
    browser::code("and", &code);
    wait(own, &page).await?;
    Ok(Proof::Challenge(page.challenge))
}

async fn wait(own: &mut Own, page: &ChallengePage) -> CliResult {
    match own.factors.wait(page).await? {
        Ended::Done => Ok(()),
        Ended::Refused => Err(CliError::new(
            "this was refused at the page, or ended after wrong answers; nothing was changed",
        )
        .hint("run the command again")
        .exit(Exit::Refused)),
    }
}

async fn add(own: &mut Own, args: Add) -> CliResult {
    let list = own.factors.list().await?;
    let offered = list.kinds.iter().any(|kind| kind == Kind::Passkey.on_wire());
    let kind = args.kind.unwrap_or(if offered { Kind::Passkey } else { Kind::Codes });
    let factor = FactorToAdd { kind: kind.on_wire().to_owned(), name: args.name };
    let purpose = Purpose::AddFactor(factor.clone());
    let proof = prove(own, &list, &args.proving, purpose).await?;
    let begun = own.factors.begin_add(factor.clone(), proof).await?;
    let page = begun.page.ok_or_else(|| CliError::new("the authority's answer names no challenge"))?;
    let name = match kind {
        Kind::Passkey => {
            browser::open(&address_of(&page, &own.proxy), "make the passkey");
            browser::code("and", &begun.code);
            wait(own, &page).await?;
            factor.name
        }
        Kind::Codes => {
            let code = qrcode::QrCode::new(&begun.otp_uri).doing("draw the QR code")?;
            let picture = code.render::<qrcode::render::unicode::Dense1x2>().quiet_zone(true).build();
            let otp = if ui::can_ask() {
                ui::say("Scan this with an authenticator app:");
                ui::say(picture);
                ui::say(format!("or enter it by hand: {}", Foreign::new(&begun.otp_uri)));
                ui::ask("One-time code it shows: ")?
            } else {
                ui::data(Foreign::new(&begun.otp_uri).as_str())?;
                ui::line_from_stdin("a one-time code")?
            };
            own.factors.finish_add(page.challenge, otp.trim().to_owned()).await?.name
        }
    };
    ui::data(format!("Added {}.", Foreign::new(&name)))?;
    if list.recovery_codes == 0 {
        ui::say("Next: sallyport mfa recovery-codes  (for the day when it is lost)");
    }
    Ok(())
}

async fn rm(own: &mut Own, args: Rm) -> CliResult {
    let list = own.factors.list().await?;
    let named = |factor: &&Factor| factor.name == args.factor || factor.id == args.factor;
    let factor = list.factors.iter().find(named).cloned().ok_or_else(|| {
        CliError::new(format!("you have no factor {:?}", args.factor)).hint("see: sallyport mfa ls")
    })?;
    let proof = prove(own, &list, &args.proving, Purpose::RemoveFactor(factor.id.clone())).await?;
    own.factors.remove(factor.id, proof).await?;
    ui::data(format!("Removed {}.", Foreign::new(&factor.name)))
}

async fn recovery_codes(own: &mut Own, args: RecoveryCodes) -> CliResult {
    let list = own.factors.list().await?;
    let proof = prove(own, &list, &args.proving, Purpose::RecoveryCodes(true)).await?;
    let codes = own.factors.make_recovery_codes(proof).await?;
    if args.format == Format::Json {
        return ui::json(&json!({ "codes": codes }));
    }
    ui::say("Keep these where you keep other secrets. They are shown this once, and each is good once:");
    for code in &codes {
        ui::data(format!("  {}", Foreign::new(code)))?;
    }
    Ok(())
}
