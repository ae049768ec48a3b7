//! OpenAPI 3.1 description of the API, generated from the routes.

mod examples;

use std::sync::LazyLock;

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::server::ServerBuilder;
use utoipa::openapi::{
    Components, Content, Info, License, OpenApi, Ref, RefOr, Required, Response, ResponseBuilder,
};

use crate::http::table::Needs;
use crate::routes;

/// Answer other than a success (RFC 9457), as `application/problem+json`.
#[derive(Serialize, ToSchema)]
struct Problem {
    /// `/problems/` followed by the title: the path of a page on this server with the cause and the remedy.
    #[schema(example = "/problems/replay")]
    r#type: String,
    /// Stable identifier of the problem.
    #[schema(example = "replay")]
    title: String,
    #[schema(example = 409)]
    status: u16,
    /// Explanation for people.
    detail: String,
    /// Id of the request, which the server's log also contains.
    request_id: String,
    #[serde(flatten)]
    more: Map<String, Value>,
}

const BEARER: &str = "key";
const BASIC: &str = "client";
/// Calls that clients make with Basic authentication.
const BASIC_PATHS: [&str; 2] = ["/v1/introspect", "/v1/revoke"];
const PROBLEM: &str = "application/problem+json";

/// Description as it is served and checked in.
#[must_use]
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let text = document().to_pretty_json().expect("a description is JSON");
        format!("{text}\n")
    });
    &TEXT
}

fn document() -> OpenApi {
    let mut info = Info::new("Ebbtide", env!("CARGO_PKG_VERSION"));
    info.description = Some(
        "A store for authorization state that must expire. A refusal is never 2xx. Times (`…_at`) are milliseconds \
         since 1970; TTLs are seconds (`ttl_seconds`) or milliseconds (`ttl_ms`)."
            .to_owned(),
    );
    let mut license = License::new(env!("CARGO_PKG_LICENSE"));
    license.identifier = Some(env!("CARGO_PKG_LICENSE").to_owned());
    info.license = Some(license);
    let mut api = OpenApi::new(info, utoipa::openapi::Paths::new());
    api.merge(routes::open().into_openapi());
    api.merge(routes::operator().into_openapi());
    api.merge(routes::v1().under(routes::BASE).0.into_openapi());
    api.servers =
        Some(vec![ServerBuilder::new().url("/").description(Some("the server of this description")).build()]);
    let mut api = with_components(api);
    examples::add(&mut api);
    api
}

fn with_components(mut api: OpenApi) -> OpenApi {
    for operation in api.paths.paths.values_mut().flat_map(operations) {
        for (status, response) in &mut operation.responses.responses {
            let RefOr::T(response) = response else { continue };
            if !status.starts_with('2') && response.content.is_empty() {
                response.content.insert(PROBLEM.to_owned(), problem());
            }
            // Every response must have one.
            if response.description.is_empty() {
                let words = if status == "201" { "created" } else { "success" };
                words.clone_into(&mut response.description);
            }
        }
    }
    let components = api.components.get_or_insert_with(Components::new);
    components
        .schemas
        .insert(<Problem as ToSchema>::name().into_owned(), <Problem as utoipa::PartialSchema>::schema());
    merge_tagged(components);
    components.schemas.values_mut().for_each(add_millis);
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("an API key, `ebk_…`"));
    components.add_security_scheme(BEARER, SecurityScheme::Http(bearer.build()));
    let basic = HttpBuilder::new().scheme(HttpAuthScheme::Basic);
    let basic = basic.description(Some("the id and the secret of a client, or an API key as the password"));
    components.add_security_scheme(BASIC, SecurityScheme::Http(basic.build()));
    for path in BASIC_PATHS {
        let item = api.paths.paths.get_mut(path);
        for operation in item.into_iter().flat_map(operations) {
            let basic = SecurityRequirement::new::<_, _, &str>(BASIC, []);
            operation.security.get_or_insert_default().push(basic);
        }
    }
    api
}

