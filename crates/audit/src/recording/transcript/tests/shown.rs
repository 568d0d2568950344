//! What comes of a session acts on nothing that shows it.

use proptest::prelude::*;
use sallyport_access::text;

use super::*;

/// Text with what steers terminals and eyes in it.
fn text() -> impl Strategy<Value = String> {
    "[-=+@a-z' \n\r\t\0\u{1b}\u{7}\u{9b}\u{9d}\u{c}\u{b}\u{85}\u{2028}\u{202e}\u{2066}\u{e9}\\[\\];$/*\\\\]{0,20}"
}

fn said() -> impl Strategy<Value = DatabaseFrame> {
    let number = 1_u64..6;
    let one = |text: String| Statement {
        sha256: Some(text.clone()),
        bytes: text.contains('=').then_some(9),
        encoding: text.contains('+').then(|| text.clone()),
        base64: if text.contains('-') { vec![text.clone()] } else { Vec::new() },
        text,
        ..Statement::default()
    };
    let parameters = |text: &str| Some(vec![Parameter::Text(text.into()), Parameter::Binary(text.into())]);
    (0_u8..14, number, text(), text()).prop_map(move |(kind, number, a, b)| match kind {
        0 | 1 => DatabaseFrame::Query { number, statement: one(a) },
        2 => DatabaseFrame::Parse { number, name: b, statement: one(a) },
        3 => {
            let parameters = parameters(&a);
            DatabaseFrame::Bind {
                number,
                portal: b.clone(),
                statement: b,
                count: 2,
                parameters,
                doubtful: false,
            }
        }
        4 => DatabaseFrame::Execute { number, portal: a, rows: 0 },
        5 => DatabaseFrame::FunctionCall { number, function: 1, count: 2, parameters: parameters(&a) },
        6 => DatabaseFrame::CopyFail { reason: a },
        7 | 8 => DatabaseFrame::Result { of: number, tag: a, rows: 1, bytes: 1, took_us: 1 },
        9 => DatabaseFrame::Error {
            of: Some(number),
            severity: a.clone(),
            sqlstate: b,
            message: a,
            took_us: 1,
        },
        10 => DatabaseFrame::Notice { severity: a.clone(), sqlstate: b, message: a },
        11 => DatabaseFrame::Notify { process: 1, channel: a, payload: b },
        12 => DatabaseFrame::Encoding { name: a },
        _ => DatabaseFrame::Refused { sqlstate: a, message: b },
    })
}

proptest! {
    #[test]
    fn nothing_that_is_shown_acts(said in proptest::collection::vec(said(), 1..30), name in text()) {
        for look in [Look::Plain, Look::Terminal, Look::Sql] {
            let mut transcript = Transcript::new(look);
            let Some(Body::Start(mut start)) = frames().into_iter().next() else { unreachable!() };
            (start.command, start.application, start.user) = (Some(name.clone()), Some(name.clone()), name.clone());
            let bodies = said.iter().map(|frame| Body::Database(Box::new(frame.clone())));
            let ends = [Body::Note { text: name.clone() }, Body::Exit(Exit::Cut(name.clone()))];
            let all = std::iter::once(Body::Start(start)).chain(bodies).chain(ends);
            let mut shown: String = all.map(|body| transcript.frame(&Frame { at: Duration::ZERO, body })).collect();
            shown += &transcript.finish();
            if look == Look::Terminal {
                // Ours are the colours, and the ends of lines that a raw terminal wants.
                for colour in [RED, YELLOW, DIM, "0"] {
                    shown = shown.replace(&format!("\u{1b}[{colour}m"), "");
                }
                shown = shown.replace("\r\n", "\n");
            }
            let acts = |c: char| c != '\n' && c != '\t' && text::steers(c);
            prop_assert!(!shown.contains(acts), "{look:?}: {shown:?}");
        }
    }
}

#[test]
fn what_has_no_tag_is_told_apart() {
    let call = DatabaseFrame::FunctionCall {
        number: 1,
        function: 1344,
        count: 1,
        parameters: Some(vec![Parameter::Text("2.25".into())]),
    };
    let returned = DatabaseFrame::Result { of: 1, tag: String::new(), rows: 0, bytes: 3, took_us: 0 };
    let some = vec![parse(3, "", "select 1"), bind(4, ""), execute(5), result(5, "")];
    let frames = [vec![call, returned, query(2, " "), result(2, "")], some].concat();
    assert_eq!(
        played(Look::Plain, frames),
        "db=> -- function call 1344\n-- $1 = '2.25'\n(the function returned 3 bytes) (0.000 ms)\n\
         db=>  \n(an empty query) (0.000 ms)\ndb=> select 1\n(more rows follow) (0.000 ms)\n"
    );
}
