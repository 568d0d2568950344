//! Logins that are open: one's own, and those of users for administrators.

use sallyport_wire::convert;
use sallyport_wire::v1::end_logins_of_request::Which as WhichOf;
use sallyport_wire::v1::end_logins_request::Which;
use sallyport_wire::v1::{
    EndLoginsOfRequest, EndLoginsRequest, EndLoginsResponse, ListLoginsOfRequest, ListLoginsRequest,
    LoginInfo,
};
use serde_json::json;
use time::OffsetDateTime;

use crate::authority::{self, Authority, AuthorityArgs};
use crate::error::{CliError, CliResult, Exit};
use crate::global::Global;
use crate::ui::{self, Format, shorten};

/// Where you are logged in.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Own {
    #[command(subcommand)]
    command: Option<OwnCommand>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Subcommand)]
enum OwnCommand {
    /// End a login, or all but this one: their certificates count no more, and their sessions end.
    End(EndOwn),
}

#[derive(Debug, clap::Args)]
struct EndOwn {
    /// The login, as sessions logins shows it; the beginning of its id is enough.
    #[arg(required_unless_present = "others", conflicts_with = "others")]
    login: Option<String>,
    /// All but this one.
    #[arg(long)]
    others: bool,
}

/// The logins of users.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Logins {
    /// List the logins that are open.
    Ls(Ls),
    /// End a user's login, or all of them.
    End(End),
}

#[derive(Debug, clap::Args)]
pub(crate) struct Ls {
    /// Only those of this user.
    #[arg(long)]
    user: Option<String>,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct End {
    /// The login, as logins ls shows it; the beginning of its id is enough. Without, all logins of --user.
    #[arg(required_unless_present = "user")]
    login: Option<String>,
    /// Whose.
    #[arg(long)]
    user: Option<String>,
    /// Why: the user reads it, and it is on record.
    #[arg(long, default_value = "")]
    reason: String,
}

pub(crate) async fn own(global: &Global, args: Own) -> CliResult {
    let authority = authority::open(global, &AuthorityArgs::default()).await?;
    let logins = mine(&authority).await?;
    let Some(OwnCommand::End(args)) = args.command else {
        return print(logins, args.format, false);
    };
    let which = match &args.login {
        Some(id) if is_whole(id) => Which::Id(id.clone()),
        Some(beginning) => Which::Id(one(&logins, beginning, "sallyport sessions logins")?.id.clone()),
        None => Which::Others(args.others),
    };
    let ended = authority.logins().end(EndLoginsRequest { which: Some(which) }).await;
    told(ended.map_err(|status| CliError::from_status("end the login", &status))?.into_inner())
}

pub(crate) async fn administer(authority: &Authority, command: Logins) -> CliResult {
    match command {
        Logins::Ls(args) => {
            let logins = all(authority, args.user.unwrap_or_default()).await?;
            print(logins, args.format, true)
        }
        Logins::End(args) => {
            let (user, which) = match (&args.login, &args.user) {
                (Some(id), Some(user)) if is_whole(id) => (user.clone(), WhichOf::Id(id.clone())),
                (Some(beginning), _) => {
                    let logins = all(authority, args.user.unwrap_or_default()).await?;
                    let login = one(&logins, beginning, "sallyport admin logins ls")?;
                    (login.user.clone(), WhichOf::Id(login.id.clone()))
                }
                (None, _) => (args.user.unwrap_or_default(), WhichOf::All(true)),
            };
            let request = EndLoginsOfRequest { user, reason: args.reason, which: Some(which) };
            let ended = authority.logins().end_of(request).await;
            let ended = ended.map_err(|status| CliError::from_status("end the login", &status))?;
            told(ended.into_inner())
        }
    }
}

/// Every open login of the caller.
async fn mine(authority: &Authority) -> CliResult<Vec<LoginInfo>> {
    let (mut logins, mut after) = (Vec::new(), String::new());
    loop {
        let page = authority.logins().list(ListLoginsRequest { after, limit: 0 }).await;
        let page = page.map_err(|status| CliError::from_status("list the logins", &status))?.into_inner();
        logins.extend(page.logins);
        if page.next.is_empty() {
            return Ok(logins);
        }
        after = page.next;
    }
}

async fn all(authority: &Authority, user: String) -> CliResult<Vec<LoginInfo>> {
    let (mut logins, mut after) = (Vec::new(), String::new());
    loop {
        let request = ListLoginsOfRequest { user: user.clone(), after, limit: 0 };
        let page = authority.logins().list_of(request).await;
        let page = page.map_err(|status| CliError::from_status("list the logins", &status))?.into_inner();
        logins.extend(page.logins);
        if page.next.is_empty() {
            return Ok(logins);
        }
        after = page.next;
    }
}

/// Whether it is an id to its end. The authority is asked about it also where no open login has it: what a login that has ended had asked
/// for is void then.
fn is_whole(id: &str) -> bool {
    const LENGTHS: [usize; 5] = [8, 4, 4, 4, 12];
    let parts: Vec<&str> = id.split('-').collect();
    parts.iter().map(|part| part.len()).eq(LENGTHS)
        && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn one<'l>(logins: &'l [LoginInfo], beginning: &str, list: &str) -> CliResult<&'l LoginInfo> {
    let mut found = logins.iter().filter(|login| login.id.starts_with(beginning));
    match (found.next(), found.next()) {
        (Some(login), None) => Ok(login),
        (None, _) if is_whole(beginning) => {
            Err(CliError::new(format!("no open login has the id {beginning:?}"))
                .hint("with --user NAME, what a login has asked for that has ended is void, too"))
        }
        (None, _) => Err(CliError::new(format!("no open login has an id that begins with {beginning:?}"))
            .hint(format!("see: {list}"))),
        (Some(_), Some(_)) => Err(CliError::new(format!("several logins begin with {beginning:?}"))
            .hint(format!("write more of the id, see: {list}"))
            .exit(Exit::Usage)),
    }
}

