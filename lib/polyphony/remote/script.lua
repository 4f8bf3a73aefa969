-- What Polyphony::Remote does in Redis, each part in one step.
-- ARGV: the prefix of all keys, the part, the process that asks for it, then what the part takes.
--
--   process:ID           expires unless its process goes on beating
--   inbox:ID             stream: answers, and news for a process
--   sent:ID              hash: messages of a process which it does not know to have arrived, so that a second try sends nothing twice
--   mailbox:NAME         stream: messages that are not acknowledged; those that were handed out are pending in its group
--   mailbox:NAME:about   hash: capacity, policy, how many were dropped
--   mailbox:NAME:owners  hash: the processes that receive
--   mailbox:NAME:waiting sorted set: the processes that wait for room, in their order
--   mailbox:NAME:monitors set: the processes that are told when no owner is left
--   mailbox:NAME:dead    stream: messages that nobody could receive
local prefix, me = ARGV[1], ARGV[3]
local GROUP = 'polyphony'
local RETURNED = 'returned'  -- a consumer that nobody is: whoever has room takes from it
local HOUR, DAY = 3600000, 86400000
local MOST_DEAD = 10000      -- dead letters that are kept of a mailbox, or a few more
local SCAN = 200             -- pending messages that are looked at in one step

local parts = {}

local function mailbox(name) return prefix .. 'mailbox:' .. name end

local function alive(process) return redis.call('EXISTS', prefix .. 'process:' .. process) == 1 end

local function tell(process, ...)
  if not alive(process) then return false end
  redis.call('XADD', prefix .. 'inbox:' .. process, '*', ...)
  return true
end

local function named(flat)
  local all = {}
  for i = 1, #flat, 2 do all[flat[i]] = flat[i + 1] end
  return all
end

local function tell_asker(fields)
  local all = named(fields)
  if all.k == 'ask' then tell(all.s, 'k', 'dropped', 'c', all.c) end
end

local function remove(box, ...)
  local count = redis.call('XACK', box, GROUP, ...)
  redis.call('XDEL', box, ...)
  return count
end

local function capacity_of(box) return tonumber(redis.call('HGET', box .. ':about', 'capacity') or '0') end

-- As many of those who wait as there is room for.
local function let_in(box, name)
  local waiting = box .. ':waiting'
  if redis.call('ZCARD', waiting) == 0 then return end
  local capacity = capacity_of(box)
  local free = capacity == 0 and 1000 or capacity - redis.call('XLEN', box)
  for _, process in ipairs(redis.call('ZRANGE', waiting, 0, -1)) do
    if free <= 0 then return end
    if tell(process, 'k', 'room', 'n', name) then free = free - 1
    else redis.call('ZREM', waiting, process) end
  end
end

local function drop(box, entry)
  redis.call('XDEL', box, entry[1])
  redis.call('HINCRBY', box .. ':about', 'dropped', 1)
  tell_asker(entry[2])
end

local function last_handed_out(box)
  for _, flat in ipairs(redis.call('XINFO', 'GROUPS', box)) do
    local group = named(flat)
    if group.name == GROUP then return group['last-delivered-id'] end
  end
  return '0-0'
end

-- What has been handed out stays. False if that is all.
local function drop_oldest(box, capacity)
  while redis.call('XLEN', box) >= capacity do
    local oldest = redis.call('XRANGE', box, '(' .. last_handed_out(box), '+', 'COUNT', 1)[1]
    if not oldest then return false end
    drop(box, oldest)
  end
  return true
end

-- How many processes wait before this one: the next places are theirs.
local function ahead(waiting)
  local count = 0
  for _, process in ipairs(redis.call('ZRANGE', waiting, 0, -1)) do
    if process == me then return count end
    if alive(process) then count = count + 1 else redis.call('ZREM', waiting, process) end
  end
  return count
end

