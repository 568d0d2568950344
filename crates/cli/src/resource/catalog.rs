//! What the authority lists.

use sallyport_access::{Kind, ResourceName};
use sallyport_client::agents;
use sallyport_client::channel::Channel;
use sallyport_client::profile::Stored;
use sallyport_helper::resources::Wanted;
use sallyport_wire::v1::catalogue_client::CatalogueClient;
use sallyport_wire::v1::{CatalogueItem, ListCatalogueRequest};

use crate::error::{CliError, CliResult, Exit};
use crate::ui;

/// A name as resources have it.
pub(super) fn parse(kind: Kind, name: &str) -> CliResult<String> {
    ResourceName::new(name).map(|name| name.to_string()).map_err(|error| {
        CliError::new(format!("{name:?} is no name: {error}"))
            .hint(format!("sallyport {} ls", kind.row().document))
            .exit(Exit::Usage)
    })
}

/// Every page, sorted by name.
pub(super) async fn pages(
    client: &CatalogueClient<Channel>,
    kind: Kind,
    mut request: ListCatalogueRequest,
) -> CliResult<Vec<CatalogueItem>> {
    let (mut client, mut listed) = (client.clone(), Vec::new());
    loop {
        let page = client
            .list(request.clone())
            .await
            .map_err(|status| CliError::from_status(&format!("list the {}", kind.row().plural), &status))?
            .into_inner();
        listed.extend(page.items);
        if page.next.is_empty() {
            listed.sort_by(|one, other| one.name.cmp(&other.name));
            return Ok(listed);
        }
        request.after = page.next;
    }
}

/// Whether the cluster has it, and lets us. An address outlives an authority that is away.
pub(super) async fn check(stored: &Stored, wanted: &Wanted) -> CliResult {
    let asked = agents::Asked::Resource { kind: wanted.kind.row().document, name: &wanted.name };
    match agents::ask(stored, asked).await.map_err(CliError::from) {
        Err(error) if error.exit_kind() == Exit::Connection => {
            ui::say(format!("note: {}", error.what()));
            Ok(())
        }
        other => other.map(drop),
    }
}
