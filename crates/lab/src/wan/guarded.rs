//! A user whose sessions want a second factor each: with one that was proven before, and with one that is proven now, by a person who has the
//! code at once.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use parking_lot::Mutex;
use sallyport_sal::totp::Secret;
use sallyport_testing::{AtFile as _, Testbed, missing, output, with_input, write_private};
use serde_json::Value;
use time::{Duration, OffsetDateTime};

use crate::LabError;

/// The user, and the role.
const USER: &str = "guarded";
/// How long a proof serves, which is longer than one placement takes.
const SERVES: &str = "30m";
/// What says that there is no person to ask.
const NOBODY: (&str, &str) = ("SALLYPORT_MFA_PROMPT", "never");

/// The user.
pub(super) struct Guarded {
    directory: PathBuf,
    /// The program that stands for the person.
    person: PathBuf,
    /// What it types.
    typed: PathBuf,
    state: Mutex<State>,
}

struct State {
    /// Recovery codes, each good once.
    codes: Vec<String>,
    /// Logins that nothing was proven for, each with a directory of its own.
    logins: Vec<PathBuf>,
    /// Whose helper daemon runs.
    helped: Option<PathBuf>,
}

impl Guarded {
    /// The user, with so many logins for which a factor will be proven, and one for which it is proven before.
    pub(super) fn start(testbed: &Testbed, more: &str, logins: usize) -> Result<Self, LabError> {
        let directory = testbed.directory().join(USER);
        let homes: Vec<PathBuf> = (0..=logins).map(|number| directory.join(number.to_string())).collect();
        for home in [&directory].into_iter().chain(&homes) {
            fs::DirBuilder::new().mode(0o700).create(home).at("make", home)?;
        }
        let role = directory.join("role.yaml");
        let text = format!(
            "kind: role\nversion: v1\nmetadata: {{name: {USER}}}\nspec:\n  options: {{require_session_mfa: yes, session_mfa_ttl: {SERVES}, \
             max_sessions: 1000}}\n  allow:\n{more}    logins: [{}]\n    node_labels: {{'*': '*'}}\n",
            testbed.login
        );
        write_private(&role, &text)?;
        let cluster = &testbed.cluster;
        output("making a role", cluster.admin(&["create", "--force", "-f"]).arg(&role))?;
        let invite = ["users", "add", USER, "--roles", USER, "--logins", &testbed.login, "--format", "json"];
        let invited: Value = read(&output("inviting a user", &mut cluster.admin(&invite))?)?;
        let link = invited.pointer("/link").and_then(Value::as_str).unwrap_or_default();
        // It lives as long as the directory, and belongs to no person.
        let password = format!("lab-{}-{}-of-the-guarded", std::process::id(), link.len());
        let run = |what: &str, home: &Path, arguments: &[&str], input: &str| {
            let mut command = cluster.client_of(home, arguments);
            cluster.sites().client.inside(|| with_input(what, &mut command, Some(input)))?
        };
        let first = homes.first().ok_or_else(|| LabError::Input("no login is to be made".to_owned()))?;
        let signup = ["signup", link, "--no-second-factor", "--password-stdin"];
        run("sallyport signup", first, &signup, &format!("{password}\n"))?;
        let login = ["login", "--user", USER, "--password-stdin", "--add-keys-to-agent", "no", "--ca-pin"];
        let login = [&login[..], &[cluster.pin()]].concat();
        for home in &homes {
            run("sallyport login", home, &login, &format!("{password}\n"))?;
        }
        let (person, typed) = (directory.join("person"), directory.join("typed"));
        write_private(&person, &format!("#!/bin/sh\ncat '{}'\n", typed.display()))?;
        fs::set_permissions(&person, fs::Permissions::from_mode(0o700)).at("make executable", &person)?;
        let now = OffsetDateTime::now_utc();
        let secret = enrol(testbed, first, &password, now)?;
        // The next one: the first is spent.
        let code = secret.code(now + Duration::seconds(30));
        let state = Mutex::new(State { codes: Vec::new(), logins: homes.clone(), helped: None });
        let guarded = Self { directory, person, typed, state };
        let codes = guarded.more_codes(testbed, &code)?;
        guarded.state.lock().codes = codes;
        Ok(guarded)
    }

    fn home(&self) -> PathBuf {
        self.directory.join("0")
    }

