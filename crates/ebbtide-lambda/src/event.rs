//! HTTP requests as events: function URLs and API Gateway, in both versions of the payload.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use base64ct::{Base64, Encoding as _};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Version of the payload, which decides the form of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Payload {
    /// REST APIs, and HTTP APIs that are set to it.
    V1,
    /// Function URLs and HTTP APIs.
    V2,
}

/// Kind of an event.
pub(crate) fn payload_of(event: &Value) -> Option<Payload> {
    if event.pointer("/requestContext/http/method").is_some_and(Value::is_string) {
        return Some(Payload::V2);
    }
    let is_first =
        event.get("requestContext").is_some() && event.get("httpMethod").is_some_and(Value::is_string);
    is_first.then_some(Payload::V1)
}

/// Members of an event that make a request; the others are not read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    http_method: Option<String>,
    path: Option<String>,
    raw_path: Option<String>,
    raw_query_string: Option<String>,
    query_string_parameters: Option<Map<String, Value>>,
    multi_value_query_string_parameters: Option<Map<String, Value>>,
    headers: Option<Map<String, Value>>,
    multi_value_headers: Option<Map<String, Value>>,
    cookies: Option<Vec<String>>,
    request_context: Context,
    body: Option<String>,
    #[serde(default)]
    is_base64_encoded: bool,
}

#[derive(Deserialize)]
struct Context {
    stage: Option<String>,
    http: Option<Http>,
}

#[derive(Deserialize)]
struct Http {
    method: String,
}

/// Reads the request of an event. The error names the member, and no value.
pub(crate) fn request_of(event: Value, payload: Payload) -> Result<Request<Body>, &'static str> {
    let event: Event = serde_json::from_value(event).map_err(|_| "the event is not an HTTP request")?;
    let method = match payload {
        Payload::V1 => event.http_method.as_deref(),
        Payload::V2 => event.request_context.http.as_ref().map(|http| http.method.as_str()),
    };
    let method =
        method.and_then(|method| Method::from_bytes(method.as_bytes()).ok()).ok_or("invalid method")?;
    let (path, query) = match payload {
        Payload::V1 => (event.path.as_deref(), first_query(&event)),
        Payload::V2 => (event.raw_path.as_deref(), event.raw_query_string.clone().unwrap_or_default()),
    };
    let path = within_stage(path.unwrap_or("/"), event.request_context.stage.as_deref());
    let mut target = escaped(if path.is_empty() { "/" } else { path }, b"?#");
    if !query.is_empty() {
        target.push('?');
        target.push_str(&escaped(&query, b"#"));
    }
    let uri: Uri = target.parse().map_err(|_| "invalid path or query")?;
    let headers = headers_of(&event)?;
    let body = match event.body {
        None => Vec::new(),
        Some(text) if event.is_base64_encoded => {
            Base64::decode_vec(&text).map_err(|_| "the body is not valid base64")?
        }
        Some(text) => text.into_bytes(),
    };
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    Ok(request)
}

/// Path below the stage of an API, which is a part of it at the own address of an HTTP API, and of no other. A stage may have
/// the name with which our paths begin.
fn within_stage<'a>(path: &'a str, stage: Option<&str>) -> &'a str {
    const OURS: &str = "/v1/";
    let Some(stage) = stage.filter(|stage| *stage != "$default") else { return path };
    let rest = path.strip_prefix('/').and_then(|path| path.strip_prefix(stage));
    let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'));
    rest.filter(|rest| rest.starts_with(OURS) || !path.starts_with(OURS)).unwrap_or(path)
}

/// Query of the first version, which has its parameters decoded.
fn first_query(event: &Event) -> String {
    let many = event.multi_value_query_string_parameters.as_ref();
    let parameters = many.or(event.query_string_parameters.as_ref());
    let mut query = String::new();
    for (name, value) in parameters.into_iter().flatten() {
        let values = match value {
            Value::Array(values) => values.as_slice(),
            value => std::slice::from_ref(value),
        };
        for value in values.iter().filter_map(Value::as_str) {
            if !query.is_empty() {
                query.push('&');
            }
            for (part, end) in [(name.as_str(), "="), (value, "")] {
                query.push_str(&escaped(part, b"%&=+#"));
                query.push_str(end);
            }
        }
    }
    query
}

/// Escapes what cannot stand in a URI, and the reserved bytes. A gateway may have decoded it.
fn escaped(text: &str, reserved: &[u8]) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte) && !reserved.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    out
}

fn headers_of(event: &Event) -> Result<HeaderMap, &'static str> {
    let mut headers = HeaderMap::new();
    let mut add = |name: &str, value: &str| {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| "invalid name of a header")?;
        let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| "invalid value of a header")?;
        headers.append(name, value);
        Ok::<_, &'static str>(())
    };
    for (name, value) in event.multi_value_headers.as_ref().or(event.headers.as_ref()).into_iter().flatten() {
        match value {
            Value::String(value) => add(name, value)?,
            Value::Array(values) => {
                for value in values.iter().filter_map(Value::as_str) {
                    add(name, value)?;
                }
            }
            _ => return Err("invalid value of a header"),
        }
    }
    if let Some(cookies) = event.cookies.as_ref().filter(|cookies| !cookies.is_empty()) {
        add("cookie", &cookies.join("; "))?;
    }
    // The length is that of the event's body, and no connection is kept.
    for name in ["content-length", "transfer-encoding", "connection", "expect"] {
        headers.remove(name);
    }
    Ok(headers)
}

