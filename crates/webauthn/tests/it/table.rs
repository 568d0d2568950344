//! The steps of WebAuthn Level 3 §7.1 and §7.2, each with the tests in which it holds and those in which it is broken. The table in
//! `docs/conformance.md` is made of this one.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;

use crate::steps::{broken_authentications, broken_registrations};

/// The workspace.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const DOCUMENT: &str = "docs/conformance.md";
const BEGIN: &str = "<!-- made by the table of webauthn: begin -->";
const END: &str = "<!-- made by the table of webauthn: end -->";
const REFRESH: &str = "CONFORMANCE_REFRESH=1 cargo test -p sallyport-webauthn --test it table";
/// What a step that is the browser's is tried by: the name of a test of the pages in a browser follows.
const IN_BROWSER: &str = "browser: ";
const BROWSER_TESTS: &str = "web/tests/browser/ceremonies.test.ts";

/// A step of a procedure.
struct Step {
    number: u8,
    /// What it demands, in short.
    demands: &'static str,
    /// Tests in which it holds: of this directory, of the server (`server::`), or of the pages in a browser.
    holds: &'static [&'static str],
    /// Tests in which it is broken, besides the cases of [`crate::steps`].
    broken: &'static [&'static str],
    /// Why nothing breaks it; empty where a test or case does.
    never: &'static str,
}

/// A procedure.
struct Procedure {
    title: &'static str,
    steps: &'static [Step],
    /// What breaks a step, by its number.
    cases: fn() -> Vec<(u8, &'static str)>,
    /// The test that tries the cases.
    tried_by: &'static str,
}

const fn step(
    number: u8,
    demands: &'static str,
    holds: &'static [&'static str],
    broken: &'static [&'static str],
) -> Step {
    Step { number, demands, holds, broken, never: "" }
}

