//! The section `auth.authentication`: how people prove who they are.

use std::collections::BTreeSet;
use std::path::PathBuf;

use sallyport_access::yaml::{Problems, Section};
use sallyport_webauthn::{BackupPolicy, CounterPolicy, RelyingParty, UserVerification};
use uuid::Uuid;

use super::passwords::{self, PasswordsSection};

const AUTHENTICATION: &[&str] = &["prefer", "headless", "admin_factor", "passwords", "webauthn", "devices"];
const DEVICES: &[&str] = &["allow_file_keys"];
const WEBAUTHN: &[&str] = &["rp_id", "origins", "user_verification", "attestation", "counter", "backup"];
const ATTESTATION: &[&str] = &["models", "metadata"];
/// Most origins of one RP ID.
const MOST_ORIGINS: usize = 16;
const RP_ID: &str = "write a domain name of the proxies, such as rp_id: sallyport.example.org";
const ORIGINS: &str = "write the addresses of the proxies as browsers show them, such as origins: [https://sallyport.example.org]";
const MODELS: &str =
    "write the AAGUIDs of the models that are allowed, such as [2fc0579f-8113-47ea-b116-bb5a8db9202a]";

/// Which way of logging in programs take first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PreferredLogin {
    /// A password, asked for in the terminal.
    #[default]
    Password,
    /// A passkey, in a browser.
    Passkey,
    /// The browser: a passkey where those are on, else single sign-on; where there is neither, a password in the terminal.
    Browser,
}

/// Who may log in on a machine without a browser, by one elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeadlessLogins {
    /// No user.
    Off,
    /// Users whose roles let them administer nothing: a stranger can ask for such a login, and talk a person into proving it.
    #[default]
    Users,
    /// Every user.
    Everyone,
}

/// Which administrators prove a factor for what is dangerous, each time anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AdminFactor {
    /// None: what a certificate allows is done.
    Off,
    /// Those who have a factor; the others go on without, which is on record.
    Enrolled,
    /// All: an administrator without a factor does nothing that is dangerous but at the authority's socket.
    #[default]
    Required,
}

impl AdminFactor {
    /// The name in files and on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Enrolled => "enrolled",
            Self::Required => "required",
        }
    }
}

/// How people prove who they are.
#[derive(Debug, Clone, Default)]
pub struct AuthenticationSection {
    /// Default password.
    pub prefer: PreferredLogin,
    /// Default users.
    pub headless: HeadlessLogins,
    /// Default: on.
    pub passwords: PasswordsSection,
    /// Default required.
    pub admin_factor: AdminFactor,
    /// Unset: passkeys are off.
    pub webauthn: Option<WebauthnSection>,
    /// Trusted devices.
    pub devices: DevicesSection,
}

/// Which devices are trusted.
#[derive(Debug, Clone, Default)]
pub struct DevicesSection {
    /// Whether a device's key may be in a file, which can be copied to another machine. Default no.
    pub allow_file_keys: bool,
}

/// Passkeys and security keys.
#[derive(Debug, Clone)]
pub struct WebauthnSection {
    /// The domain that passkeys are bound to for good: with another one, all of them are lost.
    pub rp_id: String,
    /// The pages that may ask for them, each at the domain or a subdomain of it.
    pub origins: Vec<String>,
    /// Whether a new passkey wants its user verified; all that one proves, and one of an invite, always does. Default required.
    pub user_verification: UserVerification,
    /// The models that are allowed. Unset: all.
    pub attestation: Option<Models>,
    /// What a counter that did not grow means. Default refuse.
    pub counter: CounterPolicy,
    /// Which passkeys are taken, by whether they can be copied. Default any.
    pub backup: BackupPolicy,
}

/// Models of authenticators, proven by attestation.
#[derive(Debug, Clone)]
pub struct Models {
    /// AAGUIDs.
    pub models: BTreeSet<Uuid>,
    /// The file with their roots, as FIDO's metadata service has them.
    pub metadata: PathBuf,
}

