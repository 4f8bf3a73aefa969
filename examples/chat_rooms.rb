# frozen_string_literal: true

# Chat rooms as actors: each is a fiber that keeps its guests to itself and is spoken to by messages. Two
# users type what is in their scripts, one line at a time, and see what is said in the room they are in.
#   ruby -Ilib examples/chat_rooms.rb
require 'polyphony'

def room
  guests = []
  loop do
    case receive
    in [:subscribe, guest]
      guests << guest
    in [:unsubscribe, guest]
      guests.delete(guest)
    in [:add_message, name, text]
      guests.each { |guest| guest.call(name, text) }
    end
  end
end

# Made when somebody asks for it first, and nobody's child but main's, so that it outlives its maker.
ROOMS = Hash.new { |rooms, name| rooms[name] = spin(name) { room }.detach }

def user(name, script)
  joined = nil
  screen = proc { |who, text| puts "#{name} sees #{who}: #{text}" }
  script.each do |line|
    sleep 0.02
    case line.split(' ', 2)
    in ['connect', where]
      joined = ROOMS[where]
      joined.send [:subscribe, screen]
    in ['disconnect']
      joined&.send [:unsubscribe, screen]
      joined = nil
    in ['send', text]
      joined&.send [:add_message, name, text]
    in _ # thinks
    end
  end
end

ann = spin { user('ann', ['send is this on?', 'connect ruby', 'send hello', '', 'disconnect', 'send unheard']) }
bob = spin { user('bob', ['connect ruby', '', '', 'send hi ann', '', 'send all alone here']) }
Fiber.await(ann, bob)
snooze until ROOMS['ruby'].mailbox.pending? # has read everything
puts "rooms: #{ROOMS.keys.join(', ')}"
