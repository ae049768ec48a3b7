"""redis-py, unmodified: what a session store, a replay check, a counter and a lock do. Arguments: port, key."""

import sys
import threading
import time

import redis

port, key = int(sys.argv[1]), sys.argv[2]

for protocol in (2, 3):
    client = redis.Redis(port=port, password=key, protocol=protocol, decode_responses=True)
    assert client.ping()
    assert client.set("py:k", "v", ex=60) is True
    assert client.get("py:k") == "v" and 58 <= client.ttl("py:k") <= 60
    assert client.set("py:k", "w", nx=True) is None
    assert client.set("py:k", "w", xx=True, get=True) == "v"
    assert client.getdel("py:k") == "w" and client.get("py:k") is None
    assert client.mset({"py:a": 1, "py:b": 2}) and client.mget("py:a", "py:none", "py:b") == ["1", None, "2"]
    assert client.incrby("py:a", 4) == 5 and client.decr("py:a") == 4
    assert client.incrbyfloat("py:b", 0.5) == 2.5
    assert client.expire("py:a", 100) and client.persist("py:a") and client.ttl("py:a") == -1
    assert client.type("py:a") == "string" and client.exists("py:a", "py:b", "py:none") == 2
    assert sorted(client.scan_iter("py:*", count=1)) == ["py:a", "py:b"]
    assert client.delete("py:a", "py:b") == 2
    with client.pipeline(transaction=False) as pipe:
        for number in range(100):
            pipe.set(f"py:{number}", number, ex=60)
        for number in range(100):
            pipe.get(f"py:{number}")
        answers = pipe.execute()
    assert answers[:100] == [True] * 100 and answers[100:] == [str(number) for number in range(100)]
    with client.pipeline() as pipe:
        pipe.watch("py:1")
        client.set("py:1", "changed")
        pipe.multi()
        pipe.set("py:2", "not")
        try:
            pipe.execute()
            raise AssertionError("the watch is broken")
        except redis.WatchError:
            pass
    assert client.transaction(lambda pipe: pipe.multi() or pipe.incr("py:n"), "py:n") == [1]
    for wrong, error in (
        (lambda: client.execute_command("SET", "k"), redis.ResponseError),
        (lambda: client.eval("return 1", 0), redis.ResponseError),
        (lambda: redis.Redis(port=port, password="wrong", protocol=protocol).ping(), redis.AuthenticationError),
        (lambda: redis.Redis(port=port, protocol=protocol).get("k"), (redis.AuthenticationError, redis.ResponseError)),
    ):
        try:
            wrong()
            raise AssertionError("refused")
        except error:
            pass
    client.delete(*client.scan_iter("py:*"))

raw = redis.Redis(port=port, password=key)
raw.set(b"\x00\xff", b"\xfe\r\n\x00")
assert raw.get(b"\x00\xff") == b"\xfe\r\n\x00"

# A replay check: of many callers one finds the proof fresh.
fresh = []
callers = [
    threading.Thread(target=lambda: fresh.append(raw.set("jti:1", "1", nx=True, ex=60))) for _ in range(32)
]
for caller in callers:
    caller.start()
for caller in callers:
    caller.join()
assert fresh.count(True) == 1 and fresh.count(None) == 31, fresh

scoped = redis.Redis(port=port, username="tenant:acme", password=key)
assert scoped.get("jti:1") is None
scoped.set("k", "v", px=50)
time.sleep(0.1)
assert scoped.get("k") is None
print("redis-py is served")
