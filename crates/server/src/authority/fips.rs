//! FIPS mode: what this process is held to, and what it demands of others where `crypto.require_fips` is set.

use sallyport_sal::{Suite, selection};
use sallyport_wire::{fips, v1};
use tonic::{Request, Status};

use super::Inner;
use super::caller::Caller;
use crate::error::ServerError;

/// Whether this process takes cryptography from the FIPS module only.
pub(crate) fn in_fips_mode() -> bool {
    selection::global().is_fips()
}

/// In FIPS mode only some suites start: the others have keys that are not for it.
pub(super) fn check_fips(fips: bool, suite: Suite) -> Result<(), ServerError> {
    if !fips || suite.is_for_fips() {
        return Ok(());
    }
    Err(ServerError::Authority {
        action: format!("start in FIPS mode with the suite {suite}"),
        source: format!(
            "in FIPS mode only {} and {} start; start without crypto.selection: fips, and then change it: sallyport \
             admin suite set {}",
            Suite::FipsV1,
            Suite::Legacy,
            Suite::FipsV1
        )
        .into(),
    })
}

impl Inner {
    /// Whether a call comes from where a cluster that requires FIPS takes it from. It is the program's own word: this keeps out
    /// programs that are set up otherwise, and none that lies.
    ///
    /// # Errors
    /// The refusal, which says what to do.
    pub(super) fn demands_fips<T>(&self, request: &Request<T>) -> Result<(), Status> {
        if !self.config.require_fips || fips::says(request) {
            return Ok(());
        }
        Err(Status::failed_precondition(
            "this cluster requires FIPS mode (crypto.require_fips), and this program has not said that it runs in it: use a build \
             with the FIPS module, with crypto.selection: fips for a service and SALLYPORT_CRYPTO=fips for a command",
        ))
    }

    /// [`Inner::demands_fips`], with the refusal on record.
    pub(super) async fn demand_fips<T>(
        &self,
        caller: &Caller,
        method: &str,
        request: &Request<T>,
    ) -> Result<(), Status> {
        match self.demands_fips(request) {
            Ok(()) => Ok(()),
            Err(status) => Err(self.refuse(caller, method, status).await),
        }
    }
}

/// Where the cryptography of this process comes from, for `admin status`.
pub(super) fn status(requires_fips: bool) -> v1::Cryptography {
    let selection = selection::global();
    v1::Cryptography {
        selection: crate::crypto::rule(&selection.policy().mode),
        fips_module: selection.fips_module().map(|module| module.to_string()).unwrap_or_default(),
        uses: sallyport_sal::uses::all()
            .into_iter()
            .map(|one| v1::CryptographyUse {
                in_module: one.in_module,
                primitive: one.primitive,
                provider: one.provider.to_owned(),
                times: one.times,
            })
            .collect(),
        requires_fips,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fips_mode_starts_with_two_suites_only() {
        for suite in Suite::ALL {
            check_fips(false, *suite).unwrap();
            let refused = check_fips(true, *suite);
            assert_eq!(refused.is_ok(), matches!(suite, Suite::FipsV1 | Suite::Legacy), "{suite}");
            if let Err(error) = refused {
                let text = ServerError::chain(&error);
                assert!(text.contains("admin suite set fips-v1"), "{text}");
            }
        }
    }
}
