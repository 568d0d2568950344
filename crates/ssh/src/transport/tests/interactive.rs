//! What a client is asked once it has proven its key (RFC 4256).

use super::*;
use crate::transport::server::Prompt;

const PROMPT: &str = "Code: ";

/// What a server asks of alice, and what it makes of the answer `right`.
struct Asking {
    both: Both,
    /// Answers that have come.
    typed: Vec<String>,
}

impl Asking {
    fn new() -> Self {
        Self { both: Both::keyed(), typed: Vec::new() }
    }

    /// Until neither has anything to say.
    fn talk(&mut self) -> Result<(), Breach> {
        loop {
            let (said, answered) = (self.both.client.output().split(), self.both.server.output().split());
            if said.is_empty() && answered.is_empty() {
                return Ok(());
            }
            self.both.server.input().extend_from_slice(&said);
            self.server_hears()?;
            self.both.client.input().extend_from_slice(&answered);
            self.both.client_hears()?;
        }
    }

    fn server_hears(&mut self) -> Result<(), Breach> {
        let server = &mut self.both.server;
        let prompt = Prompt { words: "Alice, your code".to_owned(), label: PROMPT.to_owned() };
        while let Some(question) = server.question()? {
            match question {
                Question::Begins => server.begin(None)?,
                Question::Unproven { .. } => server.answer(false)?,
                Question::Offered(_) => server.answer(true)?,
                Question::Proven(_) => server.go_on()?,
                Question::Interactive => server.prompt(&prompt)?,
                Question::Typed(typed) => {
                    self.typed.push(typed.as_str().to_owned());
                    match typed.as_str() {
                        "right" => server.answer(true)?,
                        "again" => server.prompt(&prompt)?,
                        _ => server.answer(false)?,
                    }
                }
            }
        }
        Ok(())
    }

    fn says(&mut self, draft: &Draft) -> u8 {
        self.both.say(draft);
        self.talk().unwrap();
        *self.both.numbers().last().unwrap()
    }

    fn breaks(&mut self, draft: &Draft) -> Breach {
        self.both.say(draft);
        let breach = self.talk().unwrap_err();
        assert!(self.both.server.is_over() && self.both.server.user().is_none());
        breach
    }

    /// Proves a key: what the client hears then.
    fn proves(&mut self) -> Bytes {
        let login = self.both.log_in(&*key(KeyAlgorithm::Ed25519));
        self.says(&login);
        self.both.heard.last().unwrap().clone()
    }
}

fn asks(user: &str) -> Draft {
    let draft = Draft::new(USERAUTH_REQUEST).string(user.as_bytes()).string(b"ssh-connection");
    draft.string(b"keyboard-interactive").string(b"").string(b"")
}

fn types(answers: &[&str]) -> Draft {
    let draft = Draft::new(USERAUTH_INFO_RESPONSE).u32(u32::try_from(answers.len()).unwrap());
    answers.iter().fold(draft, |draft, answer| draft.string(answer.as_bytes()))
}

#[test]
fn a_client_that_has_proven_its_key_is_asked_and_let_in_by_the_answer() {
    let mut asking = Asking::new();
    let partial = asking.proves();
    assert_eq!(partial, Draft::new(USERAUTH_FAILURE).string(b"keyboard-interactive").flag(true).0);
    assert_eq!(asking.says(&asks("root")), USERAUTH_INFO_REQUEST);
    let asked = Draft::new(USERAUTH_INFO_REQUEST).string(b"").string(b"Alice, your code").string(b"");
    let asked = asked.u32(1).string(PROMPT.as_bytes()).flag(true);
    assert_eq!(asking.both.heard.last().unwrap(), &asked.0);
    assert_eq!(asking.says(&types(&["again"])), USERAUTH_INFO_REQUEST);
    assert_eq!(asking.says(&types(&["wrong"])), USERAUTH_FAILURE);
    // It may be asked anew, and give up a prompt.
    assert_eq!(asking.says(&asks("root")), USERAUTH_INFO_REQUEST);
    assert_eq!(asking.says(&asks("root")), USERAUTH_INFO_REQUEST);
    assert_eq!(asking.says(&types(&["right"])), USERAUTH_SUCCESS);
    assert_eq!(asking.both.server.user(), Some("root"));
    assert_eq!(asking.typed, ["again", "wrong", "right"]);
}

#[test]
fn no_client_is_asked_that_has_proven_no_key() {
    let mut asking = Asking::new();
    assert_eq!(asking.says(&asks("root")), USERAUTH_FAILURE);
    let methods = Draft::new(USERAUTH_FAILURE).string(b"publickey").flag(false);
    assert_eq!(asking.both.heard.last().unwrap(), &methods.0);
    // An answer to nothing is no message that is known here.
    let before = asking.both.heard.len();
    asking.both.say(&types(&["right"]));
    asking.talk().unwrap();
    assert_eq!(asking.both.heard.len(), before);
    // A key that is asked about is not proven.
    let user = key(KeyAlgorithm::Ed25519);
    assert_eq!(asking.says(&query("ssh-ed25519", &blob(&*user))), USERAUTH_PK_OK);
    assert_eq!(asking.says(&asks("root")), USERAUTH_FAILURE);
    assert!(asking.typed.is_empty() && asking.both.server.user().is_none());
}

