//! What an SSH server offers, judged item by item: what is wrong with it, and why.

use sallyport_ssh::capabilities::SshOffer;
use serde::Serialize;

/// How bad an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing to do.
    Good,
    /// Worth knowing.
    Info,
    /// Better not.
    Warning,
    /// Not acceptable.
    Failure,
}

impl Level {
    /// In one word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Info => "info",
            Self::Warning => "WARNING",
            Self::Failure => "FAILURE",
        }
    }
}

/// One item of an offer, judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Which server.
    pub face: String,
    /// Which list: `kex`, `host key`, `cipher`, `mac`, `compression` or `protocol`.
    pub list: &'static str,
    /// The item's name.
    pub item: String,
    /// How bad.
    pub level: Level,
    /// Why.
    pub reason: &'static str,
}

/// Judges what one server offers.
#[must_use]
pub fn judge(face: &str, offer: &SshOffer) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |list, item: &str, (level, reason)| {
        findings.push(Finding { face: face.to_owned(), list, item: item.to_owned(), level, reason });
    };
    for name in &offer.kex {
        add("kex", name, key_exchange(name));
    }
    for name in &offer.host_key_algorithms {
        add("host key", name, host_key(name));
    }
    for name in &offer.ciphers {
        add("cipher", name, cipher(name));
    }
    // With ciphers that authenticate by themselves no MAC is ever used.
    let unused = !offer.ciphers.is_empty() && offer.ciphers.iter().all(|name| authenticates(name));
    for name in &offer.macs {
        let (level, reason) = mac(name);
        if unused && level > Level::Info {
            add("mac", name, (Level::Info, "weak, but never used: every cipher authenticates by itself"));
        } else {
            add("mac", name, (level, reason));
        }
    }
    for name in &offer.compression {
        add("compression", name, compression(name));
    }
    let strict = offer.flags.iter().any(|flag| flag == "kex-strict-s-v00@openssh.com");
    let terrapin = offer.ciphers.iter().any(|name| name.contains("chacha20") || name.ends_with("-cbc"));
    add(
        "protocol",
        "strict key exchange",
        match (strict, terrapin) {
            (true, _) => {
                (Level::Good, "packets cannot be dropped from the beginning unnoticed (CVE-2023-48795)")
            }
            (false, true) => (Level::Failure, "open to the Terrapin attack (CVE-2023-48795)"),
            (false, false) => (Level::Warning, "not offered; the ciphers happen not to be open to Terrapin"),
        },
    );
    let hybrid = offer.kex.iter().any(|name| name.starts_with("mlkem768") || name.starts_with("sntrup761"));
    add(
        "protocol",
        "post-quantum key exchange",
        if hybrid {
            (Level::Good, "sessions that are recorded today stay secret")
        } else {
            (Level::Warning, "none: what is recorded today can be read by a quantum computer later")
        },
    );
    findings
}

fn key_exchange(name: &str) -> (Level, &'static str) {
    match name {
        _ if name.starts_with("mlkem768x25519") || name.starts_with("sntrup761x25519") => {
            (Level::Good, "hybrid: classical and post-quantum")
        }
        "curve25519-sha256" | "curve25519-sha256@libssh.org" => (Level::Good, "sound; not post-quantum"),
        "ecdh-sha2-nistp256" | "ecdh-sha2-nistp384" | "ecdh-sha2-nistp521" => {
            (Level::Info, "sound, NIST curve, for FIPS; not post-quantum")
        }
        "diffie-hellman-group16-sha512"
        | "diffie-hellman-group18-sha512"
        | "diffie-hellman-group17-sha512" => (Level::Info, "sound, slow; not post-quantum"),
        "diffie-hellman-group15-sha512" => (Level::Info, "3072 bits, sound; not post-quantum"),
        "diffie-hellman-group14-sha256" | "diffie-hellman-group-exchange-sha256" => {
            (Level::Warning, "2048 bits or the client's choice: less than 128 bits of strength")
        }
        "diffie-hellman-group1-sha1" => (Level::Failure, "1024 bits: broken by those who can pay"),
        _ if name.ends_with("sha1") => (Level::Failure, "SHA-1 is broken"),
        _ => (Level::Warning, "unknown here"),
    }
}

fn host_key(name: &str) -> (Level, &'static str) {
    let plain = name.strip_suffix("-cert-v01@openssh.com").unwrap_or(name);
    match plain {
        "ssh-ed25519" | "sk-ssh-ed25519@openssh.com" => (Level::Good, "sound"),
        "rsa-sha2-256" | "rsa-sha2-512" => (Level::Good, "sound from 3072 bits"),
        "ecdsa-sha2-nistp256"
        | "ecdsa-sha2-nistp384"
        | "ecdsa-sha2-nistp521"
        | "sk-ecdsa-sha2-nistp256@openssh.com" => {
            (Level::Info, "sound, NIST curve, for FIPS; a bad random number gives the key away")
        }
        "ssh-rsa" => (Level::Failure, "signatures with SHA-1, which is broken"),
        "ssh-dss" => (Level::Failure, "1024 bits and SHA-1"),
        _ => (Level::Warning, "unknown here"),
    }
}

