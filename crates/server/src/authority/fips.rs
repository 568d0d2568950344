//! FIPS mode: what this process is held to.

use sallyport_sal::{Suite, selection};
use sallyport_wire::v1;

use crate::config::rule;
use crate::error::ServerError;

/// Whether this process takes cryptography from the FIPS module only.
pub(crate) fn in_fips_mode() -> bool {
    selection::global().is_fips()
}

/// In FIPS mode only some suites start: the others have keys that are not for it.
pub(crate) fn check_fips(fips: bool, suite: Suite) -> Result<(), ServerError> {
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

/// Where the cryptography of this process comes from, for `admin status`.
pub(crate) fn status(requires_fips: bool) -> v1::Cryptography {
    let selection = selection::global();
    v1::Cryptography {
        selection: rule(&selection.policy().mode),
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
