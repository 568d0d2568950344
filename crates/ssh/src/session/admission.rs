//! Whether the machine's own rules let an account in; see [`crate::helper::pam`].

use std::net::IpAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::time::timeout;

use super::{Account, AdmissionError, Helper};
use crate::helper::pam::Question;
use crate::helper::{self, Spec, Work};

/// How long PAM may take: its modules may ask a directory service. Less than a login may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest reason for a refusal.
const MOST_REASON_BYTES: u64 = 4096;

/// Asks PAM about an account, in a process of its own.
///
/// # Errors
/// Why the account is refused, for the person.
pub(crate) async fn ask(
    account: &Account,
    helper: &Helper,
    service: &str,
    from: Option<IpAddr>,
) -> Result<(), AdmissionError> {
    let failed = |source: std::io::Error| AdmissionError::Unasked { login: account.name.clone(), source };
    let question = Question { service: service.to_owned(), from: from.map(|from| from.to_string()) };
    let spec = Spec {
        login: account.name.clone(),
        work: Work::Account,
        terminal: false,
        environment: Vec::new(),
        hash_files: false,
        keeper_for: None,
        pam_session: false,
        spares_orphans: false,
        pam: Some(question),
    };
    let mut command = Command::new(&helper.program);
    command.args(&helper.arguments).env_clear().env(helper::SPEC, spec.to_text()).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    let stderr = child.stderr.take();
    let asked = async {
        let mut said = Vec::new();
        if let Some(stderr) = stderr {
            stderr.take(MOST_REASON_BYTES).read_to_end(&mut said).await?;
        }
        Ok((child.wait().await?, said))
    };
    match timeout(PATIENCE, asked).await {
        // Modules write to standard error as they please; only the status lets an account in.
        Ok(Ok((status, _))) if status.success() => Ok(()),
        Ok(Ok((_, said))) => {
            let said = String::from_utf8_lossy(&said);
            let sentence = said.lines().rev().find_map(|line| line.strip_prefix("sallyport: "));
            Err(match sentence {
                Some(sentence) => AdmissionError::Said(sentence.to_owned()),
                None => AdmissionError::Refused { login: account.name.clone() },
            })
        }
        Ok(Err(error)) => Err(failed(error)),
        Err(_) => Err(AdmissionError::Silent { login: account.name.clone(), seconds: PATIENCE.as_secs() }),
    }
}
