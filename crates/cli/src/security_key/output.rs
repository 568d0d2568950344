//! What libfido2's programs print (fido2-token(1), fido2-assert(1)).

use data_encoding::BASE64;
use sallyport_client::key_login::{Asked, Signed};

use super::error::KeyError;

/// The program that lists security keys.
pub(super) const TOKEN: &str = "fido2-token";
/// The program that has a security key sign.
pub(super) const ASSERT: &str = "fido2-assert";
/// Lines of one answer: hash, relying party, authenticator data, signature and user.
const LINES: usize = 5;
/// Most answers of one key that are read.
const MOST_ANSWERS: usize = 16;

/// A security key that is plugged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) path: String,
    /// Its maker and model, as it says.
    pub(super) name: String,
}

/// The keys of `fido2-token -L`. A path may have blanks and colons.
pub(super) fn devices(said: &str) -> Vec<Device> {
    let device = |line: &str| {
        let (path, about) = line.split_once(": vendor=")?;
        let name = about.split_once('(').and_then(|(_, name)| name.strip_suffix(')'));
        Some(Device { path: path.to_owned(), name: name.unwrap_or_default().trim().to_owned() })
    };
    said.lines().filter_map(device).collect()
}

/// How a security key verifies its person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verifies {
    /// By a fingerprint, or a PIN that is typed on it; where that fails, by a PIN that is typed here.
    ByItself {
        /// Whether it has a PIN.
        pin: bool,
    },
    /// By a PIN that is typed here.
    ByPin,
    /// It could, and has no PIN.
    PinNotSet,
    /// Not at all.
    Not,
}

/// What a security key says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct About {
    pub(super) verifies: Verifies,
    /// How many wrong PINs block it; none where it does not say.
    pub(super) pins_left: Option<u32>,
    pub(super) pin_to_change: bool,
}

/// What `fido2-token -I` says. An option that is off has "no" in front; one that is missing is not there (CTAP 2.1 §6.4).
pub(super) fn about(said: &str) -> About {
    let of = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let options: Vec<&str> = of("options:").unwrap_or_default().split(',').map(str::trim).collect();
    let has = |option: &str| options.contains(&option);
    let verifies = match (has("uv"), has("clientPin"), has("noclientPin") || has("nouv")) {
        (true, pin, _) => Verifies::ByItself { pin },
        (false, true, _) => Verifies::ByPin,
        (false, false, true) => Verifies::PinNotSet,
        (false, false, false) => Verifies::Not,
    };
    About {
        verifies,
        pins_left: of("pin retries:").and_then(|left| left.parse().ok()),
        pin_to_change: of("pin change required:") == Some("true"),
    }
}

/// What `fido2-assert -G` reads: base64 of the hash, and the relying party.
pub(super) fn question(asked: &Asked) -> String {
    format!("{}\n{}\n", BASE64.encode(&asked.client_data_hash()), asked.rp_id)
}

/// What `fido2-assert -G -r` prints: five lines for each passkey of the relying party.
pub(super) fn answers(said: &str, asked: &Asked) -> Result<Vec<Signed>, KeyError> {
    let odd = |why| KeyError::Odd { program: ASSERT, why };
    let lines: Vec<&str> = said.lines().collect();
    let answers = lines.chunks_exact(LINES);
    if lines.is_empty() || !answers.remainder().is_empty() {
        return Err(odd("an answer has five lines"));
    }
    let hash = BASE64.encode(&asked.client_data_hash());
    let answer = |lines: &[&str]| {
        let [said_hash, rp_id, data, signature, user] = lines else {
            return Err(odd("an answer has five lines"));
        };
        let bytes = |text: &str| BASE64.decode(text.as_bytes()).map_err(|_| odd("a line is not base64"));
        if *said_hash != hash || *rp_id != asked.rp_id {
            return Err(odd("the answer is to another question"));
        }
        let data = bytes(data)?;
        let signed = Signed {
            authenticator_data: unwrapped(&data)
                .ok_or(odd("the authenticator data is no byte string"))?
                .to_vec(),
            signature: bytes(signature)?,
            user_handle: bytes(user)?,
        };
        if !signed.is_of(&asked.rp_id) {
            return Err(odd("the authenticator data is of another relying party"));
        }
        Ok(signed)
    };
    answers.take(MOST_ANSWERS).map(answer).collect()
}

