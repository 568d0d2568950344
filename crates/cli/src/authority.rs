//! How an administration command reaches the authority.

use std::path::PathBuf;
use std::sync::Arc;

use crate::error::CliResult;
use crate::global::Global;
use crate::proving::Person;
pub(crate) use sallyport_client::authority::Authority;
use sallyport_client::connect;

/// Where an administration command goes.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct AuthorityArgs {
    /// The authority's data directory on this machine: administer it through its socket, with no login.
    #[arg(long, global = true, env = "SALLYPORT_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
}

/// Through the socket in a data directory where one is named, else with the stored login.
pub(crate) async fn open(global: &Global, args: &AuthorityArgs) -> CliResult<Authority> {
    match &args.data_dir {
        Some(directory) => Ok(Authority::of_data_dir(directory).await?),
        None => {
            let authority = connect::services(&global.profiles().load_valid()?).await?;
            let person = Arc::new(Person::at(&authority));
            Ok(authority.proven_by(person))
        }
    }
}
