# frozen_string_literal: true

# Four readers who are slow, each with room for three messages, and a sender who sends ten at once. What
# becomes of the others is up to each mailbox: the sender waits, the oldest or the newest go, or an error.
#   ruby -Ilib examples/full_mailboxes.rb
require 'polyphony'

def slow_reader(policy, log)
  fiber = spin(:reader) do
    receive_loop do |message|
      log << message
      sleep 0.005
    end
  end
  fiber.mailbox.cap(3, policy: policy)
  fiber
end

%i[wait drop_oldest drop_newest error].each do |policy|
  log = []
  reader = slow_reader(policy, log)
  snooze until reader.mailbox.pending?
  begin
    10.times { |i| reader << i }
  rescue Polyphony::Queue::Full => e
    puts "error:       the #{e.owner.tag} has room for #{e.capacity}"
  end
  reader.mailbox.close # no more; what is there is read
  reader.await
  puts format('%-12s read %s, dropped %d', "#{policy}:", log.join(' '), reader.mailbox.dropped)
end
