//! How large an event may be: none may make a line that the log's readers do not read.

use serde_json::{Map, Value};

use crate::{Code, Event};

/// Longest text of an event, in bytes of JSON. Longer ones are cut, with a word about it in their place.
pub const TEXT_BYTES: usize = 4 << 10;
/// The same for what is long by its nature: a statement, or a document that was written.
const LONG_TEXT_BYTES: usize = 48 << 10;
/// Fields whose text is long by its nature.
const LONG_FIELDS: [&str; 2] = ["statement", "yaml"];
/// Longest name of a field, in bytes of JSON.
const NAME_BYTES: usize = 128;
/// Longest code that this version does not know.
const CODE_BYTES: usize = 64;
/// Longest event, in bytes of JSON.
pub const EVENT_BYTES: usize = 64 << 10;
/// Room for the word about fields that were left out.
const LEFT_OUT_BYTES: usize = 64;
/// The most that one byte of a text becomes in JSON.
const MOST_OF_BYTE: usize = 6;
/// Room for the names, times and id of an event.
const AROUND_BYTES: usize = 1 << 10;

impl Event {
    /// As one line of JSON, within the bounds of the log ([`Event::bounded`]).
    #[must_use]
    pub fn to_bounded_json(&self) -> String {
        if self.is_within() { self.to_json() } else { self.clone().bounded().to_json() }
    }

    /// Whether nothing of it can be too long, at a glance: of nearly all events this is so, and they need no copy.
    fn is_within(&self) -> bool {
        let Self { code, kind, user, login, node, session_id, source, origin, message, fields, .. } = self;
        let texts = [kind, user, login, node, session_id, source, origin, message];
        let is_short = |text: &str, most: usize| text.len() <= most / MOST_OF_BYTE;
        let within = !matches!(code, Code::Unknown(_))
            && texts.iter().all(|text| is_short(text, TEXT_BYTES))
            && fields.iter().all(|(name, value)| is_short(name, NAME_BYTES) && all_short(value, TEXT_BYTES));
        let bytes = texts.iter().map(|text| text.len()).sum::<usize>()
            + fields.iter().map(|(name, value)| name.len() + plain_bytes(value)).sum::<usize>();
        within && is_short_in_all(bytes)
    }

    /// The event within the bounds of the log. What is too long is cut and says how long it was; fields that do not fit into
    /// the whole are left out, the largest first, and counted.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        if let Code::Unknown(code) = &mut self.code {
            shorten(code, CODE_BYTES);
        }
        for text in [
            &mut self.kind,
            &mut self.user,
            &mut self.login,
            &mut self.node,
            &mut self.session_id,
            &mut self.source,
            &mut self.origin,
            &mut self.message,
        ] {
            shorten(text, TEXT_BYTES);
        }
        if self.fields.is_empty() {
            return self;
        }
        let mut fields = Map::new();
        for (mut name, mut value) in std::mem::take(&mut self.fields) {
            shorten(&mut name, NAME_BYTES);
            let most = if LONG_FIELDS.contains(&name.as_str()) { LONG_TEXT_BYTES } else { TEXT_BYTES };
            shorten_all(&mut value, most);
            fields.insert(name, value);
        }
        self.fields = fields;
        self.fit();
        self
    }

    /// Makes the whole fit.
    fn fit(&mut self) {
        let mut total = self.to_json().len();
        if total <= EVENT_BYTES {
            return;
        }
        let mut sizes: Vec<(usize, String)> =
            self.fields.iter().map(|(name, value)| (value.to_string().len(), name.clone())).collect();
        sizes.sort_by(|left, right| right.cmp(left));
        let (mut left_out, mut bytes) = (0_u64, 0);
        for (size, name) in sizes {
            if total + LEFT_OUT_BYTES <= EVENT_BYTES {
                break;
            }
            self.fields.remove(&name);
            // With its quotes, colon and comma.
            total = total.saturating_sub(size + name.len() + 4);
            left_out += 1;
            bytes += size;
        }
        self.fields.insert("left_out".to_owned(), format!("{left_out} fields of {bytes} bytes").into());
    }
}

/// Whether so many bytes of texts, and what stands around them, cannot make an event too long.
fn is_short_in_all(bytes: usize) -> bool {
    bytes <= (EVENT_BYTES - AROUND_BYTES) / MOST_OF_BYTE
}

