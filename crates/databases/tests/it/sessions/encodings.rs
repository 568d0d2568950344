//! What text says in each encoding, beside what the server makes of it.

use std::fmt::Write as _;

use sallyport_databases::postgres::encoding::Encoding;

use crate::world::World;

/// As the server calls those whose table here is taken for the server's.
const ENCODINGS: [&str; 29] = [
    "LATIN1",
    "LATIN2",
    "LATIN3",
    "LATIN4",
    "LATIN6",
    "LATIN7",
    "LATIN8",
    "LATIN9",
    "LATIN10",
    "ISO_8859_5",
    "ISO_8859_6",
    "ISO_8859_7",
    "ISO_8859_8",
    "WIN1250",
    "WIN1251",
    "WIN1252",
    "WIN1253",
    "WIN1254",
    "WIN1255",
    "WIN1256",
    "WIN1257",
    "WIN1258",
    "WIN866",
    "WIN874",
    "KOI8R",
    "EUC_KR",
    "UHC",
    "SJIS",
    "GBK",
];
/// Those whose characters have several bytes.
const SEVERAL: [&str; 4] = ["EUC_KR", "UHC", "SJIS", "GBK"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_read_without_a_loss_is_what_the_server_reads() {
    let world = World::new("");
    world.postgres.sql(
        "create function reads(bytes bytea, encoding text) returns text language plpgsql as $$ begin \
         return encode(convert_to(convert_from(bytes, encoding), 'UTF8'), 'hex'); exception when others then return null; end $$",
    );
    let mut differences = String::new();
    for name in ENCODINGS {
        // Of those with several bytes one first byte in four.
        let (step, seconds) = if SEVERAL.contains(&name) { (4, "1, 255") } else { (1, "65, 65") };
        let read = world.postgres.sql(&format!(
            "select encode(bytes, 'hex') || ' ' || text from (select bytes, reads(bytes, '{name}') as text from \
             (select set_byte(set_byte('\\x0000'::bytea, 0, a), 1, b) as bytes from generate_series(128, 255, {step}) a, \
             generate_series({seconds}) b) p) r where text is not null"
        ));
        let encoding = Encoding::of(name);
        let decode = |hex: &str| data_encoding::HEXLOWER.decode(hex.as_bytes()).unwrap();
        let mut count = 0;
        for (bytes, text) in read.lines().filter_map(|line| line.split_once(' ')) {
            let (bytes, text) = (decode(bytes), String::from_utf8(decode(text)).unwrap());
            let (ours, exact) = encoding.read(&bytes);
            count += usize::from(exact);
            if exact && ours != text {
                writeln!(
                    differences,
                    "{name} {bytes:x?}: the server reads {text:?}, and here it is {ours:?}"
                )
                .unwrap();
            }
        }
        // Nearly all that the server takes can be told.
        assert!(count > if SEVERAL.contains(&name) { 1500 } else { 80 }, "{name}: {count}");
    }
    assert_eq!(differences, "");
}
