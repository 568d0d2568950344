//! What the program that started this process has left open by mistake.

/// Closes every descriptor but standard input, output and error. Nothing of this process's own may be open yet: a service
/// would hand on to its sessions what its starter, a shell or a supervisor, forgot to close.
pub(crate) fn close() {
    let listed = std::fs::read_dir("/proc/self/fd");
    let open: Vec<i32> = listed
        .map(|listed| listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
        .unwrap_or_default();
    for descriptor in open.into_iter().filter(|descriptor| *descriptor > 2) {
        // That of the list itself is closed already.
        let _ = nix::unistd::close(descriptor);
    }
}