/// The content of a byte string of CBOR (RFC 8949 §3, major type 2), which libfido2 gives authenticator data in.
fn unwrapped(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = match bytes {
        [head @ 0x40..=0x57, rest @ ..] => (usize::from(head & 0x1f), rest),
        [0x58, length, rest @ ..] => (usize::from(*length), rest),
        [0x59, high, low, rest @ ..] => (usize::from(u16::from_be_bytes([*high, *low])), rest),
        _ => return None,
    };
    (rest.len() == length).then_some(rest)
}

#[cfg(test)]
mod tests {
    use sallyport_sal::hash;

    use super::*;

    #[test]
    fn keys_are_read_with_their_paths_and_names() {
        let said = "/dev/hidraw5: vendor=0x1050, product=0x0407 (Yubico YubiKey OTP+FIDO+CCID)\n\
                    ioreg://4295 (a): vendor=0x096e, product=0x085d (FT ePass FIDO (old))\n\
                    pcsc://slot0: vendor=0x0000, product=0x0000 ( )\n\
                    something else\n";
        let found = devices(said);
        let found: Vec<(&str, &str)> =
            found.iter().map(|device| (device.path.as_str(), device.name.as_str())).collect();
        assert_eq!(
            found,
            [
                ("/dev/hidraw5", "Yubico YubiKey OTP+FIDO+CCID"),
                ("ioreg://4295 (a)", "FT ePass FIDO (old)"),
                ("pcsc://slot0", ""),
            ]
        );
        assert!(devices("").is_empty());
    }

    /// As fido2-token 1.12 has printed it of the key in software of the end-to-end tests (`interop/support/security_key.py`), but for its
    /// options.
    fn information(options: &str) -> String {
        format!(
            "proto: 0x02\nmajor: 0x01\nminor: 0x00\nbuild: 0x00\ncaps: 0x0c (nowink, cbor, nomsg)\nversion strings: FIDO_2_0\naaguid: \
             00000000000000000000000000000000\n{options}fwversion: 0x0\nmaxmsgsiz: 1200\nmaxcredcntlst: 0\nmaxcredlen: \
             0\nmaxlargeblob: 0\npin protocols: 1\npin retries: 8\npin change required: false\nuv retries: undefined\n"
        )
    }

    #[test]
    fn how_a_key_verifies_its_person_is_in_its_options() {
        for (options, verifies) in [
            ("options: rk, up, noplat, clientPin\n", Verifies::ByPin),
            ("options: rk, up, noplat, clientPin, credentialMgmtPreview\n", Verifies::ByPin),
            ("options: rk, up, noplat, noclientPin\n", Verifies::PinNotSet),
            ("options: rk, up, uv, noplat, clientPin, alwaysUv\n", Verifies::ByItself { pin: true }),
            ("options: rk, up, uv, noplat\n", Verifies::ByItself { pin: false }),
            ("options: rk, up, nouv, noplat, clientPin\n", Verifies::ByPin),
            ("options: rk, up, nouv, noplat\n", Verifies::PinNotSet),
            ("options: nork, up, noplat\n", Verifies::Not),
            // A key of U2F alone has none.
            ("", Verifies::Not),
        ] {
            let about = about(&information(options));
            assert_eq!(about, About { verifies, pins_left: Some(8), pin_to_change: false }, "{options}");
        }
        let blocked = about(
            &information("").replace("retries: 8", "retries: 0").replace("required: false", "required: true"),
        );
        assert_eq!((blocked.pins_left, blocked.pin_to_change), (Some(0), true));
        assert_eq!(about("proto: 0x02\npin retries: undefined\n").pins_left, None);
    }

