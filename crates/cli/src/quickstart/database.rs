//! The part of the tour that shows databases.

use std::process::Stdio;

use sallyport_testing::postgres::{HOST, Postgres};
use sallyport_wire::v1::{ExportCaRequest, ListDatabasesRequest};
use time::OffsetDateTime;

use super::tour::{Done, Tour, done, until};
use crate::authority::{self, AuthorityArgs};
use crate::error::{CliError, CliResult, Context};
use crate::ui;

/// The database of the tour, in the cluster and in the server, and the database user.
/// Its name in the cluster.
pub(super) const DATABASE: &str = "shop";
const DB_USER: &str = "alice";
const STATEMENT: &str = "SELECT item, price FROM wares ORDER BY price LIMIT 1";

/// What the node's configuration says of it.
pub(super) fn of_the_node(postgres: &Postgres) -> String {
    // JSON strings are YAML strings.
    let ca = serde_json::Value::String(postgres.ca_pem.clone());
    format!(
        "  databases:\n    - name: {DATABASE}\n      labels: {{ env: demo }}\n      address: \"{HOST}:{}\"\n      tls: {{ ca: {ca} \
         }}\n",
        postgres.port()
    )
}

impl Tour {
    /// A server that lets in users with a certificate of this cluster, with a user without a password and some wares.
    pub(super) async fn start_postgres(&self) -> CliResult<Done<Postgres>> {
        let request = ExportCaRequest { kind: "db_client".to_owned(), format: "tls".to_owned() };
        let clients = self
            .authority()
            .await?
            .admin()
            .export_ca(request)
            .await
            .map_err(|status| CliError::from_status("read the db_client CA", &status))?
            .into_inner()
            .text;
        let started = tokio::task::spawn_blocking(move || {
            let postgres = Postgres::start()?;
            postgres.trust(&[clients])?;
            postgres.sql("postgres", &format!("CREATE ROLE {DB_USER} LOGIN"))?;
            postgres.sql("postgres", &format!("CREATE DATABASE {DATABASE} OWNER {DB_USER}"))?;
            postgres.sql(
                DATABASE,
                &format!(
                    "CREATE TABLE wares (item text, price numeric); INSERT INTO wares VALUES ('rope', 4.50), ('lantern', 12), \
                     ('compass', 31); ALTER TABLE wares OWNER TO {DB_USER}"
                ),
            )?;
            Ok::<_, sallyport_testing::TestbedError>(postgres)
        });
        let postgres = started.await.doing("start PostgreSQL")?.map_err(|error| {
            CliError::new(error.to_string()).hint("sallyport quickstart, for the tour without databases")
        })?;
        let version = postgres.version.split_whitespace().next().unwrap_or_default();
        let said = format!("PostgreSQL {version} on {HOST}:{}, by certificates alone", postgres.port());
        done(postgres, said)
    }

    /// A query with the stock psql, as a user would run it.
    pub(super) async fn query(&self) -> CliResult<Done<()>> {
        let authority = authority::open(&self.global, &AuthorityArgs::default()).await?;
        let healthy = || {
            let mut databases = authority.databases();
            async move {
                let answer = databases.list_databases(ListDatabasesRequest::default()).await;
                let answer = answer.map_err(|status| CliError::from_status("list the databases", &status))?;
                Ok(answer.into_inner().databases.iter().any(|one| one.health == "healthy").then_some(()))
            }
        };
        until(healthy, "the database to be reported by its agent").await?;
        let output = self
            .user_s_program()
            .arg("--home")
            .arg(self.path.join("client"))
            .args(["--proxy", &self.listen.to_string(), "db", "connect", DATABASE])
            .args(["--db-user", DB_USER, "--db-name", DATABASE, "--", "-X", "-A", "-t", "-c", STATEMENT])
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .doing("run sallyport db connect")?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() || said != "rope|4.50" {
            return Err(CliError::new(format!(
                "the query failed ({}): {said}{}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            )));
        }
        done((), format!("psql as {DB_USER} through the proxy, no password: {said:?}"))
    }

    /// The query is on record, and what it answered is not.
    pub(super) async fn play_back_query(&self, since: OffsetDateTime) -> CliResult<Done<()>> {
        let recording = self.recording_with(DATABASE, since, STATEMENT).await?;
        done((), format!("{} has the statement; {} sealed", recording.session_id, ui::bytes(recording.bytes)))
    }

    pub(super) fn say_what_is_next_for_databases(&self) -> CliResult {
        ui::data("And with the database:")?;
        ui::data("  sallyport db ls")?;
        ui::data(format!("  sallyport db connect {DATABASE} --db-user {DB_USER} --db-name {DATABASE}"))?;
        ui::data(format!(
            "  sallyport db login {DATABASE} --db-user {DB_USER} --db-name {DATABASE}; psql service={DATABASE}"
        ))?;
        // What others ran is an administrator's to search.
        ui::data(format!("  sallyport recordings search --data-dir {} lantern", self.data_dir().display()))
    }
}
