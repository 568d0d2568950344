//! libpq's service file (PostgreSQL documentation, "The Connection Service File"): sections of ours between two comments,
//! everything else as it was.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::choice::Choice;
use super::environment::{Setting, settings};
use crate::error::{CliError, CliResult, Context, Exit};
use sallyport_client::profile::Stored;

/// libpq reads lines into a buffer of 1,024 bytes, end of line and zero included.
const LONGEST_LINE_BYTES: usize = 1022;

/// The file in which libpq looks for the services of this user.
#[derive(Debug)]
pub(super) struct ServiceFile {
    path: PathBuf,
}

/// A section of it, for one database.
#[derive(Debug)]
pub(super) struct Section {
    service: String,
    text: String,
    mark: Mark,
}

/// What tells a section of one login's from others.
#[derive(Debug, PartialEq, Eq)]
struct Mark {
    begin: String,
    end: String,
}

impl Mark {
    fn of(service: &str, stored: &Stored) -> Self {
        let what = format!("sallyport service {service} of {}", stored.profile.proxy);
        Self { begin: format!("# >>> {what} >>>"), end: format!("# <<< {what} <<<") }
    }
}

impl Section {
    /// # Errors
    /// When something cannot stand in such a file.
    pub(super) fn new(stored: &Stored, choice: &Choice, service: &str) -> CliResult<Self> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if service.is_empty() || !service.chars().all(plain) {
            return Err(CliError::new(format!(
                "{service:?} cannot be the name of a service; letters, digits, '.', '_' and '-' can"
            ))
            .exit(Exit::Usage));
        }
        let mark = Mark::of(service, stored);
        let mut text =
            format!("{}\n# Written by: sallyport db login {}\n[{service}]\n", mark.begin, choice.database);
        for Setting { keyword, value, .. } in settings(stored, choice)? {
            let line = format!("{keyword}={value}");
            if value.trim() != value || value.chars().any(char::is_control) || line.len() > LONGEST_LINE_BYTES
            {
                return Err(CliError::new(format!("{keyword} {value:?} cannot stand in a service file"))
                    .hint(format!(
                        "sallyport db connect {}, or db login with --no-service-file",
                        choice.database
                    )));
            }
            text.push_str(&line);
            text.push('\n');
        }
        text.push_str(&mark.end);
        text.push('\n');
        Ok(Self { service: service.to_owned(), text, mark })
    }
}

impl ServiceFile {
    /// That of `PGSERVICEFILE`, else `~/.pg_service.conf`.
    pub(super) fn of_this_user() -> CliResult<Self> {
        if let Some(path) = std::env::var_os("PGSERVICEFILE").filter(|path| !path.is_empty()) {
            return Ok(Self { path: PathBuf::from(path) });
        }
        let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty());
        home.map(|home| Self { path: home.join(".pg_service.conf") })
            .ok_or_else(|| CliError::new("there is no home directory").hint("set PGSERVICEFILE"))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts a section in, in place of its earlier self.
    pub(super) fn put(&self, section: &Section) -> CliResult {
        let text = self.read()?;
        let rest = without(&text, &section.mark);
        if let Some(line) = header(&rest, &section.service) {
            return Err(CliError::new(format!(
                "{} has a service [{}] already, in line {line}, which is not of this login",
                self.path.display(),
                section.service
            ))
            .hint("name another: --service SERVICE; or --no-service-file"));
        }
        let gap = if rest.is_empty() || rest.ends_with("\n\n") { "" } else { "\n" };
        self.write(&format!("{rest}{gap}{}", section.text))
    }

    /// Takes a section out, if it is there.
    pub(super) fn remove(&self, service: &str, stored: &Stored) -> CliResult {
        let text = self.read()?;
        let rest = without(&text, &Mark::of(service, stored));
        if rest == text {
            return Ok(());
        }
        self.write(&rest)
    }

    fn read(&self) -> CliResult<String> {
        match fs::read_to_string(&self.path) {
            Ok(text) if text.is_empty() || text.ends_with('\n') => Ok(text),
            Ok(text) => Ok(text + "\n"),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error).doing(format!("read {}", self.path.display())),
        }
    }

    /// The file appears whole or not at all, with the mode that it had; a link stays one.
    fn write(&self, text: &str) -> CliResult {
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let mode = fs::metadata(&path).map_or(0o600, |metadata| metadata.permissions().mode() & 0o777);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let temporary = path.with_file_name(format!(".{name}.{}", std::process::id()));
        let write = || -> std::io::Result<()> {
            let mut file =
                fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&temporary)?;
            file.write_all(text.as_bytes())?;
            file.sync_data()?;
            fs::rename(&temporary, &path)
        };
        write().doing(format!("write {}", path.display())).inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })
    }
}

