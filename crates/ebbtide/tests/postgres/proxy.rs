//! A network between the engine and the server that loses or delays answers when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

#[derive(Default)]
struct Faults {
    lose_answers: AtomicBool,
    hang: AtomicBool,
    delay_millis: AtomicU64,
    executed: AtomicU64,
}

pub(crate) struct Proxy {
    pub(crate) url: String,
    faults: Arc<Faults>,
}

impl Proxy {
    /// A proxy to the server of that URL.
    pub(crate) async fn start(url: &str) -> Self {
        let host = url.split_once('@').unwrap().1.split('/').next().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = url.replace(&host, &listener.local_addr().unwrap().to_string());
        let faults = Arc::new(Faults::default());
        let shared = Arc::clone(&faults);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&host).await else { continue };
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(pass_on(from_client, to_server, Arc::clone(&shared)));
                tokio::spawn(answer(from_server, to_client, Arc::clone(&shared)));
            }
        });
        Self { url, faults }
    }

    /// From now on, every connection breaks in place of its next answer.
    pub(crate) fn lose_answers(&self, lose: bool) {
        self.faults.lose_answers.store(lose, Ordering::SeqCst);
    }

    /// From now on, every answer comes so much later.
    pub(crate) fn delay(&self, delay: Duration) {
        let millis = u64::try_from(delay.as_millis()).unwrap();
        self.faults.delay_millis.store(millis, Ordering::SeqCst);
    }

    /// Number of statements that were sent to be carried out.
    pub(crate) fn executed(&self) -> u64 {
        self.faults.executed.load(Ordering::SeqCst)
    }

    /// From now on, answers on the connections there are go nowhere.
    pub(crate) fn hang(&self, hang: bool) {
        self.faults.hang.store(hang, Ordering::SeqCst);
    }
}

async fn pass_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: Arc<Faults>) {
    let (mut buffer, mut messages) = (vec![0; 65_536], Messages::default());
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        faults.executed.fetch_add(messages.executed(&buffer[..read]), Ordering::SeqCst);
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

/// Requests of one connection, unless they are encrypted.
#[derive(Default)]
struct Messages {
    rest: Vec<u8>,
    /// True after the messages that have no kind before their length: the wish for encryption, and the start.
    has_begun: bool,
}

impl Messages {
    /// Number of messages among these bytes that carry a statement out.
    fn executed(&mut self, bytes: &[u8]) -> u64 {
        const WISH_FOR_ENCRYPTION: &[u8] = &80_877_103_u32.to_be_bytes();
        self.rest.extend(bytes);
        let mut executed = 0;
        loop {
            let start = usize::from(self.has_begun);
            let Some(length) = self.rest.get(start..start + 4) else { return executed };
            let length = start + u32::from_be_bytes(length.try_into().unwrap()) as usize;
            if self.rest.len() < length || length < 5 {
                return executed;
            }
            let message: Vec<u8> = self.rest.drain(..length).collect();
            executed += u64::from(self.has_begun && message[0] == b'E');
            self.has_begun |= &message[4..] != WISH_FOR_ENCRYPTION;
        }
    }
}

/// Passes answers on, each as much later as it is told to: those that come together are not delayed one after another.
async fn answer(from: OwnedReadHalf, to: OwnedWriteHalf, faults: Arc<Faults>) {
    let (send, due) = unbounded_channel();
    tokio::select! {
        () = listen(from, send, &faults) => {}
        () = forward(due, to, &faults) => {}
    }
}

#[expect(clippy::disallowed_methods, reason = "an answer is due at an instant of the runtime's clock")]
async fn listen(mut from: OwnedReadHalf, send: UnboundedSender<(Instant, Vec<u8>)>, faults: &Faults) {
    let mut buffer = vec![0; 65_536];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if faults.hang.load(Ordering::SeqCst) {
            // Neither answered nor closed, until the engine gives it up.
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        let delay = Duration::from_millis(faults.delay_millis.load(Ordering::SeqCst));
        if send.send((Instant::now() + delay, buffer[..read].to_vec())).is_err() {
            return;
        }
    }
    // Passes on the bytes that were read before the end.
    drop(send);
    std::future::pending::<()>().await;
}

async fn forward(mut due: UnboundedReceiver<(Instant, Vec<u8>)>, mut to: OwnedWriteHalf, faults: &Faults) {
    while let Some((at, bytes)) = due.recv().await {
        tokio::time::sleep_until(at).await;
        if faults.lose_answers.load(Ordering::SeqCst) || to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