/// Merges each variant of a tagged enum into one object. Generated as `allOf` of the tag and of an object that allows no
/// other members, no body would satisfy it.
fn merge_tagged(components: &mut Components) {
    let known = components.schemas.clone();
    let object = |location: &str| match known.get(location.rsplit('/').next().unwrap_or_default()) {
        Some(RefOr::T(Schema::Object(object))) => Some(object.clone()),
        _ => None,
    };
    for schema in components.schemas.values_mut() {
        let RefOr::T(Schema::OneOf(variants)) = schema else { continue };
        for variant in &mut variants.items {
            let RefOr::T(Schema::AllOf(parts)) = &*variant else { continue };
            let [RefOr::Ref(members), RefOr::T(Schema::Object(tag))] = parts.items.as_slice() else {
                continue;
            };
            let Some(mut merged) = object(&members.ref_location) else { continue };
            merged.properties.extend(tag.properties.clone());
            merged.required.extend(tag.required.iter().cloned());
            merged.description.clone_from(&parts.description);
            *variant = RefOr::T(Schema::Object(merged));
        }
    }
}

/// Adds `ttl_ms` beside `ttl_seconds`: the edge reads either, for every call.
fn add_millis(schema: &mut RefOr<Schema>) {
    let members = match schema {
        RefOr::T(Schema::Object(members)) => members,
        RefOr::T(Schema::OneOf(variants)) => return variants.items.iter_mut().for_each(add_millis),
        _ => return,
    };
    let lifetimes: Vec<_> =
        members.properties.keys().filter(|name| name.ends_with("ttl_seconds")).cloned().collect();
    for seconds in lifetimes {
        let millis = ObjectBuilder::new()
            .schema_type(SchemaType::from_iter([Type::Integer, Type::Null]))
            .minimum(Some(1))
            .description(Some(format!("In milliseconds, in place of `{seconds}`.")));
        let name = seconds.replace("ttl_seconds", "ttl_ms");
        members.properties.insert(name, RefOr::T(Schema::Object(millis.build())));
        members.required.retain(|required| *required != seconds);
    }
}

/// Adds the parts that all guarded calls share: key, scope, role and refusals.
pub(crate) fn guard(item: &mut PathItem, needs: Needs) {
    for operation in operations(item) {
        operation.security = Some(vec![SecurityRequirement::new::<_, _, &str>(BEARER, [])]);
        let role = Extensions::builder().add("x-ebbtide-role", needs.role.name()).build();
        operation.extensions.get_or_insert_default().merge(role);
        operation.parameters.get_or_insert_default().push(RefOr::T(scope_header()));
        refuse(operation, "400", "invalid: malformed request");
        refuse(operation, "401", "unauthorized: missing or invalid key");
        refuse(
            operation,
            "403",
            "forbidden: insufficient role, or the key's scope does not cover the requested scope",
        );
        refuse(operation, "429", "limited or quota: retry after `Retry-After` seconds");
        refuse(operation, "500", "unavailable: an operator must investigate");
        refuse(operation, "503", "unavailable: no answer; a write may have happened");
        if operation.request_body.is_some() {
            refuse(operation, "408", "invalid: the body took too long to arrive");
            refuse(operation, "413", "invalid: the body is too large");
        }
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.delete].into_iter().flatten()
}

fn refuse(operation: &mut Operation, status: &str, description: &str) {
    let refusal: Response = ResponseBuilder::new().description(description).build();
    operation.responses.responses.entry(status.to_owned()).or_insert(RefOr::T(refusal));
}

fn problem() -> RefOr<Content> {
    RefOr::T(Content::new(Some(Ref::from_schema_name(<Problem as ToSchema>::name()))))
}

fn scope_header() -> Parameter {
    ParameterBuilder::new()
        .name("Ebbtide-Scope")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some("Scope of the request; defaults to the key's own scope."))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .example(Some("tenant:acme".into()))
        .build()
}
