//! A stream to a program inside a container, the guest or a bridge to it: the HTTP upgrade is done here, and the
//! engine's framing is removed.
//!
//! Written by hand for two reasons: the bytes come from the machine and must be bounded, and the stream must be closed
//! before the container is removed, because an engine does not remove a container that a client is attached to.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, ReadBuf},
    net::{TcpStream, UnixStream},
};

use super::engine::Address;

/// Maximum length of the engine's answer before the stream begins.
const MAX_HEAD: u64 = 16 << 10;
/// Maximum number of bytes of the program's standard error that are stored.
const MAX_STDERR: usize = 64 << 10;
/// Bytes read at once.
const BUFFER: usize = 64 << 10;

const STDOUT: u8 = 1;
const STDERR: u8 = 2;

type Reading = BufReader<Box<dyn AsyncRead + Send + Unpin>>;
type Writing = Box<dyn AsyncWrite + Send + Unpin>;

/// Both directions of a program's standard streams.
pub(super) struct Attached {
    pub(super) input: Writing,
    pub(super) output: Output,
    /// The program's standard error; it writes there only if it cannot start.
    pub(super) stderr: Stderr,
    pub(super) line: Line,
}

pub(super) type Stderr = Arc<Mutex<Vec<u8>>>;

/// A descriptor of the stream that can shut it down, even while other parts still use it.
pub(super) struct Line(OwnedFd);

impl Line {
    pub(super) fn cut(&self) {
        let _cut_already = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }
}

/// Attaches to a container, which need not run yet.
pub(super) async fn attach(address: &Address, container: &str) -> io::Result<Attached> {
    open(address, &format!("/containers/{container}/attach?stream=1&stdin=1&stdout=1&stderr=1"), "").await
}

/// Starts a prepared exec in a container, and attaches to it.
pub(super) async fn start(address: &Address, exec: &str) -> io::Result<Attached> {
    // The id comes from the engine and goes into a request line.
    if exec.is_empty() || !exec.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(odd("an invalid exec id"));
    }
    open(address, &format!("/exec/{exec}/start"), r#"{"Detach":false,"Tty":false}"#).await
}

async fn open(address: &Address, what: &str, body: &str) -> io::Result<Attached> {
    let (read, mut input, line): (Box<dyn AsyncRead + Send + Unpin>, Writing, _) = match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).await?;
            let line = stream.as_fd().try_clone_to_owned()?;
            let (read, write) = stream.into_split();
            (Box::new(read), Box::new(write), line)
        }
        Address::Tcp(host) => {
            let stream = TcpStream::connect(host).await?;
            stream.set_nodelay(true)?;
            let line = stream.as_fd().try_clone_to_owned()?;
            let (read, write) = stream.into_split();
            (Box::new(read), Box::new(write), line)
        }
    };
    let wish = format!(
        "POST {what} HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    input.write_all(wish.as_bytes()).await?;
    let mut reading = BufReader::with_capacity(BUFFER, read);
    head(&mut reading).await?;
    let stderr = Stderr::default();
    let output = Output { reading, header: [0; 8], have: 0, left: 0, stderr: stderr.clone() };
    Ok(Attached { input, output, stderr, line: Line(line) })
}