fn authenticates(cipher: &str) -> bool {
    cipher.contains("-gcm@") || cipher.starts_with("chacha20-poly1305")
}

fn cipher(name: &str) -> (Level, &'static str) {
    match name {
        _ if authenticates(name) => (Level::Good, "authenticates by itself"),
        "aes128-ctr" | "aes192-ctr" | "aes256-ctr" => (Level::Info, "sound with an encrypt-then-MAC"),
        _ if name.ends_with("-cbc") || name.contains("-cbc@") => {
            (Level::Failure, "CBC: plaintext recovery (CVE-2008-5161)")
        }
        _ if name.starts_with("arcfour") => (Level::Failure, "RC4 is broken"),
        "none" => (Level::Failure, "no encryption"),
        _ => (Level::Warning, "unknown here"),
    }
}

fn mac(name: &str) -> (Level, &'static str) {
    match name {
        "hmac-sha2-256-etm@openssh.com" | "hmac-sha2-512-etm@openssh.com" | "umac-128-etm@openssh.com" => {
            (Level::Good, "encrypt-then-MAC")
        }
        _ if name.contains("md5") => (Level::Failure, "a broken hash"),
        _ if name.contains("sha1") => {
            (Level::Warning, "HMAC is not broken with SHA-1, but no client needs it any more")
        }
        _ if name.contains("umac-64") => (Level::Warning, "64 bits"),
        "hmac-sha2-256" | "hmac-sha2-512" | "umac-128@openssh.com" => {
            (Level::Warning, "MAC over the plaintext: encrypt-and-MAC")
        }
        "none" => (Level::Failure, "no authentication"),
        _ => (Level::Warning, "unknown here"),
    }
}

fn compression(name: &str) -> (Level, &'static str) {
    match name {
        "none" => (Level::Good, "nothing leaks by its size"),
        "zlib@openssh.com" => (Level::Info, "after the login only"),
        "zlib" => (Level::Warning, "a decompressor before the login"),
        _ => (Level::Warning, "unknown here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    fn worst(offer: &SshOffer) -> Level {
        judge("test", offer).iter().map(|finding| finding.level).max().unwrap_or(Level::Good)
    }

    #[test]
    fn weak_items_are_found_and_sound_ones_are_not() {
        let good = SshOffer {
            kex: names(&["mlkem768x25519-sha256", "curve25519-sha256"]),
            host_key_algorithms: names(&["ssh-ed25519-cert-v01@openssh.com", "rsa-sha2-512"]),
            ciphers: names(&["aes128-gcm@openssh.com", "chacha20-poly1305@openssh.com"]),
            macs: names(&["hmac-md5"]),
            compression: names(&["none"]),
            flags: names(&["kex-strict-s-v00@openssh.com"]),
            ..SshOffer::default()
        };
        // The MAC is never used with these ciphers.
        assert_eq!(worst(&good), Level::Info, "{:?}", judge("test", &good));
        let with = |change: &dyn Fn(&mut SshOffer)| {
            let mut offer = good.clone();
            change(&mut offer);
            worst(&offer)
        };
        assert_eq!(with(&|offer| offer.flags.clear()), Level::Failure);
        assert_eq!(with(&|offer| offer.kex.push("diffie-hellman-group1-sha1".into())), Level::Failure);
        assert_eq!(with(&|offer| offer.kex.push("diffie-hellman-group14-sha256".into())), Level::Warning);
        assert_eq!(with(&|offer| offer.kex = names(&["curve25519-sha256"])), Level::Warning);
        assert_eq!(with(&|offer| offer.host_key_algorithms.push("ssh-rsa".into())), Level::Failure);
        assert_eq!(
            with(&|offer| offer.host_key_algorithms.push("ssh-rsa-cert-v01@openssh.com".into())),
            Level::Failure
        );
        // A CBC cipher brings the MAC into use, too.
        assert_eq!(with(&|offer| offer.ciphers.push("aes128-cbc".into())), Level::Failure);
        assert_eq!(with(&|offer| offer.ciphers.push("aes128-ctr".into())), Level::Failure);
        assert_eq!(with(&|offer| offer.compression.push("zlib".into())), Level::Warning);
        assert_eq!(with(&|offer| offer.kex.push("quantum9000".into())), Level::Warning);
    }
}
