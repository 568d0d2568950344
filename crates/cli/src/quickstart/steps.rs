//! The tour: every step real, timed, and said in one line.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use sallyport_access::UserName;
use sallyport_sal::{selection, totp};
use sallyport_server::{Config, Running};
use sallyport_wire::v1::{
    BeginInviteRequest, CreateResourceRequest, CreateTokenRequest, CreateUserRequest, FinishInviteRequest,
    GetStatusRequest, TraitValues, VerifyAuditRequest,
};
use time::OffsetDateTime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use sallyport_testing::postgres::Postgres;

use super::database;
use super::provider::{self, Provider};
use super::state::{Directory, State};
use super::tour::{Done, Tour, USER, done, until, yaml_string};
use crate::error::{CliError, CliResult, Context, chain};
use crate::login;
use crate::ls::Wanted;
use crate::ui;
use sallyport_client::authority::{FirstTrust, login as authority_login};
use sallyport_client::login::Secrets;
use zeroize::Zeroizing;

pub(super) const CLUSTER: &str = "quickstart";
const NODE: &str = "web-1";

/// What else the tour shows.
#[derive(Debug, Clone, Copy)]
pub(super) struct With {
    pub(super) postgres: bool,
    pub(super) sso: bool,
}

pub(super) async fn run(mut directory: Directory, mut state: State, once: bool, with: With) -> CliResult {
    let mut ends = Ends::listen()?;
    let tour = Tour::new(&directory.path, state.listen)?;
    let shown = directory.path.display().to_string();
    ui::data(format!("Sallyport quickstart in {shown}"))?;
    let finished = state.complete;
    let services = tokio::select! {
        services = show(&tour, &mut directory, &mut state, with) => services?,
        () = ends.next() => {
            // Services and what they serve have ended with the tour.
            let next = if finished { "goes on with it" } else { "begins the tour anew" };
            return Err(CliError::new("stopped before the end of the tour")
                .hint(format!("sallyport quickstart --dir {shown}  ({next})")));
        }
    };
    ui::data(format!("The whole tour took {} ms.", tour.began.elapsed().as_millis()))?;

    if !once {
        tour.say_what_is_next(&tour.os_login, &state)?;
        if services.postgres.is_some() {
            tour.say_what_is_next_for_databases()?;
        }
        if let Some(provider) = &services.provider {
            tour.say_what_is_next_for_sso(provider)?;
        }
        ends.next().await;
        ui::say("Stopping; once more ends it at once.");
    }
    let stopping = async {
        services.node.shutdown_telling(true, tell_of_drain).await;
        services.cluster.shutdown_telling(true, tell_of_drain).await;
    };
    tokio::select! {
        () = stopping => {}
        () = ends.next() => ui::say("Stopped at once."),
    }
    Ok(())
}

/// Nothing is said of a drain that has nothing to wait for.
fn tell_of_drain(draining: sallyport_server::Draining) {
    if draining.sessions > 0 {
        ui::say(format!("  {draining}"));
    }
}

/// What the tour has started.
struct Services {
    cluster: Running,
    node: Running,
    postgres: Option<Postgres>,
    /// Last, so that its port is given up after the cluster has stopped, which believes what answers there.
    provider: Option<Provider>,
}

