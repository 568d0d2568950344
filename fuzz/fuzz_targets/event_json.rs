//! An event that a host reports, and a checkpoint that an auditor kept.

use sallyport_audit::Event;
use sallyport_audit::log::Checkpoint;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    if let Ok(event) = Event::from_json(&text) {
        assert!(Event::from_json(&event.to_json()).is_ok());
    }
    if let Some(checkpoint) = Checkpoint::parse(&text) {
        assert_eq!(
            Checkpoint::parse(&checkpoint.to_line()).map(|again| again.to_line()),
            Some(checkpoint.to_line())
        );
    }
});
