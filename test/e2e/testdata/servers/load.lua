-- Each thread has one connection and ends after `limit` answers, so that no request is under way
-- at the end and wrk's own numbers are exact on both sides of the wire.
local answers, limit

function init(arguments)
   answers, limit = 0, tonumber(arguments[1])
end

function response()
   answers = answers + 1
   if answers == limit then wrk.thread:stop() end
end

function done(summary)
   local errors = summary.errors
   print(string.format("books %d %d %d", summary.requests, summary.bytes,
      errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