/// The text without what is between the two comments. One that lost its end is taken up to the next empty line.
fn without(text: &str, mark: &Mark) -> String {
    let mut rest = String::with_capacity(text.len());
    let mut inside = false;
    let ends = text.lines().any(|line| line.trim_end() == mark.end);
    for line in text.split_inclusive('\n') {
        let plain = line.trim_end();
        if plain == mark.begin {
            inside = true;
            // The empty line that was put before it goes as well.
            if rest.ends_with("\n\n") {
                rest.pop();
            }
        } else if inside {
            inside = if ends { plain != mark.end } else { !plain.is_empty() };
        } else {
            rest.push_str(line);
        }
    }
    rest
}

/// The line of a section's header.
fn header(text: &str, service: &str) -> Option<usize> {
    let wanted = format!("[{service}]");
    text.lines().position(|line| line.trim_start().starts_with(&wanted)).map(|index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::db::choice::Endpoint;
    use sallyport_client::profile::Profile;

    fn stored(directory: &Path, proxy: &str) -> Stored {
        let profile = Profile {
            proxy: proxy.to_owned(),
            cluster: "demo.test".parse().unwrap(),
            user: "alice".parse().unwrap(),
            roles: Vec::new(),
            logins: Vec::new(),
            valid_until: time::OffsetDateTime::UNIX_EPOCH,
            login: None,
            ssh_key: None,
        };
        Stored { profile, directory: directory.join("profile") }
    }

    fn choice(db_name: &str) -> Choice {
        let endpoint = Endpoint { host: "db.example.com".to_owned(), address: None, port: 3080 };
        Choice {
            database: "prod".to_owned(),
            db_user: "app".to_owned(),
            db_name: db_name.to_owned(),
            service: None,
            endpoint: Some(endpoint),
        }
    }

    #[test]
    fn sections_come_and_go_and_the_rest_stays() {
        let directory = tempfile::tempdir().unwrap();
        let stored = stored(directory.path(), "db.example.com:3080");
        let file = ServiceFile { path: directory.path().join("services") };
        let section = |name: &str, service: &str| Section::new(&stored, &choice(name), service).unwrap();
        file.put(&section("shop", "prod")).unwrap();
        let first = fs::read_to_string(&file.path).unwrap();
        let profile = stored.directory.display();
        assert_eq!(
            first,
            format!(
                "# >>> sallyport service prod of db.example.com:3080 >>>\n# Written by: sallyport db login prod\n[prod]\n\
                 host=db.example.com\nport=3080\nuser=app\ndbname=shop\noptions=-c sallyport.database=prod\n\
                 sslmode=verify-full\nsslcert={profile}/tls_cert.pem\nsslkey={profile}/tls_key.pem\n\
                 sslrootcert={profile}/tls_ca.pem\n\
                 # <<< sallyport service prod of db.example.com:3080 <<<\n"
            )
        );
        assert_eq!(fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, 0o600);
        // The user's own, without a final end of line.
        fs::write(&file.path, format!("{first}[mine]\nhost=h")).unwrap();
        fs::set_permissions(&file.path, fs::Permissions::from_mode(0o644)).unwrap();
        file.put(&section("other", "prod")).unwrap();
        file.put(&section("shop", "second")).unwrap();
        let text = fs::read_to_string(&file.path).unwrap();
        assert!(text.starts_with("[mine]\nhost=h\n\n# >>> sallyport service prod"), "{text}");
        assert!(text.contains("dbname=other") && text.matches("[prod]").count() == 1, "{text}");
        assert_eq!(fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, 0o644);
        file.remove("prod", &stored).unwrap();
        file.remove("second", &stored).unwrap();
        file.remove("second", &stored).unwrap();
        assert_eq!(fs::read_to_string(&file.path).unwrap(), "[mine]\nhost=h\n");
    }

    #[test]
    fn what_is_not_ours_or_would_break_the_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let one = stored(directory.path(), "db.example.com:3080");
        let other = stored(directory.path(), "elsewhere:3080");
        let file = ServiceFile { path: directory.path().join("services") };
        file.put(&Section::new(&one, &choice("shop"), "prod").unwrap()).unwrap();
        let error =
            file.put(&Section::new(&other, &choice("shop"), "prod").unwrap()).unwrap_err().to_string();
        assert!(error.contains("[prod] already, in line 3") && error.contains("--service"), "{error}");
        for (name, service) in
            [("shop\nhost=evil", "prod"), (" shop", "prod"), ("shop", "a]\n"), ("shop", "")]
        {
            assert!(Section::new(&one, &choice(name), service).is_err(), "{name:?} {service:?}");
        }
        assert!(Section::new(&one, &choice(&"x".repeat(1100)), "prod").is_err());
    }
}
