//! Trace of a request, from its `traceparent` header (W3C Trace Context).

use axum::http::HeaderMap;

const HEADER: &str = "traceparent";

/// Length of `VERSION-TRACE-PARENT-FLAGS`, in lower-case hexadecimal digits.
const BYTES: usize = 55;

/// Trace that another system has started. It is an identifier, and proves nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trace(String);

impl Trace {
    /// Returns `None` if the header is missing, repeated or malformed; the request is then logged without a trace.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut given = headers.get_all(HEADER).iter();
        match (given.next(), given.next()) {
            (Some(one), None) => Self::read(one.to_str().ok()?),
            _ => None,
        }
    }

    fn read(text: &str) -> Option<Self> {
        let this = text.get(..BYTES)?;
        let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let is_some = |part: &str| part.bytes().any(|byte| byte != b'0');
        let parts: Vec<_> = this.split('-').collect();
        let [version, trace, parent, flags] = parts.as_slice() else { return None };
        let lengths = [version, trace, parent, flags].map(|part| part.len()) == [2, 32, 16, 2];
        // A later version may have more after a dash; version 00 has not, and ff is forbidden.
        let ends = text.len() == BYTES || (*version != "00" && text.as_bytes()[BYTES] == b'-');
        let good = lengths && ends && parts.iter().all(|part| is_hex(part)) && *version != "ff";
        (good && is_some(trace) && is_some(parent)).then(|| Self(this.to_owned()))
    }

    /// Id of the trace.
    pub(crate) fn id(&self) -> &str {
        &self.0[3..35]
    }

    /// Makes `span` a child of the caller's span. Does nothing if spans are not collected.
    #[cfg(feature = "otel")]
    pub(crate) fn adopt(&self, span: &tracing::Span) {
        use opentelemetry::Context;
        use opentelemetry::trace::{
            SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
        };
        use tracing_opentelemetry::OpenTelemetrySpanExt as _;

        let ids = (TraceId::from_hex(self.id()), SpanId::from_hex(&self.0[36..52]));
        let (Ok(trace), Ok(parent)) = ids else { return };
        // Only the last flag is defined: the caller samples its own spans.
        let is_sampled = u8::from_str_radix(&self.0[53..], 16).is_ok_and(|flags| flags & 1 == 1);
        let flags = TraceFlags::default().with_sampled(is_sampled);
        let caller = SpanContext::new(trace, parent, flags, true, TraceState::NONE);
        let _ = span.set_parent(Context::new().with_remote_span_context(caller));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn of(given: &[&str]) -> Option<String> {
        let mut headers = HeaderMap::new();
        for value in given {
            headers.append(HEADER, HeaderValue::from_str(value).unwrap());
        }
        Trace::of(&headers).map(|trace| trace.id().to_owned())
    }

    #[test]
    fn a_trace_is_read_as_it_is_named() {
        assert_eq!(of(&[GOOD]).as_deref(), Some(TRACE));
        assert_eq!(of(&[&GOOD.replace("-01", "-00")]).as_deref(), Some(TRACE));
        let later = format!("cc{}-more", &GOOD[2..]);
        assert_eq!(of(&[&later]).as_deref(), Some(TRACE), "what a later version adds is passed over");
    }

    #[test]
    fn what_is_not_of_its_form_is_no_trace() {
        let bad = [
            String::new(),
            GOOD[..54].to_owned(),
            format!("{GOOD}-more"),
            format!("cc{}x", &GOOD[2..]),
            format!("ff{}", &GOOD[2..]),
            GOOD.to_uppercase(),
            GOOD.replace("4bf9", "4bg9"),
            GOOD.replace(TRACE, &"0".repeat(32)),
            GOOD.replace("00f067aa0ba902b7", &"0".repeat(16)),
            GOOD.replace('-', "_"),
            "ü".repeat(30),
        ];
        for text in &bad {
            assert_eq!(of(&[text]), None, "{text}");
        }
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[GOOD, GOOD]), None, "two are none");
    }
}
