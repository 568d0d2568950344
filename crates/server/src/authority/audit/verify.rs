//! Checking the audit log.

use sallyport_audit::Code;
use sallyport_audit::log::{Checkpoint, Head, NotAHead};
use sallyport_wire::v1;
use tonic::Status;

use crate::authority::audit::search::AuditReader;
use crate::authority::caller::Caller;
use crate::authority::storage::storage;

impl AuditReader {
    /// Checks the whole log, and that it holds what the state keeps of it and what the caller kept elsewhere.
    pub(crate) async fn verify(
        &self,
        caller: &Caller,
        against: &str,
    ) -> Result<v1::VerifyAuditResponse, Status> {
        let mut heads = Vec::new();
        if !against.trim().is_empty() {
            let wrong = |error: NotAHead| Status::invalid_argument(error.to_string());
            if let Some(checkpoint) = Checkpoint::parse(against.trim())
                && !self.journal.log().signed(&checkpoint)
            {
                return Err(Status::invalid_argument(
                    "this checkpoint is not signed with this cluster's key: is it of another cluster?",
                ));
            }
            heads.push(against.parse::<Head>().map_err(wrong)?);
        }
        // What the state keeps from before: a history written anew does not hold it.
        let kept = self.checkpoints.kept_head().await.map_err(|error| storage(&error))?;
        let begins = self.journal.log().begins().map_err(unreadable)?;
        heads.extend(kept.map(|kept| kept.head).filter(|kept| kept.sequence > begins));
        // A checkpoint first, so that what was written until now is under a signature.
        self.journal.log().checkpoint().await.map_err(|error| Status::unavailable(error.to_string()))?;
        let log = self.journal.log().clone();
        let report = self.reading.run(move || log.verify_against(&heads)).await;
        let report = match report {
            Ok(Ok(report)) => report,
            Ok(Err(error)) => return Err(unreadable(error)),
            Err(_) => return Err(Status::internal("the audit log cannot be checked")),
        };
        let problem = report.problem.as_ref().map(ToString::to_string).unwrap_or_default();
        let code = if problem.is_empty() { Code::AuditVerified } else { Code::AuditBroken };
        let event = caller.event(code).message(problem.clone()).field("records", report.records);
        self.journal.record(vec![event]).await?;
        Ok(v1::VerifyAuditResponse {
            intact: problem.is_empty(),
            records: report.records,
            checkpoints: report.checkpoints,
            head: data_encoding::HEXLOWER.encode(&report.head),
            problem,
            begins_behind: begins,
        })
    }
}

fn unreadable(error: std::io::Error) -> Status {
    Status::unavailable(format!("the audit log cannot be read: {error}"))
}
