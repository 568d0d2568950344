//! An SFTP session between a client and a server that are both not trusted: the first byte of each part says whose
//! turn it is and how long the part is.

use sallyport_ssh::sftp::observe::Observer;

fuzz_target!(|data: &[u8]| {
    let mut observer = Observer::default();
    let mut rest = data;
    while let Some((head, more)) = rest.split_first() {
        let (part, next) = more.split_at(more.len().min(usize::from(head >> 1)));
        let ended =
            if head & 1 == 0 { observer.client(part).is_err() } else { observer.server(part).is_err() };
        if ended {
            break;
        }
        rest = next;
    }
    let _ = observer.finish();
});
