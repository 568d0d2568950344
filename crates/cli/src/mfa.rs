//! `sallyport mfa`: your passkeys, one-time codes and recovery codes.

mod pre_auth;

use sallyport_access::text::Foreign;
use sallyport_client::browser_login::address_of;
use sallyport_wire::convert;
use sallyport_wire::v1::begin_proof_request::Purpose;
use sallyport_wire::v1::{Factor, FactorToAdd};
use serde_json::json;

use crate::authority::{self, AuthorityArgs};
use crate::browser;
use crate::error::{CliError, CliResult, Context};
use crate::global::Global;
use crate::proving::{Own, Proving, prove, wait};
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
    /// Prove a factor beforehand, for sessions that begin where no person can be asked: those of scripts, Ansible or an editor.
    PreAuth(pre_auth::Args),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Ls {
    /// Show them at a page, where you can remove one.
    #[arg(long, conflicts_with = "format")]
    browser: bool,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
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

/// The factors of the user who is logged in.
pub(crate) async fn own(global: &Global) -> CliResult<Own> {
    authority::open(global, &AuthorityArgs::default()).await.map(|authority| Own::at(&authority))
}

pub(crate) async fn run(global: &Global, command: Mfa) -> CliResult {
    let mut own = own(global).await?;
    match command {
        Mfa::Ls(Ls { browser: true, .. }) => ls_at_page(&mut own).await,
        Mfa::Ls(args) => ls(&mut own, &args).await,
        Mfa::Add(args) => add(&mut own, args).await,
        Mfa::Rm(args) => rm(&mut own, args).await,
        Mfa::RecoveryCodes(args) => recovery_codes(&mut own, args).await,
        Mfa::PreAuth(args) => pre_auth::run(global, args).await,
    }
}

pub(crate) fn kind_word(kind: &str) -> &str {
    match kind {
        "webauthn" => "passkey",
        "totp" => "one-time codes",
        other => other,
    }
}

/// Where a passkey was when it was used last, by its own word. Of codes no authority knows on how many devices they are.
fn place(factor: &Factor) -> &'static str {
    match (factor.kind.as_str(), factor.backed_up) {
        ("webauthn", true) => "synced",
        ("webauthn", false) => "this device only",
        _ => "",
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
                    "counter_went_back": factor.counter_went_back.as_ref().map(|time| when(Some(time))),
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
            place(factor).to_owned(),
            when(factor.created.as_ref()),
            when(factor.last_used.as_ref()),
        ]
    };
    let rows = list.factors.iter().map(row).collect();
    let headings = ["name", "kind", "where", "added", "last used"];
    ui::table(&headings, rows, "You have no factor besides your password.")?;
    ui::say(format!("Recovery codes that are left: {}", list.recovery_codes));
    for warning in list.factors.iter().filter_map(copied) {
        ui::say(warning);
    }
    Ok(())
}

/// What a user is told of a passkey that may have been copied.
fn copied(factor: &Factor) -> Option<String> {
    let at = factor.counter_went_back.as_ref().and_then(convert::time_from_proto)?;
    let name = Foreign::new(&factor.name);
    Some(format!(
        "Warning: the sign count of {name} did not grow on {}: a copy of it may be in use. If it is not a known fault of \
         that key, remove it: sallyport mfa rm {:?}",
        ui::timestamp(at),
        name.as_str()
    ))
}

/// The page goes on by itself: what is done there is done once it is proven, and nothing waits for it here.
async fn ls_at_page(own: &mut Own) -> CliResult {
    let (page, code) = own.factors.begin_proof(Purpose::ShowFactors(true)).await?;
    browser::open(&address_of(&page, &own.proxy), "see your factors");
    browser::code("and", &code);
    ui::say(format!("The page is good until {}.", when(page.expires.as_ref())));
    Ok(())
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_passkey_is_listed_with_where_it_is_and_codes_are_not() {
        let of =
            |kind: &str, backed_up| place(&Factor { kind: kind.to_owned(), backed_up, ..Factor::default() });
        assert_eq!((of("webauthn", true), of("webauthn", false)), ("synced", "this device only"));
        assert_eq!((of("totp", false), of("of a later release", true)), ("", ""));
    }

    #[test]
    fn a_passkey_that_may_be_copied_is_told_of_with_the_command_that_removes_it() {
        let fine = Factor { name: "blue key".to_owned(), ..Factor::default() };
        assert_eq!(copied(&fine), None);
        let at = Some(convert::time_to_proto(time::OffsetDateTime::UNIX_EPOCH));
        let told = copied(&Factor { counter_went_back: at, ..fine }).unwrap();
        assert!(told.contains("1970-01-01") && told.contains("sallyport mfa rm \"blue key\""), "{told}");
    }
}
