//! `sallyport passwd`: change your password.

use sallyport_wire::v1::begin_proof_request::Purpose;

use crate::error::{CliError, CliResult, Exit};
use crate::global::Global;
use crate::mfa;
use crate::proving::{ByFactor, prove_factor};
use crate::signup::new_password;
use crate::ui;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    proving: ByFactor,
    /// Read the password that you have, then the new one, each from a line of standard input.
    #[arg(long)]
    password_stdin: bool,
}

pub(crate) async fn run(global: &Global, args: Args) -> CliResult {
    let mut own = mfa::own(global).await?;
    let list = own.factors.list().await?;
    if !list.password {
        return Err(CliError::new(
            "you have no password that could be changed: you log in with a passkey or by single sign-on",
        )
        .hint("see what you have: sallyport mfa ls")
        .exit(Exit::Refused));
    }
    let old = ui::password("Your password", args.password_stdin)?;
    let new = new_password(args.password_stdin)?;
    let proof = match list.factors.is_empty() {
        true => None,
        false => Some(prove_factor(&mut own, &list, &args.proving, Purpose::ChangePassword(true)).await?),
    };
    let ended = own.factors.change_password(old, new, proof).await?;
    ui::data("The password is changed.")?;
    if ended > 0 {
        ui::say(format!("Other logins of yours that ended: {ended}"));
    }
    Ok(())
}
