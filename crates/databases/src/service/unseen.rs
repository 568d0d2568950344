//! What a database user may run that is not in the record, asked of the server.
//!
//! It is asked over a connection of the agent's own, as the user and in the database of the session: nothing that the client
//! sets for its session (`search_path`, `role`) has a part in the answer.

use std::sync::Arc;

use tokio::time::timeout;
use tokio_rustls::rustls::ClientConfig;

use super::admin::Admin;
use super::asked::Wanted;
use super::connect::ConnectError;
use super::shared::Shared;

/// The user may become each role of `mine`. The one row that is asked for says what is worst.
const QUESTION: &str = "with mine as (select oid, rolname, rolsuper, rolcreaterole from pg_catalog.pg_roles \
    where pg_catalog.pg_has_role(session_user, oid, 'MEMBER')) \
    select what, whose from ( \
    select 1 as rank, 'superuser' as what, rolname::text as whose from mine where rolsuper \
    union all select 2, 'member', rolname::text from mine where rolname::text in \
    ('pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files') \
    union all select 3, 'grants', rolname::text from mine where rolcreaterole \
    and pg_catalog.current_setting('server_version_num')::int < 160000 \
    union all select 4, 'dblink', p.proname::text from pg_catalog.pg_extension e \
    join pg_catalog.pg_depend d on d.refclassid = 'pg_catalog.pg_extension'::regclass and d.refobjid = e.oid \
    and d.classid = 'pg_catalog.pg_proc'::regclass and d.deptype = 'e' \
    join pg_catalog.pg_proc p on p.oid = d.objid \
    join mine m on pg_catalog.has_function_privilege(m.oid, p.oid, 'EXECUTE') \
    and pg_catalog.has_schema_privilege(m.oid, p.pronamespace, 'USAGE') where e.extname = 'dblink' \
    ) found order by rank, whose <> session_user::text, whose limit 1";

/// Refuses a session whose database user may run what is not in the record.
///
/// # Errors
/// [`ConnectError::Unseen`] where the user may; what keeps the server from being asked.
pub(super) async fn check(
    shared: &Shared,
    wanted: &Wanted,
    tls: Option<Arc<ClientConfig>>,
) -> Result<(), ConnectError> {
    let asking = async {
        let mut own = Admin::log_in(shared, wanted, tls, wanted.db_name()).await?;
        let found = own.run(QUESTION).await;
        // Before the session's own connection, which a limit of the user's may leave room for alone.
        own.close().await;
        found
    };
    let longest = shared.pace.user;
    let found = timeout(longest, asking).await.map_err(|_| {
        ConnectError::Late(format!("what its user may run was not answered within {} s", longest.as_secs()))
    })?;
    let found = found?.into_iter().next();
    let Some(found) = found else { return Ok(()) };
    let mut found = found.into_iter().flatten();
    let (what, whose) = (found.next().unwrap_or_default(), found.next().unwrap_or_default());
    let why = in_words(&what, &whose, wanted.user());
    Err(ConnectError::Unseen { user: wanted.user().to_owned(), why })
}

fn in_words(what: &str, whose: &str, user: &str) -> String {
    let is_own = whose == user;
    match what {
        "superuser" if is_own => "it is a superuser".to_owned(),
        "superuser" => format!("it may become the superuser {whose}"),
        "member" => format!("it is a member of {whose}"),
        "grants" if is_own => {
            "it has CREATEROLE, and may make itself a member of pg_execute_server_program".to_owned()
        }
        "grants" => format!("it may become {whose}, which has CREATEROLE"),
        "dblink" => format!("it may call {whose} of the extension dblink"),
        _ => format!("the server says {what} ({whose})"),
    }
}