/// The tour itself.
async fn show(tour: &Tour, directory: &mut Directory, state: &mut State, with: With) -> CliResult<Services> {
    let first_time = !state.complete;
    directory.save(state)?;

    // Before the cluster, and given up after it also where the tour fails: while the connector is stored, the cluster believes what
    // answers at the provider's port, and another account of this machine could be that.
    let (provider, held) = match state.provider_port {
        _ if with.sso => {
            let provider = tour.step("provider", tour.start_provider(state)).await?;
            directory.save(state)?;
            (Some(provider), None)
        }
        Some(port) if !state.provider_forgotten => (None, Some(provider::hold(port).await?)),
        _ => (None, None),
    };
    let cluster = tour.step("cluster", tour.start_cluster()).await?;
    tour.hear_of_trust(&cluster);
    let login = tour.os_login.clone();
    if first_time {
        (state.otp_uri, state.last_step) = tour.step("user", tour.make_user(&login, &state.password)).await?;
    }
    let postgres = match with.postgres {
        true => Some(tour.step("postgres", tour.start_postgres()).await?),
        false => None,
    };
    let node = tour.step("node", tour.start_node(first_time, postgres.as_ref())).await?;
    let step = fresh_step(state.last_step).await;
    state.last_step = step;
    directory.save(state)?;
    tour.step("login", tour.log_in(state, step)).await?;
    let before = OffsetDateTime::now_utc();
    let session = tour.step("session", tour.run_session(&login)).await?;
    tour.step("playback", tour.play_back(&session, before)).await?;
    if postgres.is_some() {
        let before = OffsetDateTime::now_utc();
        tour.step("query", tour.query()).await?;
        tour.step("playback", tour.play_back_query(before)).await?;
    }
    if let Some(provider) = &provider {
        tour.step("sso test", tour.try_connector(provider)).await?;
        tour.step("sso login", tour.log_in_by_provider(provider)).await?;
    }
    if let Some(held) = held {
        tour.forget_provider().await?;
        // The port itself is remembered: at another one the person would be another.
        state.provider_forgotten = true;
        directory.save(state)?;
        drop(held);
    }
    tour.step("audit", tour.verify_audit()).await?;
    state.complete = true;
    directory.save(state)?;
    Ok(Services { cluster, node, postgres, provider })
}

impl Tour {
    async fn start_cluster(&self) -> CliResult<Done<Running>> {
        let yaml = format!(
            "version: v1\ncluster: {CLUSTER}\ndata_dir: {}\n{}auth:\n  enabled: true\nproxy:\n  enabled: true\n  \
             listen: \"{}\"\n  public_addr: \"{}\"\nnode:\n  enabled: false\n",
            yaml_string(&self.data_dir()),
            cryptography(),
            self.listen,
            self.listen
        );
        let running = start(&yaml).await?;
        done(running, format!("{CLUSTER:?} up: authority and proxy on {}", self.listen))
    }

    /// Makes a role and a user and accepts the invite as the person would.
    async fn make_user(&self, login: &str, password: &str) -> CliResult<Done<(String, i64)>> {
        let authority = self.authority().await?;
        let mut admin = authority.admin();
        let role = "kind: role\nversion: v1\nmetadata:\n  name: quickstart\n  description: What the quickstart user may do\n\
             spec:\n  allow:\n    logins: ['{{internal.logins}}']\n    node_labels:\n      env: [demo]\n    db_labels:\n      env: [demo]\n    db_users: \
             [alice]\n    db_names: [shop]\n  options:\n    \
             max_login_ttl: 12h\n    forward_agent: true\n    record_session: strict\n";
        let failed = |status: tonic::Status| CliError::from_status("make the user", &status);
        admin
            .create_resource(CreateResourceRequest { yaml: role.to_owned(), replace: true })
            .await
            .map_err(failed)?;
        let traits = [("internal.logins".to_owned(), TraitValues { values: vec![login.to_owned()] })];
        let request = CreateUserRequest {
            name: USER.to_owned(),
            roles: vec!["quickstart".to_owned()],
            traits: traits.into_iter().collect(),
        };
        let invite = admin.create_user(request).await.map_err(failed)?.into_inner();
        let mut client = authority_login(&self.listen.to_string(), &self.pin().await?).await?;
        let begun = client
            .begin_invite(BeginInviteRequest { token: invite.token.clone() })
            .await
            .map_err(failed)?
            .into_inner();
        let step = step_of(OffsetDateTime::now_utc());
        client
            .finish_invite(FinishInviteRequest {
                token: invite.token,
                password: password.to_owned(),
                otp: code(&begun.otp_uri, step)?,
            })
            .await
            .map_err(failed)?;
        done(
            (begun.otp_uri, step),
            format!("role \"quickstart\" and user {USER}, with password and one-time code"),
        )
    }

    pub(super) async fn pin(&self) -> CliResult<FirstTrust> {
        let status = self
            .authority()
            .await?
            .cluster()
            .get_status(GetStatusRequest {})
            .await
            .map_err(|status| CliError::from_status("read the pin", &status))?
            .into_inner();
        status
            .cas
            .into_iter()
            .find(|ca| ca.kind == "host")
            .map(|ca| FirstTrust::Pin(ca.tls_pin))
            .ok_or_else(|| CliError::new("the cluster has no host CA"))
    }

