//! `sallyport signup`: accept an invite or reset link.

use sallyport_wire::v1::{BeginInviteRequest, FinishInviteRequest, PingRequest};
use serde_json::json;

use crate::Global;
use crate::connect::{self, FirstTrust};
use crate::error::{CliError, CliResult, Context, Exit};
use crate::profile;
use crate::ui::{self, Format};

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

/// An invite link, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) proxy: String,
    pub(crate) token: String,
    pub(crate) pin: String,
}

impl Link {
    pub(crate) fn parse(text: &str) -> CliResult<Self> {
        let bad = |why: &str| {
            CliError::new(format!("this is not an invite link: {why}"))
                .hint("sallyport signup 'https://HOST:PORT/invite/TOKEN#PIN'  (mind the quotes)")
                .exit(Exit::Usage)
        };
        let rest =
            text.trim().strip_prefix("https://").ok_or_else(|| bad("it does not begin with https://"))?;
        let (address, rest) = rest.split_once("/invite/").ok_or_else(|| bad("it has no /invite/ part"))?;
        let (token, pin) = rest.split_once('#').ok_or_else(|| bad("the part after # is missing"))?;
        if token.is_empty() || !pin.starts_with("sha256:") {
            return Err(bad("the token or the pin is cut off"));
        }
        Ok(Self { proxy: profile::normalise_proxy(address)?, token: token.to_owned(), pin: pin.to_owned() })
    }
}

pub(crate) async fn run(global: &Global, args: Args) -> CliResult {
    let link = Link::parse(&args.link)?;
    let proxy = match &global.proxy {
        Some(proxy) => profile::normalise_proxy(proxy)?,
        None => link.proxy.clone(),
    };
    let mut client = connect::login(&proxy, &FirstTrust::Pin(link.pin.clone())).await?;
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
    ui::say(format!("Welcome to {cluster}, {}.", invite.user));
    if args.no_second_factor && invite.second_factor == "required" {
        return Err(CliError::new("this cluster requires a second factor")
            .hint("leave --no-second-factor away")
            .exit(Exit::Refused));
    }
    let password = new_password(&args)?;
    let otp = if args.no_second_factor { String::new() } else { enrol(&args, &invite.otp_uri)? };
    let user = client
        .finish_invite(FinishInviteRequest { token: link.token, password, otp })
        .await
        .map_err(|status| CliError::from_status("set the password", &status))?
        .into_inner()
        .user;
    let next = format!("sallyport login --proxy {proxy} --user {user} --ca-pin {}", link.pin);
    if args.format == Format::Json {
        return ui::json(&json!({ "cluster": cluster, "user": user, "login": next }));
    }
    ui::data(format!("{user} is ready on {cluster}."))?;
    ui::say(format!("Next: {next}"));
    Ok(())
}

fn new_password(args: &Args) -> CliResult<String> {
    let first = ui::password("New password", args.password_stdin)?;
    if args.password_stdin {
        return Ok(first);
    }
    if ui::password("The same again", false)? != first {
        return Err(CliError::new("the two passwords differ; nothing was changed"));
    }
    Ok(first)
}

fn enrol(args: &Args, uri: &str) -> CliResult<String> {
    if args.password_stdin {
        if args.format == Format::Json {
            ui::data(json!({ "otp_uri": uri }).to_string())?;
        } else {
            ui::data(uri)?;
        }
        return ui::line_from_stdin("a one-time code");
    }
    let code = qrcode::QrCode::new(uri).doing("draw the QR code")?;
    let picture = code.render::<qrcode::render::unicode::Dense1x2>().quiet_zone(true).build();
    ui::say("Scan this with an authenticator app:");
    ui::say(picture);
    ui::say(format!("or enter it by hand: {uri}"));
    Ok(ui::ask("One-time code it shows: ")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_come_apart() {
        let link = Link::parse("https://proxy.example:443/invite/abc123#sha256:00ff").unwrap();
        assert_eq!(link.proxy, "proxy.example:443");
        assert_eq!(link.token, "abc123");
        assert_eq!(link.pin, "sha256:00ff");
        for bad in [
            "http://x/invite/a#sha256:0",
            "https://x/invite/a",
            "https://x/a#sha256:0",
            "https://x/invite/#sha256:0",
        ] {
            assert!(Link::parse(bad).is_err(), "{bad}");
        }
    }
}
