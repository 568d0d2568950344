//! A display that only looks at who comes, and a program that shows itself to one.

use std::path::Path;
use std::process::Command;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What the display wants to see, in hexadecimal.
pub(crate) const TRUE_COOKIE: &str = "00112233445566778899aabbccddeeff";

/// A program of the session: finds its cookie as X programs do, and shows it to the display.
const PROGRAM: &str = r#"
import os, socket, struct, subprocess
name = os.environ["DISPLAY"]
shown = subprocess.run(["xauth", "list", name], capture_output=True, text=True, check=True).stdout.split()
cookie = bytes.fromhex(shown[-1])
assert shown[-1] != "TRUE", "the true cookie left the client"
host, number = name.split(":")
line = socket.create_connection((host, 6000 + int(number.split(".")[0])))
proto = b"MIT-MAGIC-COOKIE-1"
line.sendall(struct.pack("<BxHHHHxx", 0x6c, 11, 0, len(proto), len(cookie)) + proto + bytes(-len(proto) % 4) + cookie)
print(name, os.stat(os.environ["XAUTHORITY"]).st_mode & 0o777, line.recv(100).decode())
"#;

/// The command line of that program.
pub(crate) fn program() -> String {
    format!("python3 -c '{}'", PROGRAM.replace("TRUE", TRUE_COOKIE))
}

/// The same, with a connection that is kept for as long as it can be: then there is `file`.
pub(crate) fn program_that_stays(file: &Path) -> String {
    let stays = format!(
        "try:\n    line.recv(100)\nexcept OSError:\n    pass\nopen(\"{}\", \"w\").close()\n",
        file.display()
    );
    format!(
        "python3 -c '{}{stays}'",
        PROGRAM.replace("TRUE", TRUE_COOKIE).replace("decode())", "decode(), flush=True)")
    )
}

/// A display of the client's, and its name. Its cookie is put into a file.
pub(crate) async fn display(cookies: &Path) -> (TcpListener, String) {
    for number in 200..400 {
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", 6000 + number)).await {
            let name = format!("127.0.0.1:{number}");
            let added = Command::new("xauth")
                .arg("-f")
                .arg(cookies)
                .args(["add", &name, "MIT-MAGIC-COOKIE-1", TRUE_COOKIE])
                .output();
            assert!(added.expect("xauth is installed: apt-get install -y xauth").status.success());
            return (listener, name);
        }
    }
    panic!("no display is free");
}

/// Welcomes one program; ends with the cookie that it has shown, in hexadecimal.
pub(crate) fn welcome(listener: TcpListener) -> JoinHandle<String> {
    tokio::spawn(async move { welcomed(listener).await.1 })
}

/// The connection of one program that is welcome, and the cookie that it has shown.
pub(crate) async fn welcomed(listener: TcpListener) -> (TcpStream, String) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut setup = vec![0; 12 + 20 + 16];
    stream.read_exact(&mut setup).await.unwrap();
    stream.write_all(b"welcome").await.unwrap();
    let cookie = setup[32..].iter().map(|byte| format!("{byte:02x}")).collect();
    (stream, cookie)
}
