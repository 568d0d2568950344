//! The databases of a cluster, as the authority lists them.

use sallyport_wire::v1::databases_client::DatabasesClient;
use sallyport_wire::v1::{DatabaseInfo, ListDatabasesRequest};

use crate::error::{CliError, CliResult, Exit};
use crate::ui;
use sallyport_client::agents;
use sallyport_client::channel::Channel;
use sallyport_client::profile::Stored;

pub(super) type Client = DatabasesClient<Channel>;

/// Every database that a request asks for, page by page.
pub(super) async fn pages(
    client: &Client,
    mut request: ListDatabasesRequest,
) -> CliResult<Vec<DatabaseInfo>> {
    let mut client = client.clone();
    let mut databases = Vec::new();
    loop {
        let page = client
            .list_databases(request.clone())
            .await
            .map_err(|status| CliError::from_status("list the databases", &status))?
            .into_inner();
        databases.extend(page.databases);
        if page.next.is_empty() {
            return Ok(databases);
        }
        request.after = page.next;
    }
}

/// The one of this name.
pub(super) async fn one(client: &Client, name: &str) -> CliResult<DatabaseInfo> {
    let request = ListDatabasesRequest { search: name.to_owned(), ..ListDatabasesRequest::default() };
    let found = pages(client, request).await?.into_iter().find(|database| database.name == name);
    found.ok_or_else(|| {
        CliError::new(format!("there is no database {name:?} that you may use"))
            .hint("sallyport db ls")
            .exit(Exit::Refused)
    })
}

/// Tells a person where a database cannot be reached end to end, before a program goes there.
pub(super) async fn say_where_tls_ends(stored: &Stored, database: &str) {
    // What is wrong otherwise the program reads when it connects.
    if let Ok(agents) = agents::agents(stored, agents::Asked::Database(database)).await
        && agents.is_empty()
    {
        ui::say(format!(
            "note: the agents of {database} are of an earlier release, so this connection's TLS ends at the proxy, which can \
             see and change what passes"
        ));
    }
}