/// Answer in the form that the gateway expects.
pub(crate) fn answer(response: &Response<()>, body: &[u8], payload: Payload) -> Value {
    let mut headers = Map::new();
    for (name, value) in response.headers() {
        if ["connection", "transfer-encoding", "content-length"].contains(&name.as_str()) {
            continue;
        }
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        match headers.get_mut(name.as_str()) {
            Some(Value::String(first)) => {
                first.push_str(", ");
                first.push_str(&value);
            }
            _ => {
                headers.insert(name.as_str().to_owned(), value.into());
            }
        }
    }
    let (text, encoded) = match std::str::from_utf8(body) {
        Ok(text) => (text.to_owned(), false),
        Err(_) => (Base64::encode_string(body), true),
    };
    let mut answer = json!({
        "statusCode": response.status().as_u16(), "headers": headers, "body": text, "isBase64Encoded": encoded,
    });
    if payload == Payload::V2 {
        answer["cookies"] = json!([]);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(path: &str, stage: &str) -> Value {
        json!({
            "version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "limit=2&after=a%2Fb",
            "headers": {"content-type": "application/json", "content-length": "99", "ebbtide-scope": "tenant:acme"},
            "requestContext": {"http": {"method": "POST", "path": path, "sourceIp": "192.0.2.1"}, "stage": stage},
            "body": "e30=", "isBase64Encoded": true,
        })
    }

    #[test]
    fn a_function_url_is_read() {
        let event = second("/v1/grants", "$default");
        assert_eq!(payload_of(&event), Some(Payload::V2));
        let request = request_of(event, Payload::V2).unwrap();
        assert_eq!(request.method(), Method::POST);
        assert_eq!(request.uri(), "/v1/grants?limit=2&after=a%2Fb");
        assert_eq!(request.headers()["ebbtide-scope"], "tenant:acme");
        assert!(!request.headers().contains_key("content-length"));
    }

    #[test]
    fn the_stage_of_an_api_is_no_part_of_the_path() {
        for (path, stage, found) in [
            ("/prod/v1/codes", "prod", "/v1/codes?limit=2&after=a%2Fb"),
            ("/prod", "prod", "/?limit=2&after=a%2Fb"),
            ("/production/v1", "prod", "/production/v1?limit=2&after=a%2Fb"),
            ("/v1/codes", "v1", "/v1/codes?limit=2&after=a%2Fb"),
            ("/v1/v1/codes", "v1", "/v1/codes?limit=2&after=a%2Fb"),
            ("/v1/healthz", "prod", "/v1/healthz?limit=2&after=a%2Fb"),
            ("/v1/a b?c", "$default", "/v1/a%20b%3Fc?limit=2&after=a%2Fb"),
        ] {
            let request = request_of(second(path, stage), Payload::V2).unwrap();
            assert_eq!(request.uri(), found, "{path}");
        }
    }

    #[test]
    fn a_rest_api_is_read() {
        let event = json!({
            "resource": "/{proxy+}", "path": "/v1/grants", "httpMethod": "GET",
            "headers": {"Authorization": "Bearer b"}, "multiValueHeaders": {"Authorization": ["Bearer a"]},
            "queryStringParameters": {"subject": "z"},
            "multiValueQueryStringParameters": {"subject": ["a&b=c"], "limit": ["2"]},
            "requestContext": {"stage": "prod", "path": "/prod/v1/grants"}, "body": null, "isBase64Encoded": false,
        });
        assert_eq!(payload_of(&event), Some(Payload::V1));
        let request = request_of(event, Payload::V1).unwrap();
        assert_eq!(request.method(), Method::GET);
        let query = request.uri().query().unwrap();
        assert!(query.contains("subject=a%26b%3Dc") && query.contains("limit=2"), "{query}");
        assert_eq!(request.headers()["authorization"], "Bearer a");
    }

    #[test]
    fn a_schedule_is_no_request() {
        assert_eq!(payload_of(&json!({"detail-type": "Scheduled Event", "detail": {}})), None);
        assert_eq!(payload_of(&json!({"httpMethod": "GET"})), None);
    }

    #[test]
    fn an_answer_has_status_headers_and_body() {
        let response = Response::builder().status(409).header("cache-control", "no-store").body(()).unwrap();
        let value = answer(&response, b"{}", Payload::V2);
        assert_eq!(value["statusCode"], 409);
        assert_eq!(value["headers"]["cache-control"], "no-store");
        assert_eq!((&value["body"], &value["isBase64Encoded"]), (&json!("{}"), &json!(false)));
        let bytes = answer(&response, &[0xFF, 0], Payload::V1);
        assert_eq!((&bytes["body"], &bytes["isBase64Encoded"]), (&json!("/wA="), &json!(true)));
    }
}
