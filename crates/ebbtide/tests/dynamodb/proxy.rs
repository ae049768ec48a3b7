//! A proxy between the SDK and the endpoint that counts requests, loses answers and makes errors up.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64ct::{Base64, Encoding as _};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::limits::{Limits, Verdict, with_left};

/// Time that the service takes for a transaction.
const LATENCY: Duration = Duration::from_millis(20);

type Hook = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// Fault that replaces the answer to a request.
pub(crate) enum Act {
    /// The endpoint never hears of it.
    LoseRequest,
    /// The endpoint does it, and the answer is lost.
    LoseAnswer,
    /// The same, and this happens before the client knows.
    LoseAnswerAfter(Hook),
    /// The endpoint never hears of it, and the answer is that none of its items were dealt with.
    Leave,
    /// The endpoint never hears of it, and this error with this body is answered.
    Fail(u16, String),
}

impl Act {
    /// An error of the service.
    pub(crate) fn error(code: &str) -> Self {
        let kind = format!("com.amazonaws.dynamodb.v20120810#{code}");
        Self::Fail(400, format!(r#"{{"__type":"{kind}","message":"made up"}}"#))
    }

    /// A cancelled transaction, with a reason for each write.
    pub(crate) fn cancelled(reasons: &[&str]) -> Self {
        let kind = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException";
        let reasons: Vec<_> = reasons.iter().map(|code| format!(r#"{{"Code":"{code}"}}"#)).collect();
        let reasons = reasons.join(",");
        Self::Fail(
            400,
            format!(r#"{{"__type":"{kind}","Message":"made up","CancellationReasons":[{reasons}]}}"#),
        )
    }
}

/// Requests by operation, and the units that they took.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Cost {
    pub(crate) requests: BTreeMap<String, usize>,
    pub(crate) read: f64,
    pub(crate) written: f64,
}

#[derive(Default)]
struct State {
    requests: HashMap<String, usize>,
    acts: HashMap<String, VecDeque<Act>>,
    limits: Option<Limits>,
    /// True if requests are answered as by an empty table, and never passed on.
    is_alone: bool,
    cost: Option<Cost>,
    pages: Vec<Option<u64>>,
}

pub(crate) struct Proxy {
    address: String,
    state: Arc<Mutex<State>>,
    accepting: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Proxy {
    /// A proxy on loopback for an `http://` endpoint.
    pub(crate) async fn start(endpoint: &str) -> Self {
        let upstream =
            endpoint.strip_prefix("http://").expect("the tests with a proxy need http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (upstream, state) = (upstream.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    // The end of a connection, wanted or not, is for the client to notice.
                    let _ = serve(client, &upstream, &state).await;
                });
            }
        });
        Self { address, state, accepting }
    }

    /// From now on, the endpoint has the limits of the service.
    pub(crate) fn limit(&self) {
        self.state.lock().unwrap().limits = Some(Limits::default());
    }

    /// Numbers of items that the pages of walks were limited to; none for a page without a limit.
    pub(crate) fn page_limits(&self) -> Vec<Option<u64>> {
        self.state.lock().unwrap().pages.clone()
    }

    /// Conflicts, throttled writes and batches that were dealt with in part, so far.
    pub(crate) fn limited(&self) -> (usize, usize, usize) {
        let state = self.state.lock().unwrap();
        let limits = state.limits.as_ref().expect("the proxy has limits");
        (limits.conflicts, limits.throttled, limits.partial)
    }

    /// The same, in front of no endpoint: each write is answered as applied after as long as the service takes, each read
    /// finds nothing. For more requests at once than an emulator answers.
    pub(crate) fn limit_alone(&self) {
        self.limit();
        self.state.lock().unwrap().is_alone = true;
    }

    /// Largest number of transactions that wrote or checked one item, under limits.
    pub(crate) fn most_touched(&self) -> usize {
        self.state.lock().unwrap().limits.as_ref().expect("the proxy has limits").most_touched()
    }

    /// Requests and units since the last call. From the first one on, the endpoint is asked for the units.
    pub(crate) fn cost(&self) -> Cost {
        self.state.lock().unwrap().cost.replace(Cost::default()).unwrap_or_default()
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next request of that operation that has no act yet is done this to.
    pub(crate) fn next(&self, operation: &str, act: Act) {
        self.state.lock().unwrap().acts.entry(operation.to_owned()).or_default().push_back(act);
    }

    /// So many requests of that operation are done this to.
    pub(crate) fn next_times(&self, operation: &str, times: usize, act: impl Fn() -> Act) {
        (0..times).for_each(|_| self.next(operation, act()));
    }

    /// Number of requests of one operation.
    pub(crate) fn requests(&self, operation: &str) -> usize {
        self.state.lock().unwrap().requests.get(operation).copied().unwrap_or(0)
    }

    /// Number of requests of each operation since the last call.
    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        self.state.lock().unwrap().requests.drain().collect()
    }

    /// Number of requests since the last call.
    pub(crate) fn take_total(&self) -> usize {
        self.state.lock().unwrap().requests.drain().map(|(_, count)| count).sum()
    }
}

async fn serve(mut client: TcpStream, upstream: &str, state: &Mutex<State>) -> io::Result<()> {
    // Connections are kept, so that answers are lost on new ones and on those that were used before.
    while let Some((head, body)) = read_message(&mut client).await? {
        let operation =
            header(&head, "x-amz-target").and_then(|target| target.rsplit('.').next().map(str::to_owned));
        let operation = operation.expect("a request names its operation");
        let act = {
            let mut state = state.lock().unwrap();
            *state.requests.entry(operation.clone()).or_default() += 1;
            if operation == "Scan" {
                let request: Value = serde_json::from_slice(&body).expect("a request is JSON");
                state.pages.push(request["Limit"].as_u64());
            }
            state.acts.get_mut(&operation).and_then(VecDeque::pop_front)
        };
        let answer = match act {
            Some(Act::LoseRequest) => return Ok(()),
            Some(Act::LoseAnswer) => return forward(&head, &body, upstream).await.map(drop),
            Some(Act::LoseAnswerAfter(hook)) => {
                forward(&head, &body, upstream).await?;
                hook().await;
                return Ok(());
            }
            Some(Act::Leave) => {
                let left = String::from_utf8_lossy(&body).replacen("RequestItems", "UnprocessedItems", 1);
                made_up(200, &left)
            }
            Some(Act::Fail(status, body)) => made_up(status, &body),
            None => within_limits(&head, &body, &operation, upstream, state).await?,
        };
        client.write_all(&answer).await?;
    }
    Ok(())
}

/// Passes a request on if the limits of the service permit it.
async fn within_limits(
    head: &str,
    body: &[u8],
    operation: &str,
    upstream: &str,
    state: &Mutex<State>,
) -> io::Result<Vec<u8>> {
    if state.lock().unwrap().cost.is_some() {
        return at_cost(head, body, operation, upstream, state).await;
    }
    let verdict = state.lock().unwrap().limits.as_mut().map(|limits| limits.judge(operation, body));
    match verdict {
        None => forward(head, body, upstream).await,
        Some(Verdict::Refuse(error)) => Ok(made_up(400, &error)),
        Some(Verdict::Pass(taken)) => {
            let is_alone = state.lock().unwrap().is_alone;
            let answer = if is_alone {
                tokio::time::sleep(LATENCY).await;
                Ok(made_up(200, r#"{"Responses":{},"UnprocessedKeys":{}}"#))
            } else {
                forward(head, body, upstream).await
            };
            if let Some(limits) = state.lock().unwrap().limits.as_mut() {
                limits.release(&taken);
            }
            answer
        }
        Some(Verdict::Part { body, left }) => {
            let answer = forward(&with_length(head, &body), &body, upstream).await?;
            Ok(made_up(200, &String::from_utf8_lossy(&with_left(body_of(&answer), left))))
        }
    }
}

/// The head with the length of another body.
fn with_length(head: &str, body: &[u8]) -> String {
    let mut lines: Vec<String> = head.lines().map(str::to_owned).collect();
    lines.retain(|line| !line.to_ascii_lowercase().starts_with("content-length:"));
    lines.push(format!("content-length: {}", body.len()));
    lines.join("\r\n")
}

fn body_of(answer: &[u8]) -> &[u8] {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("an answer has a body");
    &answer[end + 4..]
}

/// Passes a request on, and adds the units that it took.
async fn at_cost(
    head: &str,
    body: &[u8],
    operation: &str,
    upstream: &str,
    state: &Mutex<State>,
) -> io::Result<Vec<u8>> {
    let mut request: Value = serde_json::from_slice(body).expect("a request is JSON");
    request["ReturnConsumedCapacity"] = "TOTAL".into();
    let body = request.to_string().into_bytes();
    let answer = forward(&with_length(head, &body), &body, upstream).await?;
    if is_renewal(&request) {
        return Ok(answer);
    }
    let units = units(operation, &request, &serde_json::from_slice(body_of(&answer)).unwrap_or_default());
    if let Some(cost) = &mut state.lock().unwrap().cost {
        *cost.requests.entry(operation.to_owned()).or_default() += 1;
        let reads = matches!(operation, "GetItem" | "BatchGetItem" | "Query" | "Scan");
        *(if reads { &mut cost.read } else { &mut cost.written }) += units;
    }
    Ok(answer)
}

/// Returns whether a request renews the lease on the epochs of clients: that comes once a second, beside any operation.
fn is_renewal(request: &Value) -> bool {
    let partition = request["Key"]["pk"]["B"].as_str().and_then(|text| Base64::decode_vec(text).ok());
    partition.is_some_and(|bytes| bytes.windows(13).any(|window| window == b"client epochs"))
}

/// Units by the answer. Where it has none, the items are below a unit: a refused write is charged as one that is applied,
/// and the first emulator says nothing of `BatchGetItem`.
fn units(operation: &str, request: &Value, answer: &Value) -> f64 {
    let units = |consumed: &Value| consumed["CapacityUnits"].as_f64();
    let length = |list: &Value| u32::try_from(list.as_array().map_or(1, Vec::len)).map_or(0.0, f64::from);
    match &answer["ConsumedCapacity"] {
        Value::Array(tables) if !tables.is_empty() => tables.iter().filter_map(units).sum(),
        consumed if units(consumed).is_some() => units(consumed).unwrap_or_default(),
        _ if operation == "TransactWriteItems" => 2.0 * length(&request["TransactItems"]),
        _ if operation == "BatchGetItem" => {
            let tables = request["RequestItems"].as_object().expect("a batch has tables");
            tables.values().map(|wanted| length(&wanted["Keys"])).sum()
        }
        _ => 1.0,
    }
}

fn made_up(status: u16, body: &str) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status} Made up\r\ncontent-type: application/x-amz-json-1.0");
    format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

/// Sends a request to the endpoint and returns its whole answer.
async fn forward(head: &str, body: &[u8], upstream: &str) -> io::Result<Vec<u8>> {
    let mut server = TcpStream::connect(upstream).await?;
    server.write_all(head.as_bytes()).await?;
    server.write_all(b"\r\n\r\n").await?;
    server.write_all(body).await?;
    let (head, body) = read_message(&mut server).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok([head.as_bytes(), b"\r\n\r\n", &body].concat())
}

/// The head and the body of a message; none at the end of the connection.
async fn read_message(stream: &mut TcpStream) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut body = bytes.split_off(end + 4);
    let length = header(&head, "content-length").map_or(0, |length| length.parse().expect("a length"));
    assert_eq!(header(&head, "transfer-encoding"), None, "messages have a length");
    while body.len() < length {
        if stream.read_buf(&mut body).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(Some((head, body)))
}

fn header(head: &str, name: &str) -> Option<String> {
    let mut lines = head.lines().skip(1).filter_map(|line| line.split_once(':'));
    let found = lines.find(|(found, _)| found.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim().to_owned())
}