fn all_short(value: &Value, most: usize) -> bool {
    match value {
        Value::String(text) => text.len() <= most / MOST_OF_BYTE,
        Value::Array(values) => values.iter().all(|value| all_short(value, most)),
        Value::Object(values) => values.values().all(|value| all_short(value, most)),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

/// Bytes of the texts of a value, with room for what stands around them and for numbers.
fn plain_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() + 4,
        Value::Array(values) => values.iter().map(plain_bytes).sum::<usize>() + 4,
        Value::Object(values) => {
            values.iter().map(|(name, value)| name.len() + 4 + plain_bytes(value)).sum::<usize>() + 4
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => 32,
    }
}

fn shorten_all(value: &mut Value, most: usize) {
    match value {
        Value::String(text) => shorten(text, most),
        Value::Array(values) => values.iter_mut().for_each(|value| shorten_all(value, most)),
        Value::Object(values) => values.values_mut().for_each(|value| shorten_all(value, most)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Bytes that a character has in JSON (RFC 8259 §7), as the log's encoder writes it.
fn encoded(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        control if control < ' ' => 6,
        other => other.len_utf8(),
    }
}

/// Cuts a text that is longer than `most` bytes in JSON, and says so at its end.
fn shorten(text: &mut String, most: usize) {
    if text.len() <= most / MOST_OF_BYTE {
        return;
    }
    let marker = format!("... (cut: {} bytes)", text.len());
    let room = most.saturating_sub(marker.len());
    let (mut bytes, mut end) = (0, 0);
    for (at, character) in text.char_indices() {
        bytes += encoded(character);
        if bytes <= room {
            end = at + character.len_utf8();
        }
        if bytes > most {
            text.truncate(end);
            text.push_str(&marker);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::OffsetDateTime;

    use super::*;

    fn event() -> Event {
        Event::new(Code::SessionStart, OffsetDateTime::UNIX_EPOCH)
    }

    #[test]
    fn what_fits_is_left_as_it_is() {
        let statement = "x".repeat(40_000);
        let fits = event().message("m".repeat(4000)).field("statement", statement).field("count", 3);
        assert_eq!(fits.clone().bounded(), fits);
    }

    #[test]
    fn what_is_cut_says_how_long_it_was() {
        let cut = event().message("é".repeat(5 << 20)).field("note", "n".repeat(5000)).bounded();
        assert!(cut.message.ends_with("... (cut: 10485760 bytes)"), "{}", cut.message.len());
        assert!(cut.message.len() <= TEXT_BYTES && cut.message.len() > TEXT_BYTES - 8);
        assert!(cut.fields["note"].as_str().unwrap().ends_with("n... (cut: 5000 bytes)"));
    }

    #[test]
    fn what_is_within_at_a_glance_is_what_needs_no_cut() {
        let small = event().user("alice").message("m".repeat(600)).field("list", vec!["x".repeat(600); 15]);
        assert!(small.is_within());
        assert_eq!(small.to_bounded_json(), small.to_json());
        let worst = event().field("text", "\u{1}".repeat(TEXT_BYTES / MOST_OF_BYTE));
        assert!(worst.is_within());
        assert_eq!(worst.clone().bounded(), worst);
        for long in [
            event().user("u".repeat(5000)),
            event().field("text", "t".repeat(5000)),
            event().field(&"n".repeat(200), 1),
            event().field("list", vec![vec!["x".repeat(600); 10]; 20]),
        ] {
            assert!(!long.is_within());
            assert_eq!(long.to_bounded_json(), long.clone().bounded().to_json());
        }
        assert!(
            !(0..4000).fold(event(), |event, number| event.field(&number.to_string(), number)).is_within()
        );
    }

    #[test]
    fn fields_that_do_not_fit_are_counted() {
        let mut many = event().field("kept", "yes");
        for number in 0..40 {
            many = many.field(&format!("large-{number}"), "\u{1}".repeat(4000));
        }
        let cut = many.bounded();
        assert!(cut.to_json().len() <= EVENT_BYTES);
        assert_eq!(cut.fields["kept"], "yes");
        assert!(
            cut.fields["left_out"].as_str().unwrap().contains("fields of"),
            "{:?}",
            cut.fields["left_out"]
        );
        let mut tiny = event();
        for number in 0..20_000 {
            tiny = tiny.field(&number.to_string(), number);
        }
        assert!(tiny.bounded().to_json().len() <= EVENT_BYTES);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn no_event_is_longer_than_the_bound(
            texts in prop::collection::vec(".{0,40}", 8),
            times in 1_usize..400,
            names in prop::collection::vec("\\PC{0,20}", 0..40),
        ) {
            let long = |at: usize| texts[at].repeat(times);
            let mut made = event().user(long(0)).login(long(1)).node(long(2)).session(long(3)).source(long(4));
            made = made.origin(long(5)).message(long(6));
            made.code = Code::Unknown(long(7));
            made.kind = long(7);
            for name in names {
                made = made.field(&name.repeat(times.min(50)), vec![long(0), long(1)]);
            }
            prop_assert_eq!(made.to_bounded_json(), made.clone().bounded().to_json());
            let once = made.bounded();
            prop_assert!(once.to_json().len() <= EVENT_BYTES, "{}", once.to_json().len());
            prop_assert_eq!(once.clone().bounded().to_json(), once.to_json());
        }
    }
}
