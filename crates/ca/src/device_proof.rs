//! A trusted device's word for one act of its user: a login, a login's certificates signed anew, or its own enrolment. The device signs a
//! challenge of the authority's with the keys that are to be certified, so that what one login was given serves for no other.

use sallyport_access::{DeviceCustody, DeviceId, UserName};
use sallyport_sal::{KeyAlgorithm, PublicKey, Signer};

use crate::CaError;
use crate::encoding::put_string;

/// The one type of a device's key: every TPM 2.0 has it, and every source of cryptography verifies it.
pub const DEVICE_KEY: KeyAlgorithm = KeyAlgorithm::EcdsaP256;
/// What nothing else that a device's key signs begins with.
const CONTEXT: &[u8] = b"sallyport trusted device v1";

/// What a device gives its word for.
#[derive(Debug, Clone, Copy)]
pub enum DeviceAct<'a> {
    /// A login over these two keys.
    LogIn {
        /// The device, as the authority calls it.
        device: DeviceId,
        /// OpenSSH one-line public key, as it is sent.
        ssh_public_key: &'a str,
        /// `SubjectPublicKeyInfo`, DER.
        tls_public_key: &'a [u8],
    },
    /// Certificates of a login, signed anew by the CA that has taken over.
    Renew {
        /// The device, as the authority calls it.
        device: DeviceId,
        /// OpenSSH one-line certificate, as it is sent.
        ssh_certificate: &'a str,
        /// PEM, as it is sent.
        tls_certificate_pem: &'a str,
    },
    /// The enrolment of a device that has no id yet.
    Enroll {
        /// Whose login enrolls it.
        user: &'a UserName,
        /// Where its key is said to be.
        custody: DeviceCustody,
        /// The token, or nothing where an administrator is to admit it.
        token: &'a str,
    },
}

impl DeviceAct<'_> {
    fn message(&self, cluster: &str, challenge: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(512);
        put_string(&mut message, CONTEXT);
        put_string(&mut message, cluster.as_bytes());
        put_string(&mut message, challenge);
        let mut put = |texts: [&[u8]; 4]| texts.iter().for_each(|text| put_string(&mut message, text));
        match self {
            Self::LogIn { device, ssh_public_key, tls_public_key } => {
                put([b"login", device.to_string().as_bytes(), ssh_public_key.as_bytes(), tls_public_key]);
            }
            Self::Renew { device, ssh_certificate, tls_certificate_pem } => {
                let (ssh, tls) = (ssh_certificate.as_bytes(), tls_certificate_pem.as_bytes());
                put([b"renewal", device.to_string().as_bytes(), ssh, tls]);
            }
            Self::Enroll { user, custody, token } => {
                let custody = custody.as_str().as_bytes();
                put([b"enrolment", user.as_str().as_bytes(), custody, token.as_bytes()]);
            }
        }
        message
    }

    /// Signs it, for one challenge of one cluster.
    ///
    /// # Errors
    /// [`CaError::BadPublicKey`] for a key of another type, [`CaError::Sign`] when the key cannot sign.
    pub fn sign(&self, signer: &dyn Signer, cluster: &str, challenge: &[u8]) -> Result<Vec<u8>, CaError> {
        checked(signer.algorithm())?;
        Ok(signer.sign_with(DEVICE_KEY.default_scheme(), &self.message(cluster, challenge))?)
    }

    /// Checks a signature. That the challenge is the authority's own, of now, and was not used before is for the caller to know.
    ///
    /// # Errors
    /// [`CaError::BadPublicKey`] for a key of another type, [`CaError::BadSignature`].
    pub fn verify(
        &self,
        key: &PublicKey,
        cluster: &str,
        challenge: &[u8],
        signature: &[u8],
    ) -> Result<(), CaError> {
        checked(key.algorithm())?;
        key.verify_with(DEVICE_KEY.default_scheme(), &self.message(cluster, challenge), signature)
            .map_err(|_| CaError::BadSignature)
    }
}

fn checked(algorithm: KeyAlgorithm) -> Result<(), CaError> {
    if algorithm == DEVICE_KEY {
        return Ok(());
    }
    Err(CaError::BadPublicKey {
        which: "device's",
        reason: format!("it is {algorithm}, a device's key is {DEVICE_KEY}"),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use sallyport_sal::MemoryKey;

    use super::*;

    #[test]
    fn a_word_is_good_for_its_own_act_challenge_and_cluster_alone() {
        let key = MemoryKey::generate(DEVICE_KEY).unwrap();
        let (device, other, user) = (DeviceId::new(), DeviceId::new(), UserName::new("alice").unwrap());
        let login = |device, ssh_public_key, tls_public_key| DeviceAct::LogIn {
            device,
            ssh_public_key,
            tls_public_key,
        };
        let (file, hardware) = (DeviceCustody::File, DeviceCustody::Hardware);
        let acts = [
            login(device, "ssh", b"tls"),
            login(other, "ssh", b"tls"),
            login(device, "ssht", b"ls"),
            login(device, "ssh", b"others"),
            DeviceAct::Renew { device, ssh_certificate: "ssh", tls_certificate_pem: "tls" },
            DeviceAct::Enroll { user: &user, custody: file, token: "t" },
            DeviceAct::Enroll { user: &user, custody: hardware, token: "t" },
            DeviceAct::Enroll { user: &user, custody: file, token: "" },
        ];
        for (index, act) in acts.iter().enumerate() {
            let signature = act.sign(&key, "prod", b"challenge").unwrap();
            for (at, asked) in acts.iter().enumerate() {
                let good = asked.verify(&key.public_key(), "prod", b"challenge", &signature).is_ok();
                assert_eq!(good, at == index, "{act:?} as {asked:?}");
            }
            assert!(act.verify(&key.public_key(), "test", b"challenge", &signature).is_err());
            assert!(act.verify(&key.public_key(), "prod", b"challenges", &signature).is_err());
        }
        let stranger = MemoryKey::generate(DEVICE_KEY).unwrap();
        let signature = acts[0].sign(&stranger, "prod", b"challenge").unwrap();
        assert!(acts[0].verify(&key.public_key(), "prod", b"challenge", &signature).is_err());
        let of_another_type = MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap();
        let refused = acts[0].sign(&of_another_type, "prod", b"challenge");
        assert!(matches!(refused, Err(CaError::BadPublicKey { .. })));
    }
}