const fn never(number: u8, demands: &'static str, holds: &'static [&'static str], why: &'static str) -> Step {
    Step { number, demands, holds, broken: &[], never: why }
}

const EVERY: &str = "ceremonies::every_algorithm_registers_and_logs_in";
const VECTORS: &str = "vectors::registrations_and_logins_of_the_specification_are_good";
const ALLOWED: &str = "steps::what_the_steps_allow_is_good";
const BOUND: &str = "steps::ceremonies_are_bound";
const MORE: &str = "ceremonies::client_data_may_say_more";
const UNSOLICITED: &str = "ceremonies::unsolicited_extensions_are_ignored";
const FRAMES: &str = "policies::frames_are_those_that_are_configured";
const VERIFICATION: &str = "policies::verification_is_as_the_policy_says";
const BACKUP: &str = "policies::backup_flags_are_kept_and_compared";
const COPIES: &str = "policies::passkeys_that_can_be_copied_can_be_refused";
const LISTED: &str = "attestation::only_listed_models_are_allowed_and_they_prove_it";
const NO_RESPONSE: &str = "parsers::what_is_no_response_is_refused";
const NO_BYTE: &str = "parsers::no_byte_of_a_login_can_be_changed";
const ORIGINS: &str = "server::it::identity::passkey_policies::a_passkey_of_one_origin_serves_at_the_others_of_the_cluster_and_nowhere_else";
const DEVICE_BOUND: &str =
    "server::it::identity::passkey_policies::device_bound_clusters_take_no_passkey_that_can_be_copied";
const SYNCED: &str =
    "server::it::identity::passkey_policies::whether_a_passkey_is_synced_is_listed_as_it_was_at_its_last_use";
const MODELS: &str = "server::it::identity::passkey_policies::listed_models_alone_are_registered_and_their_makers_vouch_for_them";

const PROCEDURES: &[Procedure] = &[
    Procedure {
        title: "Registration (§7.1)",
        steps: REGISTRATION,
        cases: broken_registrations,
        tried_by: "steps::every_step_of_a_registration_is_checked",
    },
    Procedure {
        title: "Authentication (§7.2)",
        steps: AUTHENTICATION,
        cases: broken_authentications,
        tried_by: "steps::every_step_of_an_authentication_is_checked",
    },
];

const REGISTRATION: &[Step] = &[
    step(
        1,
        "options for this ceremony, with a fresh challenge",
        &["ceremonies::options_are_what_browsers_parse", "ceremonies::challenges_differ"],
        &[BOUND],
    ),
    step(
        2,
        "the browser makes the credential",
        &["browser: a passkey is made once on each device"],
        &["browser: a page at another address than the passkeys belong to says which setting it is"],
    ),
    step(3, "the response is one to a registration", &[EVERY], &[NO_RESPONSE]),
    never(4, "the outputs of the client's extensions", &[UNSOLICITED], "they are looked at in step 28"),
    never(
        5,
        "the client data is UTF-8, a byte order mark aside",
        &[ALLOWED],
        "bytes that are not are a case of step 6",
    ),
    step(6, "the client data is JSON", &[ALLOWED], &[]),
    step(7, "its type is `webauthn.create`", &[EVERY], &[]),
    step(8, "its challenge is the one that was given", &[EVERY], &[]),
    step(9, "its origin is one of the relying party's", &[ALLOWED, ORIGINS], &[ORIGINS]),
    step(10, "it is in no frame of another origin, where none is allowed", &[ALLOWED], &[]),
    step(11, "the outermost page is one that is allowed", &[ALLOWED], &[]),
    never(
        12,
        "the hash of the client data",
        &[VECTORS],
        "it computes; another hash is a wrong signature of step 22",
    ),
    step(
        13,
        "the attestation object and the authenticator data are CBOR of CTAP2, whole, with a key that is used here",
        &[EVERY],
        &["parsers::attestation_objects_are_whole_and_nothing_more", "parsers::any_bytes_register_nothing"],
    ),
    step(14, "the hash of the RP ID", &[EVERY], &[]),
    step(15, "the user was present", &[EVERY], &[]),
    step(16, "the user was verified, where that is required", &[EVERY, VERIFICATION], &[]),
    step(17, "what is backed up is eligible for it", &[ALLOWED], &[]),
    step(
        18,
        "whether it is eligible, by the cluster's policy",
        &[COPIES, DEVICE_BOUND],
        &[COPIES, DEVICE_BOUND],
    ),
    never(
        19,
        "whether it is backed up, by the cluster's policy",
        &[BACKUP, SYNCED],
        "no policy refuses either; the state is kept",
    ),
    step(20, "the key's algorithm is one that was offered", &[EVERY], &[]),
    step(
        21,
        "the format of the statement is a registered one",
        &[EVERY, "attestation::formats_that_are_not_checked_prove_nothing"],
        &[],
    ),
    step(
        22,
        "the statement is right, by its format's procedure",
        &[EVERY, VECTORS, "attestation::u2f_keys_are_known_by_their_root_alone"],
        &["attestation::chains_are_held_against_their_rules"],
    ),
    step(
        23,
        "roots for the model, from the metadata",
        &[LISTED, "vectors::the_specifications_root_proves_its_model"],
        &[
            "attestation::a_compromised_model_is_refused",
            "attestation::a_metadata_file_says_what_is_wrong_with_it",
        ],
    ),
    step(
        24,
        "the statement is worth what the policy asks: the chain leads to a root of a listed model",
        &[LISTED, MODELS],
        &[LISTED, "attestation::formats_that_are_not_checked_prove_nothing", MODELS],
    ),
    step(25, "the credential ID has 1023 bytes at most", &[ALLOWED], &[]),
    step(26, "the credential ID is no user's yet", &[EVERY], &["steps::a_credential_is_registered_once"]),
    never(27, "the record", &[EVERY, "ceremonies::what_is_stored_reads_back"], "it computes"),
    step(28, "the outputs of extensions that were asked for", &[ALLOWED, UNSOLICITED], &[]),
    step(
        29,
        "the record is stored, for what has passed all steps",
        &["server::it::identity::factors::factors_are_listed_named_once_and_removed"],
        &["server::it::identity::factors::what_allowed_a_factor_still_stands_when_it_is_added"],
    ),
];

const AUTHENTICATION: &[Step] = &[
    step(
        1,
        "options for this ceremony, with a fresh challenge",
        &["ceremonies::options_are_what_browsers_parse", "ceremonies::challenges_differ"],
        &[BOUND],
    ),
    step(
        2,
        "the browser uses the credential",
        &["browser: a login by passkey is two touches, and ends at the program that asked"],
        &["browser: a passkey that is not there, or not unlocked, is told plainly and can be tried again"],
    ),
    step(3, "the response is one to an authentication", &[EVERY], &[NO_RESPONSE]),
    never(4, "the outputs of the client's extensions", &[UNSOLICITED], "none is asked for: step 23"),
    step(
        5,
        "the credential is one that was asked for",
        &[EVERY, "ceremonies::a_step_up_is_the_users_own"],
        &[],
    ),
    step(
        6,
        "the credential is this user's, by the user who is known or by the handle",
        &[EVERY, ALLOWED],
        &["steps::no_user_logs_in_as_another"],
    ),
    step(7, "the parts of the response", &[VECTORS], &[NO_BYTE]),
    never(
        8,
        "the client data is UTF-8, a byte order mark aside",
        &[MORE],
        "its failure is that of step 9, as in a registration",
    ),
    step(9, "the client data is JSON", &[MORE], &[]),
    step(10, "its type is `webauthn.get`", &[EVERY], &[]),
    step(11, "its challenge is the one that was given", &[EVERY], &[BOUND, VECTORS]),
    step(12, "its origin is one of the relying party's", &[ALLOWED, ORIGINS], &[ORIGINS]),
    step(13, "it is in no frame of another origin, where none is allowed", &[ALLOWED, FRAMES], &[]),
    step(14, "the outermost page is one that is allowed", &[FRAMES], &[FRAMES]),
    step(15, "the hash of the RP ID", &[EVERY], &[]),
    step(16, "the user was present", &[EVERY], &[]),
    step(17, "the user was verified, where that is required", &[EVERY, VERIFICATION], &[VERIFICATION]),
    step(18, "what is backed up is eligible for it", &[BACKUP], &[]),
    step(
        19,
        "whether it is eligible has not changed, and is as the cluster's policy wants it",
        &[BACKUP],
        &[BACKUP, COPIES, DEVICE_BOUND],
    ),
    step(20, "the hash of the client data", &[VECTORS], &[NO_BYTE]),
    step(
        21,
        "the signature is by the credential's key",
        &[EVERY, VECTORS],
        &[NO_BYTE, "steps::an_algorithm_is_not_swapped_after_the_registration"],
    ),
    step(
        22,
        "the sign count has grown, or there is none",
        &[
            ALLOWED,
            "policies::a_copy_is_refused_or_told_of",
            "server::it::identity::passkey_policies::a_passkey_whose_count_goes_back_is_let_in_where_the_cluster_flags_it",
        ],
        &[
            "policies::a_copy_is_refused_or_told_of",
            "server::it::identity::passkey_policies::a_passkey_whose_count_goes_back_is_refused",
        ],
    ),
    never(
        23,
        "the outputs of extensions that were asked for",
        &[UNSOLICITED],
        "none is asked for, and others are ignored",
    ),
    never(24, "the record with the new count and state", &[EVERY, BACKUP, SYNCED], "it computes"),
    never(25, "the user is who the record says", &[EVERY], "what fails has failed in a step before"),
];

/// A test as the document names it.
fn named(test: &str) -> String {
    match test.strip_prefix(IN_BROWSER) {
        Some(title) => format!("in a browser: {title}"),
        None => format!("`{test}`"),
    }
}

/// The tables of the document.
fn render() -> String {
    let mut made = String::new();
    for Procedure { title, steps, cases, tried_by } in PROCEDURES {
        let _ = writeln!(
            made,
            "\n### {title}\n\nWhat has no test's name is a case of `{tried_by}`.\n\n\
             | step | what it demands | holds in | is broken by |\n|--:|---|---|---|"
        );
        let cases = cases();
        for Step { number, demands, holds, broken, never } in *steps {
            let own = cases.iter().filter(|(step, _)| step == number).map(|(_, what)| (*what).to_owned());
            let by = own.chain(broken.iter().map(|test| named(test))).collect::<Vec<_>>().join("; ");
            let broken = if never.is_empty() { by } else { format!("nothing: {never}") };
            let holds = holds.iter().map(|test| named(test)).collect::<Vec<_>>().join("; ");
            let _ = writeln!(made, "| {number} | {demands} | {holds} | {broken} |");
        }
    }
    made
}

#[test]
fn every_step_holds_in_a_test_and_is_broken_by_one_or_says_why_not() {
    for (Procedure { title, steps, cases, .. }, last) in PROCEDURES.iter().zip([29, 25]) {
        assert!(steps.iter().map(|step| step.number).eq(1..=last), "{title}");
        let tried: BTreeSet<u8> = cases().into_iter().map(|(step, _)| step).collect();
        assert!(tried.iter().all(|step| (1..=last).contains(step)), "{title}: {tried:?}");
        for Step { number, holds, broken, never, .. } in *steps {
            assert!(!holds.is_empty(), "{title}, step {number} holds in no test");
            let is_broken = tried.contains(number) || !broken.is_empty();
            assert_eq!(is_broken, never.is_empty(), "{title}, step {number}: tests or a reason, not both");
        }
    }
}

/// Whether a source has a test of this name.
fn has_test(source: &str, name: &str) -> bool {
    let mut marked = false;
    source.lines().map(str::trim).any(|line| {
        let function = line.strip_prefix("async ").unwrap_or(line);
        let rest = function.strip_prefix("fn ").and_then(|function| function.strip_prefix(name));
        let found = marked && rest.is_some_and(|rest| rest.starts_with('('));
        let marks = line == "#[test]" || line.starts_with("#[tokio::test");
        marked = marks || (marked && (line.starts_with("#[") || line.starts_with("//")));
        found
    })
}

fn is_there(test: &str) -> bool {
    let source = |path: &str| {
        let path = format!("{ROOT}/{path}");
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path} ({test}): {error}"))
    };
    if let Some(title) = test.strip_prefix(IN_BROWSER) {
        return source(BROWSER_TESTS).contains(&format!("\ntest('{title}', "));
    }
    let (module, name) = test.rsplit_once("::").unwrap();
    let path = module.replace("::", "/");
    match path.strip_prefix("server/") {
        Some(path) => has_test(&source(&format!("crates/server/tests/{path}.rs")), name),
        None => has_test(&source(&format!("crates/webauthn/tests/it/{path}.rs")), name),
    }
}

#[test]
fn every_test_that_the_table_names_is_there() {
    for Procedure { steps, tried_by, .. } in PROCEDURES {
        let named = steps.iter().flat_map(|step| step.holds.iter().chain(step.broken));
        for test in named.chain([tried_by]) {
            assert!(is_there(test), "there is no test {test}");
        }
    }
    assert!(!is_there("steps::cases"), "a name that is no test's");
    assert!(!is_there("browser: a page that nobody has tried"));
}

#[test]
fn the_document_has_this_table() {
    let path = format!("{ROOT}/{DOCUMENT}");
    let document = fs::read_to_string(&path).unwrap();
    let (before, rest) = document.split_once(BEGIN).expect("the document has the mark of the beginning");
    let (committed, after) = rest.split_once(END).expect("the document has the mark of the end");
    let made = render();
    if std::env::var_os("CONFORMANCE_REFRESH").is_some() {
        fs::write(&path, format!("{before}{BEGIN}\n{made}\n{END}{after}")).unwrap();
        return;
    }
    assert!(
        committed.trim() == made.trim(),
        "{DOCUMENT} has another table than the tests; write it anew with\n    {REFRESH}"
    );
}