    fn asked() -> Asked {
        Asked { rp_id: "sp.example.org".to_owned(), client_data: "{}".to_owned() }
    }

    /// Authenticator data as libfido2 has it, in CBOR.
    fn data(rp_id: &str) -> Vec<u8> {
        [&[0x58, 37][..], &hash::sha256(rp_id.as_bytes()), &[5, 0, 0, 0, 9]].concat()
    }

    fn printed(hash: &[u8], rp_id: &str, data: &[u8]) -> String {
        let encode = |bytes: &[u8]| BASE64.encode(bytes);
        format!("{}\n{rp_id}\n{}\n{}\n{}\n", encode(hash), encode(data), encode(b"signed"), encode(b"alice"))
    }

    #[test]
    fn an_answer_is_read_for_each_account() {
        let asked = asked();
        assert_eq!(question(&asked), format!("{}\nsp.example.org\n", BASE64.encode(&hash::sha256(b"{}"))));
        let one = printed(&asked.client_data_hash(), &asked.rp_id, &data(&asked.rp_id));
        let signed = Signed {
            authenticator_data: data(&asked.rp_id)[2..].to_vec(),
            signature: b"signed".to_vec(),
            user_handle: b"alice".to_vec(),
        };
        assert_eq!(answers(&one, &asked).unwrap(), std::slice::from_ref(&signed));
        assert_eq!(answers(&one.repeat(2), &asked).unwrap(), [signed.clone(), signed]);
        assert_eq!(answers(&one.repeat(40), &asked).unwrap().len(), MOST_ANSWERS);
    }

    /// As fido2-assert 1.12 has printed it.
    #[test]
    fn what_the_program_has_printed_is_read() {
        let asked = Asked { rp_id: "localhost".to_owned(), client_data: "{}".to_owned() };
        let printed = "RBNvo1WzZ4oRRq0W9+hknpT7T8If536DEMBg9hyq/4o=\nlocalhost\n\
                       WCVJlg3liA6MaHQ0Fw9kdmBbj+SuuaKGMseZXPO6gx2XYwUAAAAB\n\
                       MEUCIQCFJLpMIMsye08bDsIaLwUaI82D0KYt+7b3YBR8hebmeAIgG3TbSehSW1UgzSymxzNT5GRgPkOj/tVmc1qQexmh0/M=\nYWxpY2U=\n";
        let signed = answers(printed, &asked).unwrap();
        assert_eq!((signed[0].authenticator_data.len(), &signed[0].user_handle[..]), (37, &b"alice"[..]));
        // User present and verified (WebAuthn L3 §6.1).
        assert_eq!(signed[0].authenticator_data[32], 0x05);
    }

    #[test]
    fn what_is_no_answer_to_the_question_is_refused() {
        let asked = asked();
        let (hash, rp_id) = (asked.client_data_hash(), asked.rp_id.as_str());
        let good = printed(&hash, rp_id, &data(rp_id));
        for bad in [
            String::new(),
            good.lines().take(4).map(|line| format!("{line}\n")).collect(),
            format!("{good}more\n"),
            printed(&[0; 32], rp_id, &data(rp_id)),
            printed(&hash, "bank.example", &data(rp_id)),
            printed(&hash, rp_id, &data("bank.example")),
            // Not in CBOR, cut off, and of another type.
            printed(&hash, rp_id, &data(rp_id)[2..]),
            printed(&hash, rp_id, &data(rp_id)[..30]),
            printed(&hash, rp_id, &[&[0x78, 37][..], &data(rp_id)[2..]].concat()),
            good.replace(&BASE64.encode(b"signed"), "%%%"),
        ] {
            assert!(matches!(answers(&bad, &asked), Err(KeyError::Odd { .. })), "{bad:?}");
        }
    }
}
