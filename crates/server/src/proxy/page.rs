//! The certificate of the public pages, where it is not the proxy's own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use sallyport_ca::tls::page::{Page, is_read_by_others};
use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::ServerError;
use crate::config::HttpsFiles;
use crate::files;
use crate::member::host::certificates;

/// A renewed certificate is found within this time.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// One that signs itself is made anew after this time; it lives twice as long.
const REMAKE_AFTER: time::Duration = time::Duration::days(45);
/// Chains have a few KiB.
const LARGEST_FILE_BYTES: u64 = 1024 * 1024;

/// Where the certificate comes from.
#[derive(Debug)]
pub(crate) struct PublicPage {
    files: Option<HttpsFiles>,
    names: Vec<String>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    version: u64,
    /// From the operator's files, with their times of change.
    operators: Option<(Page, Stamp)>,
    /// Signed by itself.
    own: Option<(Page, OffsetDateTime)>,
}

type Stamp = [Option<SystemTime>; 2];

impl PublicPage {
    /// Reads the operator's files, if there are any.
    pub(crate) fn open(files: Option<HttpsFiles>, names: Vec<String>) -> Result<Self, ServerError> {
        let operators =
            files.as_ref().map(|files| read(files).map(|page| (page, stamp(files)))).transpose()?;
        Ok(Self { files, names, state: Mutex::new(State { operators, ..State::default() }) })
    }

    /// Changes whenever [`PublicPage::certificate`] may give another.
    pub(crate) fn version(&self) -> u64 {
        self.state.lock().version
    }

    /// The certificate to show beside the proxy's own; none where all clients can read that.
    pub(crate) fn certificate(
        &self,
        own_chain_pem: &str,
        now: OffsetDateTime,
    ) -> Result<Option<Page>, ServerError> {
        let operators = self.state.lock().operators.clone();
        match operators {
            Some((page, _)) => Ok(Some(page)),
            None => self.stand_in(own_chain_pem, now),
        }
    }

    /// The certificate for those who trust the cluster's own CA and have a library of others: none where they can read
    /// the proxy's own.
    pub(crate) fn stand_in(
        &self,
        own_chain_pem: &str,
        now: OffsetDateTime,
    ) -> Result<Option<Page>, ServerError> {
        let mut state = self.state.lock();
        if is_read_by_others(own_chain_pem) {
            return Ok(None);
        }
        if let Some((page, made)) = &state.own
            && now < *made + REMAKE_AFTER
        {
            return Ok(Some(page.clone()));
        }
        let page = Page::self_signed(&self.names, now)
            .map_err(|error| certificates("cannot make a certificate for the public pages", error))?;
        info!(
            "the public pages show a certificate that signs itself; set proxy.https for one that browsers trust"
        );
        state.own = Some((page.clone(), now));
        Ok(Some(page))
    }

    /// Reads the files again when they change, and has an own certificate made anew in time.
    pub(crate) async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let mut look = tokio::time::interval(LOOK_INTERVAL);
        loop {
            tokio::select! {
                _ = look.tick() => {}
                () = stop.cancelled() => return,
            }
            let this = Arc::clone(&self);
            let _ = tokio::task::spawn_blocking(move || this.look(OffsetDateTime::now_utc())).await;
        }
    }

    fn look(&self, now: OffsetDateTime) {
        let known = {
            let mut state = self.state.lock();
            if state.own.as_ref().is_some_and(|(_, made)| now >= *made + REMAKE_AFTER) {
                state.version += 1;
            }
            state.operators.as_ref().map(|(_, stamp)| *stamp)
        };
        if self.files.as_ref().is_none_or(|files| known == Some(stamp(files))) {
            return;
        }
        // Certificate and key change one after the other: the next look finds them together.
        if let Err(error) = self.read_again() {
            warn!(error = %ServerError::chain(&error), "the public pages keep their former certificate");
        }
    }

    /// Reads the operator's files now; whether there are any.
    ///
    /// # Errors
    /// When they cannot be used: then the former certificate stays.
    pub(crate) fn read_again(&self) -> Result<bool, ServerError> {
        let Some(files) = &self.files else { return Ok(false) };
        let stamp = stamp(files);
        let page = read(files)?;
        let mut state = self.state.lock();
        state.operators = Some((page, stamp));
        state.version += 1;
        info!(certificate = %files.certificate.display(), "the certificate of the public pages was read again");
        Ok(true)
    }
}

fn stamp(files: &HttpsFiles) -> Stamp {
    [&files.certificate, &files.key]
        .map(|path| std::fs::metadata(path).and_then(|metadata| metadata.modified()).ok())
}

fn read(files: &HttpsFiles) -> Result<Page, ServerError> {
    let failed = |path: &PathBuf| {
        let path = path.clone();
        move |source| ServerError::File { action: "read", path, source }
    };
    let length = std::fs::metadata(&files.certificate).map_err(failed(&files.certificate))?.len();
    if length > LARGEST_FILE_BYTES {
        let problem = format!("{} has {length} bytes", files.certificate.display());
        return Err(certificates("the certificate of proxy.https is too large", problem));
    }
    let chain = std::fs::read_to_string(&files.certificate).map_err(failed(&files.certificate))?;
    let key = files::read_private(&files.key)?
        .ok_or_else(|| failed(&files.key)(std::io::Error::from(std::io::ErrorKind::NotFound)))?;
    let key = zeroize::Zeroizing::new(key);
    let key = std::str::from_utf8(&key)
        .map_err(|_| certificates("the key of proxy.https cannot be used", "it is not PEM".to_owned()))?;
    Page::from_pem(&chain, key)
        .map_err(|error| certificates("the certificate of proxy.https cannot be used", error))
}