/// Reads the answer up to the start of the stream.
async fn head(reading: &mut Reading) -> io::Result<()> {
    let mut left = MAX_HEAD;
    let mut status = None;
    loop {
        let mut line = Vec::new();
        let count = (&mut *reading).take(left).read_until(b'\n', &mut line).await? as u64;
        left -= count;
        if !line.ends_with(b"\n") {
            return Err(odd("an answer that is not HTTP"));
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        match &status {
            None => status = Some(text.split(' ').nth(1).unwrap_or_default().to_owned()),
            // Engines without support for upgrades answer 200 and start the stream.
            Some(status) if text.is_empty() => {
                return match status.as_str() {
                    "101" | "200" => Ok(()),
                    // The container is gone, or does not run.
                    "404" | "409" => Err(io::ErrorKind::NotFound.into()),
                    _ => Err(odd("a refusal to attach")),
                };
            }
            Some(_) => {}
        }
    }
}

fn odd(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the engine sent {what}"))
}

/// The program's output, without the engine's framing.
pub(super) struct Output {
    reading: Reading,
    header: [u8; 8],
    have: usize,
    left: usize,
    stderr: Stderr,
}

impl Output {
    /// The next frame's header; `false` at the end of the stream.
    fn poll_header(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        while self.have < self.header.len() {
            let mut rest = ReadBuf::new(&mut self.header[self.have..]);
            ready!(Pin::new(&mut self.reading).poll_read(cx, &mut rest))?;
            match rest.filled().len() {
                0 if self.have == 0 => return Poll::Ready(Ok(false)),
                0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                count => self.have += count,
            }
        }
        let [kind, 0, 0, 0, a, b, c, d] = self.header else { return Poll::Ready(Err(odd("a frame of no known kind"))) };
        if kind != STDOUT && kind != STDERR {
            return Poll::Ready(Err(odd("a frame of no known kind")));
        }
        self.left = u32::from_be_bytes([a, b, c, d]) as usize;
        self.have = 0;
        Poll::Ready(Ok(true))
    }

    /// Reads at most the rest of the frame.
    fn poll_some(&mut self, cx: &mut Context<'_>, space: &mut [u8]) -> Poll<io::Result<usize>> {
        let most = self.left.min(space.len());
        let mut some = ReadBuf::new(&mut space[..most]);
        ready!(Pin::new(&mut self.reading).poll_read(cx, &mut some))?;
        let count = some.filled().len();
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        self.left -= count;
        Poll::Ready(Ok(count))
    }
}

impl AsyncRead for Output {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if buf.remaining() == 0 || this.left == 0 && !ready!(this.poll_header(cx))? {
                return Poll::Ready(Ok(()));
            }
            if this.left == 0 {
                continue;
            }
            if this.header[0] == STDOUT {
                let space = buf.initialize_unfilled_to(buf.remaining().min(this.left));
                let count = ready!(this.poll_some(cx, space))?;
                buf.advance(count);
                return Poll::Ready(Ok(()));
            }
            let mut some = [0; 1024];
            let count = ready!(this.poll_some(cx, &mut some))?;
            let mut stderr = this.stderr.lock();
            if stderr.len() + count <= MAX_STDERR {
                stderr.extend_from_slice(&some[..count]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(bytes: &'static [u8]) -> Output {
        let reading: Reading = BufReader::new(Box::new(bytes));
        Output { reading, header: [0; 8], have: 0, left: 0, stderr: Stderr::default() }
    }

    #[tokio::test]
    async fn frames_are_removed_and_standard_error_is_separate() {
        let mut all = Vec::new();
        let mut said = output(b"\x01\0\0\0\0\0\0\x02ab\x02\0\0\0\0\0\0\x03why\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\x01c");
        said.read_to_end(&mut all).await.expect("frames");
        assert_eq!((all.as_slice(), said.stderr.lock().as_slice()), (&b"abc"[..], &b"why"[..]));
    }

    #[tokio::test]
    async fn an_invalid_frame_ends_the_stream() {
        for bytes in [
            &b"hello world"[..],
            b"\x01\0\0\0\0\0\0\x05ab",
            b"\x01\0\0",
            b"\x01\x01\0\0\0\0\0\x01a",
            b"\0\0\0\0\0\0\0\x01a",
        ] {
            output(bytes).read_to_end(&mut Vec::new()).await.expect_err("no frame");
        }
    }

    #[tokio::test]
    async fn only_an_accepted_upgrade_starts_a_stream() {
        let told = |bytes: &'static [u8]| async move { head(&mut BufReader::new(Box::new(bytes) as Box<_>)).await };
        told(b"HTTP/1.1 101 UPGRADED\r\nA: b\r\n\r\n").await.expect("a stream");
        assert_eq!(told(b"HTTP/1.1 404 Not Found\r\n\r\n").await.expect_err("gone").kind(), io::ErrorKind::NotFound);
        for bad in [&b""[..], b"HTTP/1.1 500 No\r\n\r\n", b"HTTP/1.1 101 UPGRADED\r\n", b"garbage"] {
            told(bad).await.expect_err("no stream");
        }
    }
}