    async fn start_node(&self, first_time: bool, postgres: Option<&Postgres>) -> CliResult<Done<Running>> {
        let join = if first_time {
            let token = self
                .authority()
                .await?
                .admin()
                .create_token(CreateTokenRequest {
                    role: "node".to_owned(),
                    uses: 1,
                    names: vec![NODE.to_owned()],
                    databases: postgres.map(|_| database::DATABASE.to_owned()).into_iter().collect(),
                    own_labels: [("env".to_owned(), "demo".to_owned())].into(),
                    own_labels_bounded: true,
                    ..Default::default()
                })
                .await
                .map_err(|status| CliError::from_status("make a join token", &status))?
                .into_inner();
            format!("  join:\n    token: {}\n    ca_pin: \"{}\"\n", token.token, token.ca_pin)
        } else {
            String::new()
        };
        let yaml = format!(
            "version: v1\ncluster: {CLUSTER}\ndata_dir: {}\n{}auth:\n  enabled: false\nproxy:\n  enabled: false\nnode:\n  \
             enabled: true\n  name: {NODE}\n  labels:\n    env: demo\n  proxy_server: \"{}\"\n{join}{}",
            yaml_string(&self.path.join("node")),
            cryptography(),
            self.listen,
            postgres.map(database::of_the_node).unwrap_or_default(),
        );
        let running = start(&yaml).await?;
        let authority = self.authority().await?;
        let wanted = Wanted { search: Some(NODE.to_owned()), ..Wanted::default() };
        let online = || async {
            let nodes = crate::ls::fetch(&authority, &wanted).await?;
            Ok(nodes.iter().any(|node| node.online).then_some(()))
        };
        until(online, "the node to come up behind its tunnel").await?;
        let how = if first_time { "joined with a one-time token" } else { "is back with its certificate" };
        done(running, format!("{NODE} {how}, serving through a tunnel it dialled"))
    }

    async fn log_in(&self, state: &State, step: i64) -> CliResult<Done<()>> {
        let user = UserName::new(USER).doing("name the user")?;
        let first = self.pin().await?;
        let secrets = Secrets {
            password: Zeroizing::new(state.password.clone()),
            otp: Zeroizing::new(code(&state.otp_uri, step)?),
        };
        let login = login::begin(&self.listen.to_string(), &first, &user, None).await?;
        let from = (None, crate::browser::host_name());
        let stored = login.finish(&self.global.profiles(), secrets, None, from).await?.stored;
        let left =
            ui::duration(stored.profile.valid_until - OffsetDateTime::now_utc() + time::Duration::seconds(1));
        done((), format!("{USER} holds an SSH and an X.509 certificate for {left}"))
    }

    /// A session by this very program, as a user would start it.
    async fn run_session(&self, login: &str) -> CliResult<Done<String>> {
        let command = "echo \"hello from $(whoami)\"; uname -sr";
        let output = self
            .user_s_program()
            .arg("--home")
            .arg(self.path.join("client"))
            .args(["--proxy", &self.listen.to_string(), "ssh", "-tt"])
            .arg(format!("{login}@{NODE}"))
            .arg(command)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
            .doing("run sallyport ssh")?;
        let said = String::from_utf8_lossy(&output.stdout).trim().replace("\r\n", " / ");
        if !output.status.success() || !said.contains("hello from") {
            return Err(CliError::new(format!(
                "the session failed ({}): {}{}",
                output.status,
                said,
                String::from_utf8_lossy(&output.stderr).trim()
            )));
        }
        done(said.clone(), format!("{login}@{NODE} through the proxy: {said:?}"))
    }

    async fn play_back(&self, said: &str, since: OffsetDateTime) -> CliResult<Done<()>> {
        let first = said.split(" / ").next().unwrap_or(said);
        let recording = self.recording_with(NODE, since, first).await?;
        done(
            (),
            format!("{} played back, the same; {} sealed", recording.session_id, ui::bytes(recording.bytes)),
        )
    }

