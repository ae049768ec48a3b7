// node-redis and ioredis, unmodified. Arguments: port, key. Run in the folder that has them.
import assert from "node:assert/strict"
import {createRequire} from "node:module"
import path from "node:path"

const require = createRequire(path.join(process.cwd(), "package.json"))
const {createClient, WatchError} = require("redis")
const {Redis} = require("ioredis")
const [port, key] = [Number(process.argv[2]), process.argv[3]]

for (const RESP of [2, 3]) {
  const client = createClient({url: `redis://127.0.0.1:${port}`, password: key, RESP})
  await client.connect()
  assert.equal(await client.set("node:k", "v", {expiration: {type: "EX", value: 60}}), "OK")
  assert.equal(await client.set("node:k", "w", {condition: "NX"}), null)
  assert.equal(await client.get("node:k"), "v")
  assert.ok((await client.ttl("node:k")) > 57)
  assert.equal(await client.getDel("node:k"), "v")
  assert.equal(await client.get("node:k"), null)
  // Commands of one turn are a pipeline.
  const counts = await Promise.all(Array.from({length: 50}, () => client.incr("node:n")))
  assert.deepEqual(counts, Array.from({length: 50}, (_, index) => index + 1))
  const sets = Array.from({length: 200}, (_, index) => client.set(`node:${index}`, String(index)))
  assert.ok((await Promise.all(sets)).every(answer => answer === "OK"))
  assert.deepEqual(await client.mGet(["node:1", "node:none", "node:199"]), ["1", null, "199"])
  const found = []
  for await (const keys of client.scanIterator({MATCH: "node:*", COUNT: 50})) found.push(...keys)
  assert.equal(new Set(found).size, 201)
  assert.equal(found.length, 201)
  const [set, value] = await client.multi().set("node:t", "1").get("node:t").exec()
  assert.deepEqual([set, value], ["OK", "1"])
  const watching = createClient({url: `redis://127.0.0.1:${port}`, password: key, RESP})
  await watching.connect()
  await watching.watch("node:t")
  await client.set("node:t", "2")
  await assert.rejects(watching.multi().set("node:t", "3").exec(), WatchError)
  watching.destroy()
  await assert.rejects(client.eval("return 1"), /scripts do not run here/)
  assert.equal(await client.del([...found, "node:t"]), 202)
  await client.close()
}

const io = new Redis({port, host: "127.0.0.1", password: key, username: "tenant:acme"})
assert.equal(await io.set("io:k", "v", "EX", 60, "NX"), "OK")
assert.equal(await io.set("io:k", "v", "EX", 60, "NX"), null)
assert.equal(await io.getdel("io:k"), "v")
assert.equal(await io.incrby("io:n", 5), 5)
const answers = await io.pipeline().set("io:a", 1).get("io:a").incr("io:a").exec()
assert.deepEqual(answers, [[null, "OK"], [null, "1"], [null, 2]])
assert.deepEqual(await io.multi().set("io:b", 1).get("io:b").exec(), [[null, "OK"], [null, "1"]])
assert.deepEqual(await io.getBuffer("io:a"), Buffer.from("2"))
const keys = []
for await (const page of io.scanStream({match: "io:*"})) keys.push(...page)
assert.deepEqual(keys.sort(), ["io:a", "io:b", "io:n"])
assert.equal(await io.call("DELEX", "io:a", "IFEQ", "2"), 1)
await io.quit()
await assert.rejects(
  () => new Redis({port, host: "127.0.0.1", password: "wrong", lazyConnect: true, retryStrategy: null, maxRetriesPerRequest: 0}).get("k"),
  /WRONGPASS|NOAUTH|closed/,
)
console.log("node-redis and ioredis are served")
process.exit(0)
