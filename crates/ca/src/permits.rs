//! What an SSH certificate says that it lets its holder do, as people read it.

use sallyport_access::{Principal, Traits};
use ssh_key::Certificate;

use crate::{CaError, ssh};

/// What an SSH certificate allows, what binds it, and what roles read in it of its user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshPermits {
    /// Those of its extensions that permit something, such as `permit-pty`.
    pub allows: Vec<String>,
    /// Its critical options with their values, such as `source-address`.
    pub bound: Vec<(String, String)>,
    /// The user's traits, which templates of roles refer to. None in certificates of other authorities, and in those that are not
    /// understood here.
    pub traits: Traits,
}

impl SshPermits {
    /// Reads an OpenSSH certificate line. Nothing is verified: this is for the holder of the certificate to read.
    ///
    /// # Errors
    /// [`CaError::Malformed`] when it is none.
    pub fn read(line: &str) -> Result<Self, CaError> {
        let certificate = Certificate::from_openssh(line.trim()).map_err(|error| CaError::Malformed {
            reason: format!("the SSH certificate cannot be read: {error}"),
        })?;
        // Ours say whose it is, and allow nothing.
        let allows = certificate.extensions().keys().filter(|name| !name.ends_with("@sallyport"));
        let bound = certificate.critical_options().iter().map(|(name, value)| (name.clone(), value.clone()));
        let traits = match ssh::claims(&certificate).map(|claims| claims.principal) {
            Ok(Principal::User { traits, .. }) => traits,
            Ok(Principal::Host { .. }) | Err(_) => Traits::new(),
        };
        Ok(Self { allows: allows.cloned().collect(), bound: bound.collect(), traits })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeMap;

    use sallyport_access::{Device, DeviceCustody, DeviceId, Login, RoleName, UserName};
    use sallyport_sal::{KeyAlgorithm, MemoryKey, Signer};
    use uuid::Uuid;

    use super::*;
    use crate::CaKind;
    use crate::ssh::{NONCE_BYTES, Template, device_extension, device_in, identity_extensions, key_data};

    fn line(extensions: &BTreeMap<String, String>) -> String {
        let ca = MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap();
        let template = Template {
            nonce: [5; NONCE_BYTES],
            subject_key: &key_data(&ca.public_key()).unwrap(),
            serial: 1,
            kind: CaKind::User,
            key_id: "alice",
            principals: &["root".to_owned()],
            valid_after: 1,
            valid_before: 2,
            critical: &BTreeMap::from([("source-address".to_owned(), "192.0.2.7/32".to_owned())]),
            extensions,
        };
        template.sign(&ca).unwrap().to_openssh().unwrap()
    }

    #[test]
    fn what_a_certificate_allows_stands_apart_from_what_it_says_of_its_user() {
        let traits = Traits::from([("team".to_owned(), vec!["db".to_owned(), "web".to_owned()])]);
        let principal = Principal::User {
            name: UserName::new("alice").unwrap(),
            roles: vec![RoleName::new("dev").unwrap()],
            logins: vec![Login::new("root").unwrap()],
            traits: traits.clone(),
        };
        let device = Device { id: DeviceId::new(), custody: DeviceCustody::Hardware };
        let mut extensions = identity_extensions("prod", Uuid::new_v4(), &principal).unwrap();
        extensions.extend([
            device_extension(&device),
            crate::ssh::pin_extension("192.0.2.7".parse().unwrap()),
            ("permit-pty".to_owned(), String::new()),
        ]);
        let line = line(&extensions);
        let permits = SshPermits::read(&line).unwrap();
        assert_eq!(permits.allows, ["permit-pty"]);
        assert_eq!(permits.bound, [("source-address".to_owned(), "192.0.2.7/32".to_owned())]);
        assert_eq!((permits.traits, device_in(&line)), (traits, Some(device)));
    }

    /// One that `ssh-keygen` has signed has no identity of ours.
    #[test]
    fn a_certificate_of_another_authority_has_no_traits() {
        let permits =
            SshPermits::read(&line(&BTreeMap::from([("permit-pty".to_owned(), String::new())]))).unwrap();
        assert_eq!((permits.allows.len(), permits.traits), (1, Traits::new()));
        assert!(matches!(SshPermits::read("ssh-ed25519 AAAA"), Err(CaError::Malformed { .. })));
    }
}
