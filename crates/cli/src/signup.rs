//! `sallyport signup`: accept an invite or reset link.

use sallyport_access::text::Foreign;
use sallyport_wire::InviteLink;
use sallyport_wire::v1::{BeginInviteRequest, FinishInviteRequest, PingRequest};
use serde_json::json;

use crate::error::{CliError, CliResult, Context, Exit};
use crate::global::Global;
use crate::ui::{self, Format};
use sallyport_client::authority::{self, FirstTrust};
use sallyport_client::profile::normalise_proxy;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The link an administrator sent: https://HOST:PORT/invite/TOKEN#PIN
    link: String,
    /// Leave the second factor off, where the cluster allows that.
    #[arg(long)]
    no_second_factor: bool,
    /// Read the password, then the one-time code, each from a line of standard input. The secret to enrol is
    /// written to standard output in between.
    #[arg(long)]
    password_stdin: bool,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

/// Reads the link, and says how it is to be given where it is none.
fn read(text: &str) -> CliResult<InviteLink> {
    let mut link = InviteLink::parse(text).map_err(|why| {
        CliError::new(format!("this is not an invite link: {why}"))
            .hint("sallyport signup 'https://HOST:PORT/invite/TOKEN#PIN'  (mind the quotes)")
            .exit(Exit::Usage)
    })?;
    link.proxy = normalise_proxy(&link.proxy)?;
    Ok(link)
}

pub(crate) async fn run(global: &Global, args: Args) -> CliResult {
    let link = read(&args.link)?;
    let proxy = match &global.proxy {
        Some(proxy) => normalise_proxy(proxy)?,
        None => link.proxy.clone(),
    };
    let mut client = authority::login(&proxy, &FirstTrust::Pin(link.pins.clone())).await?;
    let cluster = client
        .ping(PingRequest {})
        .await
        .map_err(|status| CliError::from_status("reach the authority", &status))?
        .into_inner()
        .cluster;
    let invite = client
        .begin_invite(BeginInviteRequest { token: link.token.clone() })
        .await
        .map_err(|status| CliError::from_status("use the invite", &status))?
        .into_inner();
    ui::say(format!("Welcome to {}, {}.", Foreign::new(&cluster), Foreign::new(&invite.user)));
    if args.no_second_factor && invite.second_factor == "required" {
        return Err(CliError::new("this cluster requires a second factor")
            .hint("leave --no-second-factor away")
            .exit(Exit::Refused));
    }
    let password = new_password(args.password_stdin)?;
    let otp = if args.no_second_factor { String::new() } else { enrol(&args, &invite.otp_uri)? };
    let coded = !otp.is_empty();
    let user = client
        .finish_invite(FinishInviteRequest { token: link.token, password, otp })
        .await
        .map_err(|status| CliError::from_status("set the password", &status))?
        .into_inner()
        .user;
    let next = format!("sallyport login --proxy {proxy} --user {user} --ca-pin {}", link.pins);
    if args.format == Format::Json {
        return ui::json(&json!({ "cluster": cluster, "user": user, "login": next }));
    }
    ui::data(format!("{} is ready on {}.", Foreign::new(&user), Foreign::new(&cluster)))?;
    if coded {
        ui::say("The one-time code is used up now: log in with the next one.");
    }
    ui::say(format!("Next: {}", Foreign::new(&next)));
    Ok(())
}

/// A new password, typed twice, or a line of standard input.
pub(crate) fn new_password(from_stdin: bool) -> CliResult<String> {
    let first = ui::password("New password", from_stdin)?;
    if from_stdin {
        return Ok(first);
    }
    if ui::password("The same again", false)? != first {
        return Err(CliError::new("the two passwords differ; nothing was changed")
            .hint("run it again, and type one password twice"));
    }
    Ok(first)
}

fn enrol(args: &Args, uri: &str) -> CliResult<String> {
    if args.password_stdin {
        if args.format == Format::Json {
            ui::json_text(&json!({ "otp_uri": uri }).to_string())?;
        } else {
            ui::data(Foreign::new(uri).as_str())?;
        }
        return ui::line_from_stdin("a one-time code");
    }
    let code = qrcode::QrCode::new(uri).doing("draw the QR code")?;
    let picture = code.render::<qrcode::render::unicode::Dense1x2>().quiet_zone(true).build();
    ui::say("Scan this with an authenticator app:");
    ui::say(picture);
    ui::say(format!("or enter it by hand: {}", Foreign::new(uri)));
    Ok(ui::ask("One-time code it shows: ")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_port_gets_the_usual_one() {
        let link = read("https://proxy.example/invite/abc123#sha256:00ff").unwrap();
        assert_eq!(link.proxy, normalise_proxy("proxy.example").unwrap());
        let refused = read("https://proxy.example/invite/abc123").unwrap_err();
        assert!(refused.to_string().contains("after # is missing"), "{refused}");
    }
}
