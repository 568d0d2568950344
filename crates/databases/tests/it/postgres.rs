//! A PostgreSQL of a test's own.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use sallyport_testing::Site;
use sallyport_testing::fixtures::{PATIENCE, kept};
use sallyport_testing::postgres::{Place, Server, Setup};

use crate::world::Pki;

/// A server that ends with the test.
pub(crate) struct Postgres {
    server: Server,
    pub(crate) port: u16,
}

/// How often a test looks.
const LOOK: Duration = Duration::from_millis(10);

/// Who gets in over the network.
const RULES: &str = "hostssl all scram all scram-sha-256\n\
                     hostssl all md5 all md5\n\
                     hostssl all plain all password\n\
                     hostssl all all all cert\n\
                     hostnossl all all all trust\n";

const SETTINGS: &str =
    "shared_buffers = '16MB'\nmax_connections = 60\nmax_prepared_transactions = 5\nautovacuum = off\n";

impl Postgres {
    /// Makes a cluster and starts it. Over TLS it asks for certificates, of `scram` for SCRAM, of `md5` and `plain` for what
    /// those say; without TLS it takes every user.
    pub(crate) fn start(pki: &Pki) -> Self {
        let place = Place::new().expect("PostgreSQL: cargo xtask setup installs it");
        let (certificate, key) = pki.server(&["localhost".to_owned(), "127.0.0.1".to_owned()]);
        let certificate = place.write("server.crt", &certificate).unwrap();
        let key = place.write("server.key", &key).unwrap();
        let clients = place.write("clients.crt", &pki.client_ca).unwrap();
        let setup = Setup {
            site: &Site::default(),
            rules: RULES,
            tls: [&certificate, &key, &clients],
            settings: SETTINGS,
            template: Some(&kept()),
        };
        let server = place.start(&setup).unwrap().ending_at_once();
        Self { port: server.port, server }
    }

    /// Its log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.server.process.log).unwrap_or_default()
    }

    fn psql(&self, user: &str) -> Command {
        let mut psql = self.server.place.program("psql");
        psql.arg("-h").arg(self.server.place.path()).args(["-p", &self.port.to_string(), "-U", user, "-X"]);
        psql
    }

    /// Runs statements as the superuser, beside everything.
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.server.sql("postgres", sql).unwrap().trim().to_owned()
    }

    /// Feeds a script to psql as the superuser, with these settings around it.
    pub(crate) fn feed(&self, script: &Path, settings: &[(&str, &str)]) -> Output {
        let mut psql = self.psql("postgres");
        psql.arg("-Atqf").arg(script).arg("postgres");
        psql.envs(settings.iter().copied()).stdin(Stdio::null()).output().unwrap()
    }

    /// Begins to run statements as this user, past the agent.
    pub(crate) fn begin(&self, user: &str, sql: &str) -> Child {
        let mut psql = self.psql(user);
        psql.args(["-At", "-v", "ON_ERROR_STOP=1", "-c", sql, "postgres"]);
        psql.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Waits for an answer.
    pub(crate) fn until(&self, sql: &str, answer: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.sql(sql) != answer {
            assert!(Instant::now() < deadline, "{sql} does not say {answer}");
            std::thread::sleep(LOOK);
        }
    }

    /// Stops it at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        self.server.process.signal("QUIT");
        self.server.process.child.wait().unwrap();
    }
}
