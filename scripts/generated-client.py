"""Drives the conversations of api/examples with a client that was generated from api/openapi.json.

    generated-client.py BINARY FOLDER      the package ebbtide_generated is on the path, FOLDER is api

Each step is a call by its operationId, with a body that the generated models read and write, to a server with an empty
store. A conversation ends at a step that needs time to pass.
"""

import importlib
import inspect
import json
import os
import pathlib
import pkgutil
import re
import subprocess
import sys
import typing
import urllib.parse

import ebbtide_generated.api
from ebbtide_generated import AuthenticatedClient
from ebbtide_generated.types import UNSET, Unset

binary, folder = sys.argv[1:]
root = "ebk_the-root-key-of-this-run"
api = json.loads(pathlib.Path(folder, "openapi.json").read_text())
modules = {
    module.name.rsplit(".", 1)[1]: module.name
    for module in pkgutil.walk_packages(ebbtide_generated.api.__path__, "ebbtide_generated.api.")
    if not module.ispkg
}


def operation(method, path):
    """Operation of a request, and the names in its path."""
    found = []
    for template, item in api["paths"].items():
        if method.lower() in item:
            pattern = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(template))
            if match := re.fullmatch(pattern, path):
                found.append((-len(match.groupdict()), template, match.groupdict()))
    _, template, names = max(found, key=lambda one: one[0])
    return api["paths"][template][method.lower()], names


def fill(value, kept):
    if isinstance(value, str):
        return re.sub(r"\$\{(\w+)\}", lambda match: kept[match[1]], value)
    if isinstance(value, dict):
        return {name: fill(one, kept) for name, one in value.items()}
    return [fill(one, kept) for one in value] if isinstance(value, list) else value


def compare(expected, found, kept, place):
    if isinstance(expected, str) and expected.startswith("$keep:"):
        kept[expected.removeprefix("$keep:")] = found
    elif expected == "$any":
        assert found is not None, place
    elif isinstance(expected, dict):
        for name, value in expected.items():
            assert name in found, f"{place}: no {name} in {found}"
            compare(value, found[name], kept, f"{place}.{name}")
    elif isinstance(expected, list):
        assert len(expected) == len(found), f"{place}: {found}"
        for index, (one, other) in enumerate(zip(expected, found)):
            compare(one, other, kept, f"{place}[{index}]")
    else:
        assert fill(expected, kept) == found, f"{place}: {found} is not {expected}"


def read(annotation, value):
    """Value for a parameter, by the generated model or type."""
    options = [one for one in typing.get_args(annotation) or [annotation] if one not in (Unset, type(None))]
    models = [one for one in options if hasattr(one, "from_dict")]
    if models and isinstance(value, dict):
        for model in models:
            try:
                made = model.from_dict(dict(value))
                if made.to_dict() == value:
                    return made
            except (KeyError, TypeError, ValueError):
                pass
        raise ValueError(f"none of {[model.__name__ for model in models]} reads and writes {value}")
    if bool in options and value in ("true", "false"):
        return value == "true"
    return int(value) if options == [int] else value


clients = {}


def call(url, request, kept):
    path, _, query = fill(request["path"], kept).partition("?")
    described, names = operation(request["method"], path)
    function = importlib.import_module(modules[described["operationId"]]).sync_detailed
    parameters = inspect.signature(function).parameters
    hints = typing.get_type_hints(function)
    given = {name: urllib.parse.unquote(value) for name, value in names.items()}
    given |= dict(urllib.parse.parse_qsl(query))
    headers = fill(request.get("headers", {}), kept)
    # One for each server and key: a new one reads all certificates of the system.
    who = (url, fill(request.get("key", root), kept))
    client = clients.setdefault(who, AuthenticatedClient(base_url=who[0], token=who[1], verify_ssl=False))
    arguments = {}
    for name, value in {**headers, **given}.items():
        known = re.sub(r"\W", "_", name).lower()
        known = known if known in parameters else known + "_"
        if known in parameters:
            arguments[known] = read(hints[known], value)
        elif name in headers:
            client = client.with_headers({name: value})
        else:
            return None
    body = fill(request["body"], kept) if "body" in request else None
    if "form" in request:
        body = dict(urllib.parse.parse_qsl(fill(request["form"], kept)))
    if body is not None:
        if "body" not in parameters:
            return None
        arguments["body"] = read(hints["body"], body)
    elif "body" in parameters and parameters["body"].default is inspect.Parameter.empty:
        arguments["body"] = None
    return function(client=client, **arguments), described["operationId"]


def serve():
    """A server with an empty store, and its URL."""
    arguments = [binary, "serve", "--listen", "127.0.0.1:0", "--store", "memory:"]
    environment = {**os.environ, "EBBTIDE_ROOT_KEY": root}
    server = subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return server, server.stdout.readline().removeprefix("listening on ").strip()


calls, operations, skipped = 0, set(), 0
for file in sorted(pathlib.Path(folder, "examples").glob("*.json")):
    server, url = serve()
    try:
        kept = {}
        for number, step in enumerate(json.loads(file.read_text())["steps"]):
            place = f"{file.name}, step {number}: {step.get('about', '')}"
            if "wait_seconds" in step:
                break
            # A malformed request cannot be made with the generated types.
            if step["answer"]["status"] in (400, 413):
                continue
            try:
                answer = call(url, step["request"], kept)
            except (KeyError, TypeError, ValueError, AttributeError, AssertionError) as error:
                sys.exit(f"{place}: {error!r}")
            if answer is None:
                # Later steps may build on it.
                skipped += 1
                break
            response, name = answer
            assert response.status_code == step["answer"]["status"], f"{place}: {response}"
            parsed = response.parsed
            if "body" in step["answer"] and parsed is not None:
                compare(step["answer"]["body"], parsed.to_dict() if hasattr(parsed, "to_dict") else parsed, kept, place)
            if "problem" in step["answer"]:
                assert parsed.title == step["answer"]["problem"], f"{place}: {parsed}"
            calls += 1
            operations.add(name)
    finally:
        server.kill()
        server.wait()
print(f"{calls} calls of {len(operations)} operations; {skipped} left out")
sys.exit(calls < 150 or len(operations) < 60)
