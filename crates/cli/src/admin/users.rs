//! `sallyport admin users`.

use std::collections::BTreeMap;

use sallyport_wire::v1::{
    CreateUserRequest, DeleteResourceRequest, InviteResponse, LinkUserRequest, ResetUserRequest, TraitValues,
    UnlinkUserRequest,
};
use sallyport_wire::{InviteLink, UNKNOWN_PROXY, convert};
use serde_json::json;

use crate::authority::Authority;
use crate::error::{CliError, CliResult, Exit};
use crate::ui::{self, Format};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Users {
    /// Add a user and print the link they set their password with.
    Add(Add),
    /// List users.
    Ls(Ls),
    /// Take a user's credentials away, end their logins and print a link to set new ones, which users of single sign-on need not.
    /// Also lifts a lockout, and unlinks a user who is linked.
    Reset(Named),
    /// Have a local user log in as a person of an identity provider, too. Their roles and traits stay their own.
    Link(Link),
    /// End the link of a user with a person of an identity provider. The logins that came by it end at once, with the sessions that run.
    Unlink(Named),
    /// Remove a user. Their logins end at once, with the sessions that run.
    Rm(Named),
}

#[derive(Debug, clap::Args)]
pub(super) struct Add {
    name: String,
    /// Roles, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "access")]
    roles: Vec<String>,
    /// OS logins: the trait internal.logins, which the role "access" allows.
    #[arg(long, value_delimiter = ',')]
    logins: Vec<String>,
    /// Users of database servers: the trait internal.db_users, which the role "access" allows.
    #[arg(long, value_delimiter = ',')]
    db_users: Vec<String>,
    /// Databases within database servers: the trait internal.db_names, which the role "access" allows.
    #[arg(long, value_delimiter = ',')]
    db_names: Vec<String>,
    /// Further traits, as NAME=VALUE[,VALUE...].
    #[arg(long = "trait", value_name = "NAME=VALUES")]
    traits: Vec<String>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Ls {
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Named {
    name: String,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(super) struct Link {
    name: String,
    /// The connector by which the person comes: sallyport admin sso ls.
    #[arg(long, value_name = "NAME")]
    connector: String,
    /// What the provider calls the person (sub): the page of a login that was refused shows it, and so does the event sso.refused.
    #[arg(long)]
    subject: String,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

pub(super) async fn run(authority: &Authority, command: Users) -> CliResult {
    match command {
        Users::Add(args) => add(authority, args).await,
        Users::Ls(args) => super::resources::list(authority, "user", args.format).await,
        Users::Reset(args) => {
            let invite = authority
                .admin()
                .reset_user(ResetUserRequest { name: args.name })
                .await
                .map_err(|status| CliError::from_status("reset the user", &status))?
                .into_inner();
            if invite.link.is_empty() {
                return print_reset(&invite.user, args.format);
            }
            print_invite(authority, invite, "has no password any more", args.format)
        }
        Users::Link(args) => link(authority, args).await,
        Users::Unlink(args) => unlink(authority, args).await,
        Users::Rm(args) => {
            let request = DeleteResourceRequest { kind: "user".to_owned(), name: args.name.clone() };
            authority
                .admin()
                .delete_resource(request)
                .await
                .map_err(|status| CliError::from_status("remove the user", &status))?;
            if args.format == Format::Json {
                return ui::json(&json!({ "removed": args.name }));
            }
            ui::data(format!("Removed user {}.", args.name))
        }
    }
}

async fn link(authority: &Authority, args: Link) -> CliResult {
    let request = LinkUserRequest { name: args.name, connector: args.connector, subject: args.subject };
    let linked = authority
        .admin()
        .link_user(request)
        .await
        .map_err(|status| CliError::from_status("link the user", &status))?
        .into_inner();
    if args.format == Format::Json {
        return ui::json(&json!({
            "user": linked.user, "connector": linked.connector, "issuer": linked.issuer, "subject": linked.subject,
        }));
    }
    ui::data(format!(
        "User {} is linked with the person {} of {}, and logs in by the connector {}, too.",
        linked.user, linked.subject, linked.issuer, linked.connector
    ))?;
    ui::say(
        "An invite or reset link that was not used yet is void. To end it: sallyport admin users unlink NAME",
    );
    Ok(())
}

async fn unlink(authority: &Authority, args: Named) -> CliResult {
    let unlinked = authority
        .admin()
        .unlink_user(UnlinkUserRequest { name: args.name })
        .await
        .map_err(|status| CliError::from_status("unlink the user", &status))?
        .into_inner();
    if args.format == Format::Json {
        return ui::json(&json!({
            "user": unlinked.user, "connector": unlinked.connector, "issuer": unlinked.issuer,
            "subject": unlinked.subject, "ended_logins": unlinked.ended_logins,
        }));
    }
    ui::data(format!(
        "User {} is not linked with the person {} of the connector {} any more. Logins that ended: {}.",
        unlinked.user, unlinked.subject, unlinked.connector, unlinked.ended_logins
    ))
}

async fn add(authority: &Authority, args: Add) -> CliResult {
    let mut traits: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let own = [("logins", args.logins), ("db_users", args.db_users), ("db_names", args.db_names)];
    for (name, values) in own.into_iter().filter(|(_, values)| !values.is_empty()) {
        traits.insert(format!("internal.{name}"), values);
    }
    for text in &args.traits {
        let Some((name, values)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(CliError::new(format!("{text:?} is not a trait; expected NAME=VALUE[,VALUE...]"))
                .exit(Exit::Usage));
        };
        let values = values.split(',').filter(|value| !value.is_empty()).map(str::to_owned);
        traits.entry(name.to_owned()).or_default().extend(values);
    }
    let request = CreateUserRequest {
        name: args.name,
        roles: args.roles,
        traits: traits.into_iter().map(|(name, values)| (name, TraitValues { values })).collect(),
    };
    let invite = authority
        .admin()
        .create_user(request)
        .await
        .map_err(|status| CliError::from_status("add the user", &status))?
        .into_inner();
    print_invite(authority, invite, "was added", args.format)
}

/// The link with the proxy's address, where the authority does not know it and the administrator's login does; and whether it has one.
fn addressed(link: String, proxy: Option<&str>) -> (String, bool) {
    match (InviteLink::parse(&link), proxy) {
        (Ok(parsed), Some(proxy)) if parsed.proxy == UNKNOWN_PROXY => {
            (InviteLink { proxy: proxy.to_owned(), ..parsed }.to_string(), true)
        }
        (Ok(parsed), None) if parsed.proxy == UNKNOWN_PROXY => (link, false),
        _ => (link, true),
    }
}

fn print_invite(authority: &Authority, invite: InviteResponse, what: &str, format: Format) -> CliResult {
    let (link, is_whole) = addressed(invite.link, authority.proxy());
    let expires =
        invite.expires.as_ref().and_then(convert::time_from_proto).map(ui::timestamp).unwrap_or_default();
    if format == Format::Json {
        return ui::json(&json!({
            "user": invite.user, "link": link, "token": invite.token, "expires": expires,
        }));
    }
    ui::data(format!("User {} {what}. Until {expires} this link sets the password:", invite.user))?;
    ui::data(format!("  {link}"))?;
    ui::say(format!("They run: sallyport signup '{link}'"));
    if !is_whole {
        ui::say(format!(
            "note: put the public address of a proxy in the place of {UNKNOWN_PROXY}: the authority does not know it (auth.public_addr)"
        ));
    }
    Ok(())
}

/// Of a user who comes by single sign-on, and needs no link.
fn print_reset(user: &str, format: Format) -> CliResult {
    if format == Format::Json {
        return ui::json(&json!({ "user": user, "link": null, "token": null, "expires": null }));
    }
    ui::data(format!("User {user} has no factor any more, and every login of theirs has ended."))?;
    ui::say("They log in at their provider, and add a factor: sallyport mfa add NAME");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_has_a_proxys_address_or_is_said_to_lack_it() {
        let unknown = format!("https://{UNKNOWN_PROXY}/invite/abc#sha256:00");
        let whole = "https://p.example:443/invite/abc#sha256:00";
        assert_eq!(addressed(unknown.clone(), Some("p.example:443")), (whole.to_owned(), true));
        assert_eq!(addressed(unknown.clone(), None), (unknown, false));
        for proxy in [None, Some("other:1")] {
            assert_eq!(addressed(whole.to_owned(), proxy), (whole.to_owned(), true));
        }
    }
}
