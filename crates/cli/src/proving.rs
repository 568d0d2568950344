//! How a person at the terminal proves a factor, wherever one is asked for.

use futures::future::BoxFuture;
use sallyport_client::authority::Authority;
use sallyport_client::browser_login::address_of;
use sallyport_client::channel::Prover;
use sallyport_client::factors::{Ended, Factors};
use sallyport_wire::v1::begin_proof_request::Purpose;
use sallyport_wire::v1::factor_proof::Proof;
use sallyport_wire::v1::{ChallengePage, ListFactorsResponse};
use time::OffsetDateTime;

use crate::browser;
use crate::error::{CliError, CliResult, Exit};
use crate::ui;

/// What a page is opened for.
const THAT_IT_IS_YOU: &str = "prove that it is you";

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
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ByFactor {
    /// A one-time or recovery code, instead of being asked.
    #[arg(long, value_name = "CODE", conflicts_with = "browser")]
    otp: Option<String>,
    /// Prove a passkey, in a browser.
    #[arg(long)]
    browser: bool,
}

/// The caller's factors, and through which proxy pages are reached.
#[derive(Debug, Clone)]
pub(crate) struct Own {
    pub(crate) factors: Factors,
    pub(crate) proxy: String,
}

impl Own {
    pub(crate) fn at(authority: &Authority) -> Self {
        let proxy = authority.proxy().unwrap_or_default().to_owned();
        Self { factors: Factors::new(authority, browser::host_name()), proxy }
    }
}

/// What the call proves the person with.
pub(crate) async fn prove(
    own: &mut Own,
    list: &ListFactorsResponse,
    proving: &Proving,
    purpose: Purpose,
) -> CliResult<Option<Proof>> {
    if list.factors.is_empty() && proving.factor.otp.is_none() {
        if !list.password && list.single_sign_on {
            return at_page(own, purpose, "sign in at your provider again").await.map(Some);
        }
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
        return at_page(own, purpose, THAT_IT_IS_YOU).await;
    }
    if !ui::can_ask() {
        return Err(CliError::new("you have to prove a factor, and there is no terminal to ask for a code")
            .hint("--otp CODE")
            .exit(Exit::Usage));
    }
    let passkey = if has("webauthn") { " (empty: a passkey, in a browser)" } else { "" };
    let otp = ui::ask(&format!("One-time or recovery code{passkey}: "))?;
    if otp.trim().is_empty() && has("webauthn") {
        return at_page(own, purpose, THAT_IT_IS_YOU).await;
    }
    Ok(Proof::Otp(otp.trim().to_owned()))
}

/// Has the person prove a factor at a page.
pub(crate) async fn at_page(own: &mut Own, purpose: Purpose, what: &str) -> CliResult<Proof> {
    let (page, code) = own.factors.begin_proof(purpose).await?;
    browser::open(&address_of(&page, &own.proxy), what);
    browser::code("and", &code);
    wait(own, &page).await?;
    Ok(Proof::Challenge(page.challenge))
}

pub(crate) async fn wait(own: &mut Own, page: &ChallengePage) -> CliResult {
    match own.factors.wait(page).await? {
        Ended::Done => Ok(()),
        Ended::Refused => Err(CliError::new(
            "this was refused at the page, or ended after wrong answers; nothing was changed",
        )
        .hint("run the command again")
        .exit(Exit::Refused)),
    }
}

/// Proves a factor for what is dangerous to administer; until when that serves.
pub(crate) async fn administer(own: &mut Own, proving: &ByFactor) -> CliResult<OffsetDateTime> {
    let list = own.factors.list().await?;
    if list.factors.is_empty() {
        return Err(CliError::new("you have no factor that you could prove").hint("sallyport mfa add NAME"));
    }
    let proof = prove_factor(own, &list, proving, Purpose::Administer(true)).await?;
    Ok(own.factors.prove_administrator(Some(proof)).await?)
}

/// The person at the terminal, who is asked where the authority wants a factor proven before it does what they asked for.
#[derive(Debug)]
pub(crate) struct Person(Own);

impl Person {
    pub(crate) fn at(authority: &Authority) -> Self {
        Self(Own::at(authority))
    }
}

impl Prover for Person {
    fn prove(&self) -> BoxFuture<'_, bool> {
        let mut own = self.0.clone();
        Box::pin(async move {
            // A script is not kept waiting: it fails with the authority's words, which name the command.
            if !ui::can_ask() {
                return false;
            }
            ui::say("An administrator proves a factor for this. It serves for five minutes.");
            match administer(&mut own, &ByFactor::default()).await {
                Ok(_) => true,
                Err(error) => {
                    ui::say(error.what());
                    false
                }
            }
        })
    }
}