/// Reads the section.
pub(super) fn read(auth: &Section<'_>, problems: &mut Problems) -> AuthenticationSection {
    let Some(section) = auth.section("authentication", AUTHENTICATION, problems) else {
        return AuthenticationSection::default();
    };
    let webauthn = match section.section("webauthn", WEBAUTHN, problems) {
        Some(webauthn) => read_webauthn(&webauthn, problems),
        None => None,
    };
    let prefers = [
        ("password", PreferredLogin::Password),
        ("passkey", PreferredLogin::Passkey),
        ("browser", PreferredLogin::Browser),
    ];
    let prefer = section.choice("prefer", &prefers, problems).unwrap_or_default();
    if prefer == PreferredLogin::Passkey && section.present("webauthn").is_none() {
        problems.push(
            section.place("prefer"),
            &section.name("prefer"),
            "prefers passkeys, which are off",
            "write auth.authentication.webauthn with rp_id and origins, or prefer: browser for single sign-on, or remove prefer",
        );
    }
    let passwords = passwords::read(&section, problems);
    if prefer == PreferredLogin::Password && !passwords.enabled && section.present("prefer").is_some() {
        problems.push(
            section.place("prefer"),
            &section.name("prefer"),
            "prefers passwords, which are off",
            "remove prefer, or write auth.authentication.passwords.enabled: true",
        );
    }
    let headless = [
        ("off", HeadlessLogins::Off),
        ("users", HeadlessLogins::Users),
        ("everyone", HeadlessLogins::Everyone),
    ];
    let admin_factor = [AdminFactor::Off, AdminFactor::Enrolled, AdminFactor::Required];
    AuthenticationSection {
        prefer,
        admin_factor: section
            .choice("admin_factor", &admin_factor.map(|mode| (mode.name(), mode)), problems)
            .unwrap_or_default(),
        headless: section.choice("headless", &headless, problems).unwrap_or_default(),
        passwords,
        webauthn,
        devices: read_devices(&section, problems),
    }
}

fn read_devices(section: &Section<'_>, problems: &mut Problems) -> DevicesSection {
    let Some(devices) = section.section("devices", DEVICES, problems) else {
        return DevicesSection::default();
    };
    DevicesSection { allow_file_keys: devices.boolean("allow_file_keys", problems).unwrap_or(false) }
}

fn read_webauthn(section: &Section<'_>, problems: &mut Problems) -> Option<WebauthnSection> {
    let missing = |key: &str, fix: &str, problems: &mut Problems| {
        if section.present(key).is_none() {
            problems.push(section.at(), &section.name(key), "is missing", fix);
        }
    };
    missing("rp_id", RP_ID, problems);
    missing("origins", ORIGINS, problems);
    // Any origin of a domain shows whether the domain is one.
    let rp_id = section.parsed("rp_id", RP_ID, problems, |text| {
        RelyingParty::new("", text, [format!("https://{text}").as_str()])
            .map(|_| text.to_owned())
            .map_err(|error| error.to_string())
    });
    let origins = section.several("origins", ORIGINS, problems, |text| {
        // What is wrong with the domain is said there.
        let Some(rp_id) = &rp_id else { return Ok(text.to_owned()) };
        RelyingParty::new("", rp_id, [text]).map(|_| text.to_owned()).map_err(|error| error.to_string())
    });
    if origins.len() > MOST_ORIGINS {
        problems.push(
            section.place("origins"),
            &section.name("origins"),
            format!("names {} origins, at most {MOST_ORIGINS} are taken", origins.len()),
            ORIGINS,
        );
    }
    let user_verification = section
        .choice(
            "user_verification",
            &[
                ("required", UserVerification::Required),
                ("preferred", UserVerification::Preferred),
                ("discouraged", UserVerification::Discouraged),
            ],
            problems,
        )
        .unwrap_or_default();
    let counter = section
        .choice("counter", &[("refuse", CounterPolicy::Refuse), ("flag", CounterPolicy::Flag)], problems)
        .unwrap_or_default();
    let backup = section
        .choice(
            "backup",
            &[("any", BackupPolicy::Any), ("device-bound", BackupPolicy::DeviceBound)],
            problems,
        )
        .unwrap_or_default();
    let attestation = match section.section("attestation", ATTESTATION, problems) {
        Some(attestation) => Some(read_models(&attestation, problems)?),
        None => None,
    };
    let rp_id = rp_id?;
    (!origins.is_empty()).then_some(WebauthnSection {
        rp_id,
        origins,
        user_verification,
        attestation,
        counter,
        backup,
    })
}

