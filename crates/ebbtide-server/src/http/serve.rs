//! Accept loop: HTTP/1.1 and HTTP/2, with or without TLS, within limits, until shutdown.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use crate::app::App;
use crate::http::edge::Edge;
use crate::http::patience::Patient;
use crate::router;

/// Maximum size of a request's head.
const MOST_HEAD_BYTES: usize = 64 * 1_024;

/// Serves on `listener` until `stop` resolves, then drains in-flight requests within the shutdown timeout.
pub async fn serve(listener: TcpListener, app: App, stop: impl Future<Output = ()> + Send) -> io::Result<()> {
    run(listener, app, None, stop).await
}

/// Serves TLS only; otherwise like [`serve`].
pub async fn serve_tls(
    listener: TcpListener,
    app: App,
    tls: Arc<ServerConfig>,
    stop: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    run(listener, app, Some(tls), stop).await
}

async fn run(
    listener: TcpListener,
    app: App,
    tls: Option<Arc<ServerConfig>>,
    stop: impl Future<Output = ()> + Send,
) -> io::Result<()> {
    let edge = Arc::clone(&app.edge);
    let server = Server {
        edge: Arc::clone(&edge),
        router: router(app),
        builder: builder(&edge),
        tls: tls.map(TlsAcceptor::from),
    };
    let graceful = GracefulShutdown::new();
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => server.take_on(stream, &graceful),
                Err(error) => rest(&error).await,
            },
        }
    }
    // The system refuses new connections from here on, so that clients try another node.
    drop(listener);
    if timeout(edge.limits.shutdown_timeout, graceful.shutdown()).await.is_err() {
        let connections = edge.connections.load(Ordering::Relaxed);
        tracing::warn!(connections, "shutdown timeout reached; closing connections with requests in flight");
    }
    Ok(())
}

fn builder(edge: &Edge) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(edge.limits.header_timeout)
        .max_buf_size(MOST_HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(256)
        // Detects peers that are gone, and frees their connections.
        .keep_alive_interval(edge.limits.header_timeout)
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

/// Ignores a connection that was closed before it was accepted; waits if the process is out of file descriptors.
async fn rest(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::warn!(%error, "cannot accept a connection");
        sleep(Duration::from_millis(100)).await;
    }
}

struct Server {
    edge: Arc<Edge>,
    router: Router,
    builder: Builder<TokioExecutor>,
    tls: Option<TlsAcceptor>,
}

impl Server {
    fn take_on(&self, stream: TcpStream, graceful: &GracefulShutdown) {
        let Some(place) = Place::take(&self.edge) else {
            metrics::counter!("ebbtide_connections_refused_total").increment(1);
            // A TLS client could not read a plain answer; close its connection.
            if self.tls.is_none() {
                tokio::spawn(turn_away(stream));
            }
            return;
        };
        // Send small answers at once.
        let _ = stream.set_nodelay(true);
        let connection = Connection { place, router: self.router.clone(), builder: self.builder.clone() };
        let watcher = graceful.watcher();
        match self.tls.clone() {
            None => drop(tokio::spawn(connection.run(stream, watcher))),
            Some(tls) => drop(tokio::spawn(async move {
                let patience = connection.place.0.limits.header_timeout;
                match timeout(patience, tls.accept(stream)).await {
                    Ok(Ok(stream)) => connection.run(stream, watcher).await,
                    Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                    Err(_) => tracing::debug!("TLS handshake timed out"),
                }
            })),
        }
    }
}

/// Slot for one of the open connections.
struct Place(Arc<Edge>);

impl Place {
    fn take(edge: &Arc<Edge>) -> Option<Self> {
        // Only the accept loop increments, so this check does not race.
        if edge.connections.load(Ordering::Relaxed) >= edge.limits.connections {
            return None;
        }
        edge.connections.fetch_add(1, Ordering::Relaxed);
        Some(Self(Arc::clone(edge)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn turn_away(mut stream: TcpStream) {
    const BODY: &str = r#"{"type":"/problems/unavailable","title":"unavailable","status":503,"detail":"too many connections; retry later"}"#;
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        BODY.len()
    );
    let answer = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(BODY.as_bytes()).await?;
        stream.shutdown().await
    };
    // Best effort: the client may not read it.
    let _ = timeout(Duration::from_secs(1), answer).await;
}

struct Connection {
    place: Place,
    router: Router,
    builder: Builder<TokioExecutor>,
}

impl Connection {
    async fn run(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, watcher: Watcher) {
        let Self { place, router, builder } = self;
        let (header, body) = (place.0.limits.header_timeout, place.0.limits.body_timeout);
        let begun = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&begun);
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            flag.store(true, Ordering::Relaxed);
            router.clone().call(request.map(|incoming| Body::new(Patient::new(incoming, body))))
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        let mut connection = pin!(watcher.watch(connection));
        // No other timer runs until the first bytes have revealed the version of HTTP.
        let first = tokio::select! {
            outcome = connection.as_mut() => Some(outcome),
            () = sleep(header) => None,
        };
        let outcome = match first {
            Some(outcome) => outcome,
            None if !begun.load(Ordering::Relaxed) => return,
            None => connection.await,
        };
        if let Err(error) = outcome {
            tracing::debug!(error, "connection closed early");
        }
    }
}
