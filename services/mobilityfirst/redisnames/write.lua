-- Stores a record unless there is a newer one of its name.
-- KEYS[1] is the name's key. ARGV: what is to be there; for how many milliseconds; 1 if there is no room for
-- another name; the channel for news, and the news.
-- Returns 1 if it is there now, 0 if there is no room, and otherwise what was there and is still.
-- A stored value is a stamp of 8 bytes, a key of 32, a signature of 64, the number of 8, and more.
local at, least = 8 + 32 + 64 + 1, 8 + 32 + 64 + 17
-- Of what was there 1024 bytes are asked for, which is more than a record has: more would be too much of an answer.
local have = redis.call('GETRANGE', KEYS[1], 0, 1023)
if #have > 0 then
  if #have < least then
    return have
  end
  -- Numbers have more bits than Lua's have: they are compared by halves.
  local high, low = struct.unpack('>I4I4', have, at)
  local newHigh, newLow = struct.unpack('>I4I4', ARGV[1], at)
  if newHigh < high or newHigh == high and newLow <= low then
    if string.sub(have, 9) == string.sub(ARGV[1], 9) then
      -- Written again, so that it is on disk and at replicas before that is said.
      redis.call('SET', KEYS[1], have, 'KEEPTTL')
    end
    return have
  end
elseif ARGV[3] == '1' then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('PUBLISH', ARGV[4], ARGV[5])
return 1