fn read_models(section: &Section<'_>, problems: &mut Problems) -> Option<Models> {
    let models: BTreeSet<Uuid> =
        section.several("models", MODELS, problems, Uuid::parse_str).into_iter().collect();
    let metadata = section.text("metadata", problems).map(PathBuf::from).filter(|path| path.is_absolute());
    if models.is_empty() {
        problems.push(section.place("models"), &section.name("models"), "names no model", MODELS);
    }
    if metadata.is_none() {
        problems.push(
            section.place("metadata"),
            &section.name("metadata"),
            "the path of the metadata file is missing or relative",
            "write the path of a file in the form of FIDO's metadata service, which begins with /",
        );
    }
    (!models.is_empty()).then_some(())?;
    Some(Models { models, metadata: metadata? })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::config::{AdminFactor, Config, ConfigErrors, HeadlessLogins, PreferredLogin};

    fn read(section: &str) -> Result<Config, ConfigErrors> {
        let text = format!(
            "version: v1\ncluster: example.org\nauth:\n  enabled: true\n  authentication:\n{section}"
        );
        Config::parse("x", &text)
    }

    #[test]
    fn passkeys_are_on_with_a_domain_and_its_origins() {
        let section = "    prefer: passkey\n    headless: everyone\n    admin_factor: enrolled\n    webauthn:\n      rp_id: example.org\n      \
                       origins: [https://a.example.org, https://example.org:3080]\n      backup: device-bound\n";
        let read = read(section).unwrap().auth.unwrap().authentication;
        assert_eq!((read.prefer, read.headless), (PreferredLogin::Passkey, HeadlessLogins::Everyone));
        assert_eq!(
            (read.admin_factor, AdminFactor::default()),
            (AdminFactor::Enrolled, AdminFactor::Required)
        );
        let webauthn = read.webauthn.unwrap();
        assert_eq!((webauthn.rp_id.as_str(), webauthn.origins.len()), ("example.org", 2));
        assert!(webauthn.attestation.is_none());
    }

    #[test]
    fn the_browser_is_preferred_with_passkeys_and_without() {
        for more in ["", "    webauthn:\n      rp_id: example.org\n      origins: [https://example.org]\n"] {
            let read = read(&format!("    prefer: browser\n{more}")).unwrap().auth.unwrap();
            assert_eq!(read.authentication.prefer, PreferredLogin::Browser, "{more}");
        }
    }

    #[test]
    fn a_file_that_says_nothing_asks_every_administrator_for_a_factor() {
        for text in [
            "version: v1\ncluster: c\nauth: { enabled: true }\n",
            "version: v1\ncluster: c\nauth: { enabled: true, authentication: { headless: off } }\n",
        ] {
            let authentication = Config::parse("x", text).unwrap().auth.unwrap().authentication;
            assert_eq!(authentication.admin_factor, AdminFactor::Required, "{text}");
        }
    }

    #[test]
    fn every_mistake_says_what_to_write() {
        for (section, says) in [
            ("    prefer: passkey\n", "prefers passkeys, which are off"),
            ("    headless: some\n", "headless"),
            ("    prefer: password\n    passwords: { enabled: false }\n", "prefers passwords, which are off"),
            ("    passwords: { min_strength: 5 }\n", "write a whole number from 0 to 4"),
            ("    passwords: { breached_list: list.txt }\n", "begins with /"),
            ("    passwords: { breached_list_required: true }\n", "names no list"),
            ("    admin_factor: always\n", "admin_factor"),
            ("    webauthn:\n      rp_id: example.org\n", "auth.authentication.webauthn.origins"),
            ("    webauthn:\n      origins: [https://example.org]\n", "auth.authentication.webauthn.rp_id"),
            ("    webauthn:\n      rp_id: 10.0.0.1\n      origins: [https://10.0.0.1]\n", "IP address"),
            (
                "    webauthn:\n      rp_id: example.org\n      origins: [https://example.net]\n",
                "example.net",
            ),
            ("    webauthn:\n      rp_id: example.org\n      origins: [http://example.org]\n", "not https"),
            (
                "    webauthn:\n      rp_id: localhost\n      origins: [http://localhost:3080]\n      attestation:\n        \
                 models: [x]\n        metadata: here.json\n",
                "the path of the metadata file is missing or relative",
            ),
        ] {
            let refused = read(section).unwrap_err().to_string();
            assert!(refused.contains(says), "{section}: {refused}");
        }
    }
}
