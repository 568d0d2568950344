//! `sallyport db login` and `db logout`.

use std::fs;

use sallyport_access::HostRole;
use sallyport_sal::KeyPurpose;
use sallyport_wire::v1::{DatabaseInfo, ExplainDatabaseAccessRequest};
use serde_json::json;

use super::catalog::{self, Client};
use super::choice::{Choice, Endpoint, all, find, not_chosen, parse, path, save};
use super::service_file::{Section, ServiceFile};
use crate::authority::{self, AuthorityArgs};
use crate::error::{CliError, CliResult, Context, Exit};
use crate::global::Global;
use crate::ui::{self, Format};
use sallyport_client::profile::Stored;
use sallyport_client::{connect, dial};

#[derive(Debug, clap::Args)]
pub(crate) struct LoginArgs {
    /// The database, as db ls shows it.
    name: String,
    /// The database user. Default: the one that your roles allow, if there is one only.
    #[arg(long, short = 'u', value_name = "USER")]
    db_user: Option<String>,
    /// The name of the database on its server. Default: the one that your roles allow, if there is one only.
    #[arg(long, short = 'n', value_name = "DATABASE")]
    db_name: Option<String>,
    /// The name of the service for psql "service=…". Default: that of the database.
    #[arg(long, value_name = "SERVICE")]
    service: Option<String>,
    /// Write no service file.
    #[arg(long, conflicts_with = "service")]
    no_service_file: bool,
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

#[derive(Debug, clap::Args)]
pub(crate) struct LogoutArgs {
    /// The database. Default: all.
    name: Option<String>,
}

/// A user and a name as they are given on a command line.
#[derive(Debug, Clone, Default)]
pub(super) struct Given {
    pub(super) db_user: Option<String>,
    pub(super) db_name: Option<String>,
}

pub(super) async fn login(global: &Global, args: LoginArgs) -> CliResult {
    let name = parse(&args.name)?;
    let stored = global.profiles().load_valid()?;
    let authority = authority::open(global, &AuthorityArgs::default()).await?;
    let client = authority.databases();
    let info = catalog::one(&client, name.as_str()).await?;
    let given = Given { db_user: args.db_user, db_name: args.db_name };
    let (db_user, db_name) = pick(&info, &given)?;
    explain(&client, &stored, &info.name, &db_user, &db_name).await?;
    let mut choice = Choice {
        database: info.name.clone(),
        db_user,
        db_name,
        service: None,
        endpoint: Some(endpoint(&stored).await?),
    };
    let earlier = find(&stored, &choice.database)?.and_then(|earlier| earlier.service);
    let mut file = None;
    if !args.no_service_file {
        let service = args.service.unwrap_or_else(|| choice.database.clone());
        stored.write_for_stock_clients()?;
        let services = ServiceFile::of_this_user()?;
        let section = Section::new(&stored, &choice, &service)?;
        services.put(&section)?;
        if let Some(other) = earlier.as_ref().filter(|other| **other != service) {
            services.remove(other, &stored)?;
        }
        choice.service = Some(service);
        file = Some(services);
    } else if let Some(service) = earlier {
        ServiceFile::of_this_user()?.remove(&service, &stored)?;
    }
    save(&stored, &choice)?;
    let algorithm = stored.trust()?.suite().algorithm(KeyPurpose::UserTls);
    if algorithm.to_string().starts_with("ml-dsa") {
        ui::say(format!(
            "note: your key is of type {algorithm}, which OpenSSL reads from 3.5 on; for programs with an older one there is \
             sallyport proxy db {} --tunnel",
            choice.database
        ));
    }
    report(&choice, file.as_ref(), args.format)?;
    if info.health != "healthy" {
        ui::say(format!("note: {} is {} now{}", info.name, info.health, because(&info.problem)));
    }
    Ok(())
}

fn because(problem: &str) -> String {
    if problem.is_empty() { String::new() } else { format!(": {problem}") }
}

fn report(choice: &Choice, file: Option<&ServiceFile>, format: Format) -> CliResult {
    let Choice { database, db_user, db_name, service, .. } = choice;
    if format == Format::Json {
        return ui::json(&json!({
            "database": database, "db_user": db_user, "db_name": db_name, "service": service,
            "service_file": file.map(|file| file.path().display().to_string()),
        }));
    }
    ui::data(format!("You use {database} as {db_user}, database {db_name}."))?;
    if let (Some(service), Some(file)) = (service, file) {
        ui::data(format!("  service  {service} in {}", file.path().display()))?;
        ui::say(format!("Next: psql \"service={service}\"; or: sallyport db connect {database}"));
    } else {
        ui::say(format!("Next: sallyport db connect {database}"));
    }
    Ok(())
}

/// The user and the name to use: what is given, where the cluster allows it; else the only ones that it allows.
pub(super) fn pick(info: &DatabaseInfo, given: &Given) -> CliResult<(String, String)> {
    let user = one_of("user", "--db-user", given.db_user.as_deref(), &info.users, &info.name)?;
    let name = one_of("name", "--db-name", given.db_name.as_deref(), &info.names, &info.name)?;
    Ok((user, name))
}

fn one_of(
    what: &str,
    flag: &str,
    given: Option<&str>,
    allowed: &[String],
    database: &str,
) -> CliResult<String> {
    let any = allowed.iter().any(|one| one == "*");
    let listed = || allowed.join(", ");
    match (given, allowed) {
        (Some(""), _) => Err(CliError::new(format!("{flag} is empty")).exit(Exit::Usage)),
        (Some(given), _) if any || allowed.iter().any(|one| one == given) => Ok(given.to_owned()),
        (_, []) => Err(CliError::new(format!("your roles allow no database {what} on {database}"))
            .hint("sallyport db ls")
            .exit(Exit::Refused)),
        (Some(given), _) => {
            Err(CliError::new(format!("your roles do not allow the database {what} {given:?} on {database}"))
                .hint(format!("{flag} with one of: {}", listed()))
                .exit(Exit::Refused))
        }
        (None, [only]) if !any => Ok(only.clone()),
        (None, _) if any => {
            Err(CliError::new(format!("which database {what}? Your roles allow any on {database}"))
                .hint(format!("sallyport db login {database} {flag} NAME"))
                .exit(Exit::Usage))
        }
        (None, _) => Err(CliError::new(format!(
            "which database {what}? Your roles allow several on {database}: {}",
            listed()
        ))
        .hint(format!("sallyport db login {database} {flag} NAME"))
        .exit(Exit::Usage)),
    }
}

/// The lists leave out what deny rules and locks say of one combination; the cluster knows. A user who may not ask hears it
/// when connecting.
async fn explain(
    client: &Client,
    stored: &Stored,
    database: &str,
    db_user: &str,
    db_name: &str,
) -> CliResult {
    let request = ExplainDatabaseAccessRequest {
        user: stored.profile.user.to_string(),
        database: database.to_owned(),
        db_user: db_user.to_owned(),
        db_name: db_name.to_owned(),
    };
    match client.clone().explain_database_access(request).await {
        Ok(answer) => {
            let answer = answer.into_inner();
            if answer.allowed {
                return Ok(());
            }
            Err(CliError::new(answer.summary).hint("sallyport db ls").exit(Exit::Refused))
        }
        Err(status) if status.code() == tonic::Code::PermissionDenied => Ok(()),
        Err(status) => Err(CliError::from_status("ask whether this is allowed", &status)),
    }
}

pub(super) fn logout(global: &Global, args: &LogoutArgs) -> CliResult {
    let stored = global.profiles().load()?;
    let chosen: Vec<Choice> = match &args.name {
        Some(name) => vec![find(&stored, parse(name)?.as_str())?.ok_or_else(|| not_chosen(name))?],
        None => all(&stored),
    };
    if chosen.is_empty() {
        ui::say("There was no database login to forget.");
    }
    for choice in chosen {
        if let Some(service) = &choice.service {
            ServiceFile::of_this_user()?.remove(service, &stored)?;
        }
        let path = path(&stored, &choice.database);
        fs::remove_file(&path).doing(format!("remove {}", path.display()))?;
        ui::data(format!("Logged out of {}.", choice.database))?;
    }
    Ok(())
}

/// Takes what a profile's logins to databases have written outside of it away.
pub(crate) fn forget_all(stored: &Stored) -> CliResult {
    let services: Vec<String> = all(stored).into_iter().filter_map(|choice| choice.service).collect();
    if services.is_empty() {
        return Ok(());
    }
    let file = ServiceFile::of_this_user()?;
    services.iter().try_for_each(|service| file.remove(service, stored))
}

/// Where stock clients go: to the proxy of a login under the name that it was logged in to by, or where the proxy does not prove
/// that name, under the one that it has in every cluster.
async fn endpoint(stored: &Stored) -> CliResult<Endpoint> {
    let named = Endpoint::of(stored);
    if connect::proves(stored, &named.host).await? {
        return Ok(named);
    }
    let address = dial::dial(&stored.profile.proxy).await?.peer_addr().doing("find the proxy")?.ip();
    let host = sallyport_ca::server_name(HostRole::Proxy, &stored.profile.cluster);
    Ok(Endpoint { host, address: Some(address), port: named.port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(users: &[&str], names: &[&str]) -> DatabaseInfo {
        let owned = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect();
        DatabaseInfo {
            name: "prod".to_owned(),
            users: owned(users),
            names: owned(names),
            ..DatabaseInfo::default()
        }
    }

    fn given(user: Option<&str>, name: Option<&str>) -> Given {
        Given { db_user: user.map(str::to_owned), db_name: name.map(str::to_owned) }
    }

    #[test]
    fn what_is_allowed_alone_is_chosen_and_the_rest_is_asked_for() {
        let both = ("app".to_owned(), "shop".to_owned());
        assert_eq!(pick(&info(&["app"], &["shop"]), &given(None, None)).unwrap(), both);
        assert_eq!(pick(&info(&["*"], &["*"]), &given(Some("app"), Some("shop"))).unwrap(), both);
        for (info, given, words) in [
            (info(&["app", "ro"], &["shop"]), given(None, None), "several on prod: app, ro"),
            (info(&["*"], &["shop"]), given(None, None), "which database user? Your roles allow any"),
            (info(&["app"], &[]), given(None, None), "allow no database name"),
            (info(&["app"], &["shop"]), given(Some("root"), None), "do not allow the database user \"root\""),
            (info(&["*"], &["shop"]), given(Some("x"), Some("y")), "do not allow the database name \"y\""),
            (info(&["*"], &["*"]), given(Some(""), Some("y")), "--db-user is empty"),
        ] {
            let error = pick(&info, &given).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