    async fn verify_audit(&self) -> CliResult<Done<()>> {
        let report = self
            .authority()
            .await?
            .admin()
            .verify_audit(VerifyAuditRequest::default())
            .await
            .map_err(|status| CliError::from_status("verify the audit log", &status))?
            .into_inner();
        if !report.intact {
            return Err(CliError::new(format!("the audit log is broken: {}", report.problem)));
        }
        done(
            (),
            format!(
                "chain of {} intact, {}",
                ui::counted(report.records, "event"),
                ui::counted(report.checkpoints, "signed checkpoint")
            ),
        )
    }

    fn say_what_is_next(&self, login: &str, state: &State) -> CliResult {
        let program = self.program.display();
        let home = self.path.join("client");
        let home = home.display();
        let ssh_config = self.path.join("ssh_config");
        let ssh_config = ssh_config.display();
        ui::data("")?;
        ui::data("The cluster stays up until Ctrl-C. In another terminal:")?;
        ui::data(format!(
            "  export SALLYPORT_HOME={home} PATH=\"{}:$PATH\"",
            self.program.parent().unwrap_or(Path::new(".")).display()
        ))?;
        ui::data("  sallyport ls")?;
        ui::data(format!("  sallyport ssh {login}@{NODE}"))?;
        ui::data(format!("  sallyport config > {ssh_config}    # then with stock OpenSSH:"))?;
        ui::data(format!("  ssh -F {ssh_config} {login}@{NODE}.{CLUSTER}"))?;
        ui::data(format!("  scp -F {ssh_config} /etc/hostname {login}@{NODE}.{CLUSTER}:/tmp/"))?;
        ui::data(format!("  rsync -e 'ssh -F {ssh_config}' -a docs/ {login}@{NODE}.{CLUSTER}:/tmp/docs/"))?;
        ui::data("  sallyport recordings ls; sallyport play SESSION")?;
        ui::data(format!("  sallyport admin --data-dir {} audit ls", self.data_dir().display()))?;
        ui::data(format!(
            "  sallyport access why --data-dir {} --user {USER} --login root --node {NODE}",
            self.data_dir().display()
        ))?;
        ui::data(format!(
            "{USER}'s password is {:?}; {program} made it, and keeps it in quickstart.json.",
            state.password
        ))
    }
}

/// One-time codes change this often (RFC 6238 §4.1).
const STEP_SECONDS: i64 = 30;

fn step_of(at: OffsetDateTime) -> i64 {
    at.unix_timestamp() / STEP_SECONDS
}

/// The one-time code of an otpauth:// URI for a time step.
fn code(uri: &str, step: i64) -> CliResult<String> {
    let secret = uri.split(['?', '&']).find_map(|part| part.strip_prefix("secret=")).unwrap_or_default();
    let at = OffsetDateTime::from_unix_timestamp(step * STEP_SECONDS).doing("compute a one-time code")?;
    totp::Secret::from_base32(secret).map(|secret| secret.code(at)).doing("compute a one-time code")
}

/// A step whose code was not used yet. The authority takes the next one as well, in case of clocks; for a later one
/// there is nothing to do but wait.
async fn fresh_step(last: i64) -> i64 {
    let next = step_of(OffsetDateTime::now_utc()).max(last + 1);
    let early = (next - 1) * STEP_SECONDS - OffsetDateTime::now_utc().unix_timestamp();
    if let Ok(seconds @ 1..) = u64::try_from(early) {
        ui::say(format!("  (a one-time code is good once: waiting {seconds} s for a fresh one)"));
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }
    next
}

/// The section of a configuration file that says what this process does already.
fn cryptography() -> &'static str {
    if selection::global().is_fips() { "crypto:\n  selection: fips\n" } else { "" }
}

async fn start(yaml: &str) -> CliResult<Running> {
    let config =
        Config::parse("quickstart", yaml).map_err(|errors| CliError::of_lines(errors.to_string()))?;
    sallyport_server::start(config).await.map_err(|error| {
        CliError::new(chain(&error, &error.to_string()))
            .hint("sallyport quickstart --listen 127.0.0.1:PORT, if the port is taken")
    })
}

/// The signals that end a quickstart in order: Ctrl-C and a polite kill.
struct Ends {
    interrupt: Signal,
    terminate: Signal,
}

impl Ends {
    fn listen() -> CliResult<Self> {
        let listen = |kind| signal(kind).doing("listen for signals");
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