#[test]
fn what_is_proven_is_proven_for_one_account_and_nothing_else_goes_on() {
    let mut asking = Asking::new();
    asking.proves();
    assert_eq!(asking.breaks(&asks("boot")), Breach::Account);
    // Another key, another proof or none: it has to answer.
    let mut asking = Asking::new();
    asking.proves();
    let other = asking.both.log_in(&*key(KeyAlgorithm::EcdsaP256));
    let none = Draft::new(USERAUTH_REQUEST).string(b"root").string(b"ssh-connection").string(b"none");
    for draft in [other, none] {
        assert_eq!(asking.says(&draft), USERAUTH_FAILURE);
        let methods = Draft::new(USERAUTH_FAILURE).string(b"keyboard-interactive").flag(false);
        assert_eq!(asking.both.heard.last().unwrap(), &methods.0);
    }
    assert!(asking.both.server.user().is_none());
}

#[test]
fn answers_are_as_many_as_there_are_prompts_and_short() {
    let longest = "x".repeat(256);
    for (draft, is_read) in [
        (types(&[]), false),
        (types(&["right", "right"]), false),
        (types(&[&"x".repeat(257)]), false),
        (Draft::new(USERAUTH_INFO_RESPONSE).u32(u32::MAX), false),
        (Draft::new(USERAUTH_INFO_RESPONSE).u32(1).string(&[0xff, 0xfe]), false),
        (types(&[&longest]), true),
    ] {
        let mut asking = Asking::new();
        asking.proves();
        asking.says(&asks("root"));
        assert_eq!(asking.says(&draft), USERAUTH_FAILURE);
        assert_eq!(asking.typed.len(), usize::from(is_read));
        // The prompt is over: an answer later is one to nothing.
        asking.both.say(&types(&["right"]));
        asking.talk().unwrap();
        assert!(asking.both.server.user().is_none());
    }
    for cut in [
        Draft::new(USERAUTH_INFO_RESPONSE),
        Draft::new(USERAUTH_INFO_RESPONSE).u32(1),
        Draft::new(USERAUTH_INFO_RESPONSE).u32(1).u32(9).raw(b"right"),
        types(&["right"]).u8(0),
    ] {
        let mut asking = Asking::new();
        asking.proves();
        asking.says(&asks("root"));
        assert_eq!(asking.breaks(&cut), Breach::Malformed("USERAUTH_INFO_RESPONSE"));
    }
    let mut asking = Asking::new();
    asking.proves();
    assert_eq!(asking.breaks(&asks("root").u8(0)), Breach::Malformed("USERAUTH_REQUEST"));
}

#[test]
fn a_client_is_not_asked_for_ever() {
    let mut asking = Asking::new();
    asking.proves();
    assert_eq!(asking.says(&asks("root")), USERAUTH_INFO_REQUEST);
    for _ in 1..16 {
        assert_eq!(asking.says(&types(&["again"])), USERAUTH_INFO_REQUEST);
    }
    assert_eq!(asking.breaks(&types(&["again"])), Breach::Attempts);
    // Refusals count as those of keys do.
    let mut asking = Asking::new();
    asking.proves();
    for _ in 0..MOST {
        assert_eq!(asking.says(&asks("root")), USERAUTH_INFO_REQUEST);
        assert_eq!(asking.says(&types(&["wrong"])), USERAUTH_FAILURE);
    }
    assert_eq!(asking.breaks(&asks("root")), Breach::Attempts);
    assert_eq!(asking.typed.len(), MOST);
}

#[test]
fn a_server_asks_in_its_turn() {
    let prompt = Prompt { words: String::new(), label: String::new() };
    let mut both = Both::keyed();
    assert_eq!(both.server.prompt(&prompt).unwrap_err(), Breach::Order("no prompt is asked for"));
    let mut both = Both::keyed();
    assert_eq!(both.server.go_on().unwrap_err(), Breach::Order("no key is proven"));
    assert!(both.server.user().is_none());
}

/// Paramiko asks for the service before each of its attempts.
#[test]
fn the_service_may_be_asked_for_again_and_no_other() {
    let mut both = Both::keyed();
    both.say(&Draft::new(SERVICE_REQUEST).string(USERAUTH));
    let login = both.log_in(&*key(KeyAlgorithm::Ed25519));
    both.say(&login);
    both.talk().unwrap();
    assert_eq!(both.numbers(), [SERVICE_ACCEPT, USERAUTH_BANNER, SERVICE_ACCEPT, USERAUTH_SUCCESS]);
    let other = Draft::new(SERVICE_REQUEST).string(b"ssh-connection");
    assert!(matches!(Both::keyed().breaks(&other), Breach::Unexpected { message: SERVICE_REQUEST, .. }));
    // Each counts.
    let mut both = Both::keyed();
    let service = Draft::new(SERVICE_REQUEST).string(USERAUTH);
    for _ in 0..MOST * 8 {
        both.say(&service);
    }
    both.talk().unwrap();
    assert_eq!(both.breaks(&service), Breach::Attempts);
}