    /// Ten recovery codes, for a user whose factor is proven.
    fn more_codes(&self, testbed: &Testbed, code: &str) -> Result<Vec<String>, LabError> {
        let arguments = ["mfa", "recovery-codes", "--otp", code, "--format", "json"];
        let mut command = testbed.cluster.client_of(&self.home(), &arguments);
        let client = &testbed.cluster.sites().client;
        let said: Value = read(&client.inside(|| output("sallyport mfa recovery-codes", &mut command))??)?;
        let codes = said.pointer("/codes").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        Ok(codes.iter().filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// A code that was not used yet. The last of ten makes ten more.
    fn code(&self, testbed: &Testbed) -> Result<String, LabError> {
        let mut state = self.state.lock();
        let mut code = state.codes.pop();
        if let (Some(last), true) = (&code, state.codes.is_empty()) {
            state.codes = self.more_codes(testbed, last)?;
            code = state.codes.pop();
        }
        code.ok_or_else(|| LabError::Input("there is no recovery code left".to_owned()))
    }

    /// Proves a factor for what comes next of the login that has it proven before.
    pub(super) fn prove(&self, testbed: &Testbed) -> Result<(), LabError> {
        let code = self.code(testbed)?;
        let arguments = ["mfa", "pre-auth", "--for", SERVES, "--otp", &code];
        let mut command = testbed.cluster.client_of(&self.home(), &arguments);
        let client = &testbed.cluster.sites().client;
        client.inside(|| output("sallyport mfa pre-auth", &mut command))??;
        Ok(())
    }

    /// Of the login that has it proven: one that is not asks no person, and fails.
    pub(super) fn proven(&self, testbed: &Testbed, arguments: &[&str]) -> Command {
        let mut command = testbed.cluster.client_of(&self.home(), arguments);
        command.env(NOBODY.0, NOBODY.1);
        command
    }

    /// Of a login that has a helper daemon with a connection to the proxy, and proves a factor now. `refused` is run for that before, in
    /// vain.
    pub(super) fn proves(
        &self,
        testbed: &Testbed,
        refused: &[&str],
        arguments: &[&str],
    ) -> Result<Command, LabError> {
        let code = self.code(testbed)?;
        write_private(&self.typed, &format!("{code}\n"))?;
        let home = {
            let mut state = self.state.lock();
            self.leave(testbed, &mut state);
            let home = state.logins.pop().filter(|home| *home != self.home());
            home.ok_or_else(|| LabError::Input("every login has had a factor proven".to_owned()))?
        };
        let cluster = &testbed.cluster;
        // The first starts the helper daemon, and the second goes by its connection.
        for _ in 0..2 {
            let mut before = cluster.client_of(&home, refused);
            before.env(NOBODY.0, NOBODY.1).stdin(Stdio::null());
            let said = cluster.sites().client.inside(|| before.output())?;
            let said = said.map_err(|source| missing(&before, source))?;
            if said.status.success() {
                let said = "it was let in without a factor".to_owned();
                return Err(LabError::Failed { what: "waiting for a refusal".to_owned(), said });
            }
        }
        self.state.lock().helped = Some(home.clone());
        let mut command = cluster.client_of(&home, arguments);
        command.env("SSH_ASKPASS", &self.person).env("SSH_ASKPASS_REQUIRE", "force");
        Ok(command)
    }

    /// Ends the helper daemon of the login before.
    fn leave(&self, testbed: &Testbed, state: &mut State) {
        if let Some(home) = state.helped.take() {
            let mut stop = testbed.cluster.client_of(&home, &["connect", "--stop"]);
            let _ = stop.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }

    /// Ends the helper daemons.
    pub(super) fn end(&self, testbed: &Testbed) {
        let mut state = self.state.lock();
        self.leave(testbed, &mut state);
        state.helped = Some(self.home());
        self.leave(testbed, &mut state);
    }
}

fn read(said: &str) -> Result<Value, LabError> {
    let failed = |error: serde_json::Error| LabError::Failed {
        what: "reading what sallyport says".to_owned(),
        said: error.to_string(),
    };
    serde_json::from_str(said).map_err(failed)
}

/// One-time codes, whose first code is the one of `now`.
fn enrol(testbed: &Testbed, home: &Path, password: &str, now: OffsetDateTime) -> Result<Secret, LabError> {
    let failed =
        |said: &str| LabError::Failed { what: "sallyport mfa add".to_owned(), said: said.to_owned() };
    let arguments = ["mfa", "add", "phone", "--kind", "codes", "--password-stdin"];
    let mut command = testbed.cluster.client_of(home, &arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = testbed.cluster.sites().client.inside(|| command.spawn())?;
    let mut child = child.map_err(|source| missing(&command, source))?;
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(failed("it has no pipes"));
    };
    let mut output = BufReader::new(output);
    let mut address = String::new();
    let said = writeln!(input, "{password}").and_then(|()| output.read_line(&mut address));
    said.map_err(|error| failed(&error.to_string()))?;
    let secret = address.trim().split(['?', '&']).find_map(|part| part.strip_prefix("secret="));
    let secret = secret.and_then(|text| Secret::from_base32(text).ok());
    let secret = secret.ok_or_else(|| failed("it gives no secret"))?;
    writeln!(input, "{}", secret.code(now)).map_err(|error| failed(&error.to_string()))?;
    drop(input);
    let status = child.wait().map_err(|error| failed(&error.to_string()))?;
    if status.success() { Ok(secret) } else { Err(failed("the first code was not taken")) }
}
