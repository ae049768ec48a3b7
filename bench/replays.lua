-- Replay checks for wrk, no two alike: wrk -s bench/replays.lua URL -- ROOT_KEY ITEMS
-- With ITEMS above 1, that many in each request. Any answer but 200 is told at the end.
local threads = 0

function setup(thread)
  threads = threads + 1
  thread:set("number", threads)
end

function init(args)
  items = tonumber(args[2])
  sent = 0
  others = 0
  prefix = string.format('{"namespace":"bench","ttl_seconds":600,"jti":"%d-%d-', os.time(), number)
  wrk.method = "POST"
  wrk.path = items > 1 and "/v1/replays/check-batch" or "/v1/replays/check"
  wrk.headers["Authorization"] = "Bearer " .. args[1]
  wrk.headers["Content-Type"] = "application/json"
end

local function proof()
  sent = sent + 1
  return prefix .. sent .. '"}'
end

function request()
  if items == 1 then
    return wrk.format(nil, nil, nil, proof())
  end
  local proofs = {}
  for item = 1, items do
    proofs[item] = proof()
  end
  return wrk.format(nil, nil, nil, '{"items":[' .. table.concat(proofs, ",") .. "]}")
end

function done(summary)
  local errors = summary.errors
  local failed = errors.status + errors.connect + errors.read + errors.write + errors.timeout
  io.write(string.format("rate %.0f failed %d\n", summary.requests / (summary.duration / 1e6), failed))
end