-- Nothing of a mailbox that is not used any more stays for ever.
local function fade(box)
  if redis.call('XLEN', box) > 0 or redis.call('HLEN', box .. ':owners') > 0 then return end
  redis.call('PEXPIRE', box, DAY)
  if redis.call('XLEN', box .. ':dead') == 0 then redis.call('PEXPIRE', box .. ':about', DAY) end
end

-- A process does not receive any more.
local function gone(box, name, reason)
  local owners = redis.call('HKEYS', box .. ':owners')
  for _, owner in ipairs(owners) do tell(owner, 'k', 'claim', 'n', name) end
  if #owners > 0 then return end
  for _, process in ipairs(redis.call('SMEMBERS', box .. ':monitors')) do
    tell(process, 'k', 'down', 'n', name, 'r', reason)
  end
  redis.call('DEL', box .. ':monitors')
  fade(box)
end

-- Processes that do not beat any more.
local function reap(box, name)
  local found = false
  for _, owner in ipairs(redis.call('HKEYS', box .. ':owners')) do
    if not alive(owner) then
      redis.call('HDEL', box .. ':owners', owner)
      found = true
    end
  end
  if found or redis.call('HLEN', box .. ':owners') == 0 then gone(box, name, 'lost') end
end

local function bury(box, name, id, deliveries, reason)
  local entry = redis.call('XRANGE', box, id, id)[1]
  if entry then
    local fields = entry[2]
    for _, value in ipairs({'id', id, 'deliveries', deliveries, 'reason', reason}) do fields[#fields + 1] = value end
    redis.call('XADD', box .. ':dead', 'MAXLEN', '~', MOST_DEAD, '*', unpack(fields))
    tell_asker(entry[2])
  end
  remove(box, id)
  let_in(box, name)
end

local function pending_of(box, consumer, most)
  local all = redis.pcall('XPENDING', box, GROUP, '-', '+', most or SCAN, consumer)
  return all.err and {} or all
end

-- One that was never received does not count as delivered.
local function give_back(box, id, deliveries, taken)
  redis.call('XCLAIM', box, GROUP, RETURNED, 0, id, 'RETRYCOUNT', taken and deliveries or deliveries - 1, 'JUSTID')
end

local function set_of(ids)
  local all = {}
  for _, id in ipairs(ids) do all[id] = true end
  return all
end

-- ---- the parts ----------------------------------------------------------------------------------

-- -> whether the process was known, and the time in milliseconds
function parts.beat(lifetime, who)
  local known = alive(me) and 1 or 0
  redis.call('SET', prefix .. 'process:' .. me, who, 'PX', lifetime)
  redis.pcall('XGROUP', 'CREATE', prefix .. 'inbox:' .. me, GROUP, '0', 'MKSTREAM')
  redis.call('PEXPIRE', prefix .. 'inbox:' .. me, HOUR)
  local time = redis.call('TIME')
  return {known, time[1] * 1000 + math.floor(time[2] / 1000)}
end

-- -> sent and the id, or wait, full, dropped and the capacity
function parts.send(name, number, capacity, policy, count, ...)
  local rest = {...}
  local fields, arrived = {unpack(rest, 1, tonumber(count))}, {unpack(rest, count + 1)}
  local sent = prefix .. 'sent:' .. me
  if #arrived > 0 then redis.call('HDEL', sent, unpack(arrived)) end
  local known = redis.call('HGET', sent, number)
  if known then return {'sent', known} end

  local box = mailbox(name)
  local about = redis.call('HMGET', box .. ':about', 'capacity', 'policy')
  capacity, policy = tonumber(about[1] or capacity), about[2] or policy
  local length = redis.call('XLEN', box)
  if length == 0 then redis.call('PERSIST', box) end
  if capacity > 0 and policy == 'wait' then
    local waiting = box .. ':waiting'
    if length + ahead(waiting) >= capacity then
      if not redis.call('ZSCORE', waiting, me) then redis.call('ZADD', waiting, redis.call('INCR', prefix .. 'turn'), me) end
      return {'wait', capacity}
    end
    redis.call('ZREM', waiting, me)
  elseif capacity > 0 and length >= capacity then
    if policy == 'error' then return {'full', capacity} end
    if policy == 'drop_newest' or not drop_oldest(box, capacity) then
      redis.call('HINCRBY', box .. ':about', 'dropped', 1)
      return {'dropped', capacity}
    end
  end
  local id = redis.call('XADD', box, '*', unpack(fields))
  redis.call('HSET', sent, number, id)
  redis.call('PEXPIRE', sent, HOUR)
  return {'sent', id}
end

-- The process does not wait for room any more.
function parts.unwait(name)
  redis.call('ZREM', mailbox(name) .. ':waiting', me)
  let_in(mailbox(name), name)
end

function parts.register(name, capacity, policy)
  local box = mailbox(name)
  redis.pcall('XGROUP', 'CREATE', box, GROUP, '0', 'MKSTREAM')
  redis.call('PERSIST', box)
  redis.call('HSET', box .. ':about', 'capacity', capacity, 'policy', policy)
  redis.call('PERSIST', box .. ':about')
  redis.call('HSET', box .. ':owners', me, 1)
  let_in(box, name)
end

-- The ids are those that were received: they have been worked on, perhaps to the end. -> how many went back
function parts.leave(name, reason, ...)
  local box, taken = mailbox(name), set_of({...})
  local count = 0
  while true do
    local pending = pending_of(box, me)
    if #pending == 0 then break end
    for _, entry in ipairs(pending) do give_back(box, entry[1], entry[4], taken[entry[1]]) end
    count = count + #pending
  end
  redis.pcall('XGROUP', 'DELCONSUMER', box, GROUP, me)
  redis.call('ZREM', box .. ':waiting', me)
  if redis.call('HDEL', box .. ':owners', me) == 1 then gone(box, name, reason) end
  return count
end

function parts.ack(name, ...)
  local count = remove(mailbox(name), ...)
  let_in(mailbox(name), name)
  return count
end

-- Some messages go back, to whoever is next.
function parts.give_back(name, taken, ...)
  local box, count = mailbox(name), 0
  for _, id in ipairs({...}) do
    local found = redis.pcall('XPENDING', box, GROUP, id, id, 1, me)
    local entry = not found.err and found[1]
    if entry then
      give_back(box, id, entry[4], taken == '1')
      count = count + 1
    end
  end
  for _, owner in ipairs(redis.call('HKEYS', box .. ':owners')) do tell(owner, 'k', 'claim', 'n', name) end
  return count
end

-- Takes what was given back, and with lost == '1' what processes have left that do not beat any more. A message that was in
-- hand twice when that happened may be the reason: it comes alone, so that others do not get a bad name with it.
-- -> whether there is more, then messages: id, how often delivered, fields
function parts.claim(name, room, alone, most, lost)
  local box, more, found = mailbox(name), 0, {}
  room, most, alone = tonumber(room), tonumber(most), alone == '1'
  redis.call('HSET', box .. ':owners', me, 1)
  if lost == '1' then reap(box, name) end
  local consumers = redis.pcall('XINFO', 'CONSUMERS', box, GROUP)
  for _, flat in ipairs(consumers.err and {} or consumers) do
    local consumer = named(flat)
    local left = consumer.name == RETURNED or (lost == '1' and consumer.name ~= me and not alive(consumer.name))
    for _, entry in ipairs(left and consumer.pending > 0 and pending_of(box, consumer.name) or {}) do
      local id, deliveries = entry[1], entry[4]
      if deliveries >= most then
        bury(box, name, id, deliveries, 'it was delivered ' .. deliveries .. ' times, and never acknowledged')
      elseif room == 0 or (alone and deliveries >= 2) then
        more = 1
      else
        local claimed = redis.call('XCLAIM', box, GROUP, me, 0, id)[1]
        if claimed then
          found[#found + 1] = {id, deliveries + 1, claimed[2]}
          room = room - 1
          alone = alone or deliveries >= 2
        end
      end
    end
    if left and consumer.name ~= RETURNED and consumer.pending == 0 then
      redis.call('XGROUP', 'DELCONSUMER', box, GROUP, consumer.name)
    end
  end
  return {more, unpack(found)}
end

-- Compares what the process has with what it should have. -> messages that it has not seen, ids that are not its own any more
function parts.sync(name, ...)
  local box, known, unseen, foreign = mailbox(name), set_of({...}), {}, {}
  local mine = {}
  for _, entry in ipairs(pending_of(box, me, 100000)) do
    mine[entry[1]] = true
    local body = not known[entry[1]] and redis.call('XRANGE', box, entry[1], entry[1])[1]
    if body then unseen[#unseen + 1] = {entry[1], entry[4], body[2]} end
  end
  for id in pairs(known) do
    if not mine[id] then foreign[#foreign + 1] = id end
  end
  return {unseen, foreign}
end

function parts.bury(name, id, deliveries, reason) bury(mailbox(name), name, id, deliveries, reason) end

function parts.dead(name, limit) return redis.call('XRANGE', mailbox(name) .. ':dead', '-', '+', 'COUNT', limit) end

-- -> how many; all without ids
function parts.revive(name, ...)
  local box, wanted, count = mailbox(name), {...}, 0
  local all = #wanted == 0
  wanted = set_of(wanted)
  for _, entry in ipairs(redis.call('XRANGE', box .. ':dead', '-', '+')) do
    local fields = named(entry[2])
    if all or wanted[fields.id] then
      redis.call('XDEL', box .. ':dead', entry[1])
      redis.call('PERSIST', box)
      redis.call('XADD', box, '*', 'k', 'tell', 'f', fields.f, 'b', fields.b, 's', fields.s)
      count = count + 1
    end
  end
  return count
end

-- -> whether somebody waits for it
function parts.reply(to, ...) return tell(to, ...) and 1 or 0 end

-- A question that nobody wants to know any more, unless it has been handed out.
function parts.withdraw(name, number)
  local id = redis.call('HGET', prefix .. 'sent:' .. me, number)
  redis.call('HDEL', prefix .. 'sent:' .. me, number)
  if not id then return 0 end
  local box = mailbox(name)
  local pending = redis.pcall('XPENDING', box, GROUP, id, id, 1)
  if not pending.err and #pending > 0 then return 0 end
  local count = redis.call('XDEL', box, id)
  let_in(box, name)
  return count
end

-- -> whether there is somebody. With again == '1' that is found out later.
function parts.monitor(name, again)
  local box = mailbox(name)
  if again == '0' and redis.call('HLEN', box .. ':owners') == 0 then return 0 end
  redis.call('SADD', box .. ':monitors', me)
  return 1
end

function parts.unmonitor(name) redis.call('SREM', mailbox(name) .. ':monitors', me) end

function parts.reap(name) reap(mailbox(name), name) end

function parts.stats(name)
  local box = mailbox(name)
  local about = redis.call('HMGET', box .. ':about', 'capacity', 'policy', 'dropped')
  local pending = redis.pcall('XPENDING', box, GROUP)
  return {redis.call('XLEN', box), pending.err and 0 or pending[1], redis.call('HLEN', box .. ':owners'), redis.call('ZCARD', box .. ':waiting'),
          tonumber(about[1] or '0'), about[2], tonumber(about[3] or '0'), redis.call('XLEN', box .. ':dead')}
end

-- What has come for the process, read or not.
function parts.letters() return redis.call('XRANGE', prefix .. 'inbox:' .. me, '-', '+') end

function parts.read(...) remove(prefix .. 'inbox:' .. me, ...) end

-- The process ends. What it has received goes back by `leave`.
function parts.part()
  for _, kind in ipairs({'process:', 'inbox:', 'sent:'}) do redis.call('DEL', prefix .. kind .. me) end
end

return parts[ARGV[2]](unpack(ARGV, 4))