fn told(done: EndLoginsResponse) -> CliResult {
    ui::data(words(done))
}

fn words(EndLoginsResponse { ended, devices }: EndLoginsResponse) -> String {
    let removed = match devices {
        0 => String::new(),
        1 => " 1 device that waited to be admitted was removed.".to_owned(),
        devices => format!(" {devices} devices that waited to be admitted were removed."),
    };
    match (ended, devices) {
        (0, 0) => "There was no other login to end.".to_owned(),
        (0, _) => format!("There was no open login to end.{removed}"),
        (1, _) => format!("Ended 1 login; its sessions end within seconds.{removed}"),
        (ended, _) => format!("Ended {ended} logins; their sessions end within seconds.{removed}"),
    }
}

fn time(at: Option<&prost_types::Timestamp>) -> Option<OffsetDateTime> {
    at.and_then(convert::time_from_proto)
}

fn print(mut logins: Vec<LoginInfo>, format: Format, users: bool) -> CliResult {
    logins.sort_by_key(|login| std::cmp::Reverse(time(login.at.as_ref())));
    if format == Format::Json {
        return ui::json(&logins.iter().map(as_json).collect::<Vec<_>>());
    }
    let now = OffsetDateTime::now_utc();
    let ago = |at: Option<OffsetDateTime>| at.map_or("-".to_owned(), |at| ui::duration(now - at));
    let or_none = |text: &str| if text.is_empty() { "-".to_owned() } else { shorten(text, 60) };
    let row = |login: &LoginInfo| {
        let used = match time(login.last_used.as_ref()) {
            _ if login.current => "now, here".to_owned(),
            None => "-".to_owned(),
            Some(used) => format!("{} ago", ui::duration((now - used).max(time::Duration::ZERO))),
        };
        let mut row = vec![login.id.clone()];
        if users {
            row.push(shorten(&login.user, 60));
        }
        row.extend([
            ago(time(login.at.as_ref())),
            or_none(&login.address),
            or_none(&login.host_name),
            way(login),
            used,
            time(login.valid_until.as_ref())
                .map_or("-".to_owned(), |until| ui::duration((until - now).max(time::Duration::ZERO))),
        ]);
        row
    };
    let rows = logins.iter().map(row).collect();
    let (mut headings, none) = (vec!["login"], "No login is open.");
    if users {
        headings.push("user");
    }
    headings.extend(["since", "from", "calls itself", "by", "used", "left"]);
    ui::table(&headings, rows, none)
}

/// How the user proved who they are.
pub(crate) fn way(login: &LoginInfo) -> String {
    let mut text = match login.way.as_str() {
        "" => "-".to_owned(),
        "signed" => format!("signed for {}", shorten(&login.signed_by, 40)),
        way => way.to_owned(),
    };
    if !login.factor.is_empty() {
        text =
            format!("{text}, {} ({})", shorten(&login.factor, 40), crate::mfa::kind_word(&login.factor_kind));
    }
    text
}

fn as_json(login: &LoginInfo) -> serde_json::Value {
    let time = |at: Option<&prost_types::Timestamp>| time(at).map(ui::timestamp);
    json!({
        "id": login.id, "user": login.user, "at": time(login.at.as_ref()), "address": login.address,
        "way": login.way, "factor": login.factor, "factor_kind": login.factor_kind,
        "second_factor": login.second_factor, "host_name": login.host_name, "ssh_key": login.ssh_key,
        "tls_key": login.tls_key, "last_used": time(login.last_used.as_ref()),
        "valid_until": time(login.valid_until.as_ref()), "current": login.current, "signed_by": login.signed_by,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_no_whole_id() {
        assert!(is_whole("01a1fcd0-285f-75c5-bfa8-264bbd1d2bdd"));
        for text in
            ["", "01a1fcd0", "01a1fcd0-285f-75c5-bfa8-264bbd1d2bd", "01a1fcd0-285f-75c5-bfa8-264bbd1d2bdg"]
        {
            assert!(!is_whole(text), "{text}");
        }
    }

    #[test]
    fn what_was_done_is_said_also_of_a_login_that_had_ended() {
        let said = |ended, devices| words(EndLoginsResponse { ended, devices });
        assert_eq!(said(0, 0), "There was no other login to end.");
        assert_eq!(
            said(0, 1),
            "There was no open login to end. 1 device that waited to be admitted was removed."
        );
        assert_eq!(
            said(1, 2),
            "Ended 1 login; its sessions end within seconds. 2 devices that waited to be admitted were removed."
        );
        assert_eq!(said(7, 0), "Ended 7 logins; their sessions end within seconds.");
    }
}
