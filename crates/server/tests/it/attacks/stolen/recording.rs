//! Files of recordings, at the authority or in a spool.

use std::io::Cursor;

use sallyport_audit::recording::Reader;
use sallyport_sal::hpke::{Kem, RecipientKeys};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn they_tell_how_long_and_nothing_of_what_and_a_changed_one_says_so() {
    let scene = Scene::new().await;
    let of_bob = recording_of_another(&scene).await;
    let path = authority_files(&scene.cluster).join(format!("recordings/{of_bob}.rec"));
    let bytes = std::fs::read(&path).unwrap();
    for inside in ["of-bob", "echo"] {
        assert!(!bytes.windows(inside.len()).any(|part| part == inside.as_bytes()), "{inside}");
    }
    let other = RecipientKeys::generate(Kem::X25519).unwrap();
    assert!(Reader::open(Cursor::new(bytes.clone()), &other).is_err(), "another key opens nothing");

    let channel = support::admin_channel(&scene.cluster.data_dir()).await;
    let play = async || {
        let asked = v1::PlayRecordingRequest { session_id: of_bob.clone(), from: None };
        let mut frames = ClusterClient::new(channel.clone()).play_recording(asked).await?.into_inner();
        let mut text = String::new();
        while let Some(part) = frames.message().await? {
            text.push_str(&part.frames_json.concat());
        }
        Ok::<_, Status>(text)
    };
    let whole = play().await.unwrap();
    // Any byte behind the head that names the session.
    let mut changed = bytes;
    let last = changed.len() - 20;
    changed[last] ^= 1;
    std::fs::write(&path, &changed).unwrap();
    match play().await {
        Ok(text) => assert!(text != whole && text.contains("damaged"), "{text}"),
        Err(status) => assert!(status.message().contains("damaged"), "{status:?}"),
    }
    scene.end().await;
}
